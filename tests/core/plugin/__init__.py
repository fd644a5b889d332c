"""Plugins in nodes: loading, hooks, filters, options, and what they may call."""
