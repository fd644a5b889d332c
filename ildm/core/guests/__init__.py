"""Clients of the members of a site that do not own it, as guests of the owner; see :mod:`ildm.core.pair`."""
