"""Why a neighbour is not accepted, from what it says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.link.handshake import Hello, Refusal
from ildm.mqtt import ReasonCode

if TYPE_CHECKING:
    from ildm.core.link.manager import LinkManager
    from ildm.core.node import Node

STALE = Refusal("stale", "no such link", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
DUPLICATE = Refusal(
    "duplicate", "there is a link between these nodes", ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
)


def mismatch(node: Node, hello: Hello) -> Refusal | None:
    """Whether two nodes cannot cooperate at all, as either side sees it."""
    if hello.node == node.node_id:
        text = f"the neighbour has this node's own id {hello.node!r}"
        return Refusal("own-id", text, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
    if hello.to not in ("", node.node_id):
        return _wrong_node(node.node_id, hello.to)
    own = node.algorithm_name or ""
    if hello.algorithm != own:
        # the text is read at the other end, so it does not say "this" or "that" node
        text = f"{node.node_id} runs algorithm {own!r}, {hello.node} runs {hello.algorithm!r}"
        return Refusal("algorithm", text, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
    return None


def wrong_answer(hello: Hello, expected: str | None) -> Refusal | None:
    """Whether another node than the one expected has accepted a dial."""
    return None if expected in (None, hello.node) else _wrong_node(hello.node, expected or "")


def over_limit(manager: LinkManager, hello: Hello) -> Refusal | None:
    """Whether there is no place for one more link."""
    if hello.on_demand and manager.any_topology:
        if manager.on_demand.make_room():
            return None
        return Refusal("limit", "too many links (link.max_links)", ReasonCode.QUOTA_EXCEEDED)
    if sum(not link.on_demand for link in manager.links.values()) < manager.config.max_neighbors:
        return None
    return Refusal("limit", "too many neighbours (link.max_neighbors)", ReasonCode.QUOTA_EXCEEDED)


def _wrong_node(answers: str, expected: str) -> Refusal:
    text = f"{answers} answers at this address, not {expected}"
    return Refusal("wrong-node", text, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, answers)
