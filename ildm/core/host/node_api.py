"""The :class:`ildm.api.NodeApi` which the live node hands to one plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ildm.api import Injections, Link, NodeStatus, Peer, PluginError, SendResult, Session, Stamp, Timer
from ildm.config import Address
from ildm.core.host.peer_session import PeerSession
from ildm.core.host.plugin_log import PluginLog
from ildm.core.host.plugin_state import PluginState
from ildm.core.link.link import NeighborLink
from ildm.core.local.broker_session import BrokerSession
from ildm.core.local.client_session import ClientSession
from ildm.core.plugin.arguments import (
    LONGEST_TEXT,
    as_result,
    check_address,
    check_bytes,
    check_callable,
    check_data,
    check_delay,
    check_frame,
    check_identity,
    check_message,
    check_overlay,
    check_packets,
    check_pattern,
    check_transfer,
    checked_fields,
)
from ildm.core.session import BaseSession
from ildm.core.spool import Identity
from ildm.core.tables import PLUGIN_STATE
from ildm.core.transfer.batch import Batch
from ildm.mqtt import PacketType, Publish, Version, create_message

if TYPE_CHECKING:
    from ildm.core.host.parts import HostParts
    from ildm.core.plugin.dispatch import Loaded

Result = TypeVar("Result")


class PluginApi:
    """See :class:`ildm.api.NodeApi` for the meaning of each member."""

    def __init__(self, parts: HostParts, loaded: Loaded, saved: dict[str, bytes]) -> None:
        self._parts = parts
        self._loaded = loaded
        self._on_demand = parts.links.on_demand

        def save(key: str, value: bytes | None) -> None:
            parts.store.put(PLUGIN_STATE, (loaded.key, key), None if value is None else (value,))

        self.state: MutableMapping[str, bytes] = PluginState(loaded, saved, save)
        self._plugin_log = PluginLog(parts.custody, loaded.key)
        self.random: Random = Random(parts.driver.random.getrandbits(64))  # noqa: S311 - not for secrets

    @property
    def node_id(self) -> str:
        return self._parts.node_id

    @property
    def peer(self) -> Peer:
        return self._parts.links.peer

    @property
    def status(self) -> NodeStatus:
        return self._parts.state.status

    @property
    def links(self) -> Sequence[Link]:
        return tuple(self._parts.links.cooperation.active)

    @property
    def expiry(self) -> float:
        return self._parts.config.link.expiry

    @property
    def local_interest(self) -> Mapping[str, int]:
        return MappingProxyType(self._parts.site_rules.advertised)

    def now(self) -> float:
        return self._parts.driver.now()

    def wall(self) -> float:
        return self._parts.driver.wall()

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer:
        check_delay(delay)
        check_callable(callback)
        return self._loaded.timers.call_later(delay, callback, args)

    def offload(self, work: Callable[[], Result], done: Callable[[Result | Exception], None]) -> None:
        check_callable(work)
        check_callable(done)
        loaded, limit = self._loaded, self._loaded.limits.plugin_offloads
        if loaded.offloads + loaded.timers.results >= limit:
            raise loaded.refuse("offloads", f"{limit} pieces of work are under way (limits.plugin_offloads)")
        loaded.offloads += 1

        def finished(result: Any) -> None:
            loaded.offloads -= 1
            loaded.timers.call_now(done, (as_result(result),))

        self._parts.driver.offload(loaded.key, work, finished)

    def create_session(self, host: str, port: int) -> Session:
        check_address(host, port)
        loaded, limit = self._loaded, self._loaded.limits.plugin_sessions
        if len(loaded.sessions) >= limit:
            raise loaded.refuse("sessions", f"{limit} sessions are there (limits.plugin_sessions)")
        session = PeerSession(self._parts, loaded.sessions)
        self._parts.driver.dial(Address(host, port), session, self._parts.config.link.connect_timeout)
        return session

    def close_session(self, session: Session) -> None:
        _own(session).close()

    def send_message(self, session: Session, message: bytes) -> bool:
        own = _own(session)
        check_bytes(message)
        if isinstance(own, ClientSession | BrokerSession):
            check_packets(message, own.version)
            at_rest = own.between_relayed
        elif isinstance(own, PeerSession):
            at_rest = True
        else:
            raise PluginError("such a session is the node's own: use inject, transfer or send")
        if not (at_rest and own.is_open and own.writable):
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
        if not isinstance(link, NeighborLink) or link.driver is not self._parts.driver:
            raise PluginError(f"{link!r} is not a link of this node")
        parts = self._parts
        if not link.in_cooperation:
            parts.counters["transfer_refused_no_link"] += 1
            return False
        if not link.offer(message.copy(), turn, parts.router.expiry(message), priority):
            parts.counters["transfer_refused_full"] += 1
            return False
        parts.counters["transferred_out"] += 1
        return True

    def send(self, to: Peer, data: bytes, turn: int = 0) -> SendResult:
        on_demand = self._on_demand
        check_overlay(on_demand is not None)
        assert on_demand is not None
        check_data(to, data, turn)
        return on_demand.send(to, data, turn)

    def retained(self, topic_filter: str) -> Sequence[Publish]:
        check_pattern(topic_filter)
        return list(self._parts.retained.matching(topic_filter))

    def retained_topics(self) -> Iterator[tuple[str, Stamp]]:
        return self._parts.retained.stamps()

    def inject(self, message: Publish, identity: tuple[str, int] | None = None) -> bool:
        check_message(message)
        return self._inject(message, self._identity(identity))

    def inject_frame(self, frame: bytes, identity: tuple[str, int] | None = None) -> bool:
        message = check_frame(frame)
        if message is None:
            return self._parts.router.inject(Batch(frame, 1, len(frame)), self._identity(identity))
        return self._inject(message, self._identity(identity))

    def _inject(self, message: Publish, identity: Identity | None) -> bool:
        batch = self._parts.router.encoded(message, "injection")
        return batch is None or self._parts.router.inject(batch, identity)

    def has_injected(self, origin: str, number: int) -> bool | None:
        identity, custody = self._identity((origin, number)), self._parts.custody
        return None if identity is None or custody is None else custody.has_come(identity)

    def _identity(self, identity: tuple[str, int] | None) -> Identity | None:
        """As the node knows it: numbers of an algorithm are not those of links."""
        if identity is None:
            return None
        check_identity(identity)
        return Identity(f"{self._loaded.key}:{identity[0]}", identity[1])

    @property
    def injections(self) -> Injections:
        injections, custody = self._parts.injector.injections, self._parts.custody
        if custody is None or not custody.covers(custody.last):
            return injections
        return Injections(injections.given, injections.given)

    def keep(self, data: bytes) -> int | None:
        check_bytes(data, "data")
        return self._plugin_log.keep(data)

    def unkeep(self, number: int) -> None:
        self._plugin_log.unkeep(number)

    def when_kept(self, callback: Callable[[], None]) -> None:
        check_callable(callback)
        custody = self._parts.custody
        if custody is None:
            callback()
        else:
            custody.when(custody.last, partial(self._loaded.timers.call_now, callback, ()))

    def kept(self) -> Iterator[tuple[int, bytes]]:
        return self._plugin_log.kept()

    def routes_changed(self) -> None:
        self._parts.router.routes.invalidate()

    def count(self, name: str, by: int = 1) -> None:
        self._loaded.count(name, by)

    def gauge(self, name: str, value: float) -> None:
        self._loaded.gauge(name, value)

    def log(self, event: str, **fields: object) -> None:
        plain = checked_fields(event, fields)
        loaded, driver = self._loaded, self._parts.driver
        if loaded.may_log(driver.now()):
            driver.log("info", event[:LONGEST_TEXT], plugin=loaded.name, **loaded.take_left_out(), **plain)


def _own(session: Session) -> BaseSession:
    if not isinstance(session, BaseSession):
        raise PluginError(f"{session!r} is not a session of this node")
    return session
