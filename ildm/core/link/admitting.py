"""What a neighbour sends, by the rules of its link: with local names, or answered and not taken."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ildm.core.frames import frames_to_qos_0
from ildm.core.transfer.batch import Batch, with_answer
from ildm.core.transfer.identity import UNKNOWN, Origin
from ildm.mqtt import Property, Publish, Version

if TYPE_CHECKING:
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.parts import LinkParts
    from ildm.core.transfer.inbound import Inbound
    from ildm.core.transfer.rules import LinkRules

    Found = tuple[Publish, Batch, Inbound | None, Origin]


class Admitting:
    """The edge of one session; ``index`` is the session's."""

    __slots__ = ("index", "link", "parts", "rules")

    def __init__(self, parts: LinkParts, link: NeighborLink, index: int, rules: LinkRules) -> None:
        self.parts = parts
        self.link = link
        self.index = index
        self.rules = rules

    def run(
        self,
        topic: bytes,
        frames: bytes,
        size: int,
        inbound: Inbound | None,
        origin: Origin,
        expires: bool = False,
    ) -> None:
        """Take a run of frames, or answer that it need not be sent again. Raises: MqttError, as the
        router."""
        count = len(frames) // size
        found = self.rules.incoming.run(topic, frames, size)
        if inbound is not None and (found is None or not found[0].qos):
            self.parts.router.gathering.send()  # what came before is answered before
            batch = Batch(frames, count, size)
            inbound.take(batch)
            inbound.settle(batch)
        if found is None:
            self._denied(count)
            return
        way, frames, size = found
        if count == 1:
            frames = with_answer(Batch(frames, 1, size), self.rules.answer_local).frames
            size = len(frames)
        if inbound is None or way.qos:
            self._arrived(way.topic, frames, size, inbound, origin, expires)
            return
        frames, size = frames_to_qos_0(frames, size)
        for first, number in self._new(origin, count):
            part = frames[first * size : (first + number) * size]
            self._arrived(way.topic, part, size, None, UNKNOWN, expires)

    def _arrived(
        self,
        topic: bytes,
        frames: bytes,
        size: int,
        inbound: Inbound | None,
        origin: Origin,
        expires: bool,
    ) -> None:
        router = self.parts.router
        router.run_arrived(self.link, topic, frames, size, self.index, inbound, origin, expires)

    def message(self, packet: Publish, batch: Batch, inbound: Inbound | None, origin: Origin) -> Found | None:
        """A message that is new and was taken, as it is here; None: it was answered, and goes no further."""
        way = self.rules.incoming.decide(packet.topic.encode())
        answered = inbound is not None and (way is None or not way.qos)
        if answered:
            assert inbound is not None
            inbound.settle(batch)
        if way is None:
            self._denied(1)
            return None
        properties = packet.properties
        answer = properties.get(Property.RESPONSE_TOPIC)
        if isinstance(answer, str):
            properties = {**properties, Property.RESPONSE_TOPIC: self.rules.answer_local(answer)}
        qos = min(packet.qos, way.qos)
        if not way.changed and qos == packet.qos and properties is packet.properties:
            return packet, batch, inbound, origin
        changed = replace(
            packet,
            topic=way.name,
            qos=qos,
            dup=False,
            packet_id=packet.packet_id if qos else None,
            properties=properties,
        )
        frame = changed.encode(Version.V5)
        renamed = Batch(frame, 1, len(frame))
        if not answered:
            if inbound is not None:
                inbound.receipt.changed(batch, renamed)
            return changed, renamed, inbound, origin
        if not self._new(origin, 1):
            return None
        return changed, renamed, None, UNKNOWN

    def _new(self, origin: Origin, count: int) -> list[tuple[int, int]]:
        """Those of messages whose handshake is over that have not come before: place and number."""
        custody = self.parts.custody
        if custody is None:
            return [(0, count)]
        return [(first, number) for first, number, _ in custody.judge(origin, count)]

    def _denied(self, count: int) -> None:
        self.parts.counters["link_denied"] += count
