"""A simulated node whose plugins look at packets, or decide about them."""

from __future__ import annotations

from collections.abc import Sequence

from ildm.api import Algorithm, PluginConfig, Role, SessionStatus, Source
from ildm.mqtt import PacketType, Properties, Publish, Version, decode
from ildm.testing.client import SimClient
from ildm.testing.link import SimLink
from ildm.testing.node import LIMITS, Setting, SimNode
from ildm.testing.plugins import FilterSpec, Plugins
from ildm.testing.values import SimSession


class LookingNode(SimNode):
    """Makes packets of what its clients, its broker and its neighbours say.

    They are CONNECT, SUBSCRIBE, UNSUBSCRIBE and PUBLISH of clients; CONNACK, SUBACK, UNSUBACK, PUBLISH,
    PUBACK and PUBREC of the broker; PUBLISH of neighbours. All others are never seen. What a filter rejects
    is counted in ``network.lost["filtered"]``.
    """

    __slots__ = ("plugins",)

    def __init__(
        self,
        world: Setting,
        node_id: str,
        algorithm: type[Algorithm],
        config: PluginConfig,
        filters: Sequence[FilterSpec],
    ) -> None:
        super().__init__(world, node_id, algorithm, config)
        self.plugins: Plugins = Plugins(self, self.algorithm, filters, LIMITS)

    # local clients ----------------------------------------------------------------------------

    def _sender(self, client: str) -> SimClient | None:
        """A client that need not be there yet; None: it was rejected, and what it would send is lost."""
        known = self.client(client)
        if known.session.status is not SessionStatus.CLOSED:
            return known
        self.lost("client rejected")
        return None

    def subscribe(self, topic_filter: str, qos: int = 0, client: str = "client") -> None:
        known = self._sender(client)
        if known is not None:
            known.subscribe((topic_filter, qos))

    def unsubscribe(self, topic_filter: str, client: str = "client") -> None:
        known = self._sender(client)
        if known is not None:
            known.unsubscribe(topic_filter)

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
        publisher: int | None = None,
        client: str = "client",
    ) -> None:
        known = self._sender(client)
        if known is not None:
            known.publish(topic, payload, qos, retain, properties, publisher)

    def _hand(self, message: Publish, client: str, qos: int, retain: bool) -> None:
        known = self.clients[client]
        if known.session.status is not SessionStatus.CLOSED:
            known = self.client(client)  # of the node's last incarnation it may be back only now
        if known.session.status is SessionStatus.CLOSED:
            self.lost("client away")
            return
        passed = known.hand(message, qos, retain)
        if passed is None:
            self.lost("filtered")
        elif passed is message:
            super()._hand(message, client, qos, retain)
        else:
            super()._hand(passed, client, passed.qos, passed.retain)

    # neighbours -------------------------------------------------------------------------------

    def arrived(self, link: SimLink, message: Publish, turn: int) -> None:
        plugins = self.plugins
        if not plugins.looks_at(Source.LINK, PacketType.PUBLISH):
            super().arrived(link, message, turn)
            return
        session = self._session_of(link)
        frame = message.encode(Version.V5)
        answer = plugins.chain.message(Source.LINK, session, frame)
        if not isinstance(answer, bytes):
            self.lost("filtered")
            return
        if answer is not frame:
            changed = decode(answer, Version.V5)
            assert isinstance(changed, Publish)
            message = changed
        super().arrived(link, message, turn)
        plugins.show(Source.LINK, session, PacketType.PUBLISH, answer)

    def _session_of(self, link: SimLink) -> SimSession:
        if link.session is None:
            number = next(self.world.session_ids)
            link.session = SimSession(number, Role.LINK, link.peer.address, Version.V5)
            link.session.client_id = link.node_id
        return link.session
