"""An algorithm with a spreading of its own: what it is asked, and that messages wait until it is prepared."""

from __future__ import annotations

from collections.abc import Callable

from ildm_algorithms.overlay.graph import CastResult
from ildm_algorithms.overlay.keys import Range
from ildm_algorithms.tbps import Direct
from ildm_algorithms.tbps.keys.encoding import Segment
from ildm_algorithms.tbps.keys.segments import Member
from tests.algorithms.tbps.world import OverLine, World


class Searching(Direct):
    """Takes a while to be prepared: until the test says so."""

    def __init__(self, algorithm: Slow) -> None:
        super().__init__(algorithm.graph, "sfb")
        self.found: list[Callable[[], None]] = []
        self.sent: list[tuple[str | None, Range, bool, int]] = []

    def prepare(self, member: Member, done: Callable[[], None]) -> None:
        self.found.append(done)

    def send(
        self,
        member: Member | None,
        target: Range,
        payload: bytes,
        reliable: bool,
        turn: int,
        done: Callable[[CastResult], None] | None,
    ) -> None:
        assert (done is not None) is reliable
        self.sent.append((member and member.segment.text, target, reliable, turn))
        super().send(member, target, payload, reliable, turn, done)


class Slow(OverLine):
    def make_spreading(self) -> Searching:
        return Searching(self)


def searching(world: World, name: str) -> Searching:
    spreading = world.living[name].algorithm.spreading
    assert isinstance(spreading, Searching)
    return spreading


def prepare(world: World, name: str) -> None:
    found = searching(world, name).found
    while found:
        found.pop()()
    world.settle()


def test_messages_wait_until_the_spreading_is_prepared() -> None:
    world = World(algorithm=Slow)
    publisher, subscriber = world.start("p", "s")
    subscriber.subscribe("t")
    world.settle()
    publisher.publish("t", "1")
    publisher.publish("t", "2", qos=1)
    world.settle()
    spreading = searching(world, "p")
    assert spreading.sent == []
    assert publisher.algorithm.outbox.waiting == 2
    prepare(world, "p")
    assert publisher.algorithm.outbox.waiting == 0
    assert [(text, reliable) for text, _, reliable, _ in spreading.sent] == [("t", False), ("t", True)]
    assert [delivery.payload for delivery in subscriber.deliveries] == [b"1", b"2"]
    publisher.publish("t", "3")  # prepared is prepared
    assert len(spreading.sent) == 3


def test_a_node_that_changes_its_role_is_prepared_again_and_goes_on_meanwhile() -> None:
    world = World(algorithm=Slow)
    publisher, subscriber = world.start("p", "s")
    subscriber.subscribe("t")
    publisher.publish("t", "1")
    world.settle()
    prepare(world, "p")
    publisher.subscribe("t")
    world.settle()
    assert len(searching(world, "p").found) == 1  # for the subscriber key
    publisher.publish("t", "2")
    world.settle()
    assert [delivery.payload for delivery in subscriber.deliveries] == [b"1", b"2"]


def test_what_is_found_for_a_key_that_has_left_meanwhile_is_forgotten() -> None:
    world = World(algorithm=Slow, publisher_idle=5.0)
    publisher, subscriber = world.start("p", "s")
    subscriber.subscribe("t")
    publisher.publish("t", "1")
    world.settle()
    late = searching(world, "p").found.copy()
    world.run(10)  # idle: the keys have left
    for done in late:
        done()
    searching(world, "p").found.clear()
    searching(world, "p").sent.clear()  # 1 has gone without a key
    publisher.publish("t", "2")
    world.settle()
    assert searching(world, "p").sent == []
    prepare(world, "p")
    assert [delivery.payload for delivery in subscriber.deliveries] == [b"1", b"2"]


def test_messages_do_not_wait_for_ever() -> None:
    world = World(algorithm=Slow, key_wait=3.0)
    publisher, subscriber = world.start("p", "s")
    subscriber.subscribe("t")
    world.settle()
    publisher.publish("t", "1")
    world.run(2)
    assert searching(world, "p").sent == []
    world.run(2)
    assert [text for text, _, _, _ in searching(world, "p").sent] == [None, None, None]
    publisher.publish("t", "2")
    world.settle()
    prepare(world, "p")
    publisher.publish("t", "3")
    world.settle()
    assert [delivery.payload for delivery in subscriber.deliveries] == [b"1", b"2", b"3"]
    assert searching(world, "p").sent[-1][0] == "t"
    assert publisher.counters["outlets_late"] == 1


def test_a_trace_asks_the_spreading() -> None:
    world = World(algorithm=Slow)
    publisher, subscriber = world.start("p", "s")
    subscriber.subscribe("t")
    publisher.publish("t", "1")
    world.settle()
    prepare(world, "p")
    traced: list[str] = []
    spreading = searching(world, "p")
    direct = spreading.trace

    def trace(segment: Segment, done: Callable[[CastResult], None]) -> None:
        traced.append(segment.text)
        direct(segment, done)

    spreading.trace = trace  # type: ignore[method-assign]
    publisher.algorithm.trace("t", lambda answer: None)
    assert traced == ["t"]
