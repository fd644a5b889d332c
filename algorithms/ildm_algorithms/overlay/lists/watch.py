"""Watching over the lists: pings to left neighbours, and looking for one's own keys from elsewhere.

Pings find crashed nodes and links on which the two ends disagree. Checks find what no end can see: rings
that have come apart although each of them is right in itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

from ildm.api import Peer
from ildm_algorithms.overlay.context import Context
from ildm_algorithms.overlay.keys import Ref
from ildm_algorithms.overlay.lists.ddll import Lists
from ildm_algorithms.overlay.lists.finder import Finder
from ildm_algorithms.overlay.lists.tables import Link, Status, Table, VirtualNode, distinct, nearer_left
from ildm_algorithms.overlay.slices import in_slices
from ildm_algorithms.overlay.wire.messages import LinkAnswer, LinkClaim, Ping, Pong

__all__ = ["Watch"]

_LINKS = 1024
_KEYS = 64
_PINGS = 16
"""Links looked at, own keys looked after, and pings sent, in one call."""
_ROUND = 512
"""Own keys looked after in one round of pings."""


class Watch:
    """Two timers for the whole node, whatever the number of its keys and levels."""

    def __init__(self, context: Context, table: Table, finder: Finder, lists: Lists) -> None:
        self.context = context
        self.table = table
        self.finder = finder
        self.lists = lists
        self._next_claim = 0
        self._next_check = 0
        self._next_key = 0

    def start(self) -> None:
        context = self.context
        context.later(context.config.ping_interval * context.random.random(), self._ping_round)
        context.later(context.config.check_interval * context.random.random(), self._check_round)

    # pings ------------------------------------------------------------------------------------------

    def _ping_round(self) -> None:
        context, table = self.context, self.table
        context.later(context.config.ping_interval * (0.9 + 0.2 * context.random.random()), self._ping_round)
        asked: dict[str, tuple[Peer, list[Link]]] = {}
        # A right neighbour pings this node; one that has stopped to is asked.
        silent = context.silent(2.5 * context.config.ping_interval)

        def gather(link: Link) -> None:
            if link.status is Status.IN:
                left, right = link.left.peer, link.right.peer
                if left.node_id != table.node_id:
                    asked.setdefault(left.node_id, (left, []))[1].append(link)
                if right.node_id != table.node_id and silent(right.node_id):
                    asked.setdefault(right.node_id, (right, []))

        def ask() -> None:
            limit = context.config.claims
            start = self._next_claim
            self._next_claim += limit
            in_slices(context, reversed(asked.values()), _PINGS, lambda each: self._ping(*each, start))

        in_slices(context, table.foreign_now(), _LINKS, gather, ask)
        # A single key may have one that is gone as its left neighbour.
        in_slices(context, self._some_keys(), _KEYS, self._own_lefts)

    def _some_keys(self) -> Iterator[VirtualNode]:
        """Own keys in turns, so many in one round that a node with few has them all."""
        nodes = self.table.nodes
        if len(nodes) <= _ROUND:
            yield from list(nodes.values())
            return
        keys = self.table.keys()
        for at in range(self._next_key, self._next_key + _ROUND):
            node = nodes.get(keys[at % len(keys)]) if keys else None
            if node is not None:
                yield node
        self._next_key += _ROUND

    def _own_lefts(self, node: VirtualNode) -> None:
        for level, link in enumerate(list(node.links)):
            left = link.left
            if link.status is Status.IN and left.peer.node_id == self.table.node_id and left.key != node.key:
                self._own_left(node, level, link)
        self.lists.rise(node)

    def _ping(self, peer: Peer, links: list[Link], start: int) -> None:
        context = self.context
        limit = context.config.claims
        if len(links) > limit:
            start %= len(links)
            links = (links[start:] + links[:start])[:limit]
        claims = tuple(
            LinkClaim(link.level, link.left.key, link.node.key, link.lseq, _check(link.lefts))
            for link in reversed(links)
            if link.status is Status.IN
        )
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
            above, higher = node.link(level + 1), left.link(level + 1)
            if above is None or higher is None or above.left.key == left.key:
                pass
            elif above.status is higher.status is Status.IN:
                self.lists.repair(node, level + 1, (left.ref,))
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

        def repair(link: Link) -> None:
            if link.left.peer.node_id == node_id:
                self.lists.repair(link.node, link.level, link.lefts, broken=True)

        in_slices(self.context, self.table.foreign_now(), _LINKS, repair)

    # checks -----------------------------------------------------------------------------------------

    def _check_round(self) -> None:
        """Checks where the left neighbour is another node's, and one of the rest.

        An own left neighbour is in the next list, too, and is right without a walk. At level 0 other
        rings may have keys between the two; one key that is looked for from elsewhere shows whether it is so.
        """
        context, config, table = self.context, self.context.config, self.table
        links = table.foreign_links
        pace = min(1.0, config.check_round * config.checks / (len(links) * config.check_interval or 1.0))
        context.later(config.check_interval * pace * (0.5 + context.random.random()), self._check_round)
        for _ in range(min(config.checks, len(links))):
            self._next_check = (self._next_check or len(links)) - 1
            if self._next_check < len(links):
                link = links[self._next_check]
                if link.left.peer.node_id != table.node_id:
                    if link.level == 0:
                        self.check(link.node, 0)
                    self.check(link.node, link.level + 1)
        keys = table.keys()
        if keys and (alone := table.nodes[context.random.choice(keys)]).links[0].left.peer == table.peer:
            self.check(alone, 0)

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
                done=lambda pred, succ, hops, alone: self._looked_up(node, contact, pred),
            )

    def _looked_up(self, node: VirtualNode, contact: Peer, found: Ref | None) -> None:
        link = node.link(0)
        if found is None or link is None or link.status is not Status.IN:
            return
        if nearer_left(node.key, found.key, link.left.key):
            self.lists.repair(node, 0, (found,))
        elif found.key != link.left.key and link.left.peer.node_id == self.table.node_id:
            self.context.events.astray(contact)

    def _compare(self, node: VirtualNode, level: int, found: Ref | None) -> None:
        link = node.link(level)
        if found is not None and link is not None and nearer_left(node.key, found.key, link.left.key):
            self.lists.repair(node, level, (found,))


def _check(lefts: Iterable[Ref]) -> int:
    return crc32(b"\0".join([ref.key for ref in lefts]))
