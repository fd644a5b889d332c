"""What can go wrong when a report is written."""

from __future__ import annotations

from ildm.mqtt import IldmError


class ReportError(IldmError):
    """No report: the figures cannot be read, or what draws them is not installed."""
