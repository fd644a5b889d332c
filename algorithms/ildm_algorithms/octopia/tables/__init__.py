"""Tables of subscriptions and advertisements, and how those of neighbours come to agree."""
