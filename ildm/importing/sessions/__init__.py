"""Persistent sessions that a broker has, read from what it keeps on disk or says of itself."""
