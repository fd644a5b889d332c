"""Links over bad networks: do they keep to ``link.rate``, and how many bytes does a message take?

A proxy in user space is the network between two sites: delay, jitter, a rate, and loss as the pauses that
TCP makes of it. It counts what goes out of the near site. Each network is used by Mosquitto's bridge and by
a link that compresses and has a rate.

``budget``: most bytes of any ten seconds, for each byte that the rate allows in them, while more waits than
the link may carry. ``bytes``: of a message of each corpus of :mod:`ildm_bench.micro.corpora`, both ways. See
:mod:`ildm_bench.micro.link_bytes` for the bridge's topic aliases.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from ildm_bench.micro.corpora import CORPORA, Message, messages
from ildm_bench.micro.link_bytes import CountingProxy, bytes_of, has_aliases, opened, publish, with_aliases
from ildm_bench.micro.link_ways import BRIDGE
from ildm_bench.micro.measure import Column, heading, line, machine, options
from ildm_bench.testbed.delay_proxy import SEGMENT, DelayLine

QUEUE = 0.1
"""Seconds that may wait for their turn on a line with a rate; then nothing more is read."""
PAUSES = (0.2, 1.0)
"""Seconds that a lost packet holds up what follows."""
SPAN = 10.0
LASTS = 15.0
"""Seconds that a link has more to send than it may."""
SIZE = 400
BURST = 0.25


class Profile(NamedTuple):
    """A network. Times are of one way, in seconds."""

    delay: float
    jitter: float
    loss: float
    line: float | None
    """Bytes a second; None: any number."""
    rate: int
    """``link.rate.out`` of the near site."""


PROFILES = {
    "geo": Profile(0.3, 0.0, 0.01, None, 32_000),
    "lte": Profile(0.03, 0.01, 0.02, None, 125_000),
    "thin": Profile(0.1, 0.0, 0.0, 8_000.0, 7_600),
}


class Network(CountingProxy):
    """The proxy; ``gone``: when how many bytes left the near site."""

    def __init__(self, target: tuple[str, int], profile: Profile) -> None:
        super().__init__(target)
        self.profile = profile
        self.gone: list[tuple[float, int]] = []
        self._random = Random(1)

    def late(self, size: int) -> float:
        """Seconds by which a piece is later than usual."""
        profile, random = self.profile, self._random
        late = random.uniform(0.0, profile.jitter)
        for _ in range(-(-size // SEGMENT)):
            if random.random() < profile.loss:
                late += random.uniform(*PAUSES)
        return late

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, out: bool
    ) -> None:
        profile, clock = self.profile, asyncio.get_running_loop().time
        way, came, went = DelayLine(profile.delay), asyncio.Event(), asyncio.Event()
        room = None if profile.line is None else profile.line * (profile.delay + QUEUE)
        handing = asyncio.ensure_future(self._hand_on(way, writer, came, went))
        try:
            while data := await reader.read(SEGMENT):
                self.bytes += len(data)
                if out:
                    self.gone.append((clock(), len(data)))
                way.put(clock(), data, self.late(len(data)), profile.line)
                came.set()
                while room is not None and way.bytes > room:
                    went.clear()
                    await went.wait()
            while way.bytes:
                went.clear()
                await went.wait()
        finally:
            handing.cancel()

    async def _hand_on(
        self, way: DelayLine, writer: asyncio.StreamWriter, came: asyncio.Event, went: asyncio.Event
    ) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due = way.next
            if due is None:
                came.clear()
                await came.wait()
                continue
            await asyncio.sleep(max(0.0, due - clock()))
            for piece in way.take(clock()):
                if isinstance(piece, bytes):
                    writer.write(piece)
            went.set()
            await writer.drain()


def busiest(gone: Sequence[tuple[float, int]], span: float = SPAN) -> int:
    """Most bytes of any such time."""
    most = size = first = 0
    for when, more in gone:
        size += more
        while gone[first][0] <= when - span:
            size -= gone[first][1]
            first += 1
        most = max(most, size)
    return most


def noise(count: int) -> list[Message]:
    """Messages that nothing compresses."""
    random = Random(2)
    return [(f"noise/{number % 10}", random.randbytes(SIZE)) for number in range(count)]


class Found(NamedTuple):
    """Of one network."""

    budget: float
    bridge: dict[str, float]
    """Bytes of a message, by corpus."""
    link: dict[str, float]


def measured(
    profile: Profile, count: int, rate: float, corpora: Sequence[str], lasts: float = LASTS
) -> Found:
    """``count`` messages of each corpus, so many a second."""
    between = partial(Network, profile=profile)
    sums: dict[str, dict[str, float]] = {}
    budget = 0.0
    for way in (BRIDGE, "auto"):
        near = {"rate": {"out": profile.rate, "burst": BURST}}
        with opened(way, 1, 0.0, between, near) as sites:
            sums[way] = {corpus: bytes_of(sites, messages(corpus, count), rate, 1) for corpus in corpora}
            if way == BRIDGE:
                continue
            network = sites.proxy
            assert isinstance(network, Network)
            network.gone.clear()
            flood = noise(max(1, int(profile.rate * lasts / SIZE)))
            publish(sites.near, sites.far, flood, 1e6, 1, 4 * lasts + 20)
            span = min(SPAN, lasts / 1.5)
            budget = busiest(network.gone, span) / (profile.rate * span)
    return Found(budget, sums[BRIDGE], sums["auto"])


def main() -> None:
    parser = options(__doc__, seconds=5.0)
    parser.add_argument("--profiles", nargs="+", choices=PROFILES, default=list(PROFILES))
    parser.add_argument("--rate", type=float, default=10.0, help="messages of a corpus a second")
    given = parser.parse_args()
    print(machine())
    columns = [Column("budget", 8, ".3f")]
    columns += [Column(f"{corpus[:9]} {way}", 17, ".1f") for corpus in CORPORA for way in ("bridge", "link")]
    print(heading("network", 10, columns))
    count = max(1, int(given.seconds * given.rate))
    for name in given.profiles:
        print(f"{name} ...", file=sys.stderr, flush=True)
        found = measured(PROFILES[name], count, given.rate, list(CORPORA))
        values: list[float | None] = [found.budget]
        for corpus in CORPORA:
            bridge = found.bridge[corpus]
            if not has_aliases():
                bridge = with_aliases(bridge, messages(corpus, count))
            values += [bridge, found.link[corpus]]
        print(line(name, 10, columns, values), flush=True)


if __name__ == "__main__":
    main()
