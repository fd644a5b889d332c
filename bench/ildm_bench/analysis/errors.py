"""What can be wrong with the files of a run, and with the machine that reads them."""

from __future__ import annotations

from pathlib import Path

from ildm.mqtt import IldmError


class AnalysisError(IldmError):
    """Root of what the pipeline raises on purpose."""


class NoJava(AnalysisError):  # noqa: N818 - the name says what is the matter
    """No Java that Spark accepts was found."""


class BadFile(AnalysisError):  # noqa: N818
    """A file of a run is of no use: ``path`` is the file, ``reason`` says why."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class MissingLog(BadFile):
    """A run, or a file that its manifest calls for, is not there."""


class CorruptLog(BadFile):
    """A file is empty, cut off, damaged, or belongs to nobody in the manifest."""


class WrongSchema(BadFile):
    """A column is missing or of another type. ``found`` is None where it is missing."""

    def __init__(self, path: Path, column: str, expected: str, found: str | None) -> None:
        super().__init__(path, f"column {column!r}: {expected} expected, found {found or 'no such column'}")
        self.column = column
        self.expected = expected
        self.found = found
