"""What becomes of real messages over all sites, for a while: one node asks, all tell it what they note.

============ ================================================= ==========================================
message      says                                              answer
============ ================================================= ==========================================
``watch``    note messages on these filters for so long        ``watching``, at once, and it is passed on
``watching`` the clock of the node that answers                none
``seen``     what was noted there and beyond it                none: it is passed on to where it is asked
============ ================================================= ==========================================

A node passes ``watch`` on over all links of the cooperation, each time of two ways to it the later one is
nothing. So a tree is reached whole, and of an overlay the sites that are linked with each other as it begins.
It ends by itself at each node: the time is told in the beginning, and nobody has to say that it is over.

Clocks: ``watching`` comes back at once, so the neighbour's clock was as it says half a round trip ago. What
it tells is put on the clock of the node it tells it to, link by link; the error is less than half of all
round trips.

Topics are told to neighbours only where messages on them may cross the link, in one direction at least.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ildm.core.link.control import SEEN, WATCH, WATCHING, send_control
from ildm.core.transfer.watch import Event, Recorder, SenderWatch, Watch
from ildm.mqtt import IldmError, MalformedPacket, MqttError, validate_topic_filter

if TYPE_CHECKING:
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.parts import LinkParts
    from ildm.core.transfer.sender import Sender

LONGEST = 600.0
"""Seconds of a trace."""
MESSAGES = 1000
"""That each node notes, at most."""
ONE_IN = 1_000_000
AT_ONCE = 4
"""Traces that a node takes part in."""
FILTERS = 64
"""That one may become by the rules of links."""
HOPS = 64
TURN = 0.2
"""Seconds between two times that a node tells what it has noted."""
ROWS = 100
"""Of a ``seen``."""
TOLD = 500
"""Rows that go over a link in one turn, of all traces; the rest waits."""
PASSED_ON = 20_000
"""Rows of a trace that a node passes on, or that the asking one takes."""
GRACE = 2.0
"""Seconds after the end in which the last of it arrives."""
TEXT = 256
"""Characters of a name; of a topic ``TOPIC``."""
TOPIC = 1024
WHATS = ("received", "sent", "acknowledged")
YEARS = 1e11
"""Unix times before that are some."""


class Asked(NamedTuple):
    """What a trace is of."""

    filters: list[str]
    seconds: float
    messages: int
    one_in: int


class _Part:
    """What this node does for one trace."""

    __slots__ = ("asker", "done", "heard", "left_out", "offsets", "passed_on", "told", "until", "watch")

    def __init__(self, watch: Watch, asker: NeighborLink | None, until: float) -> None:
        self.watch = watch
        self.asker = asker
        """The link that it has come over; None: it was begun here."""
        self.until = until
        self.offsets: dict[NeighborLink, float] = {}
        """By how much the clocks of neighbours are ahead; without an answer they are not there."""
        self.told: dict[NeighborLink, float] = {}
        """When neighbours were asked."""
        self.heard: list[Event] = []
        """Of nodes beyond this one, to be passed on, on this node's clock."""
        self.passed_on = 0
        self.left_out = 0
        self.done: Callable[[list[Event], int, bool], None] | None = None


class Watching:
    """One per node."""

    def __init__(self, parts: LinkParts, links: list[NeighborLink]) -> None:
        """``links``: those of the cooperation, as they are at any time."""
        self.parts = parts
        self.driver = parts.driver
        self.recorder = Recorder(parts.driver, parts.node_id)
        self._links = links
        self._parts: dict[str, _Part] = {}
        self._senders: list[Sender] = []
        """That are looked at."""
        self._timer: Any = None

    def begin(self, asked: Asked, told: Callable[[list[Event], int, bool], None]) -> str:
        """Begin a trace here; answers its name, for :meth:`end`.

        Args:
            told: called several times a second with what was noted since, at all nodes, on this node's
                clock, how many were left out, and with True when that was the last.

        Raises:
            IldmError: there are too many.
        """
        if len(self._parts) >= AT_ONCE:
            raise IldmError(f"{AT_ONCE} traces of messages are under way at this node")
        name = self.driver.token(12).hex()
        part = self._take_part(name, asked, self.driver.token(16), None)
        part.done = told
        self._ask_on(name, asked, HOPS, None)
        return name

    def end(self, name: str) -> None:
        """Stop it here before its time, without another word; other nodes stop when that comes."""
        part = self._parts.pop(name, None)
        if part is not None:
            self._attend()

    def stop(self) -> None:
        """The node stops."""
        self._parts.clear()
        self._attend()

    # what neighbours say ------------------------------------------------------------------------

    def came(self, link: NeighborLink, payload: bytes) -> None:
        """A neighbour asks. Raises: MalformedPacket."""
        match _read(payload):
            case [
                str(name), str(key), float() | int() as seconds, int(messages), int(one_in), int(hops),
                [str(), *_] as filters,
            ] if (
                len(name) <= TEXT and len(key) == 32 and 0 < seconds <= LONGEST and 0 < messages <= MESSAGES
                and 0 < one_in <= ONE_IN and hops <= HOPS and len(filters) <= FILTERS
            ):  # fmt: skip
                try:
                    for each in filters:
                        validate_topic_filter(each)
                    secret = bytes.fromhex(key)
                except (MqttError, ValueError, TypeError, AttributeError) as error:
                    raise _malformed() from error
            case _:
                raise _malformed()
        if not link.state.takes:
            self.parts.counters["link_blocked_messages"] += 1
            return
        if name in self._parts or len(self._parts) >= AT_ONCE or hops <= 0:
            self.parts.counters["traces_refused"] += name not in self._parts
            return
        here = filters if link.rules is None else link.rules.filters_here(filters)[:FILTERS]
        send_control(link, WATCHING, json.dumps([name, self.driver.wall()]).encode())
        if not here:
            return
        asked = Asked(here, float(seconds), messages, one_in)
        self._take_part(name, asked, secret, link)
        self._ask_on(name, asked, hops - 1, link)

    def answered(self, link: NeighborLink, payload: bytes) -> None:
        """A neighbour takes part. Raises: MalformedPacket."""
        match _read(payload):
            case [str(name), float(wall)] if 0 <= wall < YEARS:
                pass
            case _:
                raise _malformed()
        part = self._parts.get(name)
        if part is None or link not in part.told:
            return
        sent = part.told.pop(link)
        part.offsets[link] = wall - (sent + self.driver.wall()) / 2

    def seen(self, link: NeighborLink, payload: bytes) -> None:
        """A neighbour tells what was noted. Raises: MalformedPacket."""
        match _read(payload):
            case [str(name), int(left_out), *rows] if left_out >= 0 and len(rows) <= ROWS:
                events = [_event(row) for row in rows]
            case _:
                raise _malformed()
        part = self._parts.get(name)
        if part is None or link not in part.offsets:
            return
        part.left_out += left_out
        room = PASSED_ON - part.passed_on
        part.left_out += max(0, len(events) - room)
        events = events[:room]
        part.passed_on += len(events)
        offset = part.offsets[link]
        part.heard += [each._replace(at=each.at - offset) for each in events]

    # taking part ----------------------------------------------------------------------------------

    def _take_part(self, name: str, asked: Asked, key: bytes, asker: NeighborLink | None) -> _Part:
        restricted = asker is not None and (asker.rules is not None or asker.scope is not None)

        def crosses(topic: str) -> bool:
            return not restricted or (asker is not None and asker.wire_name(topic) is not None)

        watch = Watch(asked.filters, key, asked.messages, asked.one_in, crosses)
        part = self._parts[name] = _Part(watch, asker, self.driver.now() + asked.seconds)
        self.parts.counters["traces_begun"] += 1
        self._attend()
        return part

    def _ask_on(self, name: str, asked: Asked, hops: int, source: NeighborLink | None) -> None:
        part = self._parts[name]
        left = max(0.001, part.until - self.driver.now())
        for link in self._links:
            if link is source or not link.connected:
                continue
            filters = asked.filters if link.rules is None else link.rules.filters_there(asked.filters)
            if filters:
                row = [
                    name,
                    part.watch.key.hex(),
                    left,
                    asked.messages,
                    asked.one_in,
                    hops,
                    filters[:FILTERS],
                ]
                part.told[link] = self.driver.wall()
                send_control(link, WATCH, json.dumps(row).encode())

    def _attend(self) -> None:
        """Look at messages as long as somebody asks for it, and no longer."""
        watches = [part.watch for part in self._parts.values() if self.driver.now() < part.until]
        self.recorder.watches[:] = watches
        self.parts.router.recorder = self.recorder if watches else None
        if watches:
            self._watch_senders("", self.parts.injector.senders)
            for link in self._links:
                self._watch_senders(link.node_id, link.senders)
        else:
            for sender in self._senders:
                sender.wire.watch = None
            self._senders.clear()
        if self._parts and self._timer is None:
            self._timer = self.driver.call_later(TURN, self._turn)
        elif not self._parts and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch_senders(self, peer: str, senders: list[Sender]) -> None:
        for sender in senders:
            if sender.wire.watch is None:
                sender.wire.watch = SenderWatch(self.recorder, peer)
                self._senders.append(sender)

    def _turn(self) -> None:
        self._timer = None
        now = self.driver.now()
        for name, part in list(self._parts.items()):
            over = now >= part.until + (GRACE if part.asker is None else GRACE / 2)
            self._tell(name, part, over)
            if over:
                del self._parts[name]
        self._attend()

    def _tell(self, name: str, part: _Part, over: bool) -> None:
        watch = part.watch
        events, watch.events = part.heard + watch.events, []
        left_out, watch.left_out, part.left_out = watch.left_out + part.left_out, 0, 0
        part.heard = []
        if part.asker is None:
            if part.done is not None:
                part.done(events, left_out, over)
            return
        link = part.asker
        if not link.connected or link not in self._links:
            self.parts.counters["trace_events_dropped"] += len(events)
            return
        part.heard = events[TOLD:]  # they go first in the next turn
        events = events[:TOLD]
        for first in range(0, max(len(events), 1 if left_out else 0), ROWS):
            rows = [_row(each) for each in events[first : first + ROWS]]
            send_control(link, SEEN, json.dumps([name, left_out, *rows]).encode())
            left_out = 0


def _row(event: Event) -> list[Any]:
    return list(event._replace(topic=event.topic[:TOPIC]))


def _event(row: Any) -> Event:
    match row:
        case [float(at), str(node), str(what), str(peer), str(key), str(topic), int(size), int(qos)] if (
            0 <= at < YEARS and what in WHATS and size >= 0 and qos in (0, 1, 2)
        ):
            return Event(at, node[:TEXT], what, peer[:TEXT], key[:TEXT], topic[:TOPIC], size, qos)
    raise _malformed()


def _read(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise _malformed() from error


def _malformed() -> MalformedPacket:
    return MalformedPacket("malformed trace of messages", clause="MQTT-4.13")
