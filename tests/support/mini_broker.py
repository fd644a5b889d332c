"""A broker of a few lines for worlds in virtual time: enough of MQTT to stand behind a node."""

from __future__ import annotations

from typing import Any

from ildm.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    Framer,
    PingReq,
    PingResp,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
    decode,
    topic_matches,
)


class MiniBroker:
    """Speaks QoS 0-2 towards publishers and delivers at QoS 0; keeps what was published, in order."""

    def __init__(self, speaks_5: bool = True) -> None:
        self.speaks_5 = speaks_5
        self.published: list[tuple[str, Publish]] = []
        self.connections: list[MiniConnection] = []
        self.refuse_with: int | None = None

    def connection(self) -> MiniConnection:
        return MiniConnection(self)

    def topics(self, client_prefix: str = "ildm-") -> list[str]:
        """Topics published by clients whose id begins so; by default what nodes have injected."""
        return [packet.topic for client_id, packet in self.published if client_id.startswith(client_prefix)]

    def crash(self) -> None:
        for connection in list(self.connections):
            connection.transport.abort()


class MiniConnection:
    def __init__(self, broker: MiniBroker) -> None:
        self.broker = broker
        self.transport: Any = None
        self.framer = Framer()
        self.version = Version.V311
        self.client_id = ""
        self.filters: list[str] = []
        self.unreleased: set[int] = set()
        self.received: list[Any] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.broker.connections.append(self)

    def data_received(self, data: bytes) -> None:
        for frame in self.framer.feed(data):
            packet = decode(frame, self.version)
            self.received.append(packet)
            self._packet(packet)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self.broker.connections:
            self.broker.connections.remove(self)

    def eof_received(self) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def send(self, packet: Any) -> None:
        self.transport.write(packet.encode(self.version))

    def _packet(self, packet: Any) -> None:
        match packet:
            case Connect():
                self.version = packet.version
                self.client_id = packet.client_id
                if packet.version is Version.V5 and not self.broker.speaks_5:
                    self.transport.write(b"\x20\x02\x00\x01")
                    self.transport.close()
                    return
                refuse = self.broker.refuse_with
                five = packet.version is Version.V5 and not refuse
                properties = {Property.TOPIC_ALIAS_MAXIMUM: 10} if five else {}
                self.send(ConnAck(session_present=False, reason_code=refuse or 0, properties=properties))
                if refuse:
                    self.transport.close()
            case Subscribe():
                self.filters.extend(s.topic_filter for s in packet.subscriptions)
                self.send(
                    SubAck(packet_id=packet.packet_id, reason_codes=[s.qos for s in packet.subscriptions])
                )
            case Unsubscribe():
                self.filters = [f for f in self.filters if f not in packet.topic_filters]
                codes = [0] * len(packet.topic_filters) if self.version is Version.V5 else []
                self.send(UnsubAck(packet_id=packet.packet_id, reason_codes=codes))
            case Publish():
                self._publish(packet)
            case PubRel():
                self.unreleased.discard(packet.packet_id)
                self.send(PubComp(packet_id=packet.packet_id))
            case PingReq():
                self.send(PingResp())
            case Disconnect():
                self.transport.close()

    def _publish(self, packet: Publish) -> None:
        if packet.qos == 1 and packet.packet_id is not None:
            self.send(PubAck(packet_id=packet.packet_id))
        elif packet.qos == 2 and packet.packet_id is not None:
            self.send(PubRec(packet_id=packet.packet_id))
            if packet.packet_id in self.unreleased:
                return
            self.unreleased.add(packet.packet_id)
        self.broker.published.append((self.client_id, packet))
        for connection in self.broker.connections:
            if any(topic_matches(f, packet.topic) for f in connection.filters):
                connection.send(Publish(topic=packet.topic, payload=packet.payload))


class MiniClient:
    """A client in a world; keeps every packet it got."""

    def __init__(self, version: Version = Version.V311) -> None:
        self.version = version
        self.framer = Framer()
        self.transport: Any = None
        self.packets: list[Any] = []
        self.closed = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.packets.extend(decode(frame, self.version) for frame in self.framer.feed(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True

    def eof_received(self) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def send(self, packet: Any) -> None:
        self.transport.write(packet.encode(self.version))

    def got(self, type: type) -> list[Any]:
        return [packet for packet in self.packets if isinstance(packet, type)]

    @property
    def messages(self) -> list[tuple[str, bytes]]:
        return [(packet.topic, packet.payload) for packet in self.got(Publish)]
