"""The overlay of one node in words, and the tree a message would take (``ildm overlay``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from ildm.api import Fact, MessageTrace, OverlayKey, OverlayView, TracedTree, TreeNode
from ildm_algorithms.tbps.keys.encoding import Role, default_key, key_text, segments_of_topic
from ildm_algorithms.tbps.keys.segments import KeyState

if TYPE_CHECKING:
    from ildm_algorithms.overlay.graph import CastResult, SkipGraph
    from ildm_algorithms.overlay.keys import Ref
    from ildm_algorithms.tbps.keys.encoding import Segment
    from ildm_algorithms.tbps.keys.segments import Member, Segments
    from ildm_algorithms.tbps.keys.spreading import Spreading

__all__ = ["NO_KEY", "UNPUBLISHED", "Tables", "Tracer", "bounded", "describe"]

UNPUBLISHED = "this site does not publish to the topic"
"""Fact of a trace: it shows the way of a first message, for which this site has no key yet."""
NO_KEY = "subscriptions without room for a key"
"""Title of the table of filters whose messages do not come."""
REFUSED = "refused nodes"
"""Title of the table of nodes with which this one cannot be in one graph, and why."""
ROWS = 100
"""Rows shown of a table that may be long."""

Tables = Mapping[str, Sequence[Mapping[str, Fact]]]
"""By title: rows of columns."""


def describe(
    node_id: str,
    graph: SkipGraph,
    segments: Segments,
    facts: Callable[[Member, Role], Mapping[str, Fact]],
    sending: Mapping[str, Fact],
    tables: Tables,
) -> OverlayView:
    """Keys of a node with their neighbours and states, in the order of the graph.

    Facts of a publisher's key are whether it is the rendezvous point, whether it is suspended, and the epoch
    of that (thesis 3.2.1); of every key of a segment others (``facts``); ``sending`` are those of the node.
    What is subscribed to in vain, and nodes that were refused, have tables besides ``tables``.
    """
    keys = {default_key(node_id): (Role.DEFAULT, KeyState.IN, None)}
    places: dict[bytes, tuple[Role, KeyState, Member | None]] = dict(keys)
    for member in segments.members.values():
        for role, state in member.states.items():
            if state is not KeyState.OUT:
                places[member.keys[role]] = role, state, member
    inside = set(graph.keys())
    text = cache(key_text)  # most neighbours are those of several keys, at several levels

    def name(ref: Ref | None) -> str | None:
        return None if ref is None else text(ref.key)

    without_key: list[Mapping[str, Fact]] = [
        {"filter": name} for member in segments.refused(Role.SUBSCRIBER) for name in sorted(member.filters)
    ]
    refused: list[Mapping[str, Fact]] = [
        {"node": node, "parameter": name, "here": here, "there": there}
        for node, differences in graph.refused.items()
        for name, here, there in differences
    ]
    added = {NO_KEY: without_key, REFUSED: refused}
    shown = [
        OverlayKey(
            key=text(key),
            status=state.value if role is not Role.DEFAULT or key in inside else "joining",
            levels=[(name(left), name(right)) for left, right in graph.neighbors(key)]
            if key in inside
            else [],
            facts={
                "role": str(Role.AGGREGATE if member is not None and member.segment.is_aggregate else role),
                **_publishing(role, member),
                **(facts(member, role) if member is not None else {}),
            },
        )
        for key, (role, state, member) in sorted(places.items())
    ]
    return OverlayView(
        node=node_id,
        keys=shown,
        facts={
            "rendezvous points": sum(bool(key.facts.get("rendezvous")) for key in shown),
            "suspended": sum(bool(key.facts.get("suspended")) for key in shown),
            **sending,
            **({REFUSED: len(graph.refused)} if refused else {}),
        },
        tables={
            **tables,
            **{title: bounded(rows, len(rows)) for title, rows in added.items() if rows},
        },
    )


def bounded(rows: Iterable[Mapping[str, Fact]], total: int) -> Sequence[Mapping[str, Fact]]:
    """The first rows of a table, which has ``total``, and in the first column how many more there are."""
    shown = list(islice(rows, ROWS))
    if total > len(shown) > 0:
        shown.append({next(iter(shown[0])): f"and {total - len(shown):,} more"})
    return shown


def _publishing(role: Role, member: Member | None) -> Mapping[str, Fact]:
    if role is not Role.PUBLISHER or member is None or member.segment.is_aggregate:
        return {}
    publisher = member.publisher
    epoch = f"{publisher.epoch.number} {publisher.epoch.node_id}".rstrip()
    return {"rendezvous": publisher.rendezvous, "suspended": member.suspended, "epoch": epoch}


class Tracer:
    """Finds the trees of a topic, one for each of its segments."""

    def __init__(
        self,
        node_id: str,
        publishes: Callable[[str], bool],
        suspended: Callable[[str, Segment], bool | None],
        spreading: Spreading,
    ) -> None:
        self.node_id = node_id
        self.publishes = publishes
        self.suspended = suspended
        self.spreading = spreading

    def trace(self, topic: str, done: Callable[[MessageTrace], None]) -> None:
        """See :meth:`ildm.api.OverlayAlgorithm.trace`; a suspended segment has no tree."""
        found = segments_of_topic(topic)
        # what a site without a key sees of subscribers may be less than what publishers see
        strange = {} if self.publishes(topic) else {UNPUBLISHED: True}
        answers: list[TracedTree | None] = [None] * len(found)
        results: list[CastResult] = []

        def answered(at: int, tree: TracedTree) -> None:
            answers[at] = tree
            shown = [answer for answer in answers if answer is not None]
            if len(shown) < len(found):
                return
            reached = set().union(*(_reached(answer.tree) for answer in shown))
            done(
                MessageTrace(
                    topic=topic,
                    trees=shown,
                    nodes=len(reached - {self.node_id}),
                    messages=sum(result.hops for result in results),
                    depth=max((result.depth for result in results), default=0),
                    complete=all(result.complete for result in results),
                )
            )

        def traced(at: int, made: TracedTree, result: CastResult) -> None:
            results.append(result)
            answered(at, made.model_copy(update={"tree": _readable(result.tree)}))

        for at, segment in enumerate(found):
            suspended = self.suspended(topic, segment)
            made = TracedTree(name=segment.text, facts={"suspended": suspended, **strange})
            if suspended:
                answered(at, made)
            else:
                self.spreading.trace(segment, partial(traced, at, made))


def _readable(tree: Any) -> TreeNode | None:
    """Not by recursion: a message may pass from node to node in a long row."""
    if tree is None:
        return None
    order = [tree]
    for branch in order:
        order.extend(branch["children"])
    made: dict[int, TreeNode] = {}
    for branch in reversed(order):
        made[id(branch)] = TreeNode(
            node=branch["node"],
            keys=[key_text(key) if isinstance(key, bytes) else key for key in branch["keys"]],
            depth=branch["depth"],
            children=[made[id(child)] for child in branch["children"]],
        )
    return made[id(tree)]


def _reached(tree: TreeNode | None) -> set[str]:
    """Nodes of a tree with keys in the range; others only pass the message on."""
    below = [] if tree is None else [tree]
    for branch in below:
        below.extend(branch.children)
    return {branch.node for branch in below if branch.keys}
