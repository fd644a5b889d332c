"""What becomes of real messages on some topics, noted at one node for a while: received, sent, acknowledged.

Messages are not changed for it, and nothing of them leaves the node but topic, size and QoS: that two nodes
mean the same one is known by a digest of the payload, with a key that is made for each trace. Messages
of the same payload are told apart by their order.

While nobody looks, a router and a sender have None in the place of what is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, NamedTuple

from ildm.mqtt import MalformedPacket, Publish, PublishView, Version, topic_matches

if TYPE_CHECKING:
    from ildm.core.driver import Driver

KEY = 8
"""Bytes of a digest."""
DIGESTED = 64 << 10
"""Bytes of a payload that are looked at, beside its length."""
EVENTS = 64
"""Of a message that a node notes, on the average of all."""
REMEMBERED = 4096
"""Topics of which a watch remembers whether it wants them."""
LOCAL = ""
"""Stands for the local side, in the place of a neighbour: the client, or the broker."""
What = Literal["received", "sent", "acknowledged"]


class Event(NamedTuple):
    """Something that has happened to a message at a node."""

    at: float
    """Unix time, by the clock of the node that tells it."""
    node: str
    what: str
    """``received``, ``sent`` or ``acknowledged``."""
    peer: str
    """By whom, to whom, or from whom: a node; empty: a local client, or the local broker."""
    key: str
    """Digest of the payload, hexadecimal."""
    topic: str
    """By its name at that node."""
    size: int
    """Bytes of the payload."""
    qos: int


class Watch:
    """One trace as far as it concerns this node.

    Args:
        filters: by the names of this node.
        crosses: whether the asking side may know of a topic.
        messages: so many are noted; then only what becomes of these.
        one_in: of so many messages one is noted, the same one at all nodes.
    """

    def __init__(
        self,
        filters: Iterable[str],
        key: bytes,
        messages: int,
        one_in: int,
        crosses: Callable[[str], bool] = lambda topic: True,
    ) -> None:
        self.filters = tuple(filters)
        self.key = key
        self.messages = messages
        self.one_in = one_in
        self.events: list[Event] = []
        """Not told yet."""
        self.left_out = 0
        """Events of which there were too many."""
        self._crosses = crosses
        self._topics: dict[bytes, str | None] = {}
        self._known: dict[str, int] = {}
        """How many messages of each key are noted."""
        self._number = 0
        """Of all these."""
        self._at: dict[tuple[str, str, str], int] = {}
        """Of how many of a key something was noted, with what and with whom."""
        self._room = EVENTS * messages

    def wants(self, topic: bytes) -> str | None:
        """The topic as text, if messages on it are noted."""
        try:
            return self._topics[topic]
        except KeyError:
            name = topic.decode("utf-8", "replace")
            wanted = any(topic_matches(each, name) for each in self.filters) and self._crosses(name)
            if len(self._topics) >= REMEMBERED:
                self._topics.clear()
            self._topics[topic] = found = name if wanted else None
            return found

    def digest(self, payload: bytes, what: What, peer: str) -> str | None:
        """The key of a message, if it is one of those that are noted.

        Of the same payload it is the second one of which something happens with ``peer`` for the second time.
        """
        made = blake2b(payload[:DIGESTED], digest_size=KEY, key=self.key)
        if len(payload) > DIGESTED:
            made.update(len(payload).to_bytes(8))
        key = made.hexdigest()
        if int(key[:8], 16) % self.one_in:
            return None
        place = (key, what, peer)
        which = self._at.get(place, 0) + 1
        if which > self._known.get(key, 0):
            if self._number >= self.messages:
                self.left_out += 1
                return None
            self._known[key] = which
            self._number += 1
        self._at[place] = which
        return key

    def note(self, event: Event) -> None:
        if self._room <= 0:
            self.left_out += 1
            return
        self._room -= 1
        self.events.append(event)


class Recorder:
    """What all watches of a node note; one per node."""

    def __init__(self, driver: Driver, node_id: str) -> None:
        self.driver = driver
        self.node_id = node_id
        self.watches: list[Watch] = []

    def run(self, what: What, peer: str, frames: bytes, size: int) -> list[tuple[int, Watch, Event]]:
        """Note a run of frames of MQTT 5; answers what was noted, each with its place in the run."""
        noted = []
        topic = PublishView(frames[:size], Version.V5).topic_bytes
        for watch in self.watches:
            name = watch.wants(topic)
            if name is None:
                continue
            for place in range(len(frames) // size):
                view = PublishView(frames[place * size : (place + 1) * size], Version.V5)
                try:
                    event = self._note(watch, what, peer, name, view.payload, view.qos)
                except MalformedPacket:
                    continue  # whoever forwards it will say so
                if event is not None:
                    noted.append((place, watch, event))
        return noted

    def message(self, what: What, peer: str, message: Publish) -> list[tuple[int, Watch, Event]]:
        """The same of one message."""
        noted = []
        topic = message.topic.encode()
        for watch in self.watches:
            name = watch.wants(topic)
            if name is not None:
                event = self._note(watch, what, peer, name, message.payload, message.qos)
                if event is not None:
                    noted.append((0, watch, event))
        return noted

    def _note(
        self, watch: Watch, what: What, peer: str, topic: str, payload: bytes, qos: int
    ) -> Event | None:
        key = watch.digest(payload, what, peer)
        if key is None:
            return None
        event = Event(self.driver.wall(), self.node_id, what, peer, key, topic, len(payload), qos)
        watch.note(event)
        return event


class SenderWatch:
    """What a sender tells of: what it writes to ``peer``, and what is acknowledged of that."""

    __slots__ = ("_under_way", "peer", "recorder")

    def __init__(self, recorder: Recorder, peer: str) -> None:
        self.recorder = recorder
        self.peer = peer
        self._under_way: dict[int, list[tuple[Watch, Event]]] = {}
        """By packet identifier; so never more than the window has."""

    def wrote_run(self, frames: bytes, size: int, first_id: int) -> None:
        """``first_id`` of a run of QoS 1, whose identifiers are consecutive; 0: of QoS 0."""
        if first_id:
            for place in range(len(frames) // size):
                self._under_way.pop(first_id + place, None)
        for place, watch, event in self.recorder.run("sent", self.peer, frames, size):
            if first_id:
                self._under_way.setdefault(first_id + place, []).append((watch, event))

    def acknowledged(self, packet_ids: Iterable[int]) -> None:
        if not self._under_way:
            return
        now = self.recorder.driver.wall()
        for packet_id in packet_ids:
            for watch, event in self._under_way.pop(packet_id, ()):
                if watch in self.recorder.watches:
                    watch.note(event._replace(at=now, what="acknowledged"))
