"""A link that was away for an hour: how old is an alarm at the far site while the backlog crosses?

The networks are those of :mod:`ildm_bench.micro.link_rates`. The link is cut, and the near site takes as many
readings as cross in ``--hours`` at ``link.rate``. Once the link is back and the backlog crosses, an alarm is
sent each second. Then new readings come, more than the rate allows, and the backlog's part is counted.

``in order``: a link without classes. ``classes``: alarms have a priority, and readings are a class with
``backlog: after_live``. ``bound``: two round trips, and twice the burst.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from ildm.mqtt import Publish, Version, decode
from ildm_bench.micro.link_bytes import Client, opened
from ildm_bench.micro.link_rates import BURST, PROFILES, SIZE, Network, Profile, noise
from ildm_bench.micro.measure import Column, heading, line, machine, options

OLD, NEW, ALARM = b"old ", b"new ", b"alrm"
SHARE = 0.3
HOUR = 3600.0
OVERHEAD = 40
"""Bytes of a reading on the link beside its payload, about."""
ALARMS = 10
SETTLED = 5.0
"""Seconds that the backlog has crossed when it is looked at."""
IN_ORDER, CLASSES = "in order", "classes"
WAYS: dict[str, dict[str, Any]] = {
    IN_ORDER: {},
    CLASSES: {
        "backlog": SHARE,
        "classes": [
            {"topics": ["alarm/#"], "priority": 7},
            {"topics": ["noise/#"], "backlog": "after_live"},
        ],
    },
}


class Arrival(NamedTuple):
    """A message at the far broker: its kind, when it was sent and came, on one monotonic clock."""

    kind: bytes
    sent: float
    came: float


class Outage(Network):
    """A network that can be cut."""

    def __init__(self, target: tuple[str, int], profile: Profile) -> None:
        super().__init__(target, profile)
        self.down = False
        self._writers: list[asyncio.StreamWriter] = []

    def cut(self) -> None:
        """Nobody gets through, and the connections there are end."""
        self.down = True
        self._loop.call_soon_threadsafe(self._end_all)

    def _end_all(self) -> None:
        for writer in self._writers:
            writer.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.down:
            writer.close()
            return
        self._writers.append(writer)
        await super()._accepted(reader, writer)
        self._writers.remove(writer)


class Reader(Client):
    """Notes each message."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.arrivals: list[Arrival] = []
        super().__init__(address, "reader", "#")

    def _read(self) -> None:
        while data := self.socket.recv(1 << 18):
            now = time.monotonic()
            for frame in self._framer.feed(data):
                packet = decode(frame, Version.V311)
                if isinstance(packet, Publish) and len(packet.payload) >= 12:
                    kind, sent = struct.unpack_from("<4sd", packet.payload)
                    self.arrivals.append(Arrival(kind, sent, now))

    def of(self, kind: bytes) -> list[Arrival]:
        return [each for each in self.arrivals if each.kind == kind]


def frames_of(kind: bytes, messages: Iterable[tuple[str, bytes]]) -> Iterable[bytes]:
    """Messages of QoS 1 with the time at which they are made."""
    for number, (topic, payload) in enumerate(messages):
        head = struct.pack("<4sd", kind, time.monotonic())
        yield Publish(topic=topic, payload=head + payload[12:], qos=1, packet_id=number % 65_535 + 1).encode(
            Version.V311
        )


class Found(NamedTuple):
    """Of one way over one network; times in seconds."""

    alarm: float
    """Median age of an alarm."""
    oldest: float
    """The oldest."""
    share: float
    """Part of the backlog in what comes while newer readings wait."""


def measured(profile: Profile, way: str, hours: float, lasts: float) -> Found:
    """``lasts``: seconds for which new readings come."""
    near = {"rate": {"out": profile.rate, "burst": BURST}, **WAYS[way]}
    count = max(1, int(profile.rate * HOUR * hours / (SIZE + OVERHEAD)))
    with opened("off", 1, 0.0, partial(Outage, profile=profile), near) as sites:
        assert isinstance(sites.proxy, Outage)
        reader, client = Reader(sites.far), Client(sites.near, "near")
        try:
            sites.proxy.cut()
            time.sleep(0.5)
            for frame in frames_of(OLD, noise(count)):
                client.socket.sendall(frame)
            sites.proxy.down = False
            _wait(lambda: len(reader.of(OLD)) > 0, 90.0, "nothing of the backlog has come")
            time.sleep(SETTLED)
            return _found(profile, reader, client, lasts)
        finally:
            client.close()
            reader.close()


def _found(profile: Profile, reader: Reader, client: Client, lasts: float) -> Found:
    began = time.monotonic()
    for number in range(ALARMS):
        for frame in frames_of(ALARM, [("alarm/fire", bytes(32))]):
            client.socket.sendall(frame)
        time.sleep(max(0.0, began + number + 1 - time.monotonic()))
    before = len(reader.arrivals)
    ended = threading.Event()

    def flood() -> None:
        readings = noise(int(2 * profile.rate * lasts / SIZE))
        for number, frame in enumerate(frames_of(NEW, readings)):
            if ended.wait(max(0.0, began + ALARMS + number * lasts / len(readings) - time.monotonic())):
                return
            client.socket.sendall(frame)

    thread = threading.Thread(target=flood)
    thread.start()
    time.sleep(lasts)
    ended.set()
    thread.join()
    came = reader.arrivals[before:]
    first = next((place for place, each in enumerate(came) if each.kind == NEW), len(came))
    both = [each for each in came[first:] if each.kind != ALARM]
    share = sum(each.kind == OLD for each in both) / len(both) if both else 1.0
    ages = sorted(each.came - each.sent for each in reader.of(ALARM))
    ages += [time.monotonic() - began] * (ALARMS - len(ages))  # at least
    return Found(ages[len(ages) // 2], ages[-1], share)


def _wait(done: Callable[[], bool], seconds: float, what: str) -> None:
    give_up = time.monotonic() + seconds
    while not done():
        if time.monotonic() > give_up:
            raise TimeoutError(what)
        time.sleep(0.02)


def bound(profile: Profile) -> float:
    """Age that an alarm may have."""
    return 4 * profile.delay + 2 * BURST


def main() -> None:
    parser = options(__doc__, seconds=30.0)
    parser.add_argument("--profiles", nargs="+", choices=PROFILES, default=list(PROFILES))
    parser.add_argument("--hours", type=float, default=1.0, help="of backlog")
    given = parser.parse_args()
    print(machine())
    columns = [
        Column("alarm s", 9, ".2f"),
        Column("oldest", 9, ".2f"),
        Column("bound", 9, ".2f"),
        Column("share", 9, ".2f"),
    ]
    print(heading("network, way", 20, columns))
    for name in given.profiles:
        for way in WAYS:
            print(f"{name}, {way} ...", file=sys.stderr, flush=True)
            found = measured(PROFILES[name], way, given.hours, given.seconds)
            values = [found.alarm, found.oldest, bound(PROFILES[name]), found.share]
            print(line(f"{name}, {way}", 20, columns, values), flush=True)


if __name__ == "__main__":
    main()
