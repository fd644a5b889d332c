"""Skip Graph: an overlay that keeps keys sorted and answers range queries (thesis 2.2.4, 2.2.5, 4.1)."""
