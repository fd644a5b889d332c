"""Plugins: found, checked and called."""
