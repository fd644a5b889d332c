"""The benchmark system (thesis 5.5): load generator, limit search, testbed, pipeline, reports."""
