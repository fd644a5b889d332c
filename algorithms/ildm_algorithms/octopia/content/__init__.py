"""Expressions over attributes: what one covers, which of many match, and what a message carries."""
