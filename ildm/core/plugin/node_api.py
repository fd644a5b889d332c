"""The :class:`ildm.api.NodeApi` which the live node hands to one plugin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from ildm.api import Link, NodeStatus, Peer, PluginError, SendResult, Session, Timer
from ildm.config import Address
from ildm.core.link.link import NeighborLink
from ildm.core.local.broker_session import BrokerSession
from ildm.core.local.client_session import ClientSession
from ildm.core.plugin.arguments import (
    check_address,
    check_bytes,
    check_data,
    check_delay,
    check_message,
    check_overlay,
    check_transfer,
)
from ildm.core.plugin.peer_session import PeerSession
from ildm.core.session import BaseSession
from ildm.mqtt import PacketType, Publish, Version, create_message

if TYPE_CHECKING:
    from ildm.core.node import Node
    from ildm.core.plugin.dispatch import Loaded


class PluginApi:
    """See :class:`ildm.api.NodeApi` for the meaning of each member."""

    def __init__(self, node: Node, loaded: Loaded) -> None:
        self._node = node
        self._loaded = loaded
        self.random: Random = Random(node.driver.random.getrandbits(64))  # noqa: S311 - not for secrets

    @property
    def node_id(self) -> str:
        return self._node.node_id

    @property
    def peer(self) -> Peer:
        return self._node.links.peer

    @property
    def status(self) -> NodeStatus:
        return self._node.state.status

    @property
    def links(self) -> Sequence[Link]:
        return self._node.links.cooperating

    @property
    def local_interest(self) -> Mapping[str, int]:
        return self._node.clients.interest.maximum

    def now(self) -> float:
        return self._node.driver.now()

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer:
        check_delay(delay)
        guarded = self._node.dispatch.guarded(self._loaded, callback)
        return self._node.driver.call_later(delay, guarded, *args)

    def create_session(self, host: str, port: int) -> Session:
        check_address(host, port)
        session = PeerSession(self._node)
        self._node.driver.dial(Address(host, port), session, self._node.config.link.connect_timeout)
        return session

    def close_session(self, session: Session) -> None:
        _own(session).close()

    def send_message(self, session: Session, message: bytes) -> bool:
        check_bytes(message)
        own = _own(session)
        if not own.is_open or not own.writable:
            return False
        own.write(message)
        return True

    def get_paired_session(self, session: Session) -> Session | None:
        if isinstance(session, ClientSession | BrokerSession):
            return session.paired
        return None

    def create_mqtt_message(self, type: PacketType, version: Version = Version.V5, **params: Any) -> bytes:
        return create_message(type, version, **params)

    def transfer(self, link: Link, message: Publish, turn: int = 0, priority: int = 0) -> bool:
        check_transfer(message, turn, priority)
        if not isinstance(link, NeighborLink):
            raise PluginError(f"{link!r} is not a link of this node")
        node = self._node
        if not link.in_cooperation:
            node.counters["transfer_refused_no_link"] += 1
            return False
        if not link.offer(message.copy(), turn, node.router.expiry(message), priority):
            node.counters["transfer_refused_full"] += 1
            return False
        node.counters["transferred_out"] += 1
        return True

    def send(self, to: Peer, data: bytes, turn: int = 0) -> SendResult:
        on_demand = self._node.links.on_demand
        check_overlay(on_demand is not None)
        assert on_demand is not None
        check_data(to, data, turn)
        return on_demand.send(to, data, turn)

    def retained(self, topic_filter: str) -> Sequence[Publish]:
        return list(self._node.retained.matching(topic_filter))

    def inject(self, message: Publish) -> None:
        check_message(message)
        self._node.router.inject(message.copy())

    def routes_changed(self) -> None:
        self._node.router.invalidate()

    def count(self, name: str, by: int = 1) -> None:
        self._loaded.counters[name] += by

    def log(self, event: str, **fields: object) -> None:
        self._node.driver.log("info", event, plugin=self._loaded.name, **fields)


def _own(session: Session) -> BaseSession:
    if not isinstance(session, BaseSession):
        raise PluginError(f"{session!r} is not a session of this node")
    return session
