"""The results the project stands for, each by one command: single brokers, patterns, link, latency, mixed."""
