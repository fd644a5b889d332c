"""Benchmarks: what is measured here is never asserted in tests."""
