"""The manual pages."""
