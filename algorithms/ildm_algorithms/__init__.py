"""Cooperation algorithms: each decides which messages cross between sites, and where to."""
