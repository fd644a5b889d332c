"""The PUBLISH packets of one publisher, made once and sent over and over with new numbers and times."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

from ildm.mqtt import Publish, Version
from ildm_bench.load.payload import LAYOUT, MAGIC
from ildm_bench.load.scenario import Sizes

_CHANGING = struct.Struct("<Qqq")
"""Of a payload what differs from message to message: sequence number, intended time, time of sending."""
_AT = LAYOUT.size - _CHANGING.size
_ID = struct.Struct(">H")


class Frames:
    """A ring of frames that lie one behind the other, so that any run of them is one write.

    Message ``k`` is frame ``k`` modulo :attr:`count`.
    """

    def __init__(
        self,
        names: Sequence[str],
        sizes: Sizes,
        qos: int,
        version: Version,
        *,
        topic: int,
        publisher: int,
        wanted: int,
        total: int,
    ) -> None:
        """Make them.

        Args:
            names: the topic names, used in turn.
            topic: index of the topic in the scenario, for the payload, as ``publisher`` is.
            wanted: frames that are to be sent in one write, or until payload sizes repeat.
            total: messages that will be sent: more frames are of no use.
        """
        varied = sizes.min != sizes.max
        self.count = max(1, min(total, -(-wanted // len(names)) * len(names)))
        draw = random.Random(publisher)
        self.starts = [0]
        """Where each frame begins, and where the last one ends."""
        self._bodies: list[int] = []
        self._ids: list[int] = []
        self._data = bytearray()
        for index in range(self.count):
            size = draw.randint(sizes.min, sizes.max) if varied else sizes.min
            body = LAYOUT.pack(MAGIC, topic, publisher, 0, 0, 0).ljust(size, b"\0")
            packet = Publish(
                topic=names[index % len(names)], payload=body, qos=qos, packet_id=1 if qos else None
            )
            self._data += packet.encode(version)
            self.starts.append(len(self._data))
            self._bodies.append(len(self._data) - size)
            # the packet identifier stands before the payload and, in MQTT 5, the length of no properties
            self._ids.append(len(self._data) - size - (version is Version.V5) - _ID.size)
        self._view = memoryview(self._data)

    def room(self, number: int, size: int) -> int:
        """Frames from message ``number`` on that one write can have, of at most about ``size`` bytes."""
        place = number % self.count
        return max(1, min(self.count - place, size * self.count // len(self._data)))

    def one(self, number: int, intended_ns: int, sent_ns: int) -> memoryview:
        """Message ``number`` of QoS 0."""
        place = number % self.count
        _CHANGING.pack_into(self._data, self._bodies[place] + _AT, number, intended_ns, sent_ns)
        return self._view[self.starts[place] : self.starts[place + 1]]

    def run(
        self,
        number: int,
        count: int,
        intended_ns: int,
        interval_ns: int,
        sent_ns: int,
        ids: Sequence[int] = (),
    ) -> memoryview:
        """Messages from ``number`` on, not more than :meth:`room`; with packet identifiers above QoS 0.

        What is given is written over by the next call.
        """
        first = number % self.count
        data, pack = self._data, _CHANGING.pack_into
        for body in self._bodies[first : first + count]:
            pack(data, body + _AT, number, intended_ns, sent_ns)
            number += 1
            intended_ns += interval_ns
        for at, packet_id in zip(self._ids[first : first + count], ids, strict=False):
            _ID.pack_into(data, at, packet_id)
        return self._view[self.starts[first] : self.starts[first + count]]
