"""Makes and keeps links: dialing, judging neighbours, sessions that come and go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ildm.api import Peer
from ildm.config import Address, LinkConfig, advertised_address, required_address
from ildm.core.link import judging
from ildm.core.link.cooperation import Cooperation
from ildm.core.link.handshake import Hello, Refusal
from ildm.core.link.link import NeighborLink
from ildm.core.link.neighbor import Neighbor, address_of
from ildm.core.link.on_demand import OnDemand
from ildm.core.link.session import LinkSession, Phase
from ildm.mqtt import IldmError, ReasonCode

if TYPE_CHECKING:
    from ildm.core.node import Node

__all__ = ["LinkManager", "Neighbor"]

TOKEN = 12
POLITE = ("duplicate", "removed")
"""Ways in which a link ends without anything being wrong with the neighbour."""
PATIENCE = 2.0
"""A neighbour not heard for this many keep-alive intervals is taken for dead."""


class LinkManager:
    """All links and neighbours of a node."""

    def __init__(self, node: Node, config: LinkConfig, secret: str | None) -> None:
        self.node = node
        self.driver = node.driver
        self.config = config
        self.secret = secret
        self.write_buffer = node.config.limits.write_buffer
        self.neighbors: dict[Address, Neighbor] = {}
        self.links: dict[str, NeighborLink] = {}
        self.advertised = advertised_address(config)
        """Where other nodes reach this one."""
        self.any_topology = node.topology == "any"
        if self.any_topology:
            self.advertised = required_address(config, node.algorithm_name or "")
        self.cooperation = Cooperation(node, self.links, self._discard, self._joined)
        self.on_demand = OnDemand(self)
        self._inbound: set[LinkSession] = set()
        self._tick_timer: Any = None
        self._stopped = False

    def start(self, neighbors: Mapping[Address, bool]) -> None:
        """``neighbors``: addresses, and whether each was added at run time and saved."""
        self._tick_timer = self.driver.call_later(self.config.keep_alive, self._tick)
        if self.any_topology:
            self.on_demand.start()
        for address, saved in neighbors.items():
            self.add(address, saved)

    def listening_at(self, port: int) -> None:
        """The port listened on, where the system has chosen it."""
        if self.advertised is not None and self.advertised.port == 0:
            self.advertised = self.advertised._replace(port=port)

    @property
    def peer(self) -> Peer:
        """This node as others reach it."""
        return Peer(self.node.node_id, "" if self.advertised is None else str(self.advertised))

    def stop(self, farewell: bool = True) -> None:
        """End all links; without a farewell as if the node had crashed."""
        self._stopped = True
        self.cooperation.stop()
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        self.on_demand.stop()
        for neighbor in self.neighbors.values():
            self.stop_dialing(neighbor)
        for link in list(self.links.values()):
            for session in list(link.open_sessions):
                if farewell:
                    session.disconnect(ReasonCode.SERVER_SHUTTING_DOWN, "the node stops")
                else:
                    session.abort()
        for session in list(self._inbound):
            session.close()

    def _joined(self, link: NeighborLink) -> None:
        if self.any_topology:
            self.on_demand.joined(link)

    @property
    def cooperating(self) -> list[NeighborLink]:
        """Links that are part of the cooperation."""
        return self.cooperation.active

    @property
    def idle(self) -> bool:
        unsent = any(not link.idle for link in self.links.values() if link.connected)
        return not (unsent or self.on_demand.waiting)

    # neighbours -------------------------------------------------------------------------------

    def add(self, address: Address, saved: bool) -> Neighbor:
        """Begin to dial an address.

        Raises:
            IldmError: it is there already (unless it has refused: then it is tried anew), or there are
                too many.
        """
        known = self.neighbors.get(address)
        if known is not None and known.state == "refused":
            known.gone = True
            del self.neighbors[address]
            self.stop_dialing(known)
        elif known is not None:
            raise IldmError(f"{address} is already a neighbour")
        if len(self.neighbors) >= self.config.max_neighbors:
            raise IldmError(f"there are {len(self.neighbors)} neighbours already (link.max_neighbors)")
        neighbor = self.neighbors[address] = Neighbor(self, address, saved)
        self.node.change_begins("add", address)
        self.dial(neighbor)
        return neighbor

    def remove(self, target: str) -> tuple[Address | None, str | None]:
        """Remove a neighbour by its address or its link by node id; answers what was removed.

        Raises:
            IldmError: there is no such neighbour.
        """
        neighbor = next((n for n in self.neighbors.values() if target in (str(n.address), n.node_id)), None)
        link = self.links.get(target)
        if link is None and neighbor is not None and neighbor.node_id is not None:
            link = self.links.get(neighbor.node_id)
        if neighbor is None and link is None:
            link = next((known for known in self.links.values() if known.address == target), None)
            if link is None:
                raise IldmError(f"{target} is not a neighbour")
        address = neighbor.address if neighbor is not None else None
        self.node.change_begins("remove", address or Address(link.address or "" if link else "", 0))
        if neighbor is not None:
            neighbor.gone = True
            del self.neighbors[neighbor.address]
            self.stop_dialing(neighbor)
        if link is not None:
            link.inter_unsubscribe(list(link.announced))
            sessions = list(link.open_sessions)
            self._discard(link, "removed")
            for session in sessions:
                session.unbind()
                session.part(ReasonCode.ADMINISTRATIVE_ACTION, "removed by the neighbour's administrator")
            self.cooperation.links_changed()
        self.node.change_done("remove")
        self.node.change_done("add")
        return address, link.node_id if link is not None else None

    def dial(self, neighbor: Neighbor) -> None:
        """Begin a connection; :meth:`session_established` or :meth:`session_lost` follows."""
        neighbor.timer = None
        if neighbor.gone or self._stopped:
            return
        neighbor.token = self.driver.token(TOKEN).hex()
        neighbor.session = LinkSession(self, neighbor, 0)
        self.driver.dial(neighbor.address, neighbor.session, self.config.connect_timeout)

    def stop_dialing(self, neighbor: Neighbor) -> None:
        """Give up a connection that is not a link's yet."""
        if neighbor.timer is not None:
            neighbor.timer.cancel()
            neighbor.timer = None
        if neighbor.session is not None and neighbor.session.link is None:
            neighbor.session.abort()

    def _dial_later(self, neighbor: Neighbor, pause: float) -> None:
        if not (neighbor.gone or self._stopped) and neighbor.timer is None:
            neighbor.timer = self.driver.call_later(pause, self.dial, neighbor)

    # what sessions ask ------------------------------------------------------------------------

    def hello(
        self, far: str | None, index: int, token: str, age: int = 0, sessions: int | None = None
    ) -> Hello:
        """What this node says to ``far`` (None while unknown) of itself and of a session."""
        link = self.links.get(far or "")
        on_demand = self.on_demand.is_dialing(far, token)
        return Hello(
            node=self.node.node_id,
            boot=self.node.boot,
            algorithm=self.node.algorithm_name or "",
            sessions=self.config.sessions if sessions is None else sessions,
            index=index,
            token=token,
            age=age,
            fresh=link is None or not link.in_cooperation,
            address=self.peer.address,
            on_demand=on_demand,
            to=far or "" if on_demand else "",
        )

    def session_accepted(self, session: LinkSession) -> bool:
        """Whether one more connection from outside is within bounds."""
        bound = self.config.max_neighbors * 4 + (self.config.max_links if self.any_topology else 0)
        if self._stopped or len(self._inbound) >= bound:
            self.node.counters["link_connections_refused"] += 1
            return False
        self._inbound.add(session)
        return True

    def handshake_done(self, session: LinkSession) -> None:
        """A connection from outside has become a session of a link; those have bounds of their own."""
        self._inbound.discard(session)

    def judge(self, session: LinkSession, hello: Hello) -> Hello | Refusal:
        """The acceptor's decision about a neighbour that has proven who it is."""
        refusal = judging.mismatch(self.node, hello)
        if refusal is not None:
            return refusal
        link = self.links.get(hello.node)
        if hello.index > 0:
            if (
                link is None
                or not link.connected
                or link.token != hello.token
                or hello.index >= len(link.lanes)
            ):
                return judging.STALE
            self._replace_session(link, hello.index)
            return self.hello(hello.node, hello.index, hello.token, link.age, len(link.lanes))
        if link is not None and link.control is not None:
            # also when the neighbour seems to have restarted: two nodes might have the same id
            heard = self.driver.now() - link.control.last_heard
            if not hello.on_demand:
                link.on_demand = False  # from now on a configuration asks for it
            if link.dialed or heard <= 1.2 * self.config.keep_alive:
                return judging.DUPLICATE._replace(node=self.node.node_id)
        if link is None:
            refusal = judging.over_limit(self, hello)
            if refusal is not None:
                return refusal
        age = link.age if link is not None and link.in_cooperation else self.cooperation.topology.next_age()
        return self.hello(hello.node, 0, hello.token, age, hello.sessions)

    def judge_answer(self, session: LinkSession, hello: Hello) -> Refusal | None:
        """The dialer's decision about a neighbour that has accepted it."""
        expected = session.neighbor.expected if session.neighbor is not None else None
        return judging.wrong_answer(hello, expected) or judging.mismatch(self.node, hello)

    def _replace_session(self, link: NeighborLink, index: int) -> None:
        """End the session which another one with the same index is about to follow."""
        for old in [s for s in link.open_sessions if s.index == index]:
            old.unbind()
            link.open_sessions.remove(old)
            old.abort()

    def refused_peer(self, session: LinkSession, refusal: Refusal) -> None:
        self.node.counters[f"links_refused_{refusal.kind}"] += 1
        usual = self.any_topology and refusal.kind == "duplicate"  # both have dialed
        level = "debug" if usual else "warning"
        self.driver.log(level, "neighbour refused", peer=session.peer, reason=refusal.text)

    def session_failed(self, session: LinkSession, error: IldmError) -> None:
        self.node.counters["link_malformed"] += 1
        self.driver.log("warning", "link broken by bad data", peer=session.peer, error=str(error))
        self.node.dispatch.call("on_recv_failure", session, error)

    # sessions come and go -----------------------------------------------------------------------

    def session_established(self, session: LinkSession, hello: Hello) -> None:
        link = self.links.get(hello.node)
        if session.index > 0:
            if link is None or not link.connected or session.index >= len(link.lanes):
                session.disconnect(ReasonCode.UNSPECIFIED_ERROR, "the link has gone")
                return
            self._replace_session(link, session.index)
            session.bind(link)
            link.open_sessions.append(session)
            if link.in_cooperation and link.ready_here and link.ready_there:
                session.lane.resume()  # type: ignore[union-attr]  # bound just now
            return
        if link is not None and link.control is not None and not self._supersedes(session, link):
            session.refusal = judging.DUPLICATE
            session.disconnect(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "duplicate link")
            return
        if link is not None and link.in_cooperation and self.any_topology:
            self._link_lost(link, "the neighbour has connected anew", "")  # what was under way is lost
            link = None
        new = link is None
        if link is None:
            link = NeighborLink(self.driver, self.config, self.node.counters, hello.node, hello.sessions)
            self.links[hello.node] = link
        elif link.boot != hello.boot or hello.fresh:
            for inbound in link.inbounds:
                inbound.reset()
        link.set_sessions(hello.sessions)
        link.boot, link.age, link.token = hello.boot, hello.age, hello.token
        link.dialed = session.neighbor is not None
        link.address = session.peer if session.neighbor is None else str(session.neighbor.address)
        link.peer = Peer(hello.node, hello.address)
        link.since, link.reason = self.driver.wall(), None
        link.control = session
        link.open_sessions = [session]
        session.bind(link)
        self._classify(link, session, hello)
        if session.neighbor is not None:
            neighbor = session.neighbor
            neighbor.node_id = hello.node
            neighbor.backoff.reset()
            neighbor.enter("linked", None, self.driver.wall())
            for index in range(1, hello.sessions):
                self._dial_session(neighbor, link, link.token, index)
        elif new and not link.on_demand:
            self.node.change_begins("add", address_of(session.peer))
        if not link.on_demand:
            self.node.change_done("add")
        self.driver.log(
            "debug" if link.on_demand else "info",
            "link connected",
            neighbor=hello.node,
            address=link.address,
            sessions=hello.sessions,
        )
        self.cooperation.introduce(link)
        self.cooperation.links_changed()

    def _classify(self, link: NeighborLink, session: LinkSession, hello: Hello) -> None:
        """Whether a link is one of the administrator's, here or there, or made on demand."""
        if session.neighbor is not None:
            demanded = session.neighbor.expected is not None
        else:
            demanded = hello.on_demand
            if self.any_topology and hello.address:
                link.address = hello.address
        named = any(
            hello.node == neighbor.node_id or neighbor is session.neighbor
            for neighbor in self.neighbors.values()
        )
        link.introducer = named
        link.on_demand = self.any_topology and demanded and not named

    def _name(self, link: NeighborLink) -> None:
        """A link that is there already turns out to be that of a neighbour dialed here."""
        link.on_demand = False
        if not link.introducer:
            link.introducer = True
            if link.in_cooperation and self.any_topology:
                self.node.dispatch.call("on_link_up", link)

    def _supersedes(self, session: LinkSession, link: NeighborLink) -> bool:
        """Of two connections between the same nodes the one dialed by the smaller id stays."""
        assert session.peer_hello is not None
        ours_smaller = self.node.node_id < session.peer_hello.node
        same_side = link.dialed == (session.neighbor is not None)
        wins = same_side or ((session.neighbor is not None) == ours_smaller)
        if wins:
            for old in list(link.open_sessions):
                old.unbind()
                old.refusal = judging.DUPLICATE
                old.disconnect(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "duplicate link")
            link.hold_down()
            link.ready_there = False
        return wins

    def _dial_session(self, neighbor: Neighbor, link: NeighborLink, token: str, index: int) -> None:
        # a link that was connected anew meanwhile has dialed all its sessions
        if not (link.token == token == neighbor.token) or not link.connected or neighbor.gone:
            return
        if all(session.index != index for session in link.open_sessions):
            self.driver.dial(
                neighbor.address, LinkSession(self, neighbor, index), self.config.connect_timeout
            )

    def session_lost(self, session: LinkSession, reason: str) -> None:
        self._inbound.discard(session)
        link, neighbor = session.link, session.neighbor
        kind = session.refusal.kind if session.refusal is not None else ""
        if link is not None and link.control is session:
            self._link_lost(link, reason, kind)
        elif link is not None and session in link.open_sessions:
            link.open_sessions.remove(session)
        if neighbor is None or neighbor.gone or self._stopped:
            return
        if session.index > 0:
            current = self.links.get(neighbor.node_id or "")
            if current is not None and current.connected and current.token == neighbor.token:
                self.driver.call_later(
                    self.config.reconnect_min,
                    self._dial_session,
                    neighbor,
                    current,
                    current.token,
                    session.index,
                )
            return
        if neighbor.session is not session:
            return
        if neighbor.expected is not None:
            if link is None:
                self.on_demand.dial_failed(neighbor, session.refusal, reason)
            return
        self.node.change_done("add")
        state = {
            "duplicate": "duplicate",
            "": "down",
            "malformed": "down",
            "disconnected": "down",
            "timeout": "down",
        }.get(kind, "refused")
        if state == "duplicate" and session.refusal is not None and session.refusal.node:
            neighbor.node_id = session.refusal.node
            known = self.links.get(neighbor.node_id)
            if known is not None:
                self._name(known)
        if neighbor.enter(state, reason, self.driver.wall()) and state != "duplicate":
            self.driver.log(
                "warning",
                "neighbour refuses" if state == "refused" else "neighbour down",
                address=str(neighbor.address),
                reason=reason,
            )
        if kind == "removed":
            return  # until it is added again
        self._dial_later(neighbor, neighbor.backoff.next())

    def _link_lost(self, link: NeighborLink, reason: str, kind: str) -> None:
        link.control = None
        link.hold_down()
        link.ready_there = False
        link.since, link.reason = self.driver.wall(), reason
        sessions, link.open_sessions = link.open_sessions, []
        for session in sessions:
            session.unbind()
            session.abort()
        for lane in link.lanes:
            lane.detach()
        self.cooperation.cancel_settling(link)
        if self.any_topology:
            self._gone(link, reason, kind)
        else:
            self.driver.log("warning", "link down", neighbor=link.node_id, reason=reason)
            if kind == "removed" or not link.in_cooperation:
                self._discard(link, reason)
            else:
                self.driver.call_later(self.config.expiry, self._expire, link, link.since)
        if not self._stopped:
            self.cooperation.links_changed()
            for neighbor in self.neighbors.values():
                if neighbor.state != "duplicate" or neighbor.node_id not in (link.node_id, None):
                    continue
                if kind == "removed" and neighbor.node_id is not None:
                    self.stop_dialing(neighbor)
                    neighbor.session = None
                    neighbor.enter("refused", reason, self.driver.wall())
                else:
                    self._dial_later(neighbor, neighbor.backoff.next())

    def _gone(self, link: NeighborLink, reason: str, kind: str) -> None:
        """Topology ``any``: a link is lost for good, and so is what it had not sent."""
        joined = link.in_cooperation
        broken = joined and not link.closing and kind not in POLITE
        self.driver.log("warning" if broken else "debug", "link down", neighbor=link.node_id, reason=reason)
        self._discard(link, "lost")
        if self._stopped:
            return
        if broken:
            self.node.counters["links_lost"] += 1
            self.node.dispatch.call("on_unreachable", link.node_id)
        self.on_demand.link_lost(link)

    def _expire(self, link: NeighborLink, since: float) -> None:
        if self.links.get(link.node_id) is link and not link.connected and link.since == since:
            self.node.counters["links_expired"] += 1
            self._discard(link, "expired")

    def _discard(self, link: NeighborLink, reason: str) -> None:
        self.cooperation.cancel_settling(link)
        if self.links.get(link.node_id) is link:
            del self.links[link.node_id]
        link.control = None
        link.open_sessions = []
        self.cooperation.leave(link, reason)

    # keep alive -------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._stopped:
            return
        self._tick_timer = self.driver.call_later(self.config.keep_alive, self._tick)
        dead_since = self.driver.now() - PATIENCE * self.config.keep_alive
        for link in list(self.links.values()):
            for session in list(link.open_sessions):
                # who does not read cannot hear: a session paused here is not judged
                if (
                    session.last_heard < dead_since
                    and not session.paused
                    and session.phase is Phase.ESTABLISHED
                ):
                    session.refusal = Refusal("timeout", "no sign of life", ReasonCode.KEEP_ALIVE_TIMEOUT)
                    session.abort()
                else:
                    session.ping()
