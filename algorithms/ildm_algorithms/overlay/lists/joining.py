"""Becoming part of another graph.

A key that is looked for by way of the introducer and not found is in another ring. The key then moves to the
nearer of its left neighbours in both, and so do all other keys of both graphs. That makes one ring of the
two, whatever the order, and however many nodes join each other at once.
"""

from __future__ import annotations

from ildm.api import Peer
from ildm_algorithms.overlay.casts.casting import Caster
from ildm_algorithms.overlay.casts.routing import MRF
from ildm_algorithms.overlay.context import Context
from ildm_algorithms.overlay.keys import EVERYTHING, Ref
from ildm_algorithms.overlay.lists.ddll import Lists
from ildm_algorithms.overlay.lists.finder import Finder
from ildm_algorithms.overlay.lists.tables import Table, nearer_left
from ildm_algorithms.overlay.slices import in_slices
from ildm_algorithms.overlay.wire.messages import Invite, encode

__all__ = ["Joining"]

_MOST = 256
"""Introducers tried at the same time."""
_INVITED_TRIES = 8
_LOOKS = 64
_PAUSE = 0.05
"""Own keys looked for in the other graph at once, and seconds between so many and the next ones."""
_SPREAD_AGAIN = 4
"""Attempts after which the other nodes of the graph left behind get another message."""


class Joining:
    """Joins of one node that are under way."""

    def __init__(self, context: Context, table: Table, finder: Finder, lists: Lists, caster: Caster) -> None:
        self.context = context
        self.table = table
        self.finder = finder
        self.lists = lists
        self.caster = caster
        self._trying: set[str] = set()
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    def join(self, introducer: Peer) -> None:
        """Try until this node is in the introducer's graph."""
        self._begin(introducer, None, 0.0)

    def invited(self, introducer: Peer) -> None:
        """Another node of this graph has found a graph to join."""
        # Not all members at once.
        self._begin(introducer, _INVITED_TRIES, self.context.back_off(0))

    def _begin(self, introducer: Peer, tries: int | None, delay: float) -> None:
        node_id = introducer.node_id
        if node_id == self.context.node_id or node_id in self._trying or self._stopped:
            return
        if len(self._trying) >= _MOST:
            self.context.count("joins_full")
            return
        self._trying.add(node_id)
        if delay:
            self.context.later(delay, self._try, introducer, 0, tries)
        else:
            self._try(introducer, 0, tries)

    def _try(self, introducer: Peer, attempt: int, tries: int | None) -> None:
        keys = self.table.keys()
        if self._stopped or (tries is not None and attempt >= tries):
            self._trying.discard(introducer.node_id)
        elif not keys:
            self._again(introducer, attempt, tries)
        else:
            key = self.context.random.choice(keys)
            self.finder.lookup(
                key,
                strict=False,
                entry=introducer,
                done=lambda pred, succ, hops, alone: self._found(
                    introducer, attempt, tries, key, pred, alone
                ),
            )

    def _again(self, introducer: Peer, attempt: int, tries: int | None) -> None:
        self.context.later(self.context.back_off(attempt), self._try, introducer, attempt + 1, tries)

    def _found(
        self,
        introducer: Peer,
        attempt: int,
        tries: int | None,
        key: bytes,
        pred: Ref | None,
        alone: bool,
    ) -> None:
        if pred is None or (pred.peer == self.context.peer and self.table.alone()):
            # No answer, or all that is known there is an earlier incarnation of this node.
            self._again(introducer, attempt, tries)
            return
        if pred.key == key:
            self._trying.discard(introducer.node_id)
            self.finder.meet(introducer)
            return
        self.context.count("merges")
        node = self.table.nodes.get(key)
        if self.table.alone() or node is None or not node.is_in(0):
            self.context.hooks.merging(True, None)
        else:
            # It may be the same graph, in which this key has not found its place yet.
            self.finder.know_of(
                pred.key, node.links[0].left, lambda known: self.context.hooks.merging(not known, None)
            )
        if alone and not self.table.alone():
            self.context.send(introducer, Invite(self.context.peer))
        else:
            self._move(key, pred)
            others = [other for other in list(self.table.keys()) if other != key]
            in_slices(
                self.context, iter(others), _LOOKS, lambda other: self._look(other, introducer), pause=_PAUSE
            )
            if tries is None and attempt % _SPREAD_AGAIN == 0 and not self.table.alone():
                self._tell_others(introducer)
        self._again(introducer, attempt, tries)

    def _look(self, key: bytes, introducer: Peer) -> None:
        self.finder.lookup(
            key,
            strict=True,
            entry=introducer,
            done=lambda pred, succ, hops, alone: self._move(key, pred),
        )

    def _move(self, key: bytes, left: Ref | None) -> None:
        node = self.table.nodes.get(key)
        if node is None or left is None or not node.is_in(0):
            return
        if nearer_left(key, left.key, node.links[0].left.key):
            self.lists.repair(node, 0, (left,))

    def _tell_others(self, introducer: Peer) -> None:
        self.caster.cast(
            EVERYTHING,
            encode(Invite(introducer)),
            MRF,
            reliable=False,
            trace=False,
            deliver=True,
            turn=0,
            done=None,
            control=True,
        )
