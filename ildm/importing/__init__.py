"""Configurations of other software read: what of them a node does, and what it does not."""
