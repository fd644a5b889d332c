"""Local clients, the broker sessions paired with theirs, and what they want."""
