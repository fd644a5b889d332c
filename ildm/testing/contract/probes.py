"""Algorithms that note what happens to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ildm.api import (
    STAMP_PROPERTY,
    Algorithm,
    Filter,
    Link,
    NodeApi,
    OverlayAlgorithm,
    Peer,
    PluginConfig,
    Role,
    Session,
    Source,
    Stamp,
    TreeAlgorithm,
    Unreachable,
)
from ildm.mqtt import Connect, PacketType, Property, Publish, Subscribe, Subscription, decode


def everywhere(api: NodeApi) -> Callable[[str, Link | None], Any]:
    """Routes to all links, at QoS 1."""
    return lambda topic, source: [(link, 1) for link in api.links]


def stamped(topic: str, payload: bytes, time: int, node: str = "far", again: bool = False) -> Publish:
    """A retained message from another node."""
    value = Stamp(time, node).text(repeated=again)
    properties: dict[Property, Any] = {Property.USER_PROPERTY: [(STAMP_PROPERTY, value)]}
    return Publish(topic=topic, payload=payload, retain=True, properties=properties)


class Probe(Algorithm):
    """Notes every hook, and answers what a test wants."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.made_in = api.status
        self.heard: list[tuple[Any, ...]] = []
        self.routes: Callable[[str, Link | None], Any] = lambda topic, source: ()
        self.then: Callable[[str], object] = lambda node_id: None
        """What is done when a node cannot be reached."""
        self.leaving = False
        self.published: list[tuple[Publish, int]] = []
        self.kept: dict[str, bytes] = {}

    def of(self, *kinds: str) -> list[tuple[Any, ...]]:
        """What was heard of some kinds."""
        return [event for event in self.heard if event[0] in kinds]

    def topics_asked(self) -> list[str]:
        return [event[1] for event in self.of("route")]

    def link(self, node_id: str) -> Link:
        return next(link for link in self.api.links if link.node_id == node_id)

    def linked(self, *node_ids: str) -> bool:
        return {link.node_id for link in self.api.links} >= set(node_ids)

    def on_ildm_start(self) -> None:
        state = self.api.status, dict(self.api.local_interest), list(self.api.links)
        self.heard.append(("start", *state))
        self.kept = dict(self.api.state)

    def on_ildm_stop(self) -> None:
        self.heard.append(("stop", self.api.status))

    def on_ildm_add(self, host: str, port: int) -> None:
        self.heard.append(("add", self.api.status))

    def on_ildm_remove(self, host: str, port: int) -> None:
        self.heard.append(("remove", self.api.status))

    def on_session_established(self, session: Session) -> None:
        if session.role is Role.PEER:
            self.heard.append(("established", session, session.status))

    def on_session_closed(self, session: Session) -> None:
        if session.role is Role.PEER:
            self.heard.append(("closed", session, session.status))

    def on_tcp_down(self, session: Session) -> None:
        if session.role is Role.PEER:
            self.heard.append(("tcp down", session, session.status))

    def on_recv_failure(self, session: Session, exception: Exception) -> None:
        self.heard.append(("recv failure", session))

    def on_link_up(self, link: Link) -> None:
        self.heard.append(("up", link.node_id, link in self.api.links))

    def on_link_down(self, link: Link) -> None:
        self.heard.append(("down", link.node_id, link in self.api.links))

    def on_writable(self, link: Link) -> None:
        self.heard.append(("writable", link.node_id))

    def on_interest_changed(self, source: Link | None, changes: Mapping[str, int | None]) -> None:
        now = self.api.local_interest if source is None else source.interest
        agrees = all(now.get(topic_filter) == qos for topic_filter, qos in changes.items())
        self.heard.append(("interest", source and source.node_id, dict(changes), agrees))


class TreeProbe(Probe, TreeAlgorithm):
    """Notes what it is asked, too."""

    def route(self, topic: str, retain: bool, source: Link | None) -> Any:
        self.heard.append(("route", topic, retain, source and source.node_id))
        return self.routes(topic, source)


class MessageProbe(TreeProbe):
    """Decides on each message."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.decide: Callable[[Publish, Link | None], Any] = lambda message, source: ()
        self.shown: list[tuple[Publish, str | None, int]] = []

    def route_message(self, message: Publish, source: Link | None, turn: int) -> Any:
        self.shown.append((message.copy(), None if source is None else source.node_id, turn))
        return self.decide(message, source)


class OverlayProbe(Probe, OverlayAlgorithm):
    """The same where messages are the algorithm's affair."""

    def is_leaving(self) -> bool:
        return self.leaving

    def on_publish(self, message: Publish, turn: int) -> None:
        self.published.append((message, turn))

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        self.heard.append(("message", sender, data, turn))

    def on_unreachable(self, node_id: str, reason: Unreachable) -> None:
        self.heard.append(("unreachable", node_id, reason))
        self.then(node_id)


class DecidingProbe(TreeProbe, Filter):
    """Decides about what clients send and neighbours transfer, as a test wants it."""

    wants = frozenset({(Source.CLIENT, PacketType.PUBLISH), (Source.LINK, PacketType.PUBLISH)})

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.routes = everywhere(api)
        self.about_message: Callable[[Publish], Any] = lambda message: message
        self.about_subscription: Callable[[Subscription], Any] = lambda subscription: subscription
        self.about_client: Callable[[Connect], Any] = lambda packet: packet

    def filter(self, session: Session, message: bytes) -> Any:
        packet = decode(message, session.version)
        assert isinstance(packet, Publish)
        self.heard.append(("filter", session.role, packet.payload))
        answer = self.about_message(packet)
        return answer.encode(session.version) if isinstance(answer, Publish) else answer

    def admit_subscription(self, session: Session, subscription: Subscription, packet: Subscribe) -> Any:
        assert subscription in packet.subscriptions
        return self.about_subscription(subscription)

    def admit_client(self, session: Session, packet: Connect) -> Any:
        assert session.client_id == packet.client_id
        return self.about_client(packet)


class LookingProbe(TreeProbe):
    """Notes messages of clients and neighbours."""

    wants = frozenset({(Source.CLIENT, PacketType.PUBLISH), (Source.LINK, PacketType.PUBLISH)})

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.routes = everywhere(api)

    def mqtt_message_arrived(self, session: Session, type: PacketType, message: bytes) -> None:
        packet = decode(message, session.version)
        assert isinstance(packet, Publish)
        assert bool(session.client_id) or session.role is Role.LINK
        self.heard.append(("seen", session.role, type, packet.payload))
