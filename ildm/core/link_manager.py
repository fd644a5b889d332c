"""Makes and keeps links: dialing, judging neighbours, sessions that come and go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ildm.config import Address, LinkConfig
from ildm.core.backoff import Backoff
from ildm.core.cooperation import Cooperation
from ildm.core.handshake import Hello, Refusal
from ildm.core.link import NeighborLink
from ildm.core.link_session import LinkSession, Phase
from ildm.mqtt import IldmError, ReasonCode

if TYPE_CHECKING:
    from ildm.core.node import Node

TOKEN = 12
PATIENCE = 2.0
"""A neighbour not heard for this many keep-alive intervals is taken for dead."""


class Neighbor:
    """An address this node dials. States: connecting, linked, down, refused, duplicate."""

    def __init__(self, manager: LinkManager, address: Address, saved: bool) -> None:
        self.address = address
        self.saved = saved
        self.state = "connecting"
        self.reason: str | None = None
        self.since = manager.driver.wall()
        self.node_id: str | None = None
        self.token = ""
        self.session: LinkSession | None = None
        self.timer: Any = None
        self.gone = False
        config = manager.config
        self.backoff = Backoff(manager.driver.random, config.reconnect_min, config.reconnect_max)

    def enter(self, state: str, reason: str | None, now: float) -> bool:
        """Change the state; False if it was already this one for this reason."""
        if (state, reason) == (self.state, self.reason):
            return False
        self.state, self.reason, self.since = state, reason, now
        return True


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
        self.cooperation = Cooperation(node, self.links, self._discard)
        self._inbound: set[LinkSession] = set()
        self._tick_timer: Any = None
        self._stopped = False

    def start(self, neighbors: Mapping[Address, bool]) -> None:
        """``neighbors``: addresses, and whether each was added at run time and saved."""
        self._tick_timer = self.driver.call_later(self.config.keep_alive, self._tick)
        for address, saved in neighbors.items():
            self.add(address, saved)

    def stop(self) -> None:
        self._stopped = True
        self.cooperation.stop()
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        for neighbor in self.neighbors.values():
            self._stop_dialing(neighbor)
        for link in list(self.links.values()):
            for session in list(link.open_sessions):
                session.disconnect(ReasonCode.SERVER_SHUTTING_DOWN, "the node stops")
        for session in list(self._inbound):
            session.close()

    @property
    def cooperating(self) -> list[NeighborLink]:
        """Links that are part of the cooperation."""
        return self.cooperation.active

    @property
    def idle(self) -> bool:
        return all(link.idle for link in self.links.values() if link.connected)

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
            self._stop_dialing(known)
        elif known is not None:
            raise IldmError(f"{address} is already a neighbour")
        if len(self.neighbors) >= self.config.max_neighbors:
            raise IldmError(f"there are {len(self.neighbors)} neighbours already (link.max_neighbors)")
        neighbor = self.neighbors[address] = Neighbor(self, address, saved)
        self.node.change_begins("add", address)
        self._dial(neighbor)
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
            self._stop_dialing(neighbor)
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

    def _dial(self, neighbor: Neighbor) -> None:
        neighbor.timer = None
        if neighbor.gone or self._stopped:
            return
        neighbor.token = self.driver.token(TOKEN).hex()
        neighbor.session = LinkSession(self, neighbor, 0)
        self.driver.dial(neighbor.address, neighbor.session, self.config.connect_timeout)

    def _stop_dialing(self, neighbor: Neighbor) -> None:
        if neighbor.timer is not None:
            neighbor.timer.cancel()
            neighbor.timer = None
        if neighbor.session is not None and neighbor.session.link is None:
            neighbor.session.abort()

    def _dial_later(self, neighbor: Neighbor, pause: float) -> None:
        if not (neighbor.gone or self._stopped) and neighbor.timer is None:
            neighbor.timer = self.driver.call_later(pause, self._dial, neighbor)

    # what sessions ask ------------------------------------------------------------------------

    def hello(
        self, far: str | None, index: int, token: str, age: int = 0, sessions: int | None = None
    ) -> Hello:
        """What this node says to ``far`` (None while unknown) of itself and of a session."""
        link = self.links.get(far or "")
        return Hello(
            node=self.node.node_id,
            boot=self.node.boot,
            algorithm=self.node.algorithm_name or "",
            sessions=self.config.sessions if sessions is None else sessions,
            index=index,
            token=token,
            age=age,
            fresh=link is None or not link.in_cooperation,
        )

    def session_accepted(self, session: LinkSession) -> bool:
        """Whether one more connection from outside is within bounds."""
        if self._stopped or len(self._inbound) >= self.config.max_neighbors * 4:
            self.node.counters["link_connections_refused"] += 1
            return False
        self._inbound.add(session)
        return True

    def handshake_done(self, session: LinkSession) -> None:
        """A connection from outside has become a session of a link; those have bounds of their own."""
        self._inbound.discard(session)

    def judge(self, session: LinkSession, hello: Hello) -> Hello | Refusal:
        """The acceptor's decision about a neighbour that has proven who it is."""
        refusal = self._common_refusal(hello)
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
                return Refusal("stale", "no such link", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
            self._replace_session(link, hello.index)
            return self.hello(hello.node, hello.index, hello.token, link.age, len(link.lanes))
        if link is not None and link.control is not None:
            # also when the neighbour seems to have restarted: two nodes might have the same id
            heard = self.driver.now() - link.control.last_heard
            if link.dialed or heard <= 1.2 * self.config.keep_alive:
                return Refusal(
                    "duplicate",
                    "there is a link between these nodes",
                    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
                    self.node.node_id,
                )
        if link is None and len(self.links) >= self.config.max_neighbors:
            return Refusal("limit", "too many neighbours (link.max_neighbors)", ReasonCode.QUOTA_EXCEEDED)
        age = link.age if link is not None and link.in_cooperation else self.cooperation.topology.next_age()
        return self.hello(hello.node, 0, hello.token, age, hello.sessions)

    def judge_answer(self, session: LinkSession, hello: Hello) -> Refusal | None:
        """The dialer's decision about a neighbour that has accepted it."""
        return self._common_refusal(hello)

    def _common_refusal(self, hello: Hello) -> Refusal | None:
        if hello.node == self.node.node_id:
            text = f"the neighbour has this node's own id {hello.node!r}"
            return Refusal("own-id", text, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
        own = self.node.algorithm_name or ""
        if hello.algorithm != own:
            # the text is read at the other end, so it does not say "this" or "that" node
            text = f"{self.node.node_id} runs algorithm {own!r}, {hello.node} runs {hello.algorithm!r}"
            return Refusal("algorithm", text, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
        return None

    def _replace_session(self, link: NeighborLink, index: int) -> None:
        """End the session which another one with the same index is about to follow."""
        for old in [s for s in link.open_sessions if s.index == index]:
            old.unbind()
            link.open_sessions.remove(old)
            old.abort()

    def refused_peer(self, session: LinkSession, refusal: Refusal) -> None:
        self.node.counters[f"links_refused_{refusal.kind}"] += 1
        self.driver.log("warning", "neighbour refused", peer=session.peer, reason=refusal.text)

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
            session.refusal = Refusal("duplicate", "there is a link between these nodes", ReasonCode.SUCCESS)
            session.disconnect(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "duplicate link")
            return
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
        link.since, link.reason = self.driver.wall(), None
        link.control = session
        link.open_sessions = [session]
        session.bind(link)
        if session.neighbor is not None:
            neighbor = session.neighbor
            neighbor.node_id = hello.node
            neighbor.backoff.reset()
            neighbor.enter("linked", None, self.driver.wall())
            for index in range(1, hello.sessions):
                self._dial_session(neighbor, link, link.token, index)
        elif new:
            self.node.change_begins("add", _address(session.peer))
        self.node.change_done("add")
        self.driver.log(
            "info", "link connected", neighbor=hello.node, address=link.address, sessions=hello.sessions
        )
        self.cooperation.introduce(link)
        self.cooperation.links_changed()

    def _supersedes(self, session: LinkSession, link: NeighborLink) -> bool:
        """Of two connections between the same nodes the one dialed by the smaller id stays."""
        assert session.peer_hello is not None
        ours_smaller = self.node.node_id < session.peer_hello.node
        same_side = link.dialed == (session.neighbor is not None)
        wins = same_side or ((session.neighbor is not None) == ours_smaller)
        if wins:
            for old in list(link.open_sessions):
                old.unbind()
                old.refusal = Refusal("duplicate", "there is a link between these nodes", ReasonCode.SUCCESS)
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
                    self._stop_dialing(neighbor)
                    neighbor.session = None
                    neighbor.enter("refused", reason, self.driver.wall())
                else:
                    self._dial_later(neighbor, neighbor.backoff.next())

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


def _address(peer: str) -> Address:
    host, _, port = peer.rpartition(":")
    return Address(host, int(port)) if port.isdecimal() else Address(peer, 0)
