"""The sending side of a session on its own: a sender, what it writes to, and whose messages it takes."""

from __future__ import annotations

from typing import Any

from ildm.core.counters import Counters
from ildm.core.node import Node
from ildm.core.transfer.back_pressure import QueueLimits
from ildm.core.transfer.batch import Batch, single
from ildm.core.transfer.receipt import Receipt
from ildm.core.transfer.sender import Sender
from ildm.mqtt import Framer, Publish, Version, decode
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.world import World


class Sink:
    """A transport that keeps what is written, write by write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def packets(self, version: Version = Version.V5) -> list[Any]:
        return [decode(frame, version) for frame in Framer().feed(b"".join(self.writes))]


class Source:
    def __init__(self) -> None:
        self.holds: set[object] = set()

    credit = (0, 0)
    ended = False

    def hold(self, reason: object) -> None:
        self.holds.add(reason)

    def overran(self) -> None:
        self.ended = True

    def release(self, reason: object) -> None:
        self.holds.discard(reason)


def make(world: World, **limits: Any) -> tuple[Sender, Counters]:
    counters = Counters()
    return Sender(WorldDriver(world, "n"), QueueLimits(**limits), counters, "link", 0), counters


def opened(sender: Sender, session_present: bool = True, **far: Any) -> Sink:
    sink = Sink()
    sender.attach(sink, **far)  # type: ignore[arg-type]
    sender.resume(session_present)
    return sink


def run_of(first: int, count: int, qos: int = 1) -> bytes:
    """Messages numbered from ``first`` on, with identifiers of another session."""
    messages = [
        Publish(topic="t", payload=b"%04d" % (first + i), qos=qos, packet_id=4711 if qos else None)
        for i in range(count)
    ]
    return b"".join(message.encode(Version.V5) for message in messages)


def like(frames: bytes, size: int) -> Batch:
    """Frames of one topic and ``size`` bytes each."""
    return Batch(frames, len(frames) // size, size)


def inject(node: Node, message: Publish) -> None:
    """Inject a message of the algorithm's."""
    node.router.inject(single(message, message.qos, node.router.expiry(message)))


def message_of(packet_id: int, qos: int = 1, size: int = 9) -> Batch:
    """One message with so many bytes."""
    frame = Publish(topic="t", payload=b"x" * (size - 8), qos=qos, packet_id=packet_id).encode(Version.V5)
    return Batch(frame, 1, len(frame))


def send_message(
    sender: Sender,
    message: Publish,
    qos: int,
    expires_at: float | None = None,
    source: Source | None = None,
    receipt: Receipt | None = None,
    priority: int = 0,
) -> None:
    sender.send(single(message, qos, expires_at), source, receipt, priority)


def send(sender: Sender, first: int, count: int, source: Source | None = None) -> None:
    frames = run_of(first, count)
    sender.send(like(frames, len(frames) // count), source)
