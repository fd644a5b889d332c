"""Inter-subscribing: what is wanted and what the neighbour knows come together, with one packet under way."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.config import LinkConfig
from ildm.core.counters import Counters
from ildm.core.link.control import TOLD, send_control
from ildm.core.link.interest import FILTERS_PER_PACKET, Announcer, ReceivedInterest, kept_bytes
from ildm.core.transfer.window import Window
from ildm.mqtt import (
    CoveringSet,
    FilterTable,
    LocalError,
    MalformedPacket,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    decode,
)
from ildm.testing.virtual.world import World
from tests.support.site import row, unacknowledged


class FakeSender:
    """Keeps what is written; the far end takes it when the test lets it."""

    max_packet_size = 1 << 20

    def __init__(self) -> None:
        self.wire = self  # it is both
        self.written: list[Any] = []
        self.last_id = 0

    def new_packet_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def release_packet_id(self, packet_id: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written.append(decode(data, Version.V5))


class Ends:
    """Both ends of a link's interest."""

    def __init__(self, **limits: int) -> None:
        self.counters = Counters()
        self.sender = FakeSender()
        self.progress = 0
        sender: Any = self.sender
        self.full = 0
        self.near = Announcer(self.counters, lambda: sender, self.synchronized, self.progressed, self.is_full)
        self.far = ReceivedInterest(LinkConfig(**limits), Counters(), 128)  # type: ignore[arg-type]

    def progressed(self) -> None:
        self.progress += 1

    def is_full(self) -> None:
        self.full += 1

    def synchronized(self) -> None:
        self.sender.written.append("synced")

    def connect(self) -> None:
        self.sender.written.clear()
        self.near.connected()
        self.far.packets = 0
        self.far.begin_synchronization()
        self.near.start()

    def step(self) -> bool:
        """The far end takes one packet and answers it; False when there is none."""
        if not self.sender.written:
            return False
        packet = self.sender.written.pop(0)
        if packet == "synced":
            self.far.end_synchronization()
            return True
        assert not self.sender.written  # one under way
        subscribing = isinstance(packet, Subscribe)
        _, codes = self.far.subscribed(packet) if subscribing else self.far.unsubscribed(packet)
        self.far.packets += 1
        self.near.acknowledged(packet.packet_id, codes)
        self.near.advertised_on(self.far.packets)
        return True

    def settle(self) -> None:
        while self.step():
            pass


FILTERS = ["a", "b", "c/#", "d/+", "e"]
CHANGES = st.one_of(
    st.tuples(st.just("want"), st.dictionaries(st.sampled_from(FILTERS), st.integers(0, 2), max_size=4)),
    st.tuples(st.just("leave"), st.lists(st.sampled_from(FILTERS), max_size=4)),
    st.tuples(st.just("step"), st.none()),
    st.tuples(st.just("outage"), st.none()),
    st.tuples(st.just("connect"), st.none()),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(CHANGES, max_size=40))
def test_the_neighbour_knows_in_the_end_exactly_what_is_wanted(changes: list[tuple[str, Any]]) -> None:
    ends = Ends()
    for what, value in changes:
        match what:
            case "want":
                ends.near.subscribe(value)
            case "leave":
                ends.near.unsubscribe(value)
            case "step":
                ends.step()
            case "outage":
                ends.near.stop()
                ends.sender.written.clear()
            case "connect":
                ends.connect()
    if not ends.near.speaking:
        ends.connect()
    ends.settle()
    assert ends.far.filters == ends.near.interest
    assert ends.far.bytes == sum(map(kept_bytes, ends.near.interest))
    assert ends.near.advertised == ends.near.version
    assert not ends.near.behind


def test_an_exchange_of_filters_leaves_no_topic_uncovered() -> None:
    ends = Ends()
    ends.connect()
    ends.near.subscribe({f"a/{i}": 1 for i in range(2500)})
    ends.settle()
    ends.near.subscribe({"busy": 0})  # under way while the exchange is decided
    ends.near.subscribe({"a/#": 1})
    ends.near.unsubscribe([f"a/{i}" for i in range(2500)])
    while ends.step():
        covered = "a/#" in ends.far.filters or len(ends.far.filters) >= 2500
        assert covered
    assert ends.far.filters == {"busy": 0, "a/#": 1}


def test_filters_that_change_to_and_fro_meanwhile_cost_nothing() -> None:
    ends = Ends()
    ends.connect()
    ends.near.subscribe({"first": 0})
    for _ in range(1000):
        ends.near.subscribe({"second": 1})
        ends.near.unsubscribe(["second"])
    ends.near.subscribe({"third": 2})
    ends.settle()
    assert ends.counters["inter_subscribes"] == 2
    assert ends.counters["inter_unsubscribes"] == 0
    assert ends.far.filters == {"first": 0, "third": 2}


def test_what_is_not_acknowledged_is_not_known() -> None:
    ends = Ends()
    ends.connect()
    ends.settle()
    ends.near.subscribe({"a": 1})
    assert ends.near.behind
    packet = ends.sender.written.pop()
    ends.far.subscribed(packet)
    ends.near.acknowledged(packet.packet_id, [1])
    assert ends.near.behind  # the neighbour has it, but not those behind it
    ends.near.advertised_on(1)
    assert not ends.near.behind
    with pytest.raises(MalformedPacket, match="told 2 of 1"):
        ends.near.advertised_on(2)


def test_packets_are_bounded_in_filters_and_bytes() -> None:
    ends = Ends()
    ends.connect()
    ends.near.subscribe({"x": 0})
    ends.near.subscribe({f"{i}/{'y' * 1000}": 0 for i in range(3000)})
    sizes = []
    while ends.sender.written or ends.near.waiting_for:
        packet = ends.sender.written[-1]
        if isinstance(packet, Subscribe):
            sizes.append(len(packet.encode(Version.V5)))
            assert len(packet.subscriptions) <= FILTERS_PER_PACKET
        ends.step()
    assert max(sizes) <= 1 << 16
    assert len(ends.far.filters) == 3001


def test_a_filter_larger_than_the_neighbour_takes_is_counted() -> None:
    ends = Ends()
    ends.sender.wire.max_packet_size = 1024
    ends.connect()
    ends.near.subscribe({"y" * 2000: 0, "z": 0})
    ends.settle()
    assert ends.far.filters == {"z": 0}
    assert ends.counters["inter_subscribes_dropped_too_large"] == 1


def test_many_packets_of_filters_in_one_round() -> None:
    """What did not fit into a packet comes first in the next, however often that happens."""
    ends = Ends()
    ends.sender.wire.max_packet_size = 1024
    ends.connect()
    wanted = {f"{i}/{'y' * 700}": 0 for i in range(2000)}
    ends.near.subscribe(wanted)
    ends.settle()
    assert ends.far.filters == wanted


# a neighbour that has no room ---------------------------------------------------------------------


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 4), st.lists(CHANGES, max_size=40))
def test_a_full_neighbour_is_asked_for_everything_as_long_as_it_is(
    room: int, changes: list[tuple[str, Any]]
) -> None:
    """What it knew stays covered all the time, and in the end it knows all if there is room for all."""
    ends = Ends(max_filters=room)
    known: set[str] = set()  # acknowledged, and wanted since then without interruption
    for what, value in [*changes, ("connect", None)]:
        match what:
            case "want":
                ends.near.subscribe(value)
            case "leave":
                ends.near.unsubscribe(value)
                known -= set(value)
            case "step":
                ends.step()
            case "outage":
                ends.near.stop()
                ends.sender.written.clear()
            case "connect":
                ends.connect()
        if ends.near.speaking and not ends.near.behind:
            known |= set(ends.near.interest)
        assert "#" in ends.far.filters or known <= set(ends.far.filters)
    ends.settle()
    assert not ends.near.behind
    assert len(ends.far.filters) <= room + 1
    if len(ends.near.interest) <= room:
        assert ends.far.filters == ends.near.interest
    else:
        assert ends.far.filters["#"] == 2
    ends.near.unsubscribe(list(ends.near.interest)[room:])
    ends.settle()
    assert ends.far.filters == ends.near.interest


def test_a_filter_takes_the_place_of_those_it_covers_at_a_full_neighbour() -> None:
    ends = Ends(max_filters=2000)
    ends.connect()
    old = {f"{i % 10}/{i}": 1 for i in range(2000)}
    new = {f"{i}/#": 1 for i in range(10)}
    ends.near.subscribe(old)
    ends.settle()
    ends.near.subscribe(new)
    ends.near.unsubscribe(old)
    while ends.step():
        known = ends.far.filters
        assert "#" in known or known.keys() >= old.keys() or known.keys() >= new.keys()
    assert ends.far.filters == new
    assert ends.full == 1
    assert ends.counters["inter_subscribes_refused"] == 10


def test_for_everything_there_is_always_room() -> None:
    ends = Ends(max_filters=2000)
    ends.connect()
    many = {f"many/{i}": 1 for i in range(2000)}
    ends.near.subscribe(many)
    ends.settle()
    ends.near.subscribe({"#": 1})
    ends.near.unsubscribe(many)
    ends.settle()
    assert ends.far.filters == {"#": 1}
    assert ends.full == 0


def test_what_is_refused_costs_little_while_there_is_no_room() -> None:
    """Only as much is tried again as may have got room; all of it once there is room."""
    ends = Ends(max_filters=1000)
    ends.connect()
    ends.near.subscribe({f"many/{i}": 1 for i in range(5000)})
    ends.settle()
    assert ends.counters["inter_subscribes"] == 5001
    for i in range(100):  # a few of those it knows
        ends.near.unsubscribe([f"many/{i}"])
        ends.settle()
    assert len(ends.far.filters) == 1001
    assert ends.counters["inter_subscribes"] <= 5001 + 100 * 4
    ends.near.unsubscribe([f"many/{i}" for i in range(100, 4000)])
    ends.settle()
    assert ends.far.filters == ends.near.interest
    assert ends.full == 1


def test_a_filter_of_too_many_levels_is_given_up(world: World) -> None:
    ends = Ends()
    ends.connect()
    ends.near.subscribe({"/" * 128: 1, "a": 1})
    ends.settle()
    assert ends.far.filters == {"a": 1}
    assert not ends.near.behind
    assert ends.counters["inter_subscribes_refused"] == 1


# what is kept of a neighbour's wishes ---------------------------------------------------------------


def subscribe(*filters: str) -> Subscribe:
    return Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter=f) for f in filters])


def test_a_neighbours_filters_are_bounded_in_number_bytes_and_levels() -> None:
    few = Ends(max_filters=2).far
    assert few.subscribed(subscribe("a", "b", "c", "a"))[0] == {"a": 0, "b": 0}
    room = kept_bytes("a/b") * 3
    small = Ends(max_filter_bytes=room).far
    assert list(small.subscribed(subscribe("a/b", "c/d", "e/f", "g/h"))[0]) == ["a/b", "c/d", "e/f"]
    assert small.bytes == room
    small.unsubscribed(Unsubscribe(packet_id=1, topic_filters=["a/b"]))
    assert list(small.subscribed(subscribe("g/h"))[0]) == ["g/h"]
    deep = Ends().far
    assert deep.subscribed(subscribe("/" * 127, "/" * 128))[0] == {"/" * 127: 0}
    assert [far.counters["interest_over_limit"] for far in (few, small, deep)] == [1, 1, 1]


def test_what_is_counted_for_a_filter_is_about_what_it_takes() -> None:
    """See ``bench``-like measurement: levels of their own, three in a filter."""

    from ildm.mqtt import CoveringSet, FilterTable

    gc.collect()
    tracemalloc.start()
    filters = {f"{i}x/{i}y/{i}z": 1 for i in range(2000)}
    table: FilterTable[str] = FilterTable()
    for topic_filter in filters:
        table.add(topic_filter, "link", 1)
    covering: CoveringSet[str] = CoveringSet()
    covering.update("link", filters)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counted = sum(map(kept_bytes, filters))
    assert 0.7 * counted < taken < 1.3 * counted


def test_packet_identifiers_that_run_out_are_an_error_and_no_endless_loop() -> None:
    window = Window(10)
    for _ in range(65535):
        window.reserve_id()
    with pytest.raises(LocalError):
        window.next_id()


# nodes ------------------------------------------------------------------------------------------


def test_a_client_gets_its_messages_although_a_neighbour_has_no_room_for_its_filter(world: World) -> None:
    a, b, c = row(world, "abc", "sf", link={"max_filters": 10})
    many = b.client("many")
    many.send(
        Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter=f"many/{i}") for i in range(30)])
    )
    world.run(1)
    late = [c.subscriber("late/t", "late", 1), b.subscriber("late/+", "later", 2)]
    publisher = a.client("p")
    publisher.send(Publish(topic="late/t", payload=b"x", qos=2, packet_id=1))
    publisher.send(Publish(topic="many/29", payload=b"y"))
    world.run(1)
    assert [one.messages for one in late] == [[("late/t", b"x")]] * 2
    assert many.messages == [("many/29", b"y")]
    assert "#" in a.node.links.links["b"].interest
    logged = [event for level, event, _ in b.node.driver.logged if level == "warning"]  # type: ignore[attr-defined]
    assert logged.count("neighbor has no room for all filters, it is asked for everything") == 2
    logged = [event for level, event, _ in a.node.driver.logged if level == "warning"]  # type: ignore[attr-defined]
    assert logged.count("neighbor wants more filters than this node keeps") == 1
    many.transport.close()
    world.run(20)
    assert dict(a.node.links.links["b"].interest) == {"late/+": 2}


def test_a_neighbour_that_stalls_holds_a_set_of_filters_and_no_packets(world: World) -> None:
    """Local clients change their subscriptions more often than there are packet identifiers."""
    a, b = row(world, "ab", "sf")
    link = a.node.links.links["b"]
    for session in link.open_sessions:
        session.transport.cut = True  # type: ignore[union-attr]
    written = len(link.control.transport.written)  # type: ignore[union-attr]
    for i in range(66_000):
        link.inter_subscribe({f"own/{i % 5000}": i % 3})
    world.run(0.1)
    assert len(link.announced) == 5000
    assert len(link.control.transport.written) - written < 100  # type: ignore[union-attr]
    subscriber, publisher = a.subscriber("t", "s"), a.client("p")
    publisher.send(Publish(topic="t", payload=b"x"))
    world.run(0.1)
    assert subscriber.messages == [("t", b"x")]
    world.run(60)
    assert a.links() == {"b": "active"}
    assert b.node.links.links["a"].interest == link.announced


def test_interest_is_known_at_the_far_end_of_a_row_when_it_is_said_to_be(world: World) -> None:
    world.latency = 0.05
    sites = row(world, "abcd", "sf")
    world.run(3)
    a, d = sites[0], sites[-1]
    known: list[tuple[float, bool]] = []
    links = a.node.links
    client = a.client("s")
    client.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="t")]))
    while "t" not in a.node.clients.interest.maximum:
        world.run(0.001)
    began = world.time
    far = d.node.links.links["c"]
    assert not links.when_advertised(lambda: known.append((world.time - began, "t" in far.interest)))
    world.run(1)
    ((took, was_known),) = known
    assert was_known
    assert took == pytest.approx(0.3, abs=0.05)  # three links there and back
    assert links.when_advertised(lambda: None)


def test_waiting_ends_with_a_neighbour_that_goes_and_after_a_time(world: World) -> None:
    a, b = row(world, "ab", "sf", link={"subscribe_wait": 2.0})
    b.node.links.links["a"].answering = True  # it never answers
    heard: list[float] = []
    a.node.links.links["b"].inter_subscribe({"x": 1})
    assert not a.node.links.when_advertised(lambda: heard.append(world.time))
    began = world.time
    world.run(3)
    assert heard == [began + 2]
    assert a.node.counters["interest_told_late"] == 1
    a.node.links.links["b"].inter_subscribe({"y": 1})
    assert not a.node.links.when_advertised(lambda: heard.append(world.time))
    began = world.time
    b.node.links.remove("a")
    world.run(1)
    assert heard[1] - began < 0.1
    assert a.node.links.when_advertised(lambda: None)


def test_a_neighbour_that_does_not_acknowledge_is_given_up(world: World) -> None:
    a, b = row(world, "ab", "sf")
    session = b.node.links.links["a"].control
    assert session is not None
    unacknowledged(b)
    a.subscriber("t")
    world.run(100)
    assert a.node.counters["link_sessions_lost"] + b.node.counters["link_sessions_lost"] > 0


@pytest.mark.parametrize("payload", [b"", b"x", b"-1", b"99", b"1" * 5000])
def test_a_malformed_word_about_interest_only_breaks_its_session(world: World, payload: bytes) -> None:
    a, b = row(world, "ab", "sf")
    send_control(b.node.links.links["a"], TOLD, payload)
    world.run(0.1)
    assert a.node.counters["link_malformed"] == 1
    world.run(60)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})


def test_a_neighbour_with_too_large_a_packet_of_filters_is_refused_before_it_is_read(world: World) -> None:
    a, b = row(world, "ab", "sf")
    sender = b.node.links.links["a"].senders[0]
    sender.wire.write(subscribe(*(f"{i}/{'x' * 1000}" for i in range(100))).encode(Version.V5))
    world.run(0.1)
    assert a.node.counters["link_malformed"] == 1
    assert not a.node.links.links.get("b") or not a.node.links.links["b"].interest
