"""Who is there: a table of all nodes, of which each node has a copy."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from pydantic import TypeAdapter

from ildm.api import Peer

from .base import TopicFilter
from .homes import digest


class Member(NamedTuple):
    """A row. Of two the later one counts: the greater life, in the same the one that is gone.

    Others may say of a node only that it is gone; one that finds itself gone begins another life.
    """

    node_id: str
    life: int
    gone: bool
    address: str
    wide: tuple[TopicFilter, ...] = ()
    """Filters of its clients which no single home can serve."""


ROW = TypeAdapter(Member)


@lru_cache(10_000)
def read(line: bytes) -> Member:
    return ROW.validate_json(line)


@lru_cache(10_000)
def written(row: Member) -> bytes:
    """A row as a line of text, the same at all nodes."""
    return ROW.dump_json(row)


class Members:
    """The table; also as lines of text, so that copies are compared without reading what both have."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows: dict[str, Member] = {}
        self.lines: set[bytes] = set()
        self.digest = 0

    def learn(self, row: Member) -> bool:
        """Take a row over; whether that was news."""
        known = self.rows.get(row.node_id)
        if (known[:3] >= row[:3]) if known else len(self.rows) >= self.most:
            return False
        for line in (written(known), written(row)) if known else (written(row),):
            self.lines ^= {line}  # the old one out, the new one in
            self.digest ^= int.from_bytes(digest(line))
        self.rows[row.node_id] = row
        return True

    def newer(self, text: bytes) -> list[Member]:
        """Rows of another table, or of some of it, that this one has not."""
        return [read(line) for line in sorted(set(text.splitlines()) - self.lines)]

    def lacking(self, text: bytes) -> bytes:
        """Lines of this table that another has not."""
        return b"\n".join(sorted(self.lines.difference(text.splitlines())))

    def peer(self, node_id: str) -> Peer:
        return Peer(node_id, self.rows[node_id].address)

    def alive(self) -> list[str]:
        """Their ids; of all if all are gone, as when the last one stops."""
        return [row.node_id for row in self.rows.values() if not row.gone] or list(self.rows)
