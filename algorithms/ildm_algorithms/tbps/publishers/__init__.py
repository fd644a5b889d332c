"""What publishers do: keys or aggregates for topics, suspension, sending."""
