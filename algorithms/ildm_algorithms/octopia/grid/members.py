"""The nodes of the grid as this one sees them: HELLO, who is alive, the way to each, and what follows.

Each node says HELLO to the nodes of its cluster and of its region, now and then and when something happens. A
HELLO tells addresses, so the address of any one member is enough to find all. It tells how far tables are, so
receivers notice lost messages. A node whose HELLO does not come is dead, unless other nodes receive it. Then
data go by way of one of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ildm.api import Peer, SendResult, Unreachable
from ildm_algorithms.exchange.incarnation import next_incarnation
from ildm_algorithms.octopia.grid.contacts import Contact, ContactState
from ildm_algorithms.octopia.grid.scot import GridError, View
from ildm_algorithms.octopia.messages import (
    CODEC,
    Bye,
    Hello,
    HelloReport,
    News,
    OverlayError,
    Refused,
    Relay,
    SetVersion,
)

if TYPE_CHECKING:
    from ildm.api import NodeApi
    from ildm_algorithms.octopia.config import OctopiaConfig

__all__ = ["Members", "Tables"]

LOOKS = 15
"""How often in the time after which a node is dead it is looked for dead ones."""
AGAIN = 1.0
"""Seconds between two HELLO that answer to data from a node that has not said HELLO."""
INCARNATION_LIMIT = 1 << 43
"""Incarnations are below, because they are milliseconds and numbers of messages begin with them."""
NO_MEMBER = "it is no member of the grid"
ANOTHER_GRID = "its grid (regions, clusters, members) is another"
INCARNATION = "octopia.boot"
"""Entry of the state: the newest incarnation of this node."""


class Tables(NamedTuple):
    """The state of the sender's tables in a HELLO to one receiver."""

    session: int = 0
    adverts: int = 0
    civ_session: int = 0
    civs: int = 0
    retained: int = 0
    absent: tuple[int, ...] = ()
    sets: tuple[SetVersion, ...] = ()


class Hooks(NamedTuple):
    """Events of :class:`Members`."""

    tables: Callable[[str], Tables]
    """Asked before each HELLO to a node."""
    hello: Callable[[str, Hello, bool], None]
    """A node has said HELLO, and is alive; whether it was not before."""
    restarted: Callable[[str], None]
    """A node has begun a new incarnation; what was known of its tables is void."""
    view_changed: Callable[[View], None]
    """Other nodes are alive than before; gets the view as it was."""
    lost: Callable[[str], None]
    """The link of a node that may well be alive was lost, with what was on its way."""


class Members:
    """Contacts with all members.

    Attributes:
        order: ids of all members in the order of their numbers.
        view: the grid with the dead nodes of this cluster and this region.

    Raises:
        GridError: this node is no member.
    """

    def __init__(self, api: NodeApi, config: OctopiaConfig, hooks: Hooks, count: Callable[..., None]) -> None:
        self.api = api
        self.config = config
        self.hooks = hooks
        self.count = count
        grid = self.grid = config.grid
        self.me = api.node_id
        self.order = sorted(grid.members)
        self.contacts = {node_id: Contact(node_id, number) for number, node_id in enumerate(self.order)}
        if self.me not in self.contacts:
            raise GridError(f"this node, {self.me!r}, is none of the members that the configuration lists")
        self.number = self.contacts[self.me].number
        place = grid.place(self.me)
        self.mates = [n for n in self.order if n != self.me and grid.place(n).cluster == place.cluster]
        """The other nodes of this cluster."""
        self.peers = [n for n in self.order if n != self.me and grid.place(n).region == place.region]
        """The other nodes of this region."""
        self.near = tuple(sorted({*self.mates, *self.peers}))
        """Both, in their order."""
        self.view = View(grid, self.me, frozenset(self.near))
        self.gone = frozenset(self.mates)
        """Those of this cluster that are not alive."""
        self.strangers: dict[str, str] = {}
        """Why nodes that are no members are refused; the newest hundred."""
        self.incarnation = 0
        self._beat = 1
        self._news = 1
        self._introduced: dict[str, Peer] = {}
        self._greeted_at: dict[str, float] = {}
        self._stopped = False

    def start(self) -> None:
        saved = self.api.state.get(INCARNATION, b"")
        self.incarnation = next_incarnation(saved, 8, int(1000 * self.api.wall()))
        self._save_incarnation()
        own = self.contacts[self.me]
        own.incarnation, own.address, own.news = self.incarnation, self.api.peer.address, self._news
        self.api.call_later(self._pause(), self._round)
        self.api.call_later(self.config.dead_after / LOOKS, self._look)

    def _save_incarnation(self) -> None:
        self.api.state[INCARNATION] = self.incarnation.to_bytes(8)

    def stop(self) -> None:
        """Nobody has to wait until it is noticed."""
        self._stopped = True
        data = CODEC.encode(Bye(self.incarnation))
        for node_id in self.near:
            if self.contacts[node_id].state in (ContactState.UP, ContactState.SUSPECT):
                self.api.send(self._peer(node_id), data)

    # who is who ---------------------------------------------------------------------------------

    def member(self, number: int) -> str:
        """
        Raises:
            OverlayError: there are not so many members.
        """
        if number >= len(self.order):
            raise OverlayError(f"member {number} of {len(self.order)}")
        return self.order[number]

    def alive(self, node_id: str) -> bool:
        return self.contacts[node_id].alive

    def live(self) -> int:
        """How many nodes of this cluster and region are alive, this one among them."""
        return 1 + sum(self.contacts[node_id].alive for node_id in self.near)

    def hopeless(self) -> frozenset[int]:
        """Clusters in which no node of this cluster has a live neighbour."""
        found = set(range(len(self.grid.clusters))) - {self.view.cluster} - set(self.view.secondary)
        for node_id in self.mates:
            contact = self.contacts[node_id]
            if contact.alive:
                found -= contact.clusters
        return frozenset(found)

    def of(self, clusters: Iterable[int]) -> set[str]:
        """All members of some clusters but this one."""
        served = set(clusters)
        return {n for n in self.order if self.grid.cluster(n) in served and n != self.me}

    # sending --------------------------------------------------------------------------------------

    def send(self, node_id: str, message: tuple[Any, ...], turn: int = 0) -> SendResult:
        """Send to a member, over its link or by way of another node; false: it cannot be sent now."""
        return self.send_data(node_id, CODEC.encode(message), turn)

    def send_data(self, node_id: str, data: bytes, turn: int = 0) -> SendResult:
        """The same for an encoded message."""
        contact = self.contacts[node_id]
        to = self._peer(node_id)
        if contact.state is ContactState.RELAYED:
            via = self._relay(contact)
            if via is None:
                self.count("relays_failed")
                return SendResult.FULL
            self.count("relayed")
            to = self._peer(via)
            data = CODEC.encode(Relay(self.number, contact.number, data))
        sent = self.api.send(to, data, turn)
        if sent is SendResult.TOO_LARGE:
            self.count("too_large")
        return sent

    def can_dial(self, node_id: str) -> bool:
        """Whether an address is known."""
        return bool(self.contacts[node_id].address) or self.contacts[node_id].state is ContactState.UP

    def _peer(self, node_id: str) -> Peer:
        return Peer(node_id, self.contacts[node_id].address)

    def _relay(self, contact: Contact) -> str | None:
        usable = {n for n in self.near if self.contacts[n].state is ContactState.UP and n != contact.node_id}
        return contact.relay(usable, self.api.now() - self.config.dead_after)

    # HELLO ------------------------------------------------------------------------------------------

    def introduced(self, peer: Peer) -> None:
        """The configuration or the administrator has named a node, and there is a link to it."""
        contact = self.contacts.get(peer.node_id)
        if contact is None:
            self._refuse(peer, NO_MEMBER)
            return
        if peer.address and not contact.address:
            self._learn(contact, contact.incarnation, peer.address)
        self._introduced[peer.node_id] = peer
        self._greet(peer.node_id, answer=True)

    def forget_introducer(self, address: str) -> None:
        """The administrator wants no link with a node at this address any more."""
        for node_id in [n for n, peer in self._introduced.items() if peer.address == address]:
            del self._introduced[node_id]

    def linked(self, node_id: str) -> None:
        """There is a link with a node."""
        if node_id in self.near and self.contacts[node_id].state is not ContactState.UP:
            self._greet(node_id, answer=True)

    def _pause(self) -> float:
        return self.config.hello_interval * (0.75 + 0.5 * self.api.random.random())

    def _round(self) -> None:
        if self._stopped:
            return
        self._beat += 1
        for node_id in sorted({*self.near, *self._introduced}):
            self._greet(node_id, answer=False)
        self.api.call_later(self._pause(), self._round)

    def greet(self, node_id: str) -> None:
        """Say HELLO to a node now, since something has changed."""
        self._greet(node_id, answer=False)

    def greet_region(self) -> None:
        """The same to the nodes of this region."""
        for node_id in self.view.secondary.values():
            self._greet(node_id, answer=False)

    def _greet(self, node_id: str, answer: bool, own_incarnation: bool = False) -> None:
        """Say HELLO; ``own_incarnation``: with the newest incarnation of the receiver that is known."""
        contact = self.contacts[node_id]
        if node_id == self.me or self._stopped or not (contact.address or contact.alive):
            return
        hello = self._hello(contact, answer)
        if own_incarnation:
            hello = hello._replace(news=(*hello.news, _news(contact)))
        data = CODEC.encode(hello)
        self.api.send(self._peer(node_id), data)
        if contact.state is ContactState.RELAYED:
            self.send_data(node_id, data)

    def _hello(self, contact: Contact, answer: bool) -> Hello:
        news = tuple(
            _news(other)
            for other in self.contacts.values()
            if other.news > contact.sent_news and other is not contact
        )
        contact.sent_news = self._news
        tables = self.hooks.tables(contact.node_id)
        reports = (
            HelloReport(other.number, other.beat)
            for node_id in self.near
            if (other := self.contacts[node_id]).state is ContactState.UP
        )
        return Hello(
            self.grid.digest,
            self.incarnation,
            self._beat,
            answer,
            self.api.peer.address,
            *tables[:5],
            tuple(sorted(self.view.secondary)),
            tables.absent,
            tables.sets,
            tuple(reports),
            news,
        )

    def on_hello(self, sender: Peer, hello: Hello, direct: bool) -> None:
        """Somebody says HELLO."""
        contact = self.contacts.get(sender.node_id)
        if contact is None:
            self._refuse(sender, NO_MEMBER)
        elif hello.digest != self.grid.digest:
            self._refuse(sender, ANOTHER_GRID)
            contact.refused = ANOTHER_GRID
            self._gone(contact, contact.silent)
        else:
            self._on_hello(contact, hello, direct)

    def _on_hello(self, contact: Contact, hello: Hello, direct: bool) -> None:
        """A member with the same grid says HELLO."""
        node_id = contact.node_id
        if max(hello.incarnation, *(news.incarnation for news in hello.news), 0) >= INCARNATION_LIMIT:
            raise OverlayError("a HELLO that tells of a life in the far future")
        if hello.incarnation < contact.incarnation:
            self.count("stale_hello")
            if direct and not contact.alive:
                self._greet(node_id, answer=True, own_incarnation=True)
            return
        contact.refused = None
        was_alive = contact.alive
        self._learn(contact, hello.incarnation, hello.address or contact.address)
        contact.hello(direct, hello.beat, self.api.now())
        contact.clusters = frozenset(hello.clusters)
        contact.absent = frozenset(map(self.member, hello.absent))
        self._reports(node_id, {self.member(report.member): report.beat for report in hello.reports})
        for news in hello.news:
            self._news_of(self.member(news.member), news)
        self._settle()
        if hello.answer:
            self._greet(node_id, answer=False)
        elif not was_alive and contact.alive:
            self._greet(node_id, answer=True)
        if contact.alive:
            self.hooks.hello(node_id, hello, not was_alive)

    def _reports(self, by: str, beats: Mapping[str, int]) -> None:
        """A node tells which nodes it hears, with the beat of their last HELLO."""
        for node_id, contact in self.contacts.items():
            if node_id not in beats:
                contact.reports.pop(by, None)
            elif node_id != self.me:
                contact.reported(by, beats[node_id], self.api.now())

    def _news_of(self, node_id: str, news: News) -> None:
        contact = self.contacts[node_id]
        if node_id == self.me:
            if news.incarnation > self.incarnation:
                self.incarnation = self.contacts[self.me].incarnation = news.incarnation + 1
                self._save_incarnation()
                self.count("boot_raised")
                self.api.log(
                    "others know a later life of this node: its clock was set back, or its id is there twice",
                    address=news.address,
                )
                for other in self.near:
                    self._greet(other, answer=True)
            return
        if news.incarnation < contact.incarnation or (
            news.incarnation == contact.incarnation and contact.address
        ):
            return
        self._learn(contact, news.incarnation, news.address)
        if node_id in self.near and contact.state is not ContactState.UP:
            self._greet(node_id, answer=True)

    def _learn(self, contact: Contact, incarnation: int, address: str) -> None:
        known = contact.incarnation
        if incarnation <= known and address == contact.address:
            return
        contact.address = address
        self._news += 1
        contact.news = self._news
        if incarnation > known:
            contact.restarted(incarnation)
            if known:
                self.hooks.restarted(contact.node_id)

    def _refuse(self, sender: Peer, why: str) -> None:
        """Said once, and shown."""
        if sender.node_id in self.contacts:
            first = self.contacts[sender.node_id].refused is None
        else:
            first = sender.node_id not in self.strangers
            self.strangers[sender.node_id] = why
            while len(self.strangers) > 100:
                del self.strangers[next(iter(self.strangers))]
        self.count("refused")
        if first:
            self.api.log("node refused", node=sender.node_id, reason=why)
            self.api.send(sender, CODEC.encode(Refused(self.grid.digest, why)))

    def on_refused(self, sender: Peer, refused: Refused) -> None:
        """Another node wants nothing of this one."""
        contact = self.contacts.get(sender.node_id)
        why = f"it says of this node: {refused.reason}"
        if contact is not None:
            contact.refused = why
        self.count("refused_by_others")
        self.api.log("refused by another node", node=sender.node_id, reason=why)

    # alive or dead ----------------------------------------------------------------------------------

    def accepts(self, sender: Peer, direct: bool) -> bool:
        """Whether data of a node are looked at; from one that has not said HELLO they are not."""
        contact = self.contacts.get(sender.node_id)
        if contact is None or contact.refused is not None:
            self.count("from_strangers")
            return False
        if contact.incarnation:
            if direct:
                contact.data(self.api.now())
            return True
        self.count("before_hello")
        if sender.address and not contact.address:
            # nobody has announced it, or that was lost
            self._learn(contact, contact.incarnation, sender.address)
        if self.api.now() - self._greeted_at.get(sender.node_id, -AGAIN) >= AGAIN:
            self._greeted_at[sender.node_id] = self.api.now()
            self._greet(sender.node_id, answer=True)
        return False

    def on_relay(self, relay: Relay, take: Callable[[Peer, bytes], None]) -> None:
        """Data that are for another node, or have come from one by way of another."""
        origin = self.member(relay.origin)
        target = self.member(relay.target)
        if target == self.me:
            take(self._peer(origin), relay.data)
        elif self.contacts[target].state is ContactState.UP:
            self.count("relayed_for_others")
            self.api.send(self._peer(target), CODEC.encode(relay))
        else:
            self.count("relays_failed")

    def on_bye(self, sender: str, bye: Bye) -> None:
        contact = self.contacts[sender]
        if bye.incarnation == contact.incarnation:
            self._gone(contact, contact.said_bye)

    def on_unreachable(self, node_id: str, reason: Unreachable) -> None:
        contact = self.contacts.get(node_id)
        if contact is None:
            return
        before = contact.state
        self._gone(contact, lambda: contact.lost(reason is not Unreachable.LOST))
        if before is ContactState.UP and contact.state is ContactState.SUSPECT:
            self._greet(node_id, answer=True)
            self.hooks.lost(node_id)

    def _look(self) -> None:
        due = self.api.now() - self.config.dead_after
        for node_id in self.near:
            contact = self.contacts[node_id]
            if contact.alive and contact.received_at < due:
                self._gone(contact, contact.silent)
        self._settle()
        self.api.call_later(self.config.dead_after / LOOKS, self._look)

    def _gone(self, contact: Contact, event: Callable[[], None]) -> None:
        was_alive = contact.alive
        event()
        if was_alive and not contact.alive:
            self._settle()

    def _settle(self) -> None:
        """Work out who is alive, and the view."""
        for node_id in self.near:
            contact = self.contacts[node_id]
            if contact.state in (ContactState.DOWN, ContactState.RELAYED):
                contact.relayed(self._relay(contact) is not None)
        dead = frozenset(n for n in self.near if not self.contacts[n].alive)
        self.gone = dead.intersection(self.mates)
        if dead == self.view.dead:
            return
        for node_id in sorted(dead ^ self.view.dead):
            event = "node lost" if node_id in dead else "node found"
            self.api.log(event, node=node_id, place=str(self.grid.place(node_id)))
        before, self.view = self.view, View(self.grid, self.me, dead)
        self.hooks.view_changed(before)


def _news(contact: Contact) -> News:
    return News(contact.number, contact.incarnation, contact.address)
