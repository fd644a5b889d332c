"""What a node sends beside what it relays goes out between two packets, never amid one."""

from __future__ import annotations

import pytest

from ildm.core.local.ack_gate import GateScanner
from ildm.core.local.wire import ANSWERS
from ildm.mqtt import PingReq, PubAck, Publish, Version
from ildm.testing.virtual.world import World
from tests.support.wire import Ends

ACK = PubAck(packet_id=1).encode(Version.V311)
PING = PingReq().encode(Version.V311)
LARGE = Publish(topic="t", payload=bytes(5000)).encode(Version.V311)


@pytest.fixture
def ends(world: World) -> Ends:
    return Ends(world)


def test_the_broker_gets_it_after_the_packet_that_is_relayed(ends: Ends) -> None:
    ends.wire.to_broker(PING)
    assert ends.broker.written == PING
    ends.wire.begin_partial().relay(LARGE[:4096], len(LARGE) - 4096, copy=False)
    ends.wire.to_broker(ACK)
    ends.wire.to_broker(PING)
    assert ends.broker.written == PING
    assert ends.wire.between_packets() == ACK + PING
    assert ends.wire.between_packets() == b""


def test_the_client_gets_it_after_the_packet_that_it_has_in_part(ends: Ends) -> None:
    ends.wire.to_client(ACK)
    assert ends.client.written == ACK
    ends.wire.scanner = GateScanner(bytes(256), 1 << 20, Version.V311)
    ends.wire.scanner.feed(LARGE[:100])
    ends.wire.to_client(ACK)
    assert ends.client.written == ACK
    assert ends.wire.watching
    ends.wire.scanner.feed(LARGE[100:])
    ends.wire.send_beside()
    assert ends.client.written == ACK + ACK


def test_a_client_that_does_not_take_its_answers_is_not_read(ends: Ends) -> None:
    assert ends.wire.client is not None
    ends.wire.client.pause_writing()
    ends.wire.to_client(ACK)
    assert not ends.client.reading
    ends.wire.client.resume_writing()
    ends.wire.send_beside()
    assert ends.client.reading


def test_a_broker_that_hears_nothing_is_pinged_within_its_patience(world: World) -> None:
    ends = Ends(world)
    ends.wire.kept_back()
    assert ends.broker.written == b""  # the client has set no keep alive
    ends.wire.keep_alive = 30
    for seconds, pings in ((10, 1), (9, 1), (1, 2)):
        world.run(seconds)
        ends.wire.kept_back()
        assert (ends.broker.written, ends.wire.pings) == (PING * pings, pings)
    ends.wire.ended = True
    world.run(30)
    ends.wire.kept_back()
    assert ends.wire.pings == 2


def test_the_last_answers_are_waited_for_once_and_not_for_ever(world: World) -> None:
    ends, ended = Ends(world), []
    ends.wire.linger(lambda: ended.append("first"))
    ends.wire.linger(lambda: ended.append("second"))
    world.run(ANSWERS / 2)
    assert ends.wire.lingers
    world.run(ANSWERS)
    ends.wire.end_lingering()
    assert ended == ["second"]
    assert not ends.wire.lingers


def test_what_comes_after_both_ends_goes_nowhere(ends: Ends) -> None:
    ends.wire.cut()
    ends.wire.to_client(ACK)
    ends.wire.to_broker(PING)
    ends.wire.ping()
    ends.wire.go_on()
    ends.wire.fail(ValueError())  # type: ignore[arg-type]
    assert (ends.client.written, ends.broker.written, ends.errors) == (b"", b"", [])
