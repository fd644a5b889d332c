"""Priorities: alarms first, bulk last and within a rate."""
