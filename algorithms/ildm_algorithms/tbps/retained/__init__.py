"""Retained messages without flooding."""
