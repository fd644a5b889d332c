"""Where a message on a topic goes over a tree of links, and how long that takes: a probe goes the same way.

Each node asks the algorithm as it would for a message, sends the probe over the links that a message would
take, waits for what is behind them, and answers with all of it. No client and no broker sees the probe. It
does not wait in queues, so how many messages wait there is told beside.

Clocks are not compared: a node knows when it has sent the probe and when the answer came, and the neighbour
says how long it took itself; the rest was the link's, in both directions. Event loops tell the time in whole
milliseconds, so it is that of the wall; where that is set meanwhile, the times of one trace are wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ildm.core.link.control import TRACE, TRACED, send_control
from ildm.mqtt import MalformedPacket, MqttError, validate_topic_name

if TYPE_CHECKING:
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.parts import LinkParts
    from ildm.core.transfer.ports import Neighbor

PATIENCE = 5.0
"""Seconds that the node which begins a trace waits; each next one has a tenth less."""
HOPS = 64
PENDING = 32
"""Traces at a time; what comes beyond is answered with nothing but that."""
ROWS = 500
"""Of one answer; sites beyond are left out, and it is said."""
LONGEST = 200
"""Characters of a text."""
LATEST = 60.0
"""Seconds that a round trip can have taken."""


class Hop(NamedTuple):
    """A site on the way, those behind it follow with a greater depth."""

    depth: int
    node: str
    round_trip: float | None
    """Seconds over the link that leads here, there and back; 0 of the first, None: unknown."""
    queued: int
    """Messages that wait for that link."""
    injecting: int
    """Messages that wait there for the broker."""
    note: str
    """What is wrong, or why it ends here; empty: nothing."""


class _Probe:
    """A trace that passes this node."""

    __slots__ = ("began", "done", "here", "parts", "timer", "waiting")

    def __init__(self, began: float, here: Hop, done: Callable[[list[Hop], float], None]) -> None:
        self.began = began
        self.here = here
        self.done = done
        self.waiting: dict[Neighbor, tuple[float, int]] = {}
        """When it was sent, and how many messages waited then."""
        self.parts: dict[Neighbor, list[Hop]] = {}
        self.timer: Any = None


class Tracing:
    """One per node."""

    def __init__(self, parts: LinkParts) -> None:
        self.parts = parts
        self.driver = parts.driver
        self._probes: dict[str, _Probe] = {}

    def follow(self, topic: str, done: Callable[[list[Hop]], None]) -> None:
        """Begin a trace here; ``done`` gets the sites, this one first, after ``PATIENCE`` at most."""
        name = self.driver.token(12).hex()
        self._begin(name, topic, None, PATIENCE, HOPS, lambda hops, _: done(hops))

    def came(self, link: NeighborLink, payload: bytes) -> None:
        """A neighbour asks.

        Raises:
            MalformedPacket: that cannot be understood.
        """
        match _read(payload):
            case [str(name), str(topic), float(patience), int(hops)] if (
                0 < patience <= PATIENCE and hops <= HOPS
            ):
                try:
                    validate_topic_name(topic)
                except MqttError as error:
                    raise _malformed() from error
            case _:
                raise _malformed()

        if not link.state.takes:
            self.parts.counters["link_blocked_messages"] += 1
            return

        def answer(found: list[Hop], took: float) -> None:
            rows: list[Any] = [name, took, *found[:ROWS]]
            send_control(link, TRACED, json.dumps(rows).encode())

        local = topic
        if link.rules is not None:
            way = link.rules.incoming.find(topic.encode())
            if way is None:
                answer([self._here("its rules keep that out")], 0.0)
                return
            local = way.name
        self._begin(name[:LONGEST], local, link, patience * 0.9, hops, answer)

    def answered(self, link: Neighbor, payload: bytes) -> None:
        """A neighbour has answered; an answer that nobody waits for any more is nothing.

        Raises:
            MalformedPacket: that cannot be understood.
        """
        match _read(payload):
            case [str(name), float(took), *rows] if took >= 0 and 0 < len(rows) <= ROWS:
                hops = [_hop(row) for row in rows]
            case _:
                raise _malformed()
        if hops[0].depth or any(not 0 < hop.depth <= HOPS for hop in hops[1:]):
            raise _malformed()
        probe = self._probes.get(name)
        if probe is None or link not in probe.waiting:
            return
        sent, queued = probe.waiting.pop(link)
        first = hops[0]._replace(
            round_trip=min(max(0.0, self.driver.wall() - sent - took), LATEST), queued=queued
        )
        probe.parts[link] = [hop._replace(depth=hop.depth + 1) for hop in (first, *hops[1:])]
        if not probe.waiting:
            self._end(name)

    def _begin(
        self,
        name: str,
        topic: str,
        source: Neighbor | None,
        patience: float,
        hops: int,
        done: Callable[[list[Hop], float], None],
    ) -> None:
        parts, now = self.parts, self.driver.wall()
        here = self._here()
        if name in self._probes or len(self._probes) >= PENDING or hops <= 0:
            why = "more than once on the way" if name in self._probes else "too many traces at a time"
            done([here._replace(note=why if hops > 0 else "too far away")], 0.0)
            return
        probe = self._probes[name] = _Probe(now, here, done)
        for link in dict.fromkeys(
            target for target, _, _ in parts.router.routes.route(topic.encode(), False, source)
        ):
            if link.connected:
                probe.waiting[link] = now, link.queued
                way = link.rules.outgoing.find(topic.encode()) if link.rules is not None else None
                wire = topic if way is None else way.name
                send_control(link, TRACE, json.dumps([name, wire, patience, hops - 1]).encode())
            else:
                probe.parts[link] = [_missing(link, "the link is down: what is for it waits")]
        if not probe.waiting:
            self._end(name)
        else:
            probe.timer = self.driver.call_later(patience, self._end, name)

    def _here(self, note: str = "") -> Hop:
        injector = self.parts.injector
        if not note and not any(sender.open for sender in injector.senders):
            note = "its broker is not there"
        return Hop(0, self.parts.node_id, 0.0, 0, injector.queued_messages, note)

    def _end(self, name: str) -> None:
        probe = self._probes.pop(name, None)
        if probe is None:
            return
        if probe.timer is not None:
            probe.timer.cancel()
        for link in probe.waiting:
            probe.parts[link] = [_missing(link, "no answer")]
        found = [probe.here, *(hop for part in probe.parts.values() for hop in part)]
        if len(found) > ROWS:
            found = found[:ROWS]
            found[0] = found[0]._replace(note=found[0].note or f"only {ROWS} sites are shown")
        probe.done(found, max(0.0, self.driver.wall() - probe.began))


def _missing(link: Neighbor, note: str) -> Hop:
    return Hop(1, link.node_id, None, link.queued, 0, note)


def _read(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise _malformed() from error


def _hop(row: Any) -> Hop:
    match row:
        case [int(depth), str(node), float() | None as trip, int(queued), int(injecting), str(note)]:
            round_trip = None if trip is None else min(max(0.0, trip), LATEST)
            return Hop(depth, node[:LONGEST], round_trip, queued, injecting, note[:LONGEST])
    raise _malformed()


def _malformed() -> MalformedPacket:
    return MalformedPacket("malformed trace", clause="MQTT-4.13")
