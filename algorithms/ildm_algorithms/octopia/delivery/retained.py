"""Retained messages become alike at all nodes again (thesis 5.3.3).

A retained message goes everywhere when it is published. Each HELLO carries a digest of the sender's retained
messages. If two nodes differ for a while, they compare digests of parts of their topics, and send each other
the messages of parts that differ. The timestamps of the messages tell which is the newest.

A content filter that is new at its node gets matching retained messages as ordinary ones, because the
broker has none under its topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from ildm.api import RetainedView, Stamp
from ildm.mqtt import Publish, Version, decode, topic_matches
from ildm_algorithms.exchange.fetched import Fetched
from ildm_algorithms.exchange.pacing import Pace
from ildm_algorithms.octopia.messages import Digests, Held, OverlayError
from ildm_algorithms.octopia.tables.pages import pages

if TYPE_CHECKING:
    from ildm.api import NodeApi
    from ildm_algorithms.octopia.config import OctopiaConfig
    from ildm_algorithms.octopia.delivery.copies import LocalCopies
    from ildm_algorithms.octopia.grid.members import Members

__all__ = ["RetainedSync"]

HELD_BYTES = 32_768
"""Bytes in one message with retained ones."""
AT_ONCE = 100
"""Retained messages sent at once."""
LOOKS = 500
"""Looked at at once."""
PAUSE = 0.05
"""Seconds until the next ones."""
PATIENCE = 2
"""HELLO with another digest in a row after which it is no chance: messages may be on their way."""
NEW = 10.0
"""Seconds in which a node that has started does not wait for that."""
CALM = 4.0
"""Seconds between two nodes that this one compares itself with: after the first there may be nothing left."""


class RetainedSync:
    """Compares what this node remembers with what others do.

    Args:
        copies: hands messages to local clients.
        unwritten: whether what a local client has published on a topic is not on disk yet.
    """

    def __init__(
        self,
        api: NodeApi,
        config: OctopiaConfig,
        members: Members,
        copies: LocalCopies,
        unwritten: Callable[[str], bool],
        count: Callable[..., None],
    ) -> None:
        self.api = api
        self.config = config
        self.members = members
        self.copies = copies
        self.unwritten = unwritten
        self.count = count
        self.fetched = Fetched()
        self._stamps: dict[str, Stamp] = {}
        """Of the messages, without deletions."""
        self._view = RetainedView(topic_first=True)
        """Digests of them, and the topics of deletions, too."""
        self._differ: dict[str, int] = {}
        self._sending: set[str] = set()
        """Nodes that are being sent what is retained here."""
        self._pace = Pace(api, config.query_rate)
        self._complete = False
        self._started = 0.0
        self._calm_until = 0.0

    def start(self) -> None:
        """Take up what the node remembers of an earlier run."""
        self._started = self.api.now()
        self._look(self.api.retained_topics())

    def _look(self, topics: Iterator[tuple[str, Stamp]]) -> None:
        some = list(islice(topics, LOOKS))
        for topic, _ in some:
            self.entered(topic)
        self._complete = len(some) < LOOKS
        if not self._complete:
            self.api.call_later(PAUSE, self._look, topics)

    def __len__(self) -> int:
        return len(self._stamps)

    def entered(self, topic: str) -> None:
        """The retained message of a topic has changed here."""
        self._enter(topic, self._newest(topic))

    def is_old(self, message: Publish) -> bool:
        """Whether this retained message, or a newer one of its topic, is known."""
        newest = self._newest(message.topic)
        known, stamp = Stamp.of(newest) if newest is not None else None, Stamp.of(message)
        return known is not None and stamp is not None and known >= stamp

    def _enter(self, topic: str, message: Publish | None) -> None:
        self._view.remove(topic, self._stamps.pop(topic, None))
        if message is None:
            return
        stamp = Stamp.of(message) if message.payload else None
        self._view.put(topic, stamp)
        if stamp is not None:
            self._stamps[topic] = stamp

    # what others have -------------------------------------------------------------------------------

    @property
    def digest(self) -> int:
        """Equal where the same messages are retained."""
        return int.from_bytes(self._view.digest)

    def hello(self, node_id: str, digest: int) -> None:
        """A node has sent its digest."""
        now = self.api.now()
        if digest == self.digest or not self._complete:
            self._differ.pop(node_id, None)
            return
        times = self._differ[node_id] = self._differ.get(node_id, 0) + 1
        if now < self._calm_until or (times < PATIENCE and now > self._started + NEW):
            return
        self._differ[node_id] = 0
        self._calm_until = now + CALM
        self.count("retained_compared")
        self.members.send(node_id, Digests(True, self._view.buckets()))

    def on_digests(self, sender: str, digests: Digests) -> None:
        """Another node's digests: it gets what is retained here where they differ."""
        own = self._view.buckets()
        if len(digests.buckets) != len(own):
            raise OverlayError(f"digests of {len(digests.buckets)} bytes")
        if digests.answer:
            self.members.send(sender, Digests(False, own))
        if sender in self._sending:
            return
        self._sending.add(sender)
        self._send(sender, iter(self._view.topics_that_differ(digests.buckets)))

    def _send(self, node_id: str, topics: Iterator[str]) -> None:
        """Tell a node what is retained on these topics, some at a time."""
        some = list(islice(topics, AT_ONCE))
        frames = [frame for topic in some if (frame := self._frame(topic)) is not None]
        for part in pages(frames, len, HELD_BYTES):
            self.members.send(node_id, Held(tuple(part)))
        if frames:
            self.count("retained_sent", len(some))
        if some:
            self.api.call_later(PAUSE, self._send, node_id, topics)
        else:
            self._sending.discard(node_id)

    def _frame(self, topic: str) -> bytes | None:
        """A retained message for other nodes; None: it has expired, or goes everywhere once it is on disk."""
        message = self._newest(topic)
        if message is None:
            self._enter(topic, None)
            return None
        if self.unwritten(topic):
            return None
        return replace(message, packet_id=1 if message.qos else None).encode(Version.V5)

    def on_held(self, sender: str, held: Held) -> None:
        """Retained messages of another node: those that are newer than what is known here count."""
        for frame in held.frames:
            message = decode(frame, Version.V5)
            if not isinstance(message, Publish) or not message.topic or not message.retain:
                raise OverlayError("what is held is no retained message")
            if Stamp.of(message) is None or self.is_old(message):
                continue
            if not message.payload and message.topic not in self._stamps:
                continue  # nobody needs a deletion, if there was nothing
            self.count("retained_fetched")
            self.fetched.add(message)
            self.copies.retained(message)
            self.entered(message.topic)

    # new content filters ------------------------------------------------------------------------------

    def ask(self, topic_filter: str) -> None:
        """Hand over what is retained and matches a filter with an expression, soon."""
        self._pace.add(partial(self._ask, topic_filter))

    def _ask(self, topic_filter: str) -> bool:
        _, _, inner = topic_filter.removeprefix(f"{self.config.root}/").partition("/")
        if inner and not inner.startswith("$"):
            self._hand(topic_filter, inner, iter(list(self._stamps)), 0)
        return True

    def _hand(self, topic_filter: str, inner: str, topics: Iterator[str], found: int) -> None:
        """Hand over what matches of some topics; there may be very many."""
        some = list(islice(topics, LOOKS))
        for topic in some:
            message = self._newest(topic) if topic_matches(inner, topic) else None
            if message is not None and message.payload and self.copies.held(topic_filter, message):
                found += 1
                if found == self.config.retained_answers:
                    self.count("retained_answers_cut")
                    return
        if some:
            self.api.call_later(PAUSE, self._hand, topic_filter, inner, topics, found)

    def _newest(self, topic: str) -> Publish | None:
        found = self.api.retained(topic)
        return found[-1] if found else None
