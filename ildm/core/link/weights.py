"""Weights of links: how long a message takes over each, as nodes tell each other.

A node says in its *word* what its links weigh. Words are flooded like advertisements of the topology, over
links that have the feature ``weights``, and kept apart from them. A word is an advertisement in form, with a
weight in the place of each age. The end of a link with the smaller node id measures: it says a quarter of a
doubling of the round-trip time for each step, with its own ``cost`` of the link added. The other end adds its
cost, if it has one. So nothing has to be agreed.

Weights count only while a word of each reachable node is known, of its present life; else ages alone decide.
A node that is older than this, or has ``link.tree: age``, says no word. So all nodes decide alike with it.

A word changes rarely, because each change may move links:

==================== ============================================================================
the link has become
==================== ============================================================================
slower by a doubling said after a sixtieth of ``link.weight_hold``: messages suffer meanwhile
otherwise different  by two steps or more, for ``link.weight_hold``; not within twice that after
                     the last change
==================== ============================================================================

A delay that jumps to and fro is therefore said once when it is high, and not before it stays low.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ildm.core.link.control import WEIGHT, send_control
from ildm.core.link.topology import MAX_NUMBER, Advertisement, Topology, TopologyError, after

if TYPE_CHECKING:
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.parts import LinkParts

FEATURE = "weights"
FLOOR = 0.002
"""Seconds of a round trip that weigh nothing: below it a busy machine changes more than another path."""
STEPS = 4
"""Steps for each doubling."""
CHANGE = 2
"""Steps that are a change at all."""
SAMPLED = 200
"""So many samples are taken in ``link.weight_hold``."""
URGENT = 60
"""A link that has become slower by a doubling is said to be so after this part of ``link.weight_hold``."""
REST = 4
"""So many settling times without news weights are taken up as they are then."""
UNREST = 20
"""So many settling times after the first news they are taken up even so."""


def steps(rtt: float) -> int:
    """The weight of a round-trip time."""
    return 0 if rtt <= FLOOR else round(STEPS * math.log2(rtt / FLOOR))


def seconds(weight: int) -> float:
    """One way over a link of a weight, as far as that tells; a cost counts as time."""
    return FLOOR / 2 * 2.0 ** (weight / STEPS) if weight > 0 else 0.0


class Said:
    """What this node says of one link, and since when that is not so any more."""

    __slots__ = ("at", "since", "slower_since", "weight")

    def __init__(self, weight: int, at: float) -> None:
        self.weight = weight
        self.at = at
        self.since: float | None = None
        self.slower_since: float | None = None

    def look(self, weight: int, now: float, hold: float) -> bool:
        """Whether the weight measured now is to be said."""
        if abs(weight - self.weight) < CHANGE:
            self.since = self.slower_since = None
            return False
        if self.since is None:
            self.since = now
        if weight - self.weight < STEPS:
            self.slower_since = None
        elif self.slower_since is None:
            self.slower_since = now
        if self.slower_since is not None and now - self.slower_since >= hold / URGENT:
            return True
        return now - self.since >= hold and now - self.at >= 2 * hold


class Weights:
    """The words that one node knows, and its own.

    Args:
        links: all links of the node, by the neighbour's id.
        changed: the topology has other weights; with the forest before.
    """

    def __init__(
        self,
        parts: LinkParts,
        links: Mapping[str, NeighborLink],
        topology: Topology,
        changed: Callable[[frozenset[tuple[str, str]]], None],
    ) -> None:
        self.parts = parts
        self.driver = parts.driver
        self.config = parts.config
        self.links = links
        self.topology = topology
        self.changed = changed
        self.node = parts.node_id
        self._words: dict[str, Advertisement] = {}
        self._said: dict[str, Said] = {}
        self._adopted = False
        """What an earlier life of this node has said is taken over: measuring goes on from there."""
        self._due: dict[NeighborLink, None] = {}
        """Links that are measured again as soon as they have answered."""
        self._claimed = (0, 0)
        """The number that the next word has at least."""
        self._timer: Any = None
        self._resting: Any = None
        self._unrest_since = 0.0

    @property
    def words(self) -> int:
        """Nodes whose word is known."""
        return len(self._words)

    def start(self) -> None:
        if self.config.tree == "delay":
            self._tick()

    def stop(self) -> None:
        for timer in (self._timer, self._resting):
            if timer is not None:
                timer.cancel()
        self._timer = self._resting = None

    # what this node says --------------------------------------------------------------------------

    def _tick(self) -> None:
        period = min(self.config.keep_alive, self.config.weight_hold / SAMPLED)
        self._timer = self.driver.call_later(period, self._tick)
        for link in list(self.links.values()):  # a ping may find that a session has ended
            if link.control is not None and self.node < link.node_id:
                if link.round_trip.pending:
                    self._due[link] = None
                else:
                    link.control.ping()
        self._say()

    def measured(self, link: NeighborLink) -> None:
        """A neighbour has answered."""
        if self._timer is None:
            return
        if link in self._due and link.control is not None:
            del self._due[link]
            link.control.ping()
        if link.node_id not in self._said:
            self._say()

    def forgotten(self, link: NeighborLink) -> None:
        self._due.pop(link, None)

    def _say(self) -> None:
        """Flood this node's word, if it has changed."""
        known = self._words.get(self.node)
        weights = self._measured()
        lowest = max(self._claimed, (self.topology.own.boot, 0))
        if known is not None and known[1:3] >= lowest:
            if known.links == weights:
                return
            lowest = after(known.boot, known.sequence)
        word = Advertisement(self.node, *lowest, weights)
        self._words[self.node] = word
        self._flood(word, None)
        self.unrest()

    def _measured(self) -> dict[str, int]:
        now, hold = self.driver.now(), self.config.weight_hold
        for node in [n for n in self._said if n not in self.links and not self.topology.knows(n)]:
            del self._said[node]
        for node, link in self.links.items():
            weight = self._weight(link)
            said = self._said.get(node)
            if weight is not None and (said is None or said.look(weight, now, hold)):
                self._said[node] = Said(weight, now)
        return {node: said.weight for node, said in self._said.items()}

    def _weight(self, link: NeighborLink) -> int | None:
        """None: there is nothing to say of the link, or not yet."""
        cost = self.config.cost_of(link.node_id, link.address if link.dialed else None)
        if self.node > link.node_id:
            return cost if cost or link.node_id in self._said else None
        return (
            None
            if link.round_trip.value is None or not link.connected
            else steps(link.round_trip.value) + cost
        )

    # what others say ------------------------------------------------------------------------------

    def connected(self, link: NeighborLink) -> None:
        """Tell a neighbour all words."""
        if FEATURE in link.features:
            for word in self._words.values():
                send_control(link, WEIGHT, word.encode())
        self.unrest()

    def came(self, link: NeighborLink, payload: bytes) -> None:
        """A word. Raises: TopologyError."""
        word = Advertisement.decode(payload)
        known = self._words.get(word.node)
        if word.node == self.node:
            self._own_came(word, known)
            return
        if known is not None and known.order >= word.order:
            return
        if known is None and len(self._words) >= self.config.max_nodes:
            self._words = {node: word for node, word in self._words.items() if self.topology.knows(node)}
            if len(self._words) >= self.config.max_nodes:
                raise TopologyError(f"more than {self.config.max_nodes} nodes (link.max_nodes)")
        self._words[word.node] = word
        self._flood(word, link)
        self.unrest()

    def _own_came(self, word: Advertisement, known: Advertisement | None) -> None:
        """An earlier life of this node has said something, or another node with its id."""
        if not self._adopted and self._timer is not None:
            self._adopted = True
            for node, weight in word.links.items():
                self._said.setdefault(node, Said(weight, self.driver.now()))
            self._say()
        newer = known is None or (known.order < word.order)
        if newer and word.boot < MAX_NUMBER - 2:  # else it is of no life of this node, and not to be outbid
            self._claimed = after(word.boot, word.sequence)  # at the next tick, as two nodes may have one id

    def _flood(self, word: Advertisement, source: NeighborLink | None) -> None:
        data = word.encode()
        for link in self.links.values():
            if link is not source and link.connected and FEATURE in link.features:
                send_control(link, WEIGHT, data)

    # what counts ----------------------------------------------------------------------------------

    def unrest(self) -> None:
        """Something has changed, here or elsewhere: when it has come to rest weights are taken up anew.

        Until then those count that there were: so a node that begins another life, or a word that comes a
        little later than another, moves no link.
        """
        now, pause = self.driver.now(), self.config.settle
        if self._resting is None:
            self._unrest_since = now
        elif now - self._unrest_since > (UNREST - REST) * pause:
            return
        else:
            self._resting.cancel()
        self._resting = self.driver.call_later(REST * pause, self._rested)

    def _rested(self) -> None:
        self._resting = None
        weights = self._counting()
        if weights != self.topology.weights:
            before, links = self.topology.forest(), self.topology.tree()
            self.topology.weigh(weights)
            if self.topology.tree() != links:
                self.parts.counters["tree_swaps"] += 1
            self.changed(before)

    def _counting(self) -> dict[tuple[str, str], int] | None:
        """The weights of links between reachable nodes; None: not all have told theirs."""
        weights: dict[tuple[str, str], int] = {}
        costs: dict[tuple[str, str], int] = {}
        for node, boot in self.topology.reachable().items():
            word = self._words.get(node)
            if word is None or word.boot < boot:
                return None
        for node, word in self._words.items():  # also of nodes that may come back
            for far, weight in word.links.items():
                if node < far:
                    weights[node, far] = weight
                else:
                    costs[far, node] = weight
        return {pair: weight + costs.get(pair, 0) for pair, weight in weights.items()}
