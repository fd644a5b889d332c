"""The ways of messages as plain data: over the links of a tree, and in an overlay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ildm.api import MessageTrace, TracedTree

if TYPE_CHECKING:
    from ildm.core.link.tracing import Hop

DEEPEST = 200
"""Nodes in a row of a traced tree that are shown."""


def hop_rows(hops: Sequence[Hop]) -> list[dict[str, Any]]:
    """Sites on the way, each with the seconds that it takes to get there: half of each round trip."""
    rows: list[dict[str, Any]] = []
    until: list[float | None] = []
    for hop in hops:
        del until[hop.depth :]
        before = until[-1] if until else 0.0
        trip = hop.round_trip
        until.append(None if before is None or trip is None else before + trip / 2)
        rows.append(
            {
                "depth": hop.depth,
                "node": hop.node,
                "seconds": until[-1],
                "queued": hop.queued,
                "injecting": hop.injecting,
                "note": hop.note,
            }
        )
    return rows


def trace_row(trace: MessageTrace) -> dict[str, Any]:
    """What ``model_dump`` would give, which can do so only for trees of some hundred nodes in a row.

    Nor can JSON: of deeper trees the part down to ``DEEPEST`` is left, and a fact says so.
    """
    row = trace.model_dump(mode="json", exclude={"trees"})
    row["trees"] = [_tree_row(traced) for traced in trace.trees]
    return row


def _tree_row(traced: TracedTree) -> dict[str, Any]:
    row = traced.model_dump(mode="json", exclude={"tree"})
    top: list[dict[str, Any]] = []
    left = [(top, 0, traced.tree)] if traced.tree is not None else []
    while left:
        beside, level, node = left.pop()
        made = node.model_dump(mode="json", exclude={"children"})
        made["children"] = []
        beside.append(made)
        if level < DEEPEST:
            left += [(made["children"], level + 1, child) for child in reversed(node.children)]
        elif node.children:
            row["facts"]["shown to depth"] = DEEPEST
    return {**row, "tree": top[0] if top else None}
