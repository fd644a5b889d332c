"""The overlay of one node in words, and the tree a message would take (``ildm overlay``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from algorithms.tbps.keys import Role, default_key, key_text, segments_of_topic
from algorithms.tbps.segments import KeyState

if TYPE_CHECKING:
    from algorithms.overlay.graph import CastResult, SkipGraph
    from algorithms.overlay.keys import Ref
    from algorithms.tbps.segments import Member, Segments
    from algorithms.tbps.spreading import Spreading

__all__ = ["Tracer", "describe"]


def describe(
    node_id: str, graph: SkipGraph, segments: Segments, counters: Mapping[str, int]
) -> dict[str, Any]:
    """Keys of a node with their neighbours and states, in the order of the graph; JSON-able."""
    keys = {default_key(node_id): (Role.DEFAULT, KeyState.IN, None)}
    rows: dict[bytes, tuple[Role, KeyState, Member | None]] = dict(keys)
    for member in segments.members.values():
        for role, state in member.states.items():
            if state is not KeyState.OUT:
                rows[member.keys[role]] = role, state, member
    inside = set(graph.keys())
    return {
        "node": node_id,
        "keys": [
            {
                "key": key_text(key),
                "role": str(role),
                "status": state.value if role is not Role.DEFAULT or key in inside else "joining",
                "levels": [list(map(_name, pair)) for pair in graph.neighbors(key)] if key in inside else [],
                **_publishing(role, member),
            }
            for key, (role, state, member) in sorted(rows.items())
        ],
        "counters": dict(sorted(counters.items())),
    }


def _publishing(role: Role, member: Member | None) -> dict[str, Any]:
    if role is not Role.PUBLISHER or member is None:
        return {"rendezvous": False, "suspended": None, "epoch": None}
    publisher = member.publisher
    epoch = f"{publisher.epoch.number} {publisher.epoch.node_id}".rstrip()
    return {"rendezvous": publisher.rendezvous, "suspended": member.suspended, "epoch": epoch}


def _name(ref: Ref | None) -> str | None:
    return None if ref is None else key_text(ref.key)


class Tracer:
    """Finds the trees of a topic, one for each of its segments."""

    def __init__(self, node_id: str, segments: Segments, spreading: Spreading) -> None:
        self.node_id = node_id
        self.segments = segments
        self.spreading = spreading

    def trace(self, topic: str, done: Callable[[Mapping[str, Any]], None]) -> None:
        """See :meth:`ildm.api.Algorithm.trace`; a suspended segment has no tree."""
        found = segments_of_topic(topic)
        answers: list[dict[str, Any] | None] = [None] * len(found)
        results: list[CastResult] = []

        def finish() -> None:
            if None in answers:
                return
            shown = [answer for answer in answers if answer is not None]
            reached: set[str] = set()
            for answer in shown:
                _collect(answer["tree"], reached)
            done(
                {
                    "topic": topic,
                    "segments": shown,
                    "nodes": len(reached - {self.node_id}),
                    "messages": sum(result.hops for result in results),
                    "depth": max((result.depth for result in results), default=0),
                    "complete": all(result.complete for result in results),
                }
            )

        for at, segment in enumerate(found):
            member = self.segments.get(segment)
            suspended = None if member is None else member.suspended
            head = {"segment": segment.text, "suspended": suspended}
            if suspended:
                answers[at] = head | {"tree": None}
                continue

            def traced(result: CastResult, at: int = at, head: dict[str, Any] = head) -> None:
                results.append(result)
                answers[at] = head | {"tree": _readable(result.tree)}
                finish()

            self.spreading.trace(segment, traced)
        if not results:
            finish()


def _readable(tree: Any) -> Any:
    if tree is None:
        return None
    return {
        "node": tree["node"],
        "keys": [key_text(key) if isinstance(key, bytes) else key for key in tree["keys"]],
        "depth": tree["depth"],
        "children": [_readable(child) for child in tree["children"]],
    }


def _collect(tree: Any, reached: set[str]) -> None:
    """Nodes of a tree with keys in the range; others only pass the message on."""
    below = [] if tree is None else [tree]
    while below:
        branch = below.pop()
        if branch["keys"]:
            reached.add(branch["node"])
        below.extend(branch["children"])
