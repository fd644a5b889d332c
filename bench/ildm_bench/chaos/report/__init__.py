"""The report of runs under faults: one page of HTML that needs nothing else, and its pictures as PNG."""

from __future__ import annotations

from pathlib import Path

from ildm_bench.chaos.outcome import Outcome

__all__ = ["write_report"]


def write_report(outcome: Outcome, directory: Path, command: str = "") -> Path:
    """Write ``report.html`` into a directory, which is made; ``command`` is what the outcome can be had by.

    Raises:
        OSError: the directory cannot be written.
    """
    from ildm_bench.chaos.report.page import page  # noqa: PLC0415 - matplotlib is slow to import

    return page(outcome, directory, command)
