"""Makes and keeps links: judges neighbours, binds sessions that come and go, notices silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ildm.api import Peer, Unreachable
from ildm.config import Address, refuse_classes, refuse_rules, required_address
from ildm.core.broker.same_broker import number_in
from ildm.core.link import judging
from ildm.core.link.cooperation import Cooperation
from ildm.core.link.dialer import Dialer, Neighbor, address_of
from ildm.core.link.discovery import Discovery, is_own
from ildm.core.link.handshake import Terms
from ildm.core.link.hello import Hello, Refusal, link_key
from ildm.core.link.judging import HelloJudge, own_protocols
from ildm.core.link.link import NeighborLink
from ildm.core.link.membership import Membership, OpenMembership
from ildm.core.link.on_demand import OnDemand
from ildm.core.link.session import LinkSession
from ildm.core.link.start_gate import StartGate
from ildm.core.link.state import LinkEvent
from ildm.core.link.tree import TreeMembership
from ildm.core.link.turned_away import TurnedAway
from ildm.core.transfer.classes import LinkClasses
from ildm.core.transfer.rules import Hits, LinkRules
from ildm.mqtt import IldmError, LocalError, ReasonCode

if TYPE_CHECKING:
    from ildm.core.declared import Left
    from ildm.core.link.parts import LinkParts
    from ildm.core.link.ports import Connection
    from ildm.core.link.start_gate import Awaited
    from ildm.core.transfer.rules import Rule

__all__ = ["LinkManager", "Neighbor"]

PATIENCE = 2.0
"""A neighbour not heard for this many keep-alive intervals is taken for dead."""


FORMER_SECRET = 600.0
"""Seconds for which a link secret is good after there is another one."""


class LinkManager:
    """All links and neighbours of a node."""

    def __init__(self, parts: LinkParts, secret: str | None) -> None:
        self.parts = parts
        self.driver = parts.driver
        self.config = config = parts.config
        key = None if secret is None else link_key(secret)
        self.terms = Terms(
            parts.node_id,
            key,
            config.keep_alive,
            config.inflight,
            config.packet_size,
            protocols=own_protocols(parts),
        )
        self.links: dict[str, NeighborLink] = {}
        self.dialer = Dialer(parts, lambda neighbor, index: LinkSession(self, neighbor, index))
        self.neighbors = self.dialer.neighbors
        self.discovery = Discovery(parts, self.dialer)
        self._ruled: dict[str, tuple[Sequence[Rule], Hits]] = {}
        """Each set of rules that a link has or had, by its key in the configuration."""
        self.cooperation = Cooperation(parts)
        self.membership: Membership
        if parts.has_overlay:
            on_demand = OnDemand(parts, self.links, self.dialer)
            address = required_address(config, parts.algorithm)
            refuse_rules(config, parts.algorithm)
            refuse_classes(config, parts.algorithm)
            self.membership = OpenMembership(
                parts, self.links, self.cooperation, self._discard, on_demand, address
            )
        else:
            self.membership = TreeMembership(parts, self.links, self.cooperation, self._discard)
        self.cooperation.membership = self.membership
        self.start_gate = StartGate(parts, self.links, self.neighbors)
        self.cooperation.start_gate = self.start_gate
        self.discovery.answered = self.start_gate.found
        self.advertised = self.membership.address
        """Where other nodes reach this one."""
        self.judge = HelloJudge(parts, self.links, self.membership, lambda: self.peer, self._replace_session)
        self.turned_away = TurnedAway(parts.driver, parts.counters)
        self._inbound: dict[LinkSession, str] = {}
        """Connections from outside which are in the handshake, the oldest first, with their hosts."""
        self._tick_timer: Any = None
        self._former_timer: Any = None
        self._stopped = False
        parts.injector.same_broker.found = self._same_broker

    def start(self, neighbors: Mapping[Address, bool]) -> None:
        """``neighbors``: addresses, and whether each was added at run time and saved."""
        self._tick_timer = self.driver.call_later(self.config.keep_alive, self._tick)
        self.membership.start()
        self._restore(neighbors)
        absent = {link.address: link.node_id for link in self.links.values()}
        for address, saved in neighbors.items():
            self.add(address, saved).node_id = absent.get(str(address))
        if not self.parts.has_overlay:
            self.start_gate.close(self._unknown(neighbors, absent), self.config.wait_at_start)
        self.discovery.start()

    def _unknown(self, neighbors: Collection[Address], absent: Collection[str | None]) -> list[Awaited]:
        """Neighbours that are not on record; ``absent``: addresses of those that are. DNS is asked for some
        only where none is, as no record has the address of one that was found."""
        dial = [
            each for each in self.config.wait_for if each != self.parts.node_id and each not in self.links
        ]
        asked = [] if self.links else self.config.discover
        return [*(address for address in neighbors if str(address) not in absent), *dial, *asked]

    def _restore(self, neighbors: Collection[Address]) -> None:
        """Take up the links of an earlier life, as in an outage: what is for them waits until they are back.

        Those which the configuration has named then and names no more are forgotten.
        """
        memory = self.parts.memory
        if memory is None:
            return
        addresses = {str(address) for address in neighbors}
        for remembered in memory.load():
            named = not remembered.dialed or remembered.dialed in addresses
            if not named or len(self.links) >= self.config.max_neighbors:
                memory.forget(remembered)
                continue
            link = self._make_link(remembered.node_id, remembered.sessions)
            self.links[link.node_id] = link
            link.age, link.address = remembered.age, remembered.dialed or None
            link.dialed = bool(remembered.dialed)
            link.reason = "not back since this node has started"
            link.received_interest.restore(remembered.interest)
            link.subtree.nodes = set(remembered.behind)
            if remembered.reroute_pending and link.kept:
                self.cooperation.rerouting.suspend(link)
            self.cooperation.happened(link, LinkEvent.RESTORED)
            self.membership.absent(link)
        self.cooperation.rerouting.take_over(self.links)

    def listening_at(self, port: int) -> None:
        """The port listened on, where the system has chosen it."""
        if self.advertised is not None and self.advertised.port == 0:
            self.advertised = self.advertised._replace(port=port)

    def change_secret(self, secret: str | None) -> None:
        """Prove another one from now on. The one before is good for ``FORMER_SECRET`` seconds more, so that
        neighbours can be given the new one one after the other; links that are there stay."""
        key = None if secret is None else link_key(secret)
        if key == self.terms.key:
            return
        if self._former_timer is not None:
            self._former_timer.cancel()
        former = None if key is None else self.terms.key
        self.terms = replace(self.terms, key=key, former=former)
        self._former_timer = self.driver.call_later(FORMER_SECRET, self._forget_former)

    def _forget_former(self) -> None:
        self.terms = replace(self.terms, former=None)

    def settings_changed(self) -> None:
        """The section ``link`` holds other values: what was copied of them is taken anew."""
        config = self.config
        self.cooperation.telling.wait = config.subscribe_wait
        for neighbor in self.neighbors.values():
            neighbor.backoff.minimum, neighbor.backoff.maximum = config.reconnect_min, config.reconnect_max
        for link in self.links.values():
            rules = self._rules(link.node_id)
            now, before = (None if each is None else each.hits for each in (rules, link.rules))
            if now is not before:  # each set of rules has its own
                self.cooperation.rules_changed(link, rules)
            self.cooperation.budgets.follow(link)
            terms = config.classes_for(link.node_id)
            if terms != (link.classes.terms if link.classes is not None else []):
                link.follow_classes(self._classes(link.node_id, link.classes))
                self.parts.router.routes.invalidate()
            self._follow_backlog(link)
        self.terms = replace(self.terms, protocols=own_protocols(self.parts))
        self.discovery.follow()
        for link in list(self.links.values()):
            if link.control is not None and self.judge.outdated(link):
                text = "link.protocol, link.features or link.compression has changed: the link is made anew"
                link.control.disconnect(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, text)

    @property
    def peer(self) -> Peer:
        """This node as others reach it."""
        return Peer(self.parts.node_id, "" if self.advertised is None else str(self.advertised))

    def stop(self, farewell: bool = True) -> None:
        """End all links; without a farewell as if the node had crashed."""
        self._stopped = True
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        self.membership.stop()
        self.cooperation.watching.stop()
        self.discovery.stop()
        self.dialer.stop()
        self.start_gate.stop()
        for link in list(self.links.values()):
            for session in list(link.open_sessions):
                if farewell:
                    session.disconnect(ReasonCode.SERVER_SHUTTING_DOWN, "the node stops")
                else:
                    session.abort()
        for session in list(self._inbound):
            session.close()

    @property
    def on_demand(self) -> OnDemand | None:
        """What makes links for data of the algorithm, with topology ``any``."""
        return self.membership.on_demand

    @property
    def idle(self) -> bool:
        """Nothing waits for a neighbour, connected or not."""
        return (
            self.membership.idle
            and not self.cooperation.rerouting.queued_messages
            and all(link.at_rest for link in self.links.values())
        )

    def when_advertised(self, callback: Callable[[], None]) -> bool:
        """Whether all neighbours know what local clients want by now; see :class:`Telling`."""
        return self.cooperation.telling.when_advertised(callback)

    # neighbours -------------------------------------------------------------------------------

    def add(self, address: Address, saved: bool) -> Neighbor:
        """Begin to dial an address.

        Raises:
            IldmError: it is there already (unless it has refused: then it is tried anew), or there are
                too many.
        """
        known = self.discovery.named_here(address)
        if known is not None:
            known.saved = saved
            return known
        neighbor = self.dialer.add(address, saved)
        self.parts.events.change_begins("add", address)
        self.dialer.dial(neighbor)
        return neighbor

    def find(self, target: str) -> tuple[list[Neighbor], NeighborLink | None]:
        """What :meth:`remove` would remove. Raises: as that."""
        named = [n for n in self.neighbors.values() if target in (str(n.address), n.node_id)]
        neighbor = named[0] if named else None
        link = self.links.get(target)
        if link is None and neighbor is not None and not self._leads_elsewhere(neighbor):
            link = self.links.get(neighbor.node_id or "")
        if neighbor is None and link is None:
            link = next((known for known in self.links.values() if known.address == target), None)
            if link is None:
                raise IldmError(f"{target} is not a neighbour")
        return named, link

    def remove(self, target: str) -> tuple[Address | None, str | None]:
        """Remove a neighbour by its address or its link by node id; answers what was removed.

        Raises:
            IldmError: there is no such neighbour.
        """
        named, link = self.find(target)
        neighbor = named[0] if named else None
        address = neighbor.address if neighbor is not None else None
        self.parts.events.change_begins("remove", address or Address(link.address or "" if link else "", 0))
        for known in named:
            self.dialer.remove(known)
            self.discovery.removed(known)
        if link is not None:
            sessions = list(link.open_sessions)
            self._discard(link, "removed")
            for session in sessions:
                session.unbind()
                session.part(ReasonCode.ADMINISTRATIVE_ACTION, "removed by the neighbour's administrator")
            self.membership.changed()
        self.start_gate.look()
        self.parts.events.change_done("remove")
        self.parts.events.change_done("add")
        return address, link.node_id if link is not None else None

    def _leads_elsewhere(self, neighbor: Neighbor) -> bool:
        """An address is only another one of a node that is linked by one of its other addresses."""
        link = self.links.get(neighbor.node_id or "")
        others = {str(address) for address in self.neighbors if address != neighbor.address}
        return link is not None and link.dialed and link.address in others

    # what sessions ask ------------------------------------------------------------------------

    def session_accepted(self, session: LinkSession) -> bool:
        """Whether one more connection from outside is within bounds."""
        if self._stopped:
            return False
        if len(self._inbound) >= self.membership.most_links + self.config.max_neighbors * 3:
            self.parts.counters["link_connections_refused"] += 1
            self._most_crowded().abort()
        self._inbound[session] = address_of(session.peer).host
        return True

    def _most_crowded(self) -> LinkSession:
        """Of those that have proven nothing yet the oldest, from the address most of them come from.

        So nobody who merely connects, however often, keeps a neighbour from it.
        """
        ((host, _),) = Counter(self._inbound.values()).most_common(1)
        oldest = next(session for session, found in self._inbound.items() if found == host)
        del self._inbound[oldest]
        return oldest

    def _replace_session(self, link: NeighborLink, index: int) -> None:
        """End the session which another one with the same index is about to follow."""
        for old in [s for s in link.open_sessions if s.index == index]:
            old.unbind()
            link.open_sessions.remove(old)
            old.abort()

    def refused_peer(self, session: Connection, refusal: Refusal) -> None:
        self.parts.counters[f"links_refused_{refusal.kind}"] += 1
        found = self.discovery.active
        own = found and is_own(self.parts.node_id, refusal)  # DNS names all nodes, this one, too
        usual = (found or self.on_demand is not None) and refusal.kind == "duplicate"  # both have dialed
        level = "debug" if usual or own else "warning"
        self.driver.log(level, "neighbour refused", peer=session.peer, reason=refusal.text)
        if own:
            return
        # with those its link is there, or comes again
        if refusal.kind not in ("duplicate", "stale") and session.neighbor is None:
            self._turned_away(session, refusal.kind, refusal.text)

    def _turned_away(self, session: Connection, kind: str, text: str) -> None:
        """Somebody who has dialed this node did not become a neighbour."""
        self.turned_away.note(address_of(session.peer).host, session.far, kind, text)

    def session_failed(self, session: LinkSession, error: IldmError) -> None:
        self.parts.counters["link_malformed"] += 1
        self.driver.log("warning", "link broken by bad data", peer=session.peer, error=str(error))
        if session.neighbor is None and session.link is None:
            self._turned_away(session, "malformed", str(error))
        self.parts.dispatch.call("on_recv_failure", session, error)

    def node_failed(self, session: LinkSession, error: LocalError) -> None:
        """What this node must never get into; the session ends, and the link comes again."""
        self.parts.counters["link_internal_errors"] += 1
        self.driver.log("error", "link broken by an error of this node", peer=session.peer, error=str(error))

    # sessions come and go -----------------------------------------------------------------------

    def session_closed(self, session: LinkSession, unexpected: Exception | None) -> None:
        self.parts.dispatch.session_closed(session, unexpected)
        if unexpected is not None:
            self.parts.counters["link_sessions_lost"] += 1

    def session_established(self, session: LinkSession, hello: Hello) -> None:
        self._inbound.pop(session, None)  # those of a link have bounds of their own
        self.turned_away.accepted(address_of(session.peer).host, hello.node)
        self.parts.dispatch.session_established(session)
        link = self.links.get(hello.node)
        if session.index > 0:
            self._further_session(session, link)
            return
        if link is not None and link.control is not None and not self._supersedes(session, link, hello):
            session.refusal = judging.DUPLICATE
            session.disconnect(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "duplicate link")
            return
        if link is not None and link.in_cooperation and not self.membership.keeps_absent:
            self._link_lost(link, "the neighbour has connected anew", "")  # what was under way is lost
            link = None
        new = link is None
        if link is None:
            link = self.links[hello.node] = self._make_link(hello.node, hello.sessions)
        elif link.boot != hello.boot or hello.fresh:
            for inbound in link.inbounds:
                inbound.reset()
        link.connect(session, hello)
        session.bind(link)
        self.cooperation.budgets.connected(link)
        self._follow_backlog(link)
        session.ping()
        self.parts.injector.same_broker.linked(link.node_id, link.token, hello.boot, hello.broker)
        self.cooperation.happened(link, LinkEvent.CONNECTED)
        self._classify(link, session, hello)
        neighbor = session.neighbor
        if neighbor is not None:
            self._replace_absent(neighbor, hello.node)
            self.dialer.linked(neighbor, hello.node)
            self.discovery.linked(neighbor)
            for index in range(1, hello.sessions):
                self.dialer.dial_session(neighbor, link, link.token, index)
        elif new and not link.on_demand:
            self.parts.events.change_begins("add", address_of(session.peer))
        if not link.on_demand:
            self.parts.events.change_done("add")
        self.driver.log(
            "debug" if link.on_demand else "info",
            "link connected",
            neighbor=hello.node,
            address=link.address,
            sessions=hello.sessions,
        )
        self.dialer.hurry()
        self.cooperation.clocks.look(link)
        self.membership.connected(link)
        self.membership.changed()

    def _replace_absent(self, neighbor: Neighbor, node_id: str) -> None:
        """Another node answers at an address now: the one that was there does not come back."""
        for link in list(self.links.values()):
            same = link.dialed and link.address == str(neighbor.address) and link.node_id != node_id
            # where DNS names addresses, another one may be the former node's
            if same and not link.connected and not link.found:
                self._discard(link, "replaced")

    def _make_link(self, node_id: str, sessions: int) -> NeighborLink:
        return NeighborLink(
            self.driver,
            self.config,
            self.parts.counters,
            node_id,
            sessions,
            levels=self.parts.limits.topic_levels,
            synchronized=self.cooperation.synchronized,
            progressed=self.cooperation.telling.progressed,
            writable=partial(self.parts.dispatch.call, "on_writable"),
            custody=self.parts.custody,
            kept=self.parts.custody is not None and self.membership.keeps_absent,
            rules=self._rules(node_id),
            classes=self._classes(node_id),
        )

    def _classes(self, node_id: str, former: LinkClasses | None = None) -> LinkClasses | None:
        terms = self.config.classes_for(node_id)
        if not terms and former is None:
            return None
        return LinkClasses(terms, former, self.parts.counters)

    def _follow_backlog(self, link: NeighborLink) -> None:
        """Let the part of the backlog hold that is configured for where the neighbour is."""
        if link.classes is not None:
            address = link.address if link.dialed else None
            link.classes.backlog = self.config.backlog_of(link.node_id, address)

    def _rules(self, node_id: str) -> LinkRules | None:
        key, rules = self.config.ruled(node_id)
        if not rules:
            return None
        given, hits = self._ruled.get(key, ([], None))
        if hits is None or given != rules:  # the first, or others since a reload
            hits = Hits(len(rules))
            self._ruled[key] = rules, hits
        return LinkRules(rules, self._verdicts_flushed, hits)

    def hits_of(self, key: str, rules: Sequence[Rule]) -> Hits:
        """How often each rule of a set has decided, by its key in the configuration."""
        given, hits = self._ruled.get(key, ([], None))
        return hits if hits is not None and given == rules else Hits(len(rules))

    def _verdicts_flushed(self) -> None:
        self.parts.counters["link_rules_flushes"] += 1

    def _further_session(self, session: LinkSession, link: NeighborLink | None) -> None:
        """One with an index above 0: it belongs to a link that is there, or to none."""
        if link is None or not link.connected or session.index >= len(link.senders):
            session.disconnect(ReasonCode.UNSPECIFIED_ERROR, "the link has gone")
            return
        self._replace_session(link, session.index)
        session.bind(link)
        link.open_sessions.append(session)
        if link.ready_here:
            self.cooperation.say_ready(link, session.index)
        if link.ready_here and link.ready_there:
            link.resume(session.index)

    def _classify(self, link: NeighborLink, session: LinkSession, hello: Hello) -> None:
        """Whether a link is one of the administrator's, here or there, or made on demand."""
        link.introducer = any(
            hello.node == neighbor.node_id or neighbor is session.neighbor
            for neighbor in self.neighbors.values()
        )
        self.membership.classify(link, session.neighbor, hello)

    def _name(self, link: NeighborLink) -> None:
        """A link that is there already turns out to be that of a neighbour dialed here."""
        link.on_demand = False
        if not link.introducer:
            link.introducer = True
            self.membership.named(link)

    def _supersedes(self, session: LinkSession, link: NeighborLink, hello: Hello) -> bool:
        """Of two connections between the same nodes the one dialed by the smaller id stays, but a later owner
        of the neighbour's site has it in any case."""
        ours_smaller = self.parts.node_id < hello.node
        same_side = link.dialed == (session.neighbor is not None)
        later = judging.follows(link, hello)
        wins = later or same_side or ((session.neighbor is not None) == ours_smaller)
        if later:
            self.parts.counters["pair_followed"] += 1
        if wins:
            for old in list(link.open_sessions):
                old.unbind()
                old.refusal = judging.DUPLICATE
                old.disconnect(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "duplicate link")
            link.hold_down()
        return wins

    def session_lost(self, session: LinkSession, reason: str, why: Unreachable = Unreachable.LOST) -> None:
        """``why``: what the loss of a connection that was not established yet says of the neighbour."""
        self._inbound.pop(session, None)
        link, neighbor = session.link, session.neighbor
        kind = session.refusal.kind if session.refusal is not None else ""
        if link is not None and link.control is session:
            self._link_lost(link, reason, kind)
        elif link is not None and session in link.open_sessions:
            link.open_sessions.remove(session)
        if neighbor is None or neighbor.gone or self._stopped:
            return
        if kind == "secret":  # with either it is told who has another one
            neighbor.former_secret = not neighbor.former_secret
        if session.index > 0:
            current = self.links.get(neighbor.node_id or "")
            if current is not None and current.connected and current.token == neighbor.token:
                self.dialer.dial_session_later(neighbor, current, session.index)
            return
        if neighbor.session is not session:
            return
        if neighbor.expected is not None:
            if link is None and self.on_demand is not None:
                self.on_demand.dial_failed(neighbor, session.refusal, reason, why)
            return
        self.parts.events.change_done("add")
        if kind == "duplicate" and session.refusal is not None and session.refusal.node:
            neighbor.node_id = session.refusal.node
            known = self.links.get(neighbor.node_id)
            if known is not None:
                self._name(known)
        if kind == judging.DEPOSED:
            self.parts.counters["pair_deposed"] += 1
        if kind == judging.SAME_BROKER and session.refusal is not None and session.refusal.node:
            self.parts.injector.same_broker.refused_by(session.refusal.node)
        if not self.discovery.lost(neighbor, session.refusal):
            self.start_gate.look()
            return
        self.dialer.failed(neighbor, kind, reason)
        if kind in ("own-id", judging.SAME_BROKER):
            self.start_gate.give_up(neighbor.address)
        else:
            self.start_gate.look()

    def _same_broker(self, node_id: str, number: int) -> None:
        """A neighbour has been heard at this node's broker: the link ends."""
        link = self.links.get(node_id)
        if link is None or link.control is None:
            return
        refusal = judging.same_broker(self.parts.node_id, node_id)
        same = self.parts.injector.same_broker
        same.remember(node_id, link.boot, number)
        self.refused_peer(link.control, refusal)
        sessions, link.open_sessions = link.open_sessions, []
        self._link_lost(link, refusal.text, refusal.kind)
        for session in sessions:
            session.unbind()
            session.refuse(refusal, same.number)

    def same_broker_told(self, session: LinkSession, link: NeighborLink, number: str) -> None:
        """The neighbour has heard this node at its broker, and ends the link."""
        self.parts.injector.same_broker.remember(link.node_id, link.boot, number_in(number))
        if session.neighbor is None and session.index == 0:
            refusal = judging.same_broker(self.parts.node_id, link.node_id)
            self._turned_away(session, refusal.kind, refusal.text)

    def _link_lost(self, link: NeighborLink, reason: str, kind: str) -> None:
        self.parts.injector.same_broker.unlinked(link.node_id)
        link.disconnect(reason)
        self.cooperation.happened(link, LinkEvent.LOST)
        self.membership.lost(link, reason, kind)
        if not self._stopped:
            self.membership.changed()
            self.dialer.link_lost(link.node_id, kind, reason)
            if link.epoch:  # another member may answer at an address that nobody answered at
                self.dialer.hurry()

    def _discard(self, link: NeighborLink, reason: Left) -> None:
        self.membership.forgotten(link)
        if self.links.get(link.node_id) is link:
            self.parts.injector.same_broker.unlinked(link.node_id)
            del self.links[link.node_id]
        link.control = None
        link.clock.lost()
        link.open_sessions = []
        self.cooperation.happened(link, LinkEvent.FORGOTTEN, reason)

    # keep alive -------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._stopped:
            return
        self._tick_timer = self.driver.call_later(self.config.keep_alive, self._tick)
        self.cooperation.clocks.tick(self.links.values())
        dead_since = self.driver.now() - PATIENCE * self.config.keep_alive
        for link in list(self.links.values()):
            for session in list(link.open_sessions):
                session.check_unread()
                # who does not read cannot hear: a session paused here is not judged
                if session.last_heard < dead_since and not session.paused:
                    session.give_up("timeout", "no sign of life")
                else:
                    session.ping()
