"""Measuring: limit search, its procedure, the wait for a quiet machine, and the figures of a run."""
