"""Finding a key in the graph, and the next member of a list (thesis 2.2.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from ildm.api import Peer
from ildm_algorithms.overlay.context import Context
from ildm_algorithms.overlay.keys import Ref
from ildm_algorithms.overlay.lists.tables import Table, VirtualNode, between
from ildm_algorithms.overlay.wire.messages import Lookup, LookupReply, Walk, WalkReply

__all__ = ["Finder"]

_DRAWS = 8
"""Nodes drawn before all are looked through for one that is not suspected."""
_OWN = 64
"""Own keys beside each other that are passed on the way to another node's."""
_TRIES = 8
"""How often another node is asked for a key that may be in its graph."""
_GONE = 16
"""Keys that a lookup remembers as missing."""

LookedUp = Callable[[Ref | None, Ref | None, int, bool], None]
"""Gets the key found, its right neighbour, hops, and whether the node that answered is alone."""


class Finder:
    """Lookups and walks of one node, and its part in those of others."""

    def __init__(self, context: Context, table: Table) -> None:
        self.context = context
        self.table = table
        self._contacts: dict[str, Peer] = {}
        self._entries: dict[int, Peer] = {}
        """Where own lookups that are under way began, by number; those that began here are not among them."""
        self._former: list[Peer] = []
        """Nodes around the last key that has left, the nearest first."""

    # other nodes ----------------------------------------------------------------------------------

    def meet(self, peer: Peer) -> None:
        """Remember another node; the one remembered longest makes room."""
        if peer.node_id == self.context.node_id:
            return
        contacts = self._contacts
        if contacts.get(peer.node_id) != peer:
            contacts[peer.node_id] = peer
            if len(contacts) > self.context.config.contacts:
                del contacts[next(iter(contacts))]

    def forget(self, node_id: str) -> None:
        self._contacts.pop(node_id, None)

    def contact(self) -> Peer | None:
        """A random other node that is not suspected."""
        random, links = self.context.random, self.table.foreign_links
        contacts = list(self._contacts.values())
        for _ in range(_DRAWS):
            if contacts and (not links or random.random() < 0.5):
                peer = random.choice(contacts)
            elif links:
                peer = self.table.beside(random.choice(links))
            else:
                return None
            if not self.context.avoid(peer.node_id):
                return peer
        living = (peer for peer in self._known() if not self.context.avoid(peer.node_id))
        return next(living, None)

    def _known(self) -> Iterator[Peer]:
        yield from self._contacts.values()
        yield from map(self.table.beside, self.table.foreign_links)

    def parted(self, neighbors: Iterable[Ref]) -> None:
        """A key has left these."""
        foreign = [ref.peer for ref in neighbors if ref.peer.node_id != self.context.node_id]
        self._former = foreign or self._former

    def successor(self) -> Peer | None:
        """Who takes what still comes for keys that have left: a former neighbour, else any contact."""
        living = (peer for peer in self._former if not self.context.avoid(peer.node_id))
        return next(living, None) or self.contact()

    # lookup -----------------------------------------------------------------------------------------

    def lookup(self, key: bytes, *, strict: bool, entry: Peer | None, done: LookedUp) -> None:
        """Find the last key that is not greater (``strict``: less) around the ring; Nones on failure.

        ``entry``: the node to begin at (None: this one).
        """
        context = self.context

        def answered(answer: LookupReply | None) -> None:
            self._entries.pop(number, None)
            if answer is None:
                done(None, None, 0, False)
            else:
                self.meet(answer.pred.peer)
                done(answer.pred, answer.succ, answer.hops, answer.alone)

        number = context.number()
        message = Lookup(number, context.peer, key, strict, 0, b"", (), context.terms)
        if entry is not None and entry != context.peer:
            self._entries[number] = entry
        context.ask(entry or context.peer, message, number, answered, forwarded=True)

    def know_of(self, key: bytes, own: Ref, done: Callable[[bool], None]) -> None:
        """Whether the graph that ``own`` has been in, a key of this node or beside one, has ``key``, too.

        The nearest other node on the left of ``own`` is asked. The answer is False also if it is too far or
        silent, and True where own keys were a ring of their own.
        """
        entry = self._first_foreign(own)

        def ask(tries: int) -> None:
            self.lookup(key, strict=False, entry=entry, done=partial(answered, tries))

        def answered(tries: int, found: Ref | None, right: Ref | None, hops: int, alone: bool) -> None:
            if found is None and tries > 1:
                ask(tries - 1)
            else:
                done(found is not None and found.key == key)

        if entry is None or entry == self.context.peer:
            done(entry is not None)
        else:
            ask(_TRIES)

    def _first_foreign(self, ref: Ref) -> Peer | None:
        """This node, where there are only own keys; None: there are many of them."""
        first = ref
        for _ in range(_OWN):
            if ref.peer.node_id != self.context.node_id:
                return ref.peer
            node = self.table.nodes.get(ref.key)
            if node is None or not node.links:
                return None
            ref = node.links[0].left
            if ref.key == first.key:
                return self.context.peer
        return None

    def on_lookup(self, message: Lookup) -> None:
        context, table = self.context, self.table
        if (message.at or message.gone) and len(message.gone) < _GONE:
            mine = message.origin == context.peer
            entry = self._entries.get(message.id) if mine else None
            if message.at and table.alone() and (entry is not None or not mine):
                # Others think of an earlier incarnation of this node, and it is in their graph no more.
                gone = (*message.gone, message.at)
                message = message._replace(hops=message.hops + 1, at=b"", gone=gone)
                context.send(entry or message.origin, message)
                return
            if not message.at and entry is not None:
                context.send(entry, message._replace(hops=message.hops + 1))
                return
        if message.at and not table.present(message.at, 0) and len(message.gone) < _GONE:
            # Whoever named it would name it again.
            message = message._replace(gone=(*message.gone, message.at))
        best = table.closest(message.key, message.strict, context.avoid, message.gone)
        if best is None:
            self.elsewhere(message)
            return
        if best.peer.node_id != table.node_id:
            if message.hops >= context.config.max_hops:
                context.count("hops_exceeded")
            else:
                context.send(best.peer, message._replace(hops=message.hops + 1, at=best.key))
            return
        succ = table.nodes[best.key].links[0].right
        reply = LookupReply(message.id, best, succ, message.hops, table.alone())
        context.send(message.origin, reply)

    def elsewhere(self, message: Lookup) -> None:
        """This node has no key (any more): another one goes on."""
        peer = self.contact()
        if peer is None or message.hops >= self.context.config.max_hops:
            self.context.count("nowhere_to_go")
        else:
            self.context.send(peer, message._replace(hops=message.hops + 1, at=b""))

    # walk along a list ------------------------------------------------------------------------------

    def walk(self, node: VirtualNode, level: int, done: Callable[[Ref | None, bool, bool], None]) -> None:
        """Find the next key on the left that is in the list of ``level``, along the list below.

        ``done`` gets the key (None: there is none), whether a lesser one is about to enter, and whether
        the walk was broken off.
        """
        context = self.context

        def answered(answer: WalkReply | None) -> None:
            if answer is None:
                done(None, False, True)
            else:
                done(answer.found, answer.pending, answer.broken)

        number = context.number()
        message = Walk(number, context.peer, level, node.key, node.key, self.table.vector, 0, False)
        context.ask(context.peer, message, number, answered, forwarded=True)

    def on_walk(self, message: Walk) -> None:
        """Pass the walk on from the receiver's key and from its own keys left of it."""
        context, table = self.context, self.table
        level, at, pending = message.level, message.at, message.pending
        member = table.same_list(message.vector, level)
        while True:
            node = table.nodes.get(at)
            if node is None or not node.serves(level - 1):
                context.send(message.origin, WalkReply(message.id, None, pending, True, message.hops))
                return
            if member and at != message.start:
                if node.is_in(level):
                    context.send(
                        message.origin, WalkReply(message.id, node.ref, pending, False, message.hops)
                    )
                    return
                pending = pending or at < message.start
            left = node.links[level - 1].left
            if left.key == message.start or not between(message.start, left.key, at):
                context.send(message.origin, WalkReply(message.id, None, pending, False, message.hops))
                return
            if left.peer.node_id != table.node_id:
                break
            at = left.key
        if message.hops >= context.config.max_hops:
            context.count("hops_exceeded")
            return
        context.send(left.peer, message._replace(at=left.key, hops=message.hops + 1, pending=pending))
