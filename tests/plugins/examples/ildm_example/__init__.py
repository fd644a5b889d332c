"""Plugins for ILDM, to copy and change."""
