"""Clients of a node, before its broker."""
