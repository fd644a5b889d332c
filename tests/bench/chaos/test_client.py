"""The client of the runs under faults: what it sends again, what it gives up, what it tells."""

from __future__ import annotations

from typing import Any

from ildm.mqtt import (
    ConnAck,
    Framer,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Version,
    Will,
    decode,
)
from ildm_bench.chaos.client import MqttClient


class Peer:
    """The server's side: what came, and what the client told."""

    def __init__(self, **options: Any) -> None:
        self.told: list[tuple[str, str, dict[str, Any]]] = []
        self.client = MqttClient(
            "c", lambda op, phase, **columns: self.told.append((op, phase, columns)), **options
        )

    def connect(self, *, present: bool = False) -> list[Packet]:
        """Of a new connection, what came behind CONNECT once it was answered."""
        self._framer = Framer()
        self._sent = bytearray()
        self.client.opened(self._sent.extend)
        self.took()
        return self.say(ConnAck(session_present=present))

    def say(self, *packets: Packet) -> list[Packet]:
        self.client.received(b"".join(packet.encode(Version.V311) for packet in packets))
        return self.took()

    def took(self) -> list[Packet]:
        frames = self._framer.feed(bytes(self._sent))
        self._sent.clear()
        return [decode(frame, Version.V311) for frame in frames]

    def events(self, op: str) -> list[str]:
        return [phase for kind, phase, _ in self.told if kind == op]


def test_what_was_not_acknowledged_is_sent_again_with_dup_where_the_session_is_there() -> None:
    peer = Peer(clean=False)
    peer.connect()
    for seq, qos in enumerate((1, 2, 2)):
        peer.client.publish("t", b"%d" % seq, seq, qos)
    peer.took()
    assert peer.say(PubRec(packet_id=2)) == [PubRel(packet_id=2)]
    peer.client.lost()
    assert peer.connect(present=True) == [
        Publish(topic="t", payload=b"0", qos=1, packet_id=1, dup=True),
        PubRel(packet_id=2),
        Publish(topic="t", payload=b"2", qos=2, packet_id=3, dup=True),
    ]
    peer.say(PubAck(packet_id=1), PubComp(packet_id=2), PubRec(packet_id=3), PubComp(packet_id=3))
    # what is sent again is told of, too, and each first PUBREC
    told = ["invoke"] * 3 + ["info"] * 3 + ["ok"] * 2 + ["info", "ok"]
    assert peer.events("publish") == told
    assert [columns["seq"] for _, _, columns in peer.told if columns.get("detail")] == [1, 2]
    assert peer.client.unacknowledged == 0


def test_where_the_session_is_gone_qos_1_goes_anew_and_qos_2_is_given_up() -> None:
    peer = Peer(clean=False)
    peer.connect()
    peer.client.publish("t", b"0", 0, 1)
    peer.client.publish("t", b"1", 1, 2)
    peer.client.lost()
    assert peer.connect() == [Publish(topic="t", payload=b"0", qos=1, packet_id=1)]
    assert peer.events("publish") == ["invoke", "invoke", "info", "info"]
    assert peer.client.session == "c/2"


def test_messages_wait_in_order_for_room_and_for_a_connection() -> None:
    peer = Peer(inflight=2)
    for seq in range(3):
        assert peer.client.publish("t", b"", seq, 1)
    assert not peer.client.publish("t", b"", 3, 0)
    assert peer.told == []
    assert [packet.packet_id for packet in peer.connect()] == [1, 2]  # type: ignore[union-attr]
    assert peer.say(PubAck(packet_id=1)) == [Publish(topic="t", qos=1, packet_id=3)]


def test_qos_2_is_delivered_once_until_it_is_released() -> None:
    peer = Peer(clean=False)
    peer.connect()
    message = Publish(topic="t", payload=b"0", qos=2, packet_id=7)
    again = Publish(topic="t", payload=b"0", qos=2, packet_id=7, dup=True)
    assert peer.say(message, again) == [PubRec(packet_id=7)] * 2
    peer.client.lost()
    peer.connect(present=True)
    peer.say(again)
    assert peer.events("receive") == ["ok"]
    assert peer.say(PubRel(packet_id=7), message) == [PubComp(packet_id=7), PubRec(packet_id=7)]
    assert peer.events("receive") == ["ok", "ok"]


def test_filters_are_asked_for_again_where_the_session_is_gone_or_nobody_answered() -> None:
    peer = Peer(clean=False)
    peer.client.subscribe("a", 1)
    (asked,) = peer.connect()
    assert isinstance(asked, Subscribe)
    peer.client.lost()
    (asked,) = peer.connect(present=True)
    assert isinstance(asked, Subscribe)
    peer.say(SubAck(packet_id=asked.packet_id, reason_codes=[1]))
    peer.client.lost()
    assert peer.connect(present=True) == []
    peer.client.lost()
    assert len(peer.connect()) == 1
    assert peer.events("subscribe") == ["invoke", "invoke", "ok", "invoke"]


def test_a_will_is_due_where_the_connection_breaks_and_not_after_disconnect() -> None:
    peer = Peer(will=Will(topic="w", payload=b"gone"))
    peer.connect()
    peer.client.lost()
    peer.connect()
    peer.client.disconnect()
    peer.client.lost()
    assert peer.events("will") == ["info", "invoke", "ok", "info", "invoke", "fail"]


def test_an_identifier_that_is_used_again_before_its_release_is_told() -> None:
    peer = Peer()
    peer.connect()
    first = Publish(topic="t", payload=b"0", qos=2, packet_id=7)
    assert peer.say(first) == [PubRec(packet_id=7)]
    peer.say(Publish(topic="t", payload=b"0", qos=2, packet_id=7, dup=True))
    assert peer.events("receive") == ["ok"]
    assert peer.say(Publish(topic="t", payload=b"1", qos=2, packet_id=7)) == [PubRec(packet_id=7)]
    assert peer.events("receive") == ["ok", "info"]
