"""Pairs of a broker and a node on one machine, each a small server of its own where the machine allows."""
