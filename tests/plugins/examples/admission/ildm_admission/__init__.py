"""Admission: who shows a token may subscribe to what the token is for."""
