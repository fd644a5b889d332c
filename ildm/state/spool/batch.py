"""One write to the file of a segment. Carried out by any thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ildm.state.spool.disk import NO_SPACE, Disk, File
from ildm.state.spool.segments import Segment

SMALLEST = 16 << 10
"""Bytes of a segment, at least: with less the disk is full."""


@dataclass(slots=True)
class Batch:
    """One write to one file, and how it went. Carried out by any thread."""

    segment: Segment
    file: File | None
    offset: int
    data: bytes
    pieces: int
    lsn: int
    """All up to it is durable afterwards; 0: as before."""
    size: int
    """The file is made with so much room, or with what there is."""
    sync: bool
    cut: bool
    """The segment is complete: give the rest of its room back."""
    spare: str | None
    """Make a file of this name for the next segment."""
    wanted: int = 0
    """With so much room, or with what there is: then ``spare_size`` says it."""
    spare_size: int = 0
    stage: str = ""
    finished: bool = False
    error: OSError | None = None
    spare_file: File | None = None
    spare_error: OSError | None = None
    mark: Callable[[], None] | None = None
    """Writes the mark of what the segment holds then."""
    mark_error: OSError | None = None

    def fail(self, disk: Disk, stage: str, error: OSError) -> None:
        """It has failed at the first write; leave nothing of it."""
        self.stage = stage
        self.error = error
        _undo(disk, self, made=False)
        self.finished = True


def carry_out(disk: Disk, batch: Batch) -> None:
    """Do what the batch says; what fails is noted in it."""
    _carry_out(disk, batch)
    batch.finished = True


def _carry_out(disk: Disk, batch: Batch) -> None:
    made = batch.file is None
    offset = batch.offset
    try:
        batch.stage = "create"
        if batch.file is None:
            batch.file, batch.size = create(disk, batch.segment.name, batch.size, offset + len(batch.data))
        batch.stage = "write"
        write_all(batch.file, offset, batch.data)
        if batch.cut:
            batch.file.truncate(offset + len(batch.data))
        batch.stage = "sync"
        if batch.sync:
            batch.file.sync()
            if made:
                disk.sync_names()
    except OSError as error:
        batch.error = error
        _undo(disk, batch, made)
        return
    if batch.mark is not None:
        try:
            batch.mark()
        except OSError as error:
            batch.mark_error = error
    if batch.spare is not None:
        try:
            batch.spare_file, batch.spare_size = create(disk, batch.spare, batch.wanted, 0)
            if batch.sync:
                disk.sync_names()
        except OSError as error:
            batch.spare_error = error
            if batch.spare_file is not None:  # nobody knows whether it is in the directory for good
                batch.spare_file.close()
                batch.spare_file = None
                with suppress(OSError):
                    disk.remove(batch.spare)


def create(disk: Disk, name: str, size: int, needed: int) -> tuple[File, int]:
    """A file for a segment, and its room: less than wanted where the disk has less.

    Then it is half of what fits, so that there is room for the next one: only with that can this one go.

    Raises:
        OSError: as :meth:`Disk.create`.
    """
    wanted = size
    while True:
        try:
            file = disk.create(name, size)
        except OSError as error:
            if error.errno not in NO_SPACE or size // 2 < max(SMALLEST, needed):
                raise
            size //= 2
            continue
        if size < wanted and size // 2 >= max(SMALLEST, needed):
            size //= 2
            file.truncate(size)
        return file, size


def _undo(disk: Disk, batch: Batch, made: bool) -> None:
    """Leave no half of an entry; where even that fails, recovery finds it torn."""
    if batch.file is None:
        return
    with suppress(OSError):
        batch.file.truncate(batch.offset)
    if made:
        batch.file.close()
        batch.file = None
        with suppress(OSError):
            disk.remove(batch.segment.name)


def write_all(file: File, offset: int, data: bytes) -> None:
    done = 0
    while done < len(data):
        done += file.write(offset + done, data[done:] if done else data)
