"""The node's own talk with its broker: injection, queries, audit, and which broker serves."""
