"""Soak: many events in a short time instead of many hours; what grows with them shows all the same."""
