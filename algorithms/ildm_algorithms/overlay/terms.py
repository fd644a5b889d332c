"""What all nodes of a graph must have alike, and how two that do not are kept apart and named.

Digits of membership vectors decide which keys are in which list. Nodes that count these in different bases
would link keys which do not belong together, and each of them would be right in its own eyes. So every
message that looks for a neighbour or names one (Lookup, SetR, SetL) carries a checksum of its origin's terms.
A node that finds another checksum than its own does nothing with the message but tell the origin its terms.
The origin answers with its own, and both then know by name what differs.

Messages that came to be later are no part of the terms. A new one would else divide a graph until the last
node knows it. A node sends them to those neighbours whose :attr:`ildm.api.Link.wire` has their version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import starmap
from typing import Any, NamedTuple
from zlib import crc32

from ildm.api import Peer
from ildm_algorithms.overlay.casts.routing import Routing
from ildm_algorithms.overlay.context import Context
from ildm_algorithms.overlay.wire.messages import Lookup, SetL, SetR, SetRNak, Term, Terms

__all__ = ["NO_MESSAGES", "PROTOCOL", "Agreement", "Difference", "OwnTerms", "terms_of"]

PROTOCOL = "1"
"""Version of the messages that every graph has, and of what they mean."""
_MOST = 64
"""Refused nodes remembered."""
_TERMS = 16
"""Terms of another node looked at."""
_ABSENT = "-"
NO_MESSAGES = _ABSENT
"""The text of a graph that has no messages of its own in version 1 of them."""


class Difference(NamedTuple):
    """A parameter that must be the same at two nodes, and is not."""

    name: str
    here: str
    there: str

    def __str__(self) -> str:
        return f"{self.name} is {self.here} here, {self.there} there"


class OwnTerms(NamedTuple):
    """The terms of a node; all nodes of a process that have the same share them."""

    by_name: Mapping[str, str]
    """By name as the configuration has it."""
    terms: tuple[Term, ...]
    check: int


@lru_cache(maxsize=64)
def terms_of(base: int, routings: tuple[Routing, ...], messages: str) -> OwnTerms:
    """Of a node with a base, and with ``routings`` and ``messages`` that not every graph has.

    ``messages``: those of version 1, in a text that never changes, whatever they are called here.
    """
    by_name = {
        "messages": messages,
        "overlay.base": str(base),
        "protocol": PROTOCOL,
        "routings": " ".join(sorted(f"{routing.code}:{routing.name}" for routing in routings)) or _ABSENT,
    }
    text = "\n".join(f"{name}={value}" for name, value in by_name.items())
    return OwnTerms(by_name, tuple(starmap(Term, by_name.items())), crc32(text.encode()))


class Agreement:
    """Keeps those out with which a node could not be in one graph."""

    def __init__(self, context: Context, own: OwnTerms, forget: Callable[[str], None]) -> None:
        """``forget``: called with a refused node, which is no use as a contact."""
        self.context = context
        self.terms, self._own, self.check = own
        self.forget = forget
        self.refused: dict[str, tuple[Difference, ...]] = {}
        """By node id, the latest last: what differs."""

    def guarded(self, handle: Callable[[Any], None]) -> Callable[[Any], None]:
        """A handler of messages with terms that only sees those of nodes with the same ones."""

        def take(message: Any) -> None:
            if message.terms != self.check:
                self._refuse(message)
                return
            if self.refused and not isinstance(message, SetL):
                self.refused.pop(message.origin.node_id, None)
            handle(message)

        return take

    def _refuse(self, message: Lookup | SetR | SetL) -> None:
        self.context.count("messages_refused")
        if isinstance(message, SetL):
            return  # it does not tell whose it is; that one asks, too
        if isinstance(message, SetR):
            self.context.send(message.origin, SetRNak(message.id, False, None))
        self._tell(message.origin, answer=True)

    def _tell(self, to: Peer, answer: bool) -> None:
        self.context.send(to, Terms(self.context.peer, answer, self._own))

    def on_terms(self, message: Terms) -> None:
        """Another node has refused this one, or answers to being refused."""
        origin = message.origin
        if origin.node_id == self.context.node_id:
            return
        theirs = dict(message.terms[:_TERMS])
        differences = tuple(
            Difference(name, self.terms.get(name, _ABSENT), theirs.get(name, _ABSENT))
            for name in sorted({*self.terms, *theirs})
            if self.terms.get(name) != theirs.get(name)
        )
        if not differences:
            self.refused.pop(origin.node_id, None)
            return
        if message.answer:
            self._tell(origin, answer=False)
        self.forget(origin.node_id)
        known = self.refused.pop(origin.node_id, None)
        if known != differences:
            self.context.count("nodes_refused")
            self.context.env.log(
                "node refused: parameters that must be the same differ",
                refused=origin.node_id,
                differences="; ".join(map(str, differences)),
            )
        if len(self.refused) >= _MOST:
            del self.refused[next(iter(self.refused))]
        self.refused[origin.node_id] = differences
