"""A message on its way: copies, local clients, catch-up, and retained values."""
