"""Messages on their way through the grid: each copy is kept until all below it have the message.

A *cast* is one spreading of a message from its root. Each node that gets a copy forwards it, and acknowledges
it when all receivers of its own copies have acknowledged them. Unacknowledged copies are resent. If a
receiver has died, its copy becomes a new cast below the first. The new cast is needed because nodes may have
to forward a message twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Set
from itertools import takewhile
from typing import TYPE_CHECKING

from ildm.api import SendResult
from ildm_algorithms.exchange.receipts import Receipts
from ildm_algorithms.octopia.delivery.carried import Carried, Reader
from ildm_algorithms.octopia.grid.routing import Copy, Routed, idr, spr
from ildm_algorithms.octopia.messages import Ack, Acked, Pub

if TYPE_CHECKING:
    from ildm.api import NodeApi
    from ildm_algorithms.octopia.config import OctopiaConfig
    from ildm_algorithms.octopia.grid.loads import Loads
    from ildm_algorithms.octopia.grid.members import Members
    from ildm_algorithms.octopia.grid.scot import View
    from ildm_algorithms.octopia.tables.replicas import Replicas

__all__ = ["Casting"]

OVERHEAD = 600
"""Bytes that a copy takes besides its frame."""
CAST_BYTES = 4 * 1024 * 1024
"""For the casts that have come; what comes a second time comes soon."""
REMEMBERED = 10_000
"""Casts of which it is remembered who has missed them."""
NUMBER_BITS = 20
"""Bits of the numbers that one incarnation may use up in each of its milliseconds."""
ACKS = 0.005
"""Seconds in which acknowledgements for one node are collected."""
ACKS_AT_ONCE = 64
"""In one message."""

Key = tuple[int, int]
"""Root and number of a cast."""
Done = Callable[[frozenset[str]], None]
"""Called with the nodes that may have missed a message."""


class _Copy:
    __slots__ = ("attempts", "cast", "pub", "route", "sent_at", "size", "view")

    def __init__(self, cast: _Cast, route: Copy, view: View, pub: Pub, size: int, now: float) -> None:
        self.cast = cast
        self.route = route
        self.view = view
        """By which it was sent that way."""
        self.pub = pub
        self.size = size
        self.sent_at = now
        self.attempts = 1


class _Cast:
    __slots__ = ("above", "began", "carried", "done", "key", "missed", "open", "parent")

    def __init__(
        self, key: Key, carried: Carried, parent: str | None, above: _Cast | None, now: float
    ) -> None:
        self.key = key
        self.carried = carried
        self.parent = parent
        self.above = above
        self.began = now
        self.open = 0
        """Copies and casts below that are not complete."""
        self.missed: set[str] = set()
        """Nodes that may want the message and cannot be reached."""
        self.done: Done | None = None


class Casting:
    """The casts of one node, its own and those that it hands on.

    Args:
        arrived: gets each message that has come here for the first time, with the sender of the copy.
    """

    def __init__(
        self,
        api: NodeApi,
        config: OctopiaConfig,
        members: Members,
        replicas: Replicas,
        loads: Loads,
        reader: Reader,
        arrived: Callable[[Carried, str], None],
        count: Callable[..., None],
    ) -> None:
        self.api = api
        self.config = config
        self.members = members
        self.replicas = replicas
        self.loads = loads
        self.reader = reader
        self.arrived = arrived
        self.count = count
        self._route = spr if config.routing == "spr" else idr
        self._seen = Receipts(api.now, 2 * config.cast_deadline, CAST_BYTES, count)
        self._number = 0
        self._casts: dict[Key, _Cast] = {}
        """Under way, the oldest first."""
        self._copies: dict[str, OrderedDict[Key, _Copy]] = {}
        """Not acknowledged, by receiver; the one sent the longest ago first."""
        self._missed: OrderedDict[Key, frozenset[str]] = OrderedDict()
        self._acks: dict[str, list[Acked]] = {}
        self._flushing = False
        self._ticking = False
        self.bytes = 0
        """Of copies that are not acknowledged."""

    @property
    def busy(self) -> bool:
        """Whether something has not been acknowledged."""
        return bool(self._casts)

    def pending(self, node_id: str) -> int:
        """Copies sent to a node that it has not acknowledged."""
        return len(self._copies.get(node_id, ()))

    def next_number(self) -> int:
        """For a message, or a cast; it differs from all of this and earlier incarnations of the node."""
        self._number += 1
        return (self.members.incarnation << NUMBER_BITS) + self._number

    # sending --------------------------------------------------------------------------------------------

    def publish(self, carried: Carried, clusters: Set[int], done: Done) -> None:
        """Spread a message of an own client in this cluster and to others; ``done`` may be called at once."""
        cast = self._open((carried.origin, carried.number), carried, None, None)
        cast.done = done
        self._seen.add(str(carried.origin), carried.number)
        self._send(cast, self._targets(carried, None), clusters, ())

    def _open(self, key: Key, carried: Carried, parent: str | None, above: _Cast | None) -> _Cast:
        cast = _Cast(key, carried, parent, above, self.api.now())
        if above is not None:
            cast.began = above.began
            above.open += carried.reliable
        if carried.reliable:
            self._casts[key] = cast
        return cast

    def _targets(self, carried: Carried, sender: str | None) -> set[str]:
        """Primary neighbours on the way to those who want a message."""
        view = self.members.view
        found = set(view.primary.values()) if carried.everywhere else view.hops(self._homes(carried))
        if sender is not None:
            found.discard(sender)
        return found

    def _homes(self, carried: Carried) -> set[str]:
        """Nodes of this cluster that want a message, or may want it."""
        homes = set(self.replicas.prt.match(carried.publish.topic, carried.attributes))
        homes.update(self.replicas.lacking())
        return homes

    def _send(self, cast: _Cast, targets: Iterable[str], clusters: Set[int], tried: tuple[str, ...]) -> None:
        """Send the copies of a cast that routing asks for."""
        view = self.members.view
        cast.open += 1  # so that it is not complete before all copies have gone
        if not tried:
            cast.missed |= self.members.gone
        hopeless: frozenset[int] = frozenset()
        if not clusters <= view.secondary.keys():
            hopeless = frozenset(clusters) & self.members.hopeless()
        routed: Routed = self._route(
            view, frozenset(targets), frozenset(clusters) - hopeless, self.loads, tried
        )
        lost = routed.undeliverable | hopeless
        if lost:
            self.count("undeliverable", len(lost))
            cast.missed |= self.members.of(lost)
        for copy in routed.copies:
            if copy.tried:
                # a search may come by the same node again, where it must not be taken for what was there
                below = self._open((self.members.number, self.next_number()), cast.carried, None, cast)
                self.count("searches")
                self._seen.add(str(below.key[0]), below.key[1])
                below.open += 1
                self._post(below, copy)
                self._closed(below)
            else:
                self._post(cast, copy)
        self._closed(cast)

    def _post(self, cast: _Cast, copy: Copy) -> None:
        carried = cast.carried
        pub = Pub(
            *cast.key,
            carried.origin,
            carried.number,
            self._age(carried),
            carried.turn,
            carried.reliable,
            carried.everywhere,
            tuple(sorted(copy.clusters)),
            self.members.grid.region_numbers(copy.tried),
            carried.frame,
        )
        inside = self.members.grid.cluster(copy.to) == self.members.view.cluster
        self.count("copies_primary" if inside else "copies_secondary")
        self.loads.sent(copy.to)
        sent = self.members.send(copy.to, pub, carried.turn)
        if not carried.reliable:
            if not sent:
                self.count("not_sent")
            return
        if sent is SendResult.TOO_LARGE:
            # it is so at every attempt, and when it is asked for
            self.api.log("message too large for the link", topic=carried.publish.topic, node=copy.to)
            return
        size = len(carried.frame) + OVERHEAD
        if self.bytes + size > self.config.pending_bytes:
            self.count("pending_full")
            cast.missed |= self._served(copy)
            return
        self.bytes += size
        cast.open += 1
        self._copies.setdefault(copy.to, OrderedDict())[cast.key] = _Copy(
            cast, copy, self.members.view, pub, size, self.api.now()
        )
        if not self._ticking:
            self._ticking = True
            self.api.call_later(self.config.timeout_min, self._tick)

    def _age(self, carried: Carried) -> int:
        return min(int(1000 * (self.api.now() - carried.published)) + 1, 0xFFFF_FFFF)

    def _served(self, copy: Copy) -> set[str]:
        """The nodes that a copy may be for."""
        return self.members.of(copy.clusters | {self.members.grid.cluster(copy.to)})

    # receiving ------------------------------------------------------------------------------------------

    def on_pub(self, sender: str, pub: Pub) -> None:
        """A copy has come."""
        key = pub.root, pub.cast
        self.members.member(pub.root)
        if not self._seen.add(str(pub.root), pub.cast):
            if pub.reliable:
                self._again(sender, key)
            else:
                self.count("doubled_casts")
            return
        grid = self.members.grid
        clusters, tried = grid.cluster_indices(pub.clusters), grid.region_names(pub.tried)
        self.members.member(pub.origin)
        carried = Carried(
            pub.origin,
            pub.number,
            pub.turn,
            pub.frame,
            self.reader,
            self.api.now() - pub.age / 1000,
            pub.everywhere,
            pub.reliable,
        )
        cast = self._open(key, carried, sender, None)
        targets: set[str] = set()
        if not tried:
            targets = self._targets(carried, sender)
            self.arrived(carried, sender)
        self._send(cast, targets, clusters, tried)

    def _again(self, sender: str, key: Key) -> None:
        """A copy that has come before."""
        cast = self._casts.get(key)
        if cast is not None and cast.parent == sender:
            self._acknowledge(sender, key, True, frozenset())
        else:
            self.count("doubled_casts")
            self._acknowledge(sender, key, False, self._missed.get(key, frozenset()))

    def _acknowledge(self, node_id: str, key: Key, under_way: bool, missed: Iterable[str]) -> None:
        waiting = self._acks.setdefault(node_id, [])
        contacts = self.members.contacts
        waiting.append(Acked(*key, under_way, tuple(sorted(contacts[n].number for n in missed))))
        if len(waiting) >= ACKS_AT_ONCE:
            self._send_acks(node_id)
        elif not self._flushing:
            self._flushing = True
            self.api.call_later(ACKS, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        for node_id in list(self._acks):
            self._send_acks(node_id)

    def _send_acks(self, node_id: str) -> None:
        self.members.send(node_id, Ack(tuple(self._acks.pop(node_id))))

    # acknowledgements -----------------------------------------------------------------------------------

    def on_ack(self, sender: str, ack: Ack) -> None:
        """A node has done with copies that it got."""
        now = self.api.now()
        round_trip = self.members.contacts[sender].round_trip
        for root, number, under_way, missed in ack.casts:
            copies = self._copies.get(sender, OrderedDict())
            copy = copies.get((root, number))
            if copy is None:
                continue
            if under_way:
                copy.sent_at = now
                copy.attempts += 1  # so that its time is not measured
                copies.move_to_end(copy.cast.key)
                continue
            if copy.attempts == 1:
                round_trip.measured(now - copy.sent_at)
            round_trip.backed_off = 1
            self._drop(copy)
            copy.cast.missed.update(map(self.members.member, missed))
            self._closed(copy.cast)

    def check_sums(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        size = sum(copy.size for copies in self._copies.values() for copy in copies.values())
        assert size == self.bytes, f"copies of {size} bytes count {self.bytes}"

    def _drop(self, copy: _Copy) -> None:
        del self._copies[copy.route.to][copy.cast.key]
        self.bytes -= copy.size

    def _closed(self, cast: _Cast) -> None:
        cast.open -= 1
        self._look(cast)

    def _look(self, cast: _Cast) -> None:
        """Whether a cast is complete; then the node that waits for it gets the acknowledgement."""
        if cast.open or (cast.carried.reliable and self._casts.pop(cast.key, None) is None):
            return
        if cast.above is not None:
            cast.above.missed |= cast.missed
            if cast.carried.reliable:
                self._closed(cast.above)
        if cast.parent is not None and cast.carried.reliable:
            if cast.missed:
                self._missed[cast.key] = frozenset(cast.missed)
                if len(self._missed) > REMEMBERED:
                    self._missed.popitem(last=False)
            self._acknowledge(cast.parent, cast.key, False, cast.missed)
        if cast.done is not None:
            cast.done(frozenset(cast.missed))

    # what is not acknowledged ---------------------------------------------------------------------------

    def _timeout(self, node_id: str) -> float:
        config = self.config
        estimate = self.members.contacts[node_id].round_trip
        timeout = max(estimate.timeout, config.timeout_min) if estimate.timeout else config.ack_timeout
        return min(timeout * estimate.backed_off, config.timeout_max)

    def _tick(self) -> None:
        now = self.api.now()
        late = list(
            takewhile(lambda cast: cast.began + self.config.cast_deadline <= now, self._casts.values())
        )
        for cast in reversed(late):  # those below others first
            self._give_up(cast)
        for node_id, copies in list(self._copies.items()):
            if not copies:
                del self._copies[node_id]
                continue
            due = now - self._timeout(node_id)
            overdue = list(takewhile(lambda copy: copy.sent_at <= due, copies.values()))  # noqa: B023
            if overdue:
                estimate = self.members.contacts[node_id].round_trip
                estimate.backed_off = min(2 * estimate.backed_off, 64)
                self._repeat(overdue)
        self._ticking = bool(self._copies or self._casts)
        if self._ticking:
            self.api.call_later(self.config.timeout_min, self._tick)

    def _repeat(self, copies: Iterable[_Copy]) -> None:
        for copy in copies:
            self.count("repeated")
            copy.attempts += 1
            copy.sent_at = self.api.now()
            self._copies[copy.route.to].move_to_end(copy.cast.key)
            self.loads.sent(copy.route.to)
            pub = copy.pub._replace(age=self._age(copy.cast.carried))
            self.members.send(copy.route.to, pub, pub.turn)

    def _give_up(self, cast: _Cast) -> None:
        """It takes too long: an announcement will go to the nodes that may lack the message."""
        self.count("casts_late")
        for copies in list(self._copies.values()):
            copy = copies.get(cast.key)
            if copy is not None:
                cast.missed |= self._served(copy.route)
                self._drop(copy)
        cast.open = 0
        self._look(cast)

    def lost(self, node_id: str) -> None:
        """A link was lost, with what was on its way: send it again, before what comes now."""
        self._repeat(list(self._copies.get(node_id, {}).values()))

    def view_changed(self) -> None:
        """Copies for nodes that are dead now go another way."""
        for node_id in [n for n in self._copies if not self.members.alive(n)]:
            for copy in list(self._copies[node_id].values()):
                if self._casts.get(copy.cast.key) is copy.cast and copy.cast.key in self._copies[node_id]:
                    self._drop(copy)
                    self._reroute(copy)
                    self._closed(copy.cast)

    def _reroute(self, copy: _Copy) -> None:
        view, before = self.members.view, copy.view
        dead, clusters = copy.route.to, copy.route.clusters
        carried = copy.cast.carried
        targets: set[str] = set()
        if dead in self.members.mates:
            copy.cast.missed |= self.members.gone | {dead}
        if dead in before.primary.values():
            homes = set(before.cluster_members.values()) if carried.everywhere else self._homes(carried)
            targets = view.hops(home for home in homes if before.next_hop(home) == dead)
        else:
            clusters |= {self.members.grid.cluster(dead)}
        if not (targets or clusters):
            return
        self.count("rerouted")
        key = self.members.number, self.next_number()
        below = self._open(key, carried, None, copy.cast)
        self._seen.add(str(key[0]), key[1])
        self._send(below, () if copy.route.tried else targets, clusters, copy.route.tried)
