"""Runs a limit search: measures what it asks for, keeps a journal to resume from, shows its progress."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from pydantic import ValidationError

from ildm_bench.measure.figures import Limit, Point
from ildm_bench.measure.next_limit import NextLimit
from ildm_bench.measure.procedure import Search, SearchError, SearchHeader
from ildm_bench.measure.progress import Progress


class Journal:
    """The measurements of a search in a file of JSON lines: the header first, then a `Point` in each line.

    A line counts once it ends in a newline; it is on the disk before `append` returns. Only one search at a
    time has the file, by an advisory lock. As a context manager it closes the file.

    Raises:
        SearchError: the file belongs to another search (says in what), is no journal, or is in use.
        OSError: it cannot be read or written.
    """

    def __init__(self, path: Path, header: SearchHeader) -> None:
        self.path = path
        self.points: list[Point] = []
        self.warning = ""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = path.open("a+b", buffering=0)
        try:
            self._open(header)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, point: Point) -> None:
        self._write(point.model_dump_json())

    def _open(self, header: SearchHeader) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SearchError(f"{self.path}: another search is using this journal") from error
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1
        first = header.model_dump_json()
        if not whole and not first.encode().startswith(content):
            raise SearchError(f"{self.path}: no journal of a limit search")
        if whole:
            self._read(content[:whole].splitlines(), header)
        if content[whole:]:
            self.warning = f"{self.path}: the last line is half written, ignored"
            # What is appended next has to begin a line of its own.
            self._file.truncate(whole)
        if not whole:
            self._write(first)
            directory = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def _read(self, lines: list[bytes], header: SearchHeader) -> None:
        try:
            found = SearchHeader.model_validate_json(lines[0])
        except ValidationError as error:
            raise SearchError(f"{self.path}: no journal of a limit search") from error
        if differences := header.differences(found):
            raise SearchError(f"{self.path} is of another search: {'; '.join(differences)}")
        for number, line in enumerate(lines[1:], start=2):
            try:
                self.points.append(Point.model_validate_json(line))
            except ValidationError as error:
                raise SearchError(f"{self.path}: line {number} is no measurement") from error

    def _write(self, line: str) -> None:
        data = memoryview(line.encode() + b"\n")
        while data:
            data = data[self._file.write(data) :]
        os.fsync(self._file.fileno())


def run_search(
    search: Search | NextLimit, measure: Callable[[float], Point], journal: Path, progress: Progress
) -> Limit:
    """Conduct a search to its end, from where the journal left it if there is one.

    Args:
        search: a search that has no points yet.
        measure: measures at an interval in milliseconds; its point has that very interval.
        journal: file to resume from and to write to. Whatever ends the search early, an interrupt too, leaves
            there all measurements that were finished.
        progress: where to show it.

    Returns:
        The limit, without figures: those of the run that `ildm_bench.measure.procedure.limit_point` names.

    Raises:
        SearchError: the journal is of another search, or not usable.
        Exception: what ``measure`` raises.
    """
    with Journal(journal, search.header) as kept, progress:
        if kept.warning:
            progress.note(kept.warning)
        for number, point in enumerate(kept.points, start=2):
            try:
                progress.resumed(search.record(point))
            except SearchError as error:
                raise SearchError(f"{journal}: line {number}: {error}") from error
        while (interval := search.next()) is not None:
            progress.begins(interval, search.step, search.remaining)
            try:
                point = search.record(measure(interval))
            except BaseException:
                progress.note(f"stopped; {journal} has what was measured, the same search resumes from it")
                raise
            kept.append(point)
            progress.ended(point, search.remaining)
    limit = search.outcome
    assert limit is not None  # `next` gave None
    return limit
