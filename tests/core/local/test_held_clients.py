"""What makes a client wait for its acknowledgements, and for how much more it is read meanwhile."""

from __future__ import annotations

import pytest

from ildm.core.local.acknowledgements import ANY_NUMBER, OUT_OF_ORDER, Acknowledgements
from ildm.mqtt import ProtocolViolation, PubAck, Version
from ildm.testing.virtual.world import World
from tests.support.wire import Ends

ACK = PubAck(packet_id=1).encode(Version.V311)


@pytest.fixture
def ends(world: World) -> Ends:
    return Ends(world)


@pytest.fixture
def acks(ends: Ends) -> Acknowledgements:
    return Acknowledgements(ends.parts, ends.wire)


def test_it_waits_until_every_reason_is_withdrawn(ends: Ends, acks: Acknowledgements) -> None:
    assert acks.passes(ACK, 1)
    acks.hold("one")
    acks.hold("two")
    assert not acks.passes(ACK, 1)
    acks.release("one")
    assert acks.holds
    assert ends.client.written == b""
    acks.release("two")
    assert not acks.holds
    assert ends.client.written == ACK


def test_answers_out_of_order_wait_without_holding_the_client(ends: Ends, acks: Acknowledgements) -> None:
    acks.gate.hold(OUT_OF_ORDER)
    assert not acks.passes(ACK, 1)
    assert not acks.holds
    acks.hold("full")
    acks.release("full")
    assert not acks.holds
    assert ends.client.written == b""
    acks.gate.release(OUT_OF_ORDER)
    assert ends.client.written == ACK


def test_who_waits_for_the_release_hears_of_the_last_one(acks: Acknowledgements) -> None:
    heard: list[str] = []
    acks.when_released = lambda: heard.append("released")
    acks.hold("one")
    acks.hold("two")
    acks.release("one")
    assert heard == []
    acks.release("two")
    assert heard == ["released"]


def test_it_is_read_up_to_the_credit_of_a_link(ends: Ends, acks: Acknowledgements) -> None:
    link = ends.parts.config.link
    acks.hold("full")
    assert acks.room(1) == link.inflight
    acks.sent_while_held(link.inflight - 1, 1)
    assert acks.room(1) == 1
    acks.sent_while_held(1, 1)
    assert acks.room(1) == 0
    acks.answered_at_once(1)
    assert acks.room(1) == 1
    acks.release("full")
    acks.hold("full again")
    assert acks.room(link.inflight_bytes // 2) == 2


def test_more_than_the_receive_maximum_breaks_the_protocol(ends: Ends, acks: Acknowledgements) -> None:
    acks.receive_maximum = 2
    acks.hold("full")
    acks.sent_while_held(2, 10)
    with pytest.raises(ProtocolViolation, match="more than 2 messages"):
        acks.room(10)
    assert ends.parts.counters["clients_over_inflight"] == 1
    assert ends.wire.client is not None
    ends.wire.client.connection_lost(None)
    assert acks.room(10) == ANY_NUMBER


def test_without_a_broker_session_nothing_is_held(ends: Ends, acks: Acknowledgements) -> None:
    assert ends.wire.broker is not None
    ends.wire.broker.connection_lost(None)
    acks.hold("full")
    assert not acks.holds
    assert acks.passes(ACK, 1)
