"""A disk in memory: it has no more than what was synced when the power is cut, and fails when told to."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from random import Random
from typing import Any


def _fail(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class SimFile:
    """Content as the process sees it, and as it is after a loss of power."""

    def __init__(self, disk: SimDisk, room: int) -> None:
        self.disk = disk
        self.content = bytearray(room)
        self.synced = b""
        self.changes: list[tuple[int, bytes | None]] = []
        """Since the last sync: offset and bytes, or the size it was cut to."""
        self.allocated = room
        self.failing: int | None = None
        """The errno with which every read fails."""

    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, size: int) -> bytes:
        self.disk.check("read")
        if self.failing is not None:
            raise _fail(self.failing)
        return bytes(self.content[offset : offset + size])

    def write(self, offset: int, data: bytes) -> int:
        disk = self.disk
        disk.check("write")
        end = offset + len(data)
        more = end - max(self.allocated, len(self.content))
        if more > 0 and more > disk.free:
            end -= more - disk.free
            data = data[: end - offset]
            if end <= offset:
                raise _fail(errno.ENOSPC)
        if end > len(self.content):
            self.content.extend(bytes(end - len(self.content)))
        self.content[offset:end] = data
        self.allocated = max(self.allocated, len(self.content))
        self.changes.append((offset, data))
        disk.written += len(data)
        return len(data)

    def truncate(self, size: int) -> None:
        self.disk.check("truncate")
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))
        self.allocated = size
        self.changes.append((size, None))

    def sync(self) -> None:
        disk = self.disk
        try:
            disk.check("sync")
        except OSError:
            self.changes.clear()  # the system takes its pages for clean, and may drop them
            self.dropped()
            raise
        self.synced = bytes(self.content)
        self.changes.clear()

    def dropped(self) -> None:
        """What was not synced is not going to be."""

    def close(self) -> None:
        pass

    def cut(self, random: Random) -> None:
        """Power is lost: some of the changes have reached the disk, in any order."""
        content = bytearray(self.synced)
        for offset, data in self.changes:
            if random.random() < 0.5:
                continue
            if data is None:
                del content[offset:]
                content.extend(bytes(offset - len(content)))
            else:
                part = data[: random.randrange(len(data) + 1)]
                content.extend(bytes(max(0, offset + len(part) - len(content))))
                content[offset : offset + len(part)] = part
        self.content = content
        self.synced = bytes(content)
        self.changes.clear()
        self.allocated = len(content)


class SimDisk:
    """Implements :class:`ildm.state.spool.disk.Disk`. It outlives the spools that are opened on it.

    Args:
        capacity: bytes until there is no space.
        call_later: of virtual time, for what is done beside the node; without it that is done at once.
        latency: seconds a sync takes.
    """

    def __init__(
        self,
        random: Random | None = None,
        call_later: Callable[..., Any] | None = None,
        latency: float = 0.001,
        capacity: int = 1 << 40,
    ) -> None:
        self.random = random or Random(0)
        self.call_later = call_later
        self.latency = latency
        self.capacity = capacity
        self.files: dict[str, SimFile] = {}
        self.fails: dict[str, int] = {}
        """Operation (create, open, read, write, truncate, sync, names, remove, rename): with which errno it
        fails from now on."""
        self.once: dict[str, list[int]] = {}
        """The same, for the next ones alone."""
        self.written = 0
        self._names: dict[str, SimFile] = {}
        """The directory after a loss of power."""
        self._life = 0

    # what the spool uses ------------------------------------------------------------------------

    def names(self) -> list[str]:
        self.check("names")
        return list(self.files)

    def create(self, name: str, size: int) -> SimFile:
        self.check("create")
        old = self.files.get(name)
        if size > self.free + (old.allocated if old is not None else 0):
            raise _fail(errno.ENOSPC)
        file = self.files[name] = SimFile(self, size)
        return file

    def open(self, name: str) -> SimFile:
        self.check("open")
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return self.files[name]

    def remove(self, name: str) -> None:
        self.check("remove")
        if self.files.pop(name, None) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)

    def rename(self, name: str, to: str) -> None:
        self.check("rename")
        self.files[to] = self.files.pop(name)

    def sync_names(self) -> None:
        self.check("sync")
        self._names = dict(self.files)

    def later(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        if self.call_later is None:
            work()
            done()
            return
        life = self._life
        begun = self.random.random() < 0.5  # it has reached the disk, and nobody has heard of it yet
        if begun:
            work()

        def end() -> None:
            if life != self._life:
                return
            if not begun:
                work()
            done()

        self.call_later(self.latency * self.random.uniform(0.5, 2), end)

    def token(self, size: int) -> bytes:
        return self.random.randbytes(size)

    def close(self) -> None:
        pass

    # what tests do ------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        return max(0, self.capacity - sum(max(f.allocated, len(f.content)) for f in self.files.values()))

    def check(self, operation: str) -> None:
        """Raise what this operation is to fail with."""
        once = self.once.get(operation)
        if once:
            raise _fail(once.pop(0))
        if operation in self.fails:
            raise _fail(self.fails[operation])

    def kill(self) -> None:
        """The process that uses it has ended: what was written stays, what was under way perhaps not."""
        self._life += 1

    def cut_power(self) -> None:
        """What was not synced is lost, or not, or in part."""
        self._life += 1
        names = dict(self._names)
        for name, file in self.files.items():
            if name not in names and self.random.random() < 0.5:
                names[name] = file
        for name in list(names):
            if name not in self.files and self.random.random() < 0.5:
                del names[name]
        self.files = names
        for file in names.values():
            file.cut(self.random)
        self._names = dict(names)

    def flip(self, name: str, offset: int, mask: int = 0x01) -> None:
        """Change bits of a byte, on the disk as well."""
        file = self.files[name]
        file.content[offset] ^= mask
        file.synced = bytes(file.content)

    def cut(self, name: str, size: int) -> None:
        """Lose the end of a file."""
        file = self.files[name]
        del file.content[size:]
        file.synced = bytes(file.content)
