"""Sites in regions under one of the algorithms, the plugins themselves message by message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from ildm.api import Algorithm
from ildm.testing import Between, Delay, LinkModel, PluginWorld, SimNode, lognormal
from ildm_algorithms.atm_tbps import AtmTbps
from ildm_algorithms.exchange.messages import Message
from ildm_algorithms.overlay.keys import EVERYTHING
from ildm_algorithms.overlay.wire.codec import OverlayError
from ildm_algorithms.overlay.wire.messages import Cast, decode
from ildm_algorithms.sf import SubscriptionFlooding
from ildm_algorithms.sg_tbps import SgTbps
from ildm_algorithms.stla import Stla
from ildm_algorithms.tbps.keys.encoding import parse_key
from ildm_algorithms.tbps.messages import decode_payload
from ildm_algorithms.tbps.plugin import TopicBased

REGIONS = 3
DISTANCES: Mapping[str, float] = {"one place": 0.004, "three regions": 0.040}
"""Median seconds from one region to another, by the name of the case."""
NEAR = 0.004
"""The same within a region."""
PROCESSING, SENDING = 0.001, 0.0001
"""Seconds a site needs for each message that comes, and for each that it sends: the model of ATM-TBPS."""
CALM = 10.0


class Method(NamedTuple):
    """``shape``: of the tree that the operator lays, for algorithms that need one."""

    algorithm: type[Algorithm]
    shape: str = ""


METHODS: Mapping[str, Method] = {
    "SF, line": Method(SubscriptionFlooding, "line"),
    "SF, star": Method(SubscriptionFlooding, "star"),
    "SF, tree": Method(SubscriptionFlooding, "tree"),
    "SG-TBPS": Method(SgTbps),
    "ATM-TBPS": Method(AtmTbps),
    "STLA": Method(Stla),
}


def regions(nodes: int, seed: int, count: int = REGIONS) -> list[int]:
    """Of each site, drawn at random; regions are equally large."""
    found = [number % count for number in range(nodes)]
    Random(f"{seed}/regions").shuffle(found)
    return found


def copy_of(data: bytes) -> Cast | None:
    """What one site sends another, if it is a copy of what a client published."""
    try:
        message = decode(data)
    except OverlayError:
        return None  # what an algorithm adds to the overlay
    if not isinstance(message, Cast) or message.control or not message.payload:
        return None
    return message if isinstance(decode_payload(message.payload), Message) else None


class Sites:
    """A world with sites that join one after another.

    Trees are laid as well as one can: on a line region after region; in a star all to one; in a tree all
    sites of a region to one, and those of the regions to the first.
    """

    def __init__(
        self,
        method: str,
        distance: str | tuple[float, float],
        nodes: int,
        seed: int,
        qos: int = 0,
        among: int = REGIONS,
    ) -> None:
        """``distance``: a case of `DISTANCES`, or the median seconds within a region and between two."""
        self.algorithm, self.shape = METHODS[method]
        self._random = Random(f"{seed}/introducers")
        self.places = dict(enumerate(regions(nodes, seed, among)))
        seconds = (NEAR, DISTANCES[distance]) if isinstance(distance, str) else distance
        near, far = (lognormal(each, 0.1) for each in seconds)

        def between(sender: str, receiver: str) -> Delay:
            return near if self.place(sender) == self.place(receiver) else far

        model = LinkModel(delay=Between(between), processing=PROCESSING, sending=SENDING)
        self.world = PluginWorld(self.algorithm, {} if self.shape else {"qos": qos}, seed, model)
        self.world.network.classify = self._kind
        self._beside: dict[str, set[str]] = {}
        self.gone: set[str] = set()
        """Those that nobody is to rely on any more, though they may not have ended yet."""
        order = range(nodes)
        for number in sorted(order, key=self.places.__getitem__) if self.shape else order:
            self.join(number)
            self.world.run(0.2)
        self.world.run(CALM)

    @staticmethod
    def name(number: int) -> str:
        return f"n{number:04}"

    def place(self, name: str) -> int:
        """Its region."""
        return self.places[int(name[1:])]

    def join(self, number: int) -> SimNode:
        """A new site, by way of one or in its place of the tree."""
        name, region = self.name(number), self.places[number]
        options = {"locality": [f"region-{region}"]} if self.algorithm is Stla else None
        living = [node.node_id for node in self.world.alive() if node.node_id not in self.gone]
        node = self.world.add(name, options=options)
        self._beside[name] = set()
        if living:
            self._link(name, self._introducer(living, region))
        return node

    def mend(self, gone: str) -> None:
        """The operator joins the parts that a tree falls into without a site."""
        beside = sorted(self._beside.pop(gone))
        for other in beside:
            self._beside[other].discard(gone)
            self.world.unlink(other, gone)
        for other in beside[1:]:
            self._link(other, beside[0])

    def _link(self, one: str, other: str) -> None:
        self._beside[one].add(other)
        self._beside[other].add(one)
        if self.world[one].alive and self.world[other].alive:  # else it is mended in its turn
            self.world.link(one, other)

    def _introducer(self, living: Sequence[str], region: int) -> str:
        if not self.shape:
            return self._random.choice(living)
        if self.shape == "line":
            return living[-1]
        beside = [name for name in living if self.place(name) == region]
        return beside[0] if self.shape == "tree" and beside else living[0]

    def living(self) -> list[SimNode]:
        """Those to stay, in the order of their names, which is the same under all algorithms."""
        alive = (node for node in self.world.alive() if node.node_id not in self.gone)
        return sorted(alive, key=lambda node: node.node_id)

    def _kind(self, data: bytes) -> str:
        copy = copy_of(data)
        if copy is None:
            return "upkeep"
        far = copy.at and self.place(parse_key(copy.at).node_id) != self.place(copy.parent.node_id)
        return "copy to another region" if far else "copy"

    @property
    def copies(self) -> int:
        """Of published messages, so far."""
        sent = self.world.network.sent
        return sent["publish"] + sent["copy"] + sent["copy to another region"]

    @property
    def crossed(self) -> int:
        """Copies that went from region to region so far; of an overlay."""
        return self.world.network.sent["copy to another region"]

    def crossings(self, publisher: SimNode, subscribers: Iterable[SimNode]) -> int:
        """Links between regions that one message passes in a tree."""
        towards = {publisher.node_id: publisher.node_id}
        waiting = [publisher.node_id]
        while waiting:
            here = waiting.pop()
            new = self._beside[here] - towards.keys()
            towards |= dict.fromkeys(new, here)
            waiting += new
        used = set()
        for node in subscribers:
            at = node.node_id
            while at != publisher.node_id and at not in used:
                used.add(at)
                at = towards[at]
        return sum(self.place(name) != self.place(towards[name]) for name in used)

    def entries(self) -> float:
        """What a site knows of others for its routing, mean of all: different keys, filters of neighbours."""
        living = self.world.alive()
        return sum(map(_known, living)) / len(living)


def _known(node: SimNode) -> int:
    plugin: Any = node.algorithm
    if isinstance(plugin, TopicBased):
        graph, own = plugin.graph, {*plugin.graph.keys()}
        levels = [pair for key in own for pair in graph.neighbors(key)]
        found = {ref.key for pair in levels for ref in pair if ref is not None}
        found |= {ref.key for ref in graph.learned(EVERYTHING)}
        return len(found - own)
    assert isinstance(plugin, SubscriptionFlooding)
    return len(plugin.interest)
