"""Watching over the lists: pings to left neighbours, and looking for one's own keys from elsewhere.

Pings find crashed nodes and links on which the two ends disagree. Checks find what no end can see: rings
that have come apart although each of them is right in itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from algorithms.overlay.context import Context
from algorithms.overlay.ddll import Lists
from algorithms.overlay.finder import Finder
from algorithms.overlay.keys import Ref
from algorithms.overlay.messages import LinkAnswer, LinkClaim, Ping, Pong
from algorithms.overlay.tables import Link, Status, Table, VirtualNode, distinct, nearer_left
from ildm.api import Peer

__all__ = ["Watch"]


class Watch:
    """Two timers for the whole node, whatever the number of its keys and levels."""

    def __init__(self, context: Context, table: Table, finder: Finder, lists: Lists) -> None:
        self.context = context
        self.table = table
        self.finder = finder
        self.lists = lists
        self._next_claim = 0
        self._next_check = 0

    def start(self) -> None:
        context = self.context
        context.later(context.config.ping_interval * context.random.random(), self._ping_round)
        context.later(context.config.check_interval * context.random.random(), self._check_round)

    # pings ------------------------------------------------------------------------------------------

    def _ping_round(self) -> None:
        context = self.context
        context.later(context.config.ping_interval * (0.9 + 0.2 * context.random.random()), self._ping_round)
        claims: dict[str, list[LinkClaim]] = {}
        peers: dict[str, Peer] = {}
        # A right neighbour pings this node; one that has stopped to is asked.
        silent = context.silent(2.5 * context.config.ping_interval)
        for node in list(self.table.nodes.values()):
            for level, link in enumerate(node.links):
                if link.status is not Status.IN:
                    continue
                right = link.right.peer
                if right.node_id != self.table.node_id and silent(right.node_id):
                    peers[right.node_id] = right
                    claims.setdefault(right.node_id, [])
                if link.left.key == node.key:
                    continue
                peer = link.left.peer
                if peer.node_id == self.table.node_id:
                    self._own_left(node, level, link)
                else:
                    peers[peer.node_id] = peer
                    check = _check(link.lefts)
                    claim = LinkClaim(level, link.left.key, node.key, link.lseq, check)
                    claims.setdefault(peer.node_id, []).append(claim)
        limit = context.config.claims
        for node_id, of_node in claims.items():
            if len(of_node) > limit:
                start = self._next_claim % len(of_node)
                of_node = (of_node + of_node)[start : start + limit]  # noqa: PLW2901
            self._ping(peers[node_id], tuple(of_node))
        self._next_claim += limit

    def _ping(self, peer: Peer, claims: tuple[LinkClaim, ...]) -> None:
        context = self.context
        context.request(
            peer,
            lambda number: Ping(number, context.peer, claims),
            lambda answer: self._ponged(claims, answer) if isinstance(answer, Pong) else None,
        )

    def _own_left(self, node: VirtualNode, level: int, link: Link) -> None:
        """What a ping does, where the left neighbour is an own key."""
        left = self.table.nodes.get(link.left.key)
        if left is None or not left.serves(level):
            self.lists.repair(node, level, link.lefts, broken=True)
        elif left.links[level].right.key != node.key:
            self.lists.repair(node, level, (left.ref,), broken=True)
        else:
            left.links[level].rseq = link.lseq
            link.lefts = distinct(self.table.lefts(left, level), self.table.node_id)

    def on_ping(self, message: Ping) -> None:
        self.finder.meet(message.origin)
        answers = []
        asker = message.origin.node_id
        for index, claim in enumerate(message.claims):
            node = self.table.nodes.get(claim.left)
            link = node.link(claim.level) if node is not None else None
            if node is None or link is None or link.status < Status.IN:
                answers.append(LinkAnswer(index, False, False, ()))
                continue
            lefts = distinct(self.table.lefts(node, claim.level), asker)
            if link.right.key != claim.key:
                answers.append(LinkAnswer(index, True, False, lefts))
                continue
            # Both agree that they are neighbours: only a number has been lost.
            link.rseq = claim.seq
            if _check(lefts) != claim.check:
                answers.append(LinkAnswer(index, True, True, lefts))
        self.context.send(message.origin, Pong(message.id, tuple(answers)))

    def _ponged(self, claims: tuple[LinkClaim, ...], pong: Pong) -> None:
        for answer in pong.answers:
            if answer.claim >= len(claims):
                self.context.count("malformed")
                return
            claim = claims[answer.claim]
            node = self.table.nodes.get(claim.key)
            link = node.link(claim.level) if node is not None else None
            if node is None or link is None or link.status is not Status.IN:
                continue
            if link.lseq != claim.seq or link.left.key != claim.left:
                continue
            if answer.right:
                link.lefts = distinct(answer.lefts, self.table.node_id)
            else:
                present = (link.left,) if answer.present else ()
                self.lists.repair(node, claim.level, (*present, *answer.lefts, *link.lefts[1:]), broken=True)

    def suspected(self, node_id: str) -> None:
        """Repair every link to a node that has just become suspected."""
        for node in list(self.table.nodes.values()):
            for level, link in enumerate(list(node.links)):
                if link.left.peer.node_id == node_id:
                    self.lists.repair(node, level, link.lefts, broken=True)

    # checks -----------------------------------------------------------------------------------------

    def _check_round(self) -> None:
        context = self.context
        config = context.config
        context.later(config.check_interval * (0.5 + context.random.random()), self._check_round)
        places = [
            (node, level)
            for node in self.table.nodes.values()
            for level, link in enumerate(node.links)
            if link.status is Status.IN
        ]
        if len(places) > config.checks:
            start = self._next_check % len(places)
            places = (places + places)[start : start + config.checks]
            self._next_check += config.checks
        for node, level in places:
            self.check(node, level)

    def check(self, node: VirtualNode, level: int) -> None:
        """Look whether the left neighbour of a key is what it must be."""
        link = node.link(level)
        if link is None or link.status is not Status.IN or node.leaving:
            return
        if level:
            self.finder.walk(node, level, lambda found, pending, broken: self._compare(node, level, found))
            return
        contact = self.finder.contact()
        if contact is not None:
            self.finder.lookup(
                node.key,
                strict=True,
                entry=contact,
                done=lambda pred, succ, hops, alone: self._compare(node, level, pred),
            )

    def _compare(self, node: VirtualNode, level: int, found: Ref | None) -> None:
        link = node.link(level)
        if found is not None and link is not None and nearer_left(node.key, found.key, link.left.key):
            self.lists.repair(node, level, (found,))


def _check(lefts: Iterable[Ref]) -> int:
    return crc32(b"\0".join([ref.key for ref in lefts]))
