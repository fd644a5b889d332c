"""What comes over a session of a link, taken apart: messages, acknowledgements, filters, and all else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ildm.api import Source
from ildm.core.frames import (
    DUP,
    NOT_RETAINED,
    PUBLISH,
    PUBLISH_QOS_1,
    PUBLISH_QOS_2,
    QOS,
    Run,
    Tail,
    id_offset,
    know_properties,
    packet_ids,
    publish_run,
    without_dup,
)
from ildm.core.link.admitting import Admitting
from ildm.core.link.control import DATA
from ildm.core.link.interest import LARGEST_PACKET
from ildm.core.link.slices import Slices
from ildm.core.session import BaseSession
from ildm.core.transfer.ack_runs import ACKNOWLEDGEMENTS, PUBACK, PUBREC, PUBREL, acknowledged_ids
from ildm.core.transfer.batch import may_join
from ildm.core.transfer.identity import UNKNOWN, Origin
from ildm.core.transfer.message_ids import FROM_HEAD
from ildm.mqtt import (
    PacketTooLarge,
    PacketType,
    Property,
    Publish,
    Version,
    decode,
    frame_bounds,
)

if TYPE_CHECKING:
    from ildm.core.link.compression import CompressedTransport
    from ildm.core.link.cooperation import Cooperation
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.parts import LinkParts
    from ildm.core.link.start_gate import HeldBack
    from ildm.core.transfer.inbound import Inbound
    from ildm.core.transfer.sender import Sender

RESERVED = ord("$")
"""How topics begin that are no local client's (4.7.2)."""
HELLO_LIMIT = 16384
"""Bytes of a packet in the handshake, from somebody who has not proven anything yet."""
INTEREST = b"\x82\xa2"
"""First bytes of SUBSCRIBE and UNSUBSCRIBE."""
FILTERS = "filters"
"""Why a session pauses while filters of a packet are left for later turns."""


class Reader(BaseSession):
    """A session of a link, as far as it reads. What it gathers, whoever calls :meth:`receive` sends."""

    __slots__ = (
        "_asked",
        "_coded",
        "_held_back",
        "_slices",
        "_tail",
        "cooperation",
        "inbound",
        "index",
        "link",
        "parts",
        "sender",
    )

    def __init__(self, parts: LinkParts, cooperation: Cooperation, index: int) -> None:
        super().__init__(parts.driver)
        self.parts = parts
        self.cooperation = cooperation
        self.index = index
        self.link: NeighborLink | None = None
        """The link which the session is part of, from the end of the handshake on."""
        self.sender: Sender | None = None
        self.inbound: Inbound | None = None
        self._coded: CompressedTransport | None = None
        """The transport, where what crosses is compressed."""
        self._held_back: HeldBack | None = None
        """Messages that wait as clients do after a start; None: they need not."""
        self._slices: Slices | None = None
        """Filters that were put off to a later turn; what has come behind them is kept with the tail."""
        self._asked = False
        """A turn was asked for."""
        self._tail = Tail()

    def data_received(self, data: bytes) -> None:
        raise NotImplementedError

    def take_packet(self, frame: bytes) -> None:
        """A packet that is not taken apart here. Raises: MqttError, as the decoder."""
        raise NotImplementedError

    @property
    def has_slices(self) -> bool:
        """Whether filters were put off: compiled code takes for None what it has set to None itself."""
        return self._slices is not None

    def receive(self, data: bytes) -> None:
        """Take the next bytes; none: go on with filters, or with what has been put first.

        Raises:
            MqttError: no neighbour sends that.
            TopologyError: nor that.
        """
        slices = self._slices
        if slices is not None:
            if data:
                self._tail.add(data)
                return
            if not self._take_filters(slices):
                return
        if self._tail.parts:
            joined = self._tail.join(data)
            if joined is None:
                return
            data = joined
        end_of_data = len(data)
        limit = self.parts.config.packet_size
        missing = 0
        pos = 0
        while pos < end_of_data and self.is_open:  # what follows the end of the session is not for it
            header_end, end = frame_bounds(data, pos)
            if not end:
                missing = 1
                break
            if end - pos > HELLO_LIMIT and (end - pos > limit or self.link is None):
                raise PacketTooLarge(f"packet of {end - pos} bytes on a link", clause="MQTT-3.1.2-24")
            if data[pos] in INTEREST and end - pos > LARGEST_PACKET:
                raise PacketTooLarge(f"{end - pos} bytes of filters on a link", clause="MQTT-3.1.2-24")
            if end > end_of_data:
                missing = end - end_of_data
                break
            first = data[pos]
            if self._held_back is not None and self._held_back.keeps(data, pos, header_end, end):
                pos = end
            elif first in NOT_RETAINED and self.link is not None:
                pos = self._publish(self.link, data, pos, header_end, end)
            elif first in ACKNOWLEDGEMENTS and self.link is not None:
                pos = self._acknowledged(data, pos, end, first)
            elif first in INTEREST and self.link is not None:
                self.parts.router.gathering.send()
                filters = Slices(data[pos:end], header_end - pos)
                pos = end
                if not self._take_filters(filters):
                    break
            else:
                self.parts.router.gathering.send()  # what the packet brings about comes later
                met = self.link is not None
                self.take_packet(data[pos:end])
                pos = end
                if self._coded is not None and not met and self.link is not None:
                    self.receive(self._coded.plain(data[pos:]))  # chunks, behind CONNACK
                    return
        if pos < end_of_data and self.is_open:
            self._tail.keep(data[pos:], missing)
        if slices is not None and not self.has_slices:
            self.resume(FILTERS)

    def _go_on(self) -> None:
        """Nothing has to wait any longer after the start."""
        held, self._held_back = self._held_back, None
        if held is not None and held.frames:
            self._tail.put_first(b"".join(held.frames))
            if not self.has_slices:
                self.data_received(b"")

    def _give_up_waiting(self) -> None:
        """What was put off or held back is taken no more: the neighbour will send it again."""
        if self._slices is not None:
            self._slices = None
            self._tail.clear()
        if self._held_back is not None:
            self._held_back = None
            self.cooperation.start_gate.let_go(self)

    # interest ---------------------------------------------------------------------------------

    def _take_filters(self, slices: Slices) -> bool:
        """Take some of the filters of a packet; whether these were the last. If not, nothing is read until
        they are taken."""
        link, sender = self.link, self.sender
        assert link is not None
        assert sender is not None
        answer = self.cooperation.inter_subscribed(link, slices)
        if slices.is_taken:
            self._slices = None
            sender.wire.write(answer)
            frame = slices.frame
            self.parts.dispatch.arrived(Source.LINK, self, PacketType(frame[0] >> 4), frame)
            return True
        self._slices = slices
        self.parts.counters["interest_put_off"] += 1
        self.pause(FILTERS)
        if not self._asked:
            self._asked = True
            self.driver.in_turn(self._next_filters)
        return False

    def _next_filters(self) -> None:
        self._asked = False
        if self.has_slices and self.is_open:
            self.data_received(b"")

    # messages ---------------------------------------------------------------------------------

    def _publish(self, link: NeighborLink, data: bytes, pos: int, header_end: int, end: int) -> int:
        """PUBLISH without RETAIN; returns where the next frame begins."""
        parts = self.parts
        if end - header_end > 2 and data[header_end + 2] == RESERVED:
            parts.router.gathering.send()
            if data[pos] == PUBLISH and data.startswith(DATA, header_end, end):
                self.cooperation.algorithm_data(link, data[header_end + len(DATA) : end], self.index)
            elif data[pos] == PUBLISH and data.startswith(FROM_HEAD, header_end, end):
                assert self.inbound is not None
                self.inbound.received_ids.told(data[header_end + len(FROM_HEAD) : end])
            else:
                self.take_packet(data[pos:end])
            return end
        run, expires = None, False
        if parts.dispatch.takes_link_runs:
            run = publish_run(data, pos, header_end, end, True)
            if run is None:
                run, expires = self._alone(data[pos:end], end)
        if run is None:
            self.take_packet(data[pos:end])
            return end
        run_end, size, topic, body = run
        inbound = None if data[pos] == PUBLISH else self.inbound
        ids: Sequence[int] | None = None  # of what may have come before
        if inbound is not None and data[pos] != PUBLISH_QOS_1:
            qos_2 = data[pos] & ~DUP == PUBLISH_QOS_2
            if qos_2 and link.rules is not None and link.rules.lowers(topic):
                parts.router.gathering.send()
                self.take_packet(data[pos:end])
                return end
            ids = packet_ids(data[pos + body : run_end : size], data[pos + body + 1 : run_end : size])
            if not (data[pos] & DUP or inbound.are_unreleased(ids)):
                ids = None
        origin = UNKNOWN if inbound is None else inbound.received_ids.take((run_end - pos) // size)
        frames = data[pos:run_end]
        if not link.state.takes:  # neither taken nor acknowledged
            parts.counters["link_blocked_messages"] += len(frames) // size
        elif ids is None and link.rules is None:
            parts.router.run_arrived(link, topic, frames, size, self.index, inbound, origin, expires)
        else:
            self._admit(link, topic, frames, size, ids, inbound, origin, expires)
        return run_end

    def _admit(
        self,
        link: NeighborLink,
        topic: bytes,
        frames: bytes,
        size: int,
        ids: Sequence[int] | None,
        inbound: Inbound | None,
        origin: Origin,
        expires: bool,
    ) -> None:
        """Take what is new of a run of frames, by the rules of the link.

        ``ids``: of what may have come before; None: it has not. ``expires``: it is one message, with an
        expiry interval.
        """
        router, index = self.parts.router, self.index
        new = [(0, len(frames) // size)]
        if ids is not None and inbound is not None:
            new = inbound.new_ones(ids, (frames[0] & QOS) >> 1, frames[0] & DUP != 0)
            frames = without_dup(frames, size)
        for first, count in new:
            part, its = frames[first * size : (first + count) * size], origin.at(first)
            if link.rules is None:
                router.run_arrived(link, topic, part, size, index, inbound, its, expires)
            else:
                edge = Admitting(self.parts, link, index, link.rules)
                edge.run(topic, part, size, inbound, its, expires)

    def _alone(self, frame: bytes, end: int) -> tuple[Run | None, bool]:
        """A message with properties as a run that ends at ``end``, and whether it expires; None: it has to be
        looked at."""
        message = decode(frame, Version.V5)
        assert isinstance(message, Publish)
        if not may_join(message):
            return None, False
        expires = Property.MESSAGE_EXPIRY_INTERVAL in message.properties
        if not expires:
            know_properties(frame)
        return (end, len(frame), message.topic.encode(), id_offset(frame)), expires

    def _acknowledged(self, data: bytes, pos: int, end: int, first: int) -> int:
        """PUBACK, PUBREC, PUBREL or PUBCOMP; returns where the next frame begins."""
        if first != PUBACK:
            self.parts.router.gathering.send()
        ids: Sequence[int] = ()
        if not self.parts.dispatch.looks_at_links:
            ids, run_end = acknowledged_ids(data, pos, Version.V5, first)
        if ids:
            sender, inbound = self.sender, self.inbound
            assert sender is not None
            assert inbound is not None
            if first == PUBACK:
                sender.acknowledged(ids)
            elif first == PUBREC:
                sender.received(ids)
            elif first == PUBREL:
                sender.wire.write(inbound.released(ids))
            else:
                sender.completed(ids)
            return run_end
        self.take_packet(data[pos:end])
        return end
