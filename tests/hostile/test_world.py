"""The world that the tests rest on: its pipes do what sockets and asyncio do."""

from __future__ import annotations

import pytest

from ildm.config import Address
from ildm.mqtt import Publish
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.pipe import Pipe
from ildm.testing.virtual.world import World
from ildm_algorithms.pf import PublicationFlooding
from tests.support.site import Site, row

HERE = Address("here", 1)


class End:
    """Notes what it hears."""

    def __init__(self, keeps_open: bool = False) -> None:
        self.transport: Pipe
        self.data = b""
        self.reads: list[int] = []
        self.heard: list[str] = []
        self.keeps_open = keeps_open

    def connection_made(self, transport: Pipe) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.reads.append(len(data))

    def eof_received(self) -> bool:
        self.heard.append("eof")
        return self.keeps_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.heard.append("reset" if exc else "lost")

    def pause_writing(self) -> None:
        self.heard.append("pause")

    def resume_writing(self) -> None:
        self.heard.append("resume")


@pytest.fixture
def world() -> World:
    return World()


def joined(world: World, far: End | None = None) -> tuple[End, End]:
    near, far = End(), far or End()
    world.listen(HERE, lambda: far)
    world.connect(HERE, near)
    return near, far


def test_a_reader_that_has_stopped_fills_the_buffers_and_pauses_the_writer(world: World) -> None:
    near, far = joined(world)
    near.transport.set_write_buffer_limits(high=1000)
    far.transport.pause_reading()
    near.transport.write(b"x" * world.socket)
    assert near.heard == []
    near.transport.write(b"y" * 1000)
    assert near.heard == []
    near.transport.write(b"z")
    world.run(1)
    assert near.heard == ["pause"]
    assert near.transport.buffered == 1001
    assert far.data == b""
    far.transport.resume_reading()
    world.run(1)
    assert near.heard == ["pause", "resume"]
    assert far.data == b"x" * world.socket + b"y" * 1000 + b"z"


def test_a_slow_reader_takes_its_rate(world: World) -> None:
    near, far = joined(world)
    far.transport.read_rate = 1000.0
    near.transport.write(b"x" * 5000)
    world.run(2)
    assert 1900 <= len(far.data) <= 2200
    world.run(4)
    assert len(far.data) == 5000


def test_what_was_written_before_a_close_arrives_and_what_is_written_after_it_resets(world: World) -> None:
    near, far = joined(world, End(keeps_open=True))
    near.transport.write(b"x" * (world.socket + 1000))
    near.transport.close()
    world.run(1)
    assert near.heard == ["lost"]
    assert len(far.data) == world.socket + 1000
    assert far.heard == ["eof"]
    far.transport.write(b"late")
    world.run(1)
    assert far.heard == ["eof", "reset"]


def test_a_connection_closed_with_unread_data_is_reset_and_may_lose_what_was_under_way(world: World) -> None:
    near, far = joined(world)
    near.transport.pause_reading()
    far.transport.pause_reading()
    far.transport.write(b"unread")
    near.transport.write(b"destroyed")
    world.run(1)
    near.transport.close()
    world.run(1)
    assert far.heard == []  # it does not read
    far.transport.resume_reading()
    world.run(1)
    assert (far.heard, far.data) == (["reset"], b"")


def test_one_half_of_a_connection_may_be_closed(world: World) -> None:
    near, far = joined(world, End(keeps_open=True))
    near.transport.write(b"question")
    near.transport.write_eof()
    world.run(1)
    assert far.heard == ["eof"]
    far.transport.write(b"answer")
    far.transport.close()
    world.run(1)
    assert near.data == b"answer"
    assert near.heard == ["eof", "lost"]


@pytest.mark.parametrize("both_ways", [True, False])
def test_what_a_broken_path_held_up_arrives_in_order_when_it_is_mended(world: World, both_ways: bool) -> None:
    near, far = joined(world)
    near.transport.write(b"1")
    if both_ways:
        far.transport.cut = True
    else:
        near.transport.mute = True
    near.transport.write(b"2")
    far.transport.write(b"back")
    world.run(1)
    assert far.data == b""
    assert near.data == (b"" if both_ways else b"back")
    far.transport.cut = near.transport.mute = False
    near.transport.write(b"3")
    world.run(1)
    assert (far.data, near.data) == (b"123", b"back")


def test_what_was_held_up_comes_before_what_arrives_as_the_path_is_mended(world: World) -> None:
    near, far = joined(world)
    near.transport.mute = True
    near.transport.write(b"12")
    near.transport.write(b"3")
    world.run(1)
    world.call_at(world.time + world.latency, setattr, near.transport, "mute", False)
    near.transport.write(b"4")
    world.run(1)
    assert far.data == b"1234"


@pytest.mark.parametrize("silent", [True, False])
def test_a_killed_node_says_nothing_and_does_nothing_more(world: World, silent: bool) -> None:
    node = make_node(world, "a", plugin_specs("pf", PublicationFlooding))
    node.start({})
    client = End()
    world.connect(Address("a", 1), client)
    world.run(0.1)
    world.kill(node.driver, silent)  # type: ignore[arg-type]
    assert Address("a", 1) not in world.listeners
    world.run(60)
    assert client.heard == ([] if silent else ["eof", "lost"])
    assert node.counters["connect_timeouts"] == 0


def test_a_killed_node_starts_again_with_its_store(world: World) -> None:
    a, b = row(world, "ab", "sf")
    b.subscriber("t", "s", 1, clean_start=False)
    b.kill()
    world.run(1)
    b.start(("a",))
    world.run(5)
    assert a.links() == {"b": "active"}
    a.client("p").send(Publish(topic="t", payload=b"x", qos=1, packet_id=1))
    world.run(1)
    assert b.broker.topics() == ["t"]


def test_a_dial_without_an_answer_takes_its_time(world: World) -> None:
    site = Site(world, "a", "pf")
    world.unreachable.add(Address("far", 2))
    site.node.links.add(Address("far", 2), False)
    world.run(1)
    (neighbor,) = site.node.links.neighbors.values()
    assert neighbor.state == "connecting"
    world.run(4.5)
    assert neighbor.state == "down"
    assert "no answer" in (neighbor.reason or "")
