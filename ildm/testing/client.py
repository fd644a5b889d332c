"""Local clients of a simulated node, packet by packet, for plugins that look at them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ildm.api import Role, SessionStatus, Source
from ildm.core.local.answers import return_code
from ildm.core.local.decisions import FAILURE
from ildm.core.plugin.filtering import Awaited, Rejected
from ildm.mqtt import (
    ConnAck,
    Connect,
    ConnectReturnCode,
    EncodeError,
    PacketType,
    Properties,
    Property,
    PubAck,
    Publish,
    PubRec,
    ReasonCode,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    decode,
)
from ildm.testing.plugins import Place
from ildm.testing.values import Cause, SimSession, SimulationError

Told = ConnAck | SubAck | UnsubAck | PubAck | PubRec


class SimClient:
    """A client of a node: what it sends goes through the node's filters, and is shown to those who want it.

    Made by :meth:`SimNode.client`. While a filter defers a decision, what the client sends after it waits.

    Attributes:
        connect: the CONNECT it has sent.
        session: with the node; its ``status`` is CLOSED when the client was rejected or has gone.
        told: what it was answered, in order: CONNACK, SUBACK, UNSUBACK, PUBACK (QoS 1), PUBREC (QoS 2).
    """

    def __init__(self, node: Place, connect: Connect) -> None:
        self.node = node
        self.told: list[Told] = []
        ids = node.world.session_ids
        self.session = SimSession(next(ids), Role.CLIENT, f"{connect.client_id}.sim:1883", connect.version)
        self.paired = SimSession(next(ids), Role.BROKER, f"{node.node_id}.sim:1884", connect.version)
        self.connect = self._connect = connect
        self._packet_id = 0
        self._awaited: Awaited[Any] | None = None
        self._waiting: deque[Callable[[], None]] = deque()
        self._begin()

    def __repr__(self) -> str:
        return f"<client {self.session.client_id} of {self.node.node_id}>"

    @property
    def version(self) -> Version:
        return self.session.version

    # what it sends ----------------------------------------------------------------------------

    def subscribe(
        self,
        *entries: tuple[str, int] | Subscription,
        user_properties: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Send a SUBSCRIBE with filters and their QoS, or with whole entries of MQTT 5.

        Of the options of an entry the QoS decides what is delivered; the others are for plugins.
        """
        packet = Subscribe(
            packet_id=self._next_id(),
            subscriptions=[
                entry
                if isinstance(entry, Subscription)
                else Subscription(topic_filter=entry[0], qos=entry[1])
                for entry in entries
            ],
            properties={Property.USER_PROPERTY: list(user_properties)} if user_properties else {},
        )
        packet.encode(self.version)  # raises if the standard forbids it
        self._do(partial(self._subscribe, packet))

    def unsubscribe(self, *topic_filters: str) -> None:
        """Send an UNSUBSCRIBE."""
        packet = Unsubscribe(packet_id=self._next_id(), topic_filters=list(topic_filters))
        packet.encode(self.version)
        self._do(partial(self._unsubscribe, packet))

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
        publisher: int | None = None,
    ) -> None:
        """Send a PUBLISH; arguments as those of :meth:`SimNode.publish`."""
        message = self.node.message_of(topic, payload, qos, retain, properties)
        if qos:
            message.packet_id = self._next_id()
        cause = Cause(self.node.node_id, self.node.kernel.now, 0)
        message.encode(self.version)
        self._do(partial(self._publish, message, publisher, cause))

    def disconnect(self, with_will: bool = False) -> None:
        """Go; subscriptions end unless the session is to outlive the connection (``clean_start=False``).

        Args:
            with_will: the connection just ends, so the broker publishes the will (MQTT-3.1.2-8).
        """
        self._do(partial(self._leave, with_will))

    # the connection ---------------------------------------------------------------------------

    def _begin(self) -> None:
        """The node reads the CONNECT."""
        plugins = self.node.plugins
        connect = self._connect
        if plugins is None:
            self.session.client_id = self.paired.client_id = connect.client_id
            self._accepted(connect)
            return
        plugins.call("on_session_established", self.session)
        self.session.client_id = connect.client_id
        connect.encode()
        self._ask(plugins.chain.client(self.session, connect), self._admitted)

    def _admitted(self, answer: Connect | Rejected) -> None:
        if isinstance(answer, Rejected):
            code = int(answer.reason if self.version is Version.V5 else return_code(answer.reason))
            self._tell(ConnAck(session_present=False, reason_code=code), answer)
            self.node.lost("client rejected", len(self._waiting))
            self._waiting.clear()
            self._closed(self.session)
            return
        self._accepted(answer)

    def _accepted(self, connect: Connect) -> None:
        self._connect = connect
        self.session.client_id = self.paired.client_id = connect.client_id
        plugins = self.node.plugins
        if plugins is not None:
            plugins.call("on_session_established", self.paired)
            plugins.show(Source.CLIENT, self.session, PacketType.CONNECT, connect)
        answer = ConnAck(session_present=False, reason_code=int(ConnectReturnCode.ACCEPTED))
        self._tell(answer)
        self._show_answer(PacketType.CONNACK, answer)

    def _leave(self, with_will: bool) -> None:
        will = self._connect.will
        for session in (self.session, self.paired):
            self._closed(session)
        if self._connect.clean_start:
            self.node.forget(self.session.client_id)
        if with_will and will is not None:
            message = self.node.message_of(will.topic, will.payload, will.qos, will.retain, will.properties)
            self.node.enter(message, None, Cause(self.node.node_id, self.node.kernel.now, 0))

    def _closed(self, session: SimSession) -> None:
        session.status = SessionStatus.CLOSED
        if self.node.plugins is not None:
            self.node.plugins.call("on_session_closed", session)

    def _do(self, action: Callable[[], None]) -> None:
        self.node.check_alive()
        if self.session.status is SessionStatus.CLOSED:
            raise SimulationError(f"{self!r} is not connected")
        if self._awaited is None:
            action()
        else:
            self._waiting.append(action)

    def _ask(self, answer: Any, carry_out: Callable[[Any], None]) -> None:
        """Carry a decision of the filters out, now or when it has come."""
        if isinstance(answer, Awaited):
            self._awaited = answer
            answer.then(partial(self._decided, carry_out))
        else:
            carry_out(answer)

    def _decided(self, carry_out: Callable[[Any], None], answer: Any) -> None:
        self._awaited = None
        carry_out(answer)
        while self._waiting and self._awaited is None:
            self._waiting.popleft()()

    def _next_id(self) -> int:
        self._packet_id = self._packet_id % 0xFFFF + 1
        return self._packet_id

    def _tell(self, packet: Told, why: Rejected | None = None) -> None:
        if why is not None and why.text and self.version is Version.V5:
            packet.properties[Property.REASON_STRING] = why.text
        self.told.append(packet)

    def _show_answer(self, type: PacketType, packet: Told) -> None:
        """The broker has answered so."""
        if self.node.plugins is not None:
            self.node.plugins.show(Source.BROKER, self.paired, type, packet)

    # SUBSCRIBE and UNSUBSCRIBE ----------------------------------------------------------------

    def _subscribe(self, packet: Subscribe) -> None:
        plugins = self.node.plugins
        entries: list[Subscription | Rejected] = list(packet.subscriptions)
        if plugins is None:
            self._subscribed(packet, entries)
        else:
            self._ask(plugins.chain.subscriptions(self.session, packet), partial(self._subscribed, packet))

    def _subscribed(self, packet: Subscribe, answers: Sequence[Subscription | Rejected]) -> None:
        admitted = [answer for answer in answers if isinstance(answer, Subscription)]
        if admitted:
            passed = Subscribe(
                packet_id=packet.packet_id, subscriptions=admitted, properties=packet.properties
            )
            if self.node.plugins is not None:
                self.node.plugins.show(Source.CLIENT, self.session, PacketType.SUBSCRIBE, passed)
        codes = []
        for entry, answer in zip(packet.subscriptions, answers, strict=True):
            if isinstance(answer, Subscription):
                codes.append(answer.qos)
            elif self.version is Version.V5:
                codes.append(int(answer.reason))
            else:
                codes.append(entry.qos if self.version is Version.V31 else FAILURE)
        first = next((a for a in answers if isinstance(a, Rejected) and a.text), None)
        self._tell(SubAck(packet_id=packet.packet_id, reason_codes=codes), first)
        if admitted:
            granted = SubAck(packet_id=packet.packet_id, reason_codes=[entry.qos for entry in admitted])
            self._show_answer(PacketType.SUBACK, granted)
        for entry in admitted:
            self.node.granted(entry.topic_filter, entry.qos, self.session.client_id)

    def _unsubscribe(self, packet: Unsubscribe) -> None:
        if self.node.plugins is not None:
            self.node.plugins.show(Source.CLIENT, self.session, PacketType.UNSUBSCRIBE, packet)
        codes = [
            int(ReasonCode.SUCCESS if withdrawn else ReasonCode.NO_SUBSCRIPTION_EXISTED)
            for withdrawn in (
                self.node.withdrawn(topic_filter, self.session.client_id)
                for topic_filter in packet.topic_filters
            )
        ]
        answer = UnsubAck(
            packet_id=packet.packet_id, reason_codes=codes if self.version is Version.V5 else []
        )
        self._tell(answer)
        self._show_answer(PacketType.UNSUBACK, answer)

    # PUBLISH ----------------------------------------------------------------------------------

    def _publish(self, message: Publish, publisher: int | None, cause: Cause) -> None:
        plugins = self.node.plugins
        if plugins is None or not plugins.looks_at(Source.CLIENT, PacketType.PUBLISH):
            self._published(message, publisher, cause)
            return
        frame = message.encode(self.version)

        def carry_out(answer: bytes | Rejected) -> None:
            if isinstance(answer, Rejected):
                self.node.lost("filtered")
                self._acknowledge(message, answer)
                return
            passed = message if answer is frame else decode(answer, self.version)
            assert isinstance(passed, Publish)
            self._published(passed, publisher, cause)
            assert plugins is not None
            plugins.show(Source.CLIENT, self.session, PacketType.PUBLISH, answer)

        self._ask(plugins.chain.message(Source.CLIENT, self.session, frame), carry_out)

    def _published(self, message: Publish, publisher: int | None, cause: Cause) -> None:
        self.node.enter(message, publisher, cause)
        self._acknowledge(message)

    def _acknowledge(self, message: Publish, why: Rejected | None = None) -> None:
        if message.packet_id is None:
            return
        code = 0 if why is None or self.version is not Version.V5 else int(why.reason)
        kind = PubAck if message.qos == 1 else PubRec
        answer = kind(packet_id=message.packet_id, reason_code=code)
        self._tell(answer, why)
        if why is None:
            self._show_answer(answer.type, answer)

    def hand(self, message: Publish, qos: int, retain: bool) -> Publish | None:
        """What the client gets of a message that its broker has for it; None: a filter has rejected it."""
        plugins = self.node.plugins
        if plugins is None or not plugins.looks_at(Source.BROKER, PacketType.PUBLISH):
            return message
        version = self.version
        packet = Publish(
            topic=message.topic,
            payload=message.payload,
            qos=qos,
            retain=retain,
            packet_id=1 if qos else None,
            properties=dict(message.properties) if version is Version.V5 else {},
        )
        try:
            frame = packet.encode(version)
        except EncodeError as error:
            raise SimulationError(f"{self!r} cannot be sent {message.topic!r}: {error}") from error
        answer = plugins.chain.message(Source.BROKER, self.paired, frame)
        if not isinstance(answer, bytes):
            return None
        plugins.show(Source.BROKER, self.paired, PacketType.PUBLISH, answer)
        passed = packet if answer is frame else decode(answer, version)
        assert isinstance(passed, Publish)
        return passed
