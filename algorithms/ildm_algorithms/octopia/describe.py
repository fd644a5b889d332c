"""The grid as one node sees it, for people, and the way a message would take (``ildm overlay``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ildm.api import Fact, MessageTrace, OverlayView, TracedTree, TreeNode
from ildm_algorithms.octopia.content.content import ContentFilter
from ildm_algorithms.octopia.content.relations import overlaps
from ildm_algorithms.octopia.grid.contacts import ContactState
from ildm_algorithms.octopia.grid.routing import spr
from ildm_algorithms.octopia.messages import OverlayError, Trace, Traced

if TYPE_CHECKING:
    from ildm.api import NodeApi
    from ildm_algorithms.octopia.grid.loads import Loads
    from ildm_algorithms.octopia.grid.members import Members
    from ildm_algorithms.octopia.plugin import Octopia
    from ildm_algorithms.octopia.tables.replicas import Replicas

__all__ = ["Tracer", "describe"]

SHOWN = 1_000
"""Rows of one table."""
PATIENCE = 3.0
"""Seconds for the answers of the nodes next to the one that asks; each hop further has less."""
LESS = 0.3
LEAST = 0.5
MOST = 1_000
"""Traces under way."""
MOST_BYTES = 1 << 20
"""Of one answer."""
KEYS = 10
"""Filters of one node that are named."""


Rows = Sequence[Mapping[str, Fact]]


def describe(node: Octopia) -> OverlayView:
    """Clusters, regions, links with their load, advertisements with their bits, refused expressions."""
    members = node.members
    tables: dict[str, Rows] = {
        "clusters": _clusters(members),
        "regions": _regions(members),
        "links": _links(node),
        "advertisements": _advertisements(node),
    }
    refused = members.strangers | {n: c.refused for n, c in members.contacts.items() if c.refused is not None}
    if refused:
        tables["refused"] = [{"node": n, "reason": why} for n, why in refused.items()]
    if node.local.refused:
        tables["bad expressions"] = [
            {"filter": text, "error": why} for text, why in node.local.refused.items()
        ]
    alive = sum(c.state not in (ContactState.UNKNOWN, ContactState.DOWN) for c in members.contacts.values())
    return OverlayView(node=members.me, members=max(alive, members.live()), facts=_facts(node), tables=tables)


def _facts(node: Octopia) -> dict[str, Fact]:
    members, replicas = node.members, node.replicas
    return {
        "place": str(members.grid.place(members.me)),
        "routing": node.config.routing,
        "subscriptions": len(replicas.prt),
        "not told yet": len(node.interest),
        "advertisements": len(replicas.clt),
        "retained": len(node.retained),
        "not acknowledged": sum(map(node.casting.pending, members.order)),
        "lacking": ", ".join(replicas.lacking()) or None,
        "owed to": ", ".join(node.offers.owed) or None,
        "bad expressions": len(node.local.refused),
    }


def _clusters(members: Members) -> Rows:
    grid, view = members.grid, members.view

    def reached(index: int) -> str:
        if index == view.cluster:
            return "own"
        return view.secondary.get(index, "by other regions" if index not in members.hopeless() else "no")

    return [
        {
            "cluster": name,
            "nodes": ", ".join(n for n in members.order if grid.cluster(n) == index),
            "reached": reached(index),
        }
        for index, name in enumerate(grid.clusters)
    ]


def _regions(members: Members) -> Rows:
    grid = members.grid
    return [
        {
            "region": name,
            "neighbours": ", ".join(near),
            "nodes": ", ".join(n for n in members.order if grid.place(n).region == name),
        }
        for name, near in grid.regions.items()
    ]


def _links(node: Octopia) -> Rows:
    members, view = node.members, node.members.view

    def kind(n: str) -> str:
        if n in view.primary.values():
            return "aLink"
        return "iLink" if n in view.secondary.values() else "-"

    return [
        {
            "node": n,
            "place": str(members.grid.place(n)),
            "link": kind(n),
            "state": str(members.contacts[n].state),
            "queued": node.loads.queued(n),
            "not acknowledged": node.casting.pending(n),
            "congested": node.config.routing == "idr" and node.loads.congested(n),
        }
        for n in members.near
    ]


def _advertisements(node: Octopia) -> Rows:
    clusters, clt = node.members.grid.clusters, node.replicas.clt
    return [
        {
            "number": uid,
            "filter": str(content),
            **{clusters[i]: _bit(bit) for i, bit in clt.bits(uid).items()},
        }
        for uid, content in list(clt.own.items())[:SHOWN]
    ]


def _bit(bit: bool | None) -> str:
    return "unknown" if bit is None else "1" if bit else "0"


class _Tracing:
    """A trace that has come here, until all it was passed on to have answered."""

    __slots__ = ("answer", "complete", "node", "trees", "waiting")

    def __init__(self, node: TreeNode, waiting: set[str], answer: Callable[[TreeNode, bool], None]) -> None:
        self.node = node
        self.waiting = waiting
        self.trees: list[TreeNode] = []
        self.answer = answer
        self.complete = True


class Tracer:
    """Finds the ways of messages on a topic, whatever their attributes, without delivering anything."""

    def __init__(self, api: NodeApi, members: Members, replicas: Replicas, loads: Loads) -> None:
        self.api = api
        self.members = members
        self.replicas = replicas
        self.loads = loads
        self._number = 0
        self._tracings: dict[int, _Tracing] = {}

    def trace(self, topic: str, done: Callable[[MessageTrace], None]) -> None:
        """See :meth:`ildm.api.OverlayAlgorithm.trace`."""
        clt, about = self.replicas.clt, ContentFilter(topic)
        bits = [clt.bits(uid) for uid, content in clt.own.items() if overlaps(content, about)]
        clusters = clt.clusters
        if bits:
            clusters = frozenset(i for one in bits for i, bit in one.items() if bit is not False)

        def answer(tree: TreeNode, complete: bool) -> None:
            nodes = _all(tree)
            done(
                MessageTrace(
                    topic=topic,
                    trees=[TracedTree(name=topic, tree=tree if len(nodes) > 1 or tree.keys else None)],
                    nodes=len({node.node for node in nodes if node.keys} - {self.members.me}),
                    messages=len(nodes) - 1,
                    depth=max(node.depth for node in nodes),
                    complete=complete,
                )
            )

        self._pass_on(topic, 0, None, clusters, (), answer)

    def on_trace(self, sender: str, trace: Trace) -> None:
        """A trace has come this way: pass it on, and answer with the tree below this node."""
        grid = self.members.grid
        clusters, tried = grid.cluster_indices(trace.clusters), grid.region_names(trace.tried)
        if trace.depth > len(grid.regions) + 2:
            raise OverlayError("a trace that goes where no message goes")

        def answer(tree: TreeNode, complete: bool) -> None:
            data = json.dumps([complete, tree.model_dump(mode="json")]).encode()
            self.members.send(sender, Traced(trace.number, data))

        self._pass_on(trace.topic, trace.depth, sender, clusters, tried, answer)

    def _pass_on(
        self,
        topic: str,
        depth: int,
        sender: str | None,
        clusters: frozenset[int],
        tried: tuple[str, ...],
        answer: Callable[[TreeNode, bool], None],
    ) -> None:
        members, view = self.members, self.members.view
        homes: set[str] = set(self.replicas.lacking())
        keys: list[str] = []
        for content, owners in self.replicas.prt.index.overlapping(ContentFilter(topic)):
            homes.update(owners)
            if members.me in owners and len(keys) < KEYS and sender is not None:
                keys.append(str(content))
        hops = view.hops(homes) - {sender}
        routed = spr(view, () if tried else hops, clusters - members.hopeless(), self.loads, tried)
        self._number += 1
        number = self._number & 0xFFFF_FFFF
        tracing = _Tracing(TreeNode(node=members.me, keys=[] if tried else keys, depth=depth), set(), answer)
        if len(self._tracings) < MOST:
            for copy in routed.copies:
                served = tuple(sorted(copy.clusters))
                tries = members.grid.region_numbers(copy.tried)
                if members.send(copy.to, Trace(number, topic, depth + 1, served, tries)):
                    tracing.waiting.add(copy.to)
        tracing.complete = len(tracing.waiting) == len(routed.copies) and not routed.undeliverable
        self._tracings[number] = tracing
        if tracing.waiting:
            self.api.call_later(max(LEAST, PATIENCE - LESS * depth), self._late, number)
        else:
            self._finish(number)

    def on_traced(self, sender: str, traced: Traced) -> None:
        """A node that the trace was passed on to has answered."""
        tracing = self._tracings.get(traced.number)
        if tracing is None or sender not in tracing.waiting:
            return
        if len(traced.tree) > MOST_BYTES:
            raise OverlayError(f"a trace of {len(traced.tree)} bytes")
        try:
            complete, tree = json.loads(traced.tree)
            tracing.trees.append(TreeNode.model_validate(tree))
        except (ValueError, TypeError, RecursionError) as error:
            raise OverlayError("a trace that is no tree") from error
        tracing.complete = tracing.complete and complete is True
        tracing.waiting.discard(sender)
        if not tracing.waiting:
            self._finish(traced.number)

    def _late(self, number: int) -> None:
        tracing = self._tracings.get(number)
        if tracing is not None:
            tracing.complete = False
            self._finish(number)

    def _finish(self, number: int) -> None:
        tracing = self._tracings.pop(number)
        trees = sorted(tracing.trees, key=lambda tree: tree.node)
        tracing.answer(tracing.node.model_copy(update={"children": trees}), tracing.complete)


def _all(tree: TreeNode) -> list[TreeNode]:
    found = [tree]
    for node in found:
        found.extend(node.children)
    return found
