"""Real processes for tests: brokers of several makes, a client, and what ends them whatever happens."""
