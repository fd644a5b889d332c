"""The data pipeline: PySpark jobs that turn the logs of runs into figures, and the reports of them."""
