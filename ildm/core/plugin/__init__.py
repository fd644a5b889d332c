"""Plugins: found, checked, called, and what the node offers them."""
