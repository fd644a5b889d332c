"""Bugs that the check has to find: each is planted into the node's code and taken out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from bench.chaos.drawing import Scale
from bench.chaos.schedule import Setting
from ildm.core.link.control import CONTROL
from ildm.core.link.session import LinkSession
from ildm.core.transfer.custody import Custody
from ildm.core.transfer.lane import Lane
from ildm.mqtt import PubAck, Publish, PubRec, Version, decode
from ildm.state.spool import FileSpool

LATE = 0.5
"""Seconds."""
RING = Setting("sf", ("a", "b", "c"), (("a", "b"), ("b", "c"), ("c", "a")), ("mosquitto",) * 3, latency=0.1)
"""One of its links is blocked, and where that is known is not known elsewhere yet."""
BUSY = Scale(publications=30, faults=3)


class Plant(NamedTuple):
    """A bug. ``breaks``: what does not hold then, any of it."""

    bug: Callable[[], Any]
    breaks: frozenset[str]
    fault: str = "mixed"
    """What is to befall the nodes for it to show."""
    scale: Scale | None = None
    setting: Setting | None = None


def _acknowledged_before_written() -> Any:
    """Nobody waits for the disk, which is written to a little later."""
    commit = FileSpool.commit

    def late(self: FileSpool) -> None:
        self._call_later(LATE, lambda: commit(self))

    return patch.multiple(FileSpool, commit=late, durable=property(lambda self: self.last))


def _reused_sequence() -> Any:
    """Numbers of messages begin anew with each life."""
    made = Custody.__init__

    def make(self: Custody, *args: Any) -> None:
        made(self, *args)
        self._next_number = 1

    return patch.object(Custody, "__init__", make)


def _forgotten_identities() -> Any:
    """What has come from neighbours is not known after a restart."""
    return patch.object(Custody, "_restore", lambda self: None)


def _forgotten_window() -> Any:
    """What was under way when a connection broke is not sent again."""
    resume = Lane.resume

    def forget(self: Lane, session_present: bool = True) -> None:
        if self.transport is not None and not self.open:
            for _ in self._window.take_all():
                pass
        resume(self, session_present)

    return patch.object(Lane, "resume", forget)


@contextmanager
def _acknowledged_while_blocked() -> Iterator[None]:
    """What comes over a link that is not part of the tree is answered, although it is not taken."""
    publish, established = LinkSession._publish, LinkSession._established

    def answer(self: LinkSession, packet: Any) -> None:
        assert self.lane is not None
        if isinstance(packet, Publish) and packet.packet_id and not packet.topic.startswith(CONTROL):
            kind = PubAck if packet.qos == 1 else PubRec
            self.lane.write(kind(packet_id=packet.packet_id).encode(Version.V5))

    def published(self: LinkSession, data: bytes, pos: int, header_end: int, end: int) -> int:
        assert self.link is not None
        if not self.link.state.takes:
            answer(self, decode(data[pos:end], Version.V5))
        return publish(self, data, pos, header_end, end)

    def came(self: LinkSession, packet: Any, frame: bytes) -> None:
        assert self.link is not None
        if not self.link.state.takes:
            answer(self, packet)
        established(self, packet, frame)

    with patch.multiple(LinkSession, _publish=published, _established=came):
        yield


def _retained_without_a_stamp() -> Any:
    """Retained messages cross without what tells which of two is newer."""
    return patch("ildm.core.transfer.router.stamped", lambda message, stamp, repeated=False: message)


PLANTS = {
    "acknowledged-before-written": Plant(_acknowledged_before_written, frozenset({"lost"}), "kill-all"),
    "reused-sequence": Plant(_reused_sequence, frozenset({"lost"}), "kill-all"),
    "forgotten-identities": Plant(_forgotten_identities, frozenset({"twice"}), "kill", BUSY),
    "forgotten-window": Plant(_forgotten_window, frozenset({"lost"}), "cut"),
    "acknowledged-while-blocked": Plant(_acknowledged_while_blocked, frozenset({"lost"}), "cut", BUSY, RING),
    "retained-without-a-stamp": Plant(
        _retained_without_a_stamp, frozenset({"stale", "retained", "twice"}), "cut"
    ),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """A context in which nodes have a bug."""
    with PLANTS[name].bug():
        yield
