"""The load generator (thesis 5.5.3): open loop, any number of processes, logs in Parquet."""
