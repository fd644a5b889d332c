"""An overlay in words and numbers, for those who operate it; all of it becomes JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

Fact = str | int | float | bool | None
"""Something only the algorithm knows the meaning of; shown by its name."""


class _View(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OverlayKey(_View):
    """One key of a node in a structured overlay."""

    key: str
    status: str
    levels: Sequence[tuple[str | None, str | None]] = ()
    """Left and right neighbour at each level, from level 0 on."""
    facts: Mapping[str, Fact] = {}


class OverlayView(_View):
    """The part of an overlay that a node knows."""

    node: str
    members: int | None = None
    """Number of nodes, if known."""
    keys: Sequence[OverlayKey] = ()
    facts: Mapping[str, Fact] = {}
    tables: Mapping[str, Sequence[Mapping[str, Fact]]] = {}
    """By title: rows of columns."""


class TreeNode(_View):
    """A node on the way of a message."""

    node: str
    keys: Sequence[str] = ()
    """Those for which the node receives the message; none: it only passes it on."""
    depth: int = 0
    children: Sequence[TreeNode] = ()


class TracedTree(_View):
    """One of the trees that a message on a topic takes."""

    name: str
    tree: TreeNode | None = None
    """None: nobody is reached."""
    facts: Mapping[str, Fact] = {}


class MessageTrace(_View):
    """The way a message would take."""

    topic: str
    trees: Sequence[TracedTree] = ()
    nodes: int = 0
    """Nodes reached besides this one."""
    messages: int = 0
    """Sent between nodes."""
    depth: int = 0
    complete: bool = True
    """Every part of the trees has answered."""
