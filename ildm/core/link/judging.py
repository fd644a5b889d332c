"""Why a neighbour is not accepted, from what it says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.link.hello import Hello, Refusal
from ildm.mqtt import ReasonCode

if TYPE_CHECKING:
    from ildm.core.link.parts import Parts

STALE = Refusal("stale", "no such link", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
DUPLICATE = Refusal(
    "duplicate", "there is a link between these nodes", ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
)


def mismatch(parts: Parts, hello: Hello) -> Refusal | None:
    """Whether two nodes cannot cooperate at all, as either side sees it."""
    if hello.node == parts.node_id:
        text = f"the neighbour has this node's own id {hello.node!r}"
        return Refusal("own-id", text, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
    if hello.to not in ("", parts.node_id):
        return _wrong_node(parts.node_id, hello.to)
    if hello.algorithm != parts.algorithm:
        # the text is read at the other end, so it does not say "this" or "that" node
        text = f"{parts.node_id} runs algorithm {parts.algorithm!r}, {hello.node} runs {hello.algorithm!r}"
        return Refusal("algorithm", text, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
    return None


def copied(node_id: str, by: str) -> Refusal:
    """There are two nodes with one id; said to the one that is not linked."""
    text = f"{by} has a link with another node that has the id {node_id!r}: one of the two needs another id"
    return Refusal("copied-id", text, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)


def wrong_answer(hello: Hello, expected: str | None) -> Refusal | None:
    """Whether another node than the one expected has accepted a dial."""
    return None if expected in (None, hello.node) else _wrong_node(hello.node, expected or "")


def _wrong_node(answers: str, expected: str) -> Refusal:
    text = f"{answers} answers at this address, not {expected}"
    return Refusal("wrong-node", text, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, answers)
