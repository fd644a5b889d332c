"""What a link bears: priorities in a sender, what algorithms may hand over, and when they may again."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.api import Link, NodeApi, PluginConfig, Route, TreeAlgorithm, Via
from ildm.core.link.state import LinkEvent
from ildm.core.transfer.sender import Sender
from ildm.mqtt import PingReq, PingResp, PubAck, Publish, Version
from ildm.testing.virtual.world import World
from tests.support.examples import examples
from tests.support.senders import Sink, Source, like, make, opened, send_message
from tests.support.site import plugin, row


def numbered(number: int, qos: int, topic: str = "t") -> Publish:
    return Publish(topic=topic, payload=b"%03d" % number, qos=qos, packet_id=1 if qos else None)


def run_of(first: int, count: int, qos: int) -> bytes:
    return b"".join(numbered(first + i, qos).encode(Version.V5) for i in range(count))


def send(sender: Sender, number: int, qos: int, priority: int, source: Source | None = None) -> None:
    send_message(sender, numbered(number, qos), qos, None, source, None, priority)


def send_run(sender: Sender, first: int, count: int, qos: int, priority: int) -> None:
    frames = run_of(first, count, qos)
    sender.send(like(frames, len(frames) // count), None, None, priority)


def sent(sink: Sink) -> list[int]:
    return [int(packet.payload) for packet in sink.packets() if isinstance(packet, Publish)]


# a sender ---------------------------------------------------------------------------------------


def test_what_waited_for_a_connection_goes_by_priority(world: World) -> None:
    sender, _ = make(world)
    for number, priority in enumerate((0, -8, 7, 0, 7, -1)):
        send(sender, number, 0, priority)
    send_run(sender, 10, 3, 1, 2)
    sink = opened(sender)
    world.run(0)
    assert sent(sink) == [2, 4, 10, 11, 12, 0, 3, 5, 1]


@pytest.mark.parametrize("qos", [0, 1])
def test_it_overtakes_what_waits_for_acknowledgements(world: World, qos: int) -> None:
    """QoS 0 at once, although QoS 1 of a lower priority cannot go on."""
    sender, _ = make(world, inflight=2)
    sink = opened(sender)
    send_run(sender, 0, 5, 1, -3)
    send(sender, 8, qos, 0)
    send(sender, 9, qos, 4)
    world.run(0)
    assert sent(sink) == [0, 1] + ([8, 9] if qos == 0 else [])
    for packet_id in (1, 2, 3, 4, 5, 6, 7):
        sender.on_puback(packet_id)
        world.run(0)
    assert sent(sink) == [0, 1] + ([8, 9, 2, 3, 4] if qos == 0 else [9, 8, 2, 3, 4])


def test_what_is_sent_again_keeps_its_priority(world: World) -> None:
    """It goes before what waits at the same priority, and after what has a higher one."""
    sender, _ = make(world, inflight=4)
    opened(sender)
    send_run(sender, 0, 3, 1, -3)
    send(sender, 3, 1, 0)
    send_run(sender, 4, 2, 1, -3)
    send(sender, 6, 1, 5)
    send(sender, 7, 1, 0)
    sender.detach()
    again = opened(sender, session_present=False)
    for packet_id in range(1, 20):
        world.run(0)
        sender.on_puback(packet_id)
    assert sent(again) == [6, 3, 7, 0, 1, 2, 4, 5]


def test_the_lowest_priority_is_dropped_first(world: World) -> None:
    """Within it QoS 0 before QoS 1, the oldest first; also of runs."""
    sender, counters = make(world, messages=6)
    send(sender, 0, 1, -1)
    send(sender, 1, 0, 0)
    send_run(sender, 2, 2, 0, -1)
    send(sender, 4, 1, 7)
    send(sender, 5, 0, 0)
    send(sender, 6, 0, 0)  # the first of the batch of QoS 0 goes
    assert counters == {"link_dropped_overflow_qos0": 1}
    send(sender, 7, 0, 7)
    send(sender, 8, 0, 7)
    assert counters == {"link_dropped_overflow_qos0": 2, "link_dropped_overflow_qos1": 1}
    send(sender, 9, 0, -8)
    assert counters["link_dropped_overflow_qos0"] == 3  # itself
    sink = opened(sender)
    world.run(0)
    assert sent(sink) == [4, 7, 8, 1, 5, 6]


def test_with_overflow_block_the_lowest_of_qos_0_goes_and_who_sends_more_must_wait(world: World) -> None:
    sender, counters = make(world, messages=4, overflow="block")
    source = Source()
    for number, (qos, priority) in enumerate(((0, 5), (0, -5), (1, -8), (1, -8), (0, 0))):
        send(sender, number, qos, priority, source)
    assert counters == {"link_dropped_overflow_qos0": 1}
    assert not source.holds
    for number in range(5, 9):
        send(sender, number, 1, 7, source)
    assert source.holds
    assert counters == {"link_dropped_overflow_qos0": 3}
    sink = opened(sender)
    world.run(0)
    assert sent(sink) == [5, 6, 7, 8, 2, 3]


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["send", "run", "acknowledge", "reconnect", "detach", "pause", "go on"]),
        st.sampled_from([0, 0, 7, -8]),
        st.integers(0, 1),
        st.integers(1, 4),
    ),
    max_size=40,
)


@given(CALLS, st.integers(1, 12), st.integers(1, 6))
@examples(80)
def test_nothing_is_lost_uncounted_and_each_priority_keeps_its_order(
    calls: list[Any], messages: int, inflight: int
) -> None:
    """Through windows, outages and full queues, runs and single messages alike."""
    world = World()
    sender, counters = make(world, messages=messages, inflight=inflight)
    sinks: list[Sink] = []
    answered: list[int] = []  # in how many packets each sink was answered
    ranks: dict[int, tuple[int, int]] = {}
    count = 0

    def acknowledge() -> None:
        world.run(0)
        if sinks and sender.open:
            ids = [p.packet_id for p in sinks[-1].packets() if isinstance(p, Publish) and p.qos]
            for packet_id in ids[answered[-1] :]:
                sender.on_puback(packet_id)
            answered[-1] = len(ids)

    def connect() -> None:
        sender.detach()
        sinks.append(opened(sender))
        answered.append(0)

    for name, priority, qos, number in calls:
        if name == "send":
            ranks[count] = priority, qos
            send(sender, count, qos, priority)
            count += 1
        elif name == "run":
            for i in range(number):
                ranks[count + i] = priority, qos
            send_run(sender, count, number, qos, priority)
            count += number
        elif name == "acknowledge":
            acknowledge()
        elif name == "reconnect":
            connect()
        elif name == "detach":
            sender.detach()
        else:
            sender.wire.set_flowing(name != "pause")
    sender.wire.set_flowing(True)
    connect()
    while not sender.idle:
        acknowledge()
    seen: set[int] = set()
    for sink in sinks:
        numbers = sent(sink)
        for rank in set(ranks.values()):
            of_rank = [number for number in numbers if ranks[number] == rank]
            assert of_rank == sorted(of_rank)
        seen.update(numbers)
    lost = [number for number in ranks if ranks[number][1] and number not in seen]
    assert len(lost) <= counters.get("link_dropped_overflow_qos1", 0)


# what algorithms hand over ----------------------------------------------------------------------


def test_who_hands_over_too_much_at_once_is_refused_until_the_loop_has_gone_round(world: World) -> None:
    """Although the connection takes it all: others must have their turn."""
    sender, _ = make(world, messages=10)
    opened(sender)
    calls = []
    sender.allowance.writable_again = lambda: calls.append(sender.allowance.admit(1))
    assert [sender.allowance.admit(1) for _ in range(12)] == [True] * 10 + [False] * 2
    assert calls == []
    world.run(0)
    assert calls == [True]
    world.run(10)
    assert calls == [True]


def test_room_is_told_of_once_the_queue_is_half_empty(world: World) -> None:
    sender, _ = make(world, messages=8, inflight=1)
    told: list[int] = []
    sender.allowance.writable_again = lambda: told.append(sender.queued_messages)
    for number in range(8):
        assert sender.allowance.admit(1)
        send(sender, number, 1, 0)
    assert not sender.allowance.admit(1)
    opened(sender)
    for packet_id in range(1, 8):
        world.run(1)
        assert bool(told) is (sender.queued_messages <= 4)
        sender.on_puback(packet_id)
    world.run(1)
    assert told == [4]


def test_what_is_larger_than_the_queue_goes_when_nothing_waits(world: World) -> None:
    sender, _ = make(world, bytes=1000)
    assert sender.allowance.admit(5000)
    assert not sender.allowance.admit(1)
    world.run(0)
    assert sender.allowance.admit(5000)


def test_what_was_refused_before_there_was_the_sender_is_told_as_well(world: World) -> None:
    sender, _ = make(world)
    told: list[bool] = []
    sender.allowance.writable_again = lambda: told.append(True)
    sender.allowance.refused()
    assert told == []
    world.run(0)
    assert told == [True]


class Greedy(TreeAlgorithm):
    """Transfers whenever it can, as long as it can."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.taken = self.calls = 0
        self.most = 0

    def on_writable(self, link: Link) -> None:
        self.calls += 1
        while self.api.transfer(link, Publish(topic="flood", payload=bytes(200)), 0, -8):
            self.taken += 1
        self.most = max(self.most, link.queued_bytes)

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        return [Via(link, 2, 7) for link in self.api.links]


def test_who_sends_without_end_is_bounded_by_the_queue_and_holds_up_nobody(world: World) -> None:
    """Clients are served, and what has a higher priority crosses."""
    world.recording = False
    a, b = row(world, "ab", Greedy, link={"queue_messages": 1000, "queue_bytes": 1 << 20})
    greedy = plugin(a)
    (session,) = b.node.links.links["a"].open_sessions
    session.transport.read_rate = 500_000.0  # type: ignore[union-attr]
    client = a.client("c")
    client.send(PingReq())
    client.send(Publish(topic="alarm", payload=b"!", qos=1, packet_id=1))
    greedy.on_writable(greedy.api.links[0])
    world.run(5)
    assert client.got(PingResp)
    assert client.got(PubAck)
    assert greedy.most <= 1 << 20
    assert 5 * 1000 < greedy.taken < 5 * 500_000 / 200 + 5000  # what the neighbour reads, and buffers
    assert greedy.calls < 100
    assert a.node.counters["transfer_refused_full"] == greedy.calls
    assert b.broker.topics().count("alarm") == 1
    assert a.node.counters.get("link_dropped_overflow_qos0", 0) <= 1  # in the alarm's stead


class Listening(TreeAlgorithm):
    """Notes which links have room again."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.writable: list[str] = []

    def on_writable(self, link: Link) -> None:
        self.writable.append(link.node_id)


@pytest.mark.parametrize("leaves", [True, False])
def test_room_of_a_link_that_has_left_is_not_told(world: World, leaves: bool) -> None:
    """What waited is dropped then; of one that comes back there is room."""
    a, b = row(world, "ab", Listening, link={"queue_messages": 10})
    link = plugin(a).api.links[0]
    b.kill()
    world.run(1)
    assert next(n for n in range(99) if not plugin(a).api.transfer(link, Publish(topic="t"))) == 10
    assert (link.queued, plugin(a).writable) == (10, [])
    if leaves:
        a.node.links.cooperation.happened(link, LinkEvent.FORGOTTEN, "lost")
        assert not plugin(a).api.transfer(link, Publish(topic="t"))
        assert a.node.counters["transfer_refused_no_link"] == 1
    else:
        b.start(("a",))
    world.run(10)
    assert plugin(a).writable == ([] if leaves else ["b"])
    assert len(b.broker.topics()) == (0 if leaves else 10)


def test_what_was_transferred_is_as_it_was_then(world: World) -> None:
    """It may wait; what the algorithm does with its message meanwhile does not matter."""
    a, b = row(world, "ab", Listening)
    link = plugin(a).api.links[0]
    b.kill()
    world.run(1)
    message = Publish(topic="t", payload=b"1")
    assert plugin(a).api.transfer(link, message)
    message.payload, message.qos, message.topic = b"2", 9, ""
    b.start(("a",))
    world.run(10)
    assert [(p.topic, p.payload) for name, p in b.broker.published if name[:5] == "ildm-"] == [("t", b"1")]


class Rated(TreeAlgorithm):
    """``alarm/`` first; of the rest so many messages a second."""

    RATE = 10

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.waiting: dict[Link, deque[tuple[Publish, int]]] = {}

    def on_link_up(self, link: Link) -> None:
        self.waiting[link] = deque()
        self._next(link)

    def on_link_down(self, link: Link) -> None:
        del self.waiting[link]

    def route_message(self, message: Publish, source: Link | None, turn: int) -> Route:
        if message.topic.startswith("alarm/"):
            return [Via(link, 2, 7) for link in self.api.links]
        for link, waiting in self.waiting.items():
            if link is not source:
                waiting.append((message, turn))
        return ()

    def _next(self, link: Link) -> None:
        waiting = self.waiting.get(link)
        if waiting is not None:
            if waiting and self.api.transfer(link, *waiting[0]):
                waiting.popleft()
            self.api.call_later(1 / self.RATE, self._next, link)


def test_an_algorithm_that_limits_the_rate(world: World) -> None:
    a, b, c = row(world, "abc", Rated)
    client = a.client("p")
    for i in range(30):
        client.send(Publish(topic="bulk", payload=b"%d" % i, qos=1, packet_id=i + 1))
    client.send(Publish(topic="alarm/fire", payload=b"!", qos=1, packet_id=99))
    world.run(1.05)
    crossed = [p for client_id, p in b.broker.published if client_id.startswith("ildm-")]
    assert crossed[0].topic == "alarm/fire" or crossed[1].topic == "alarm/fire"
    assert 9 <= len(crossed) - 1 <= 11
    world.run(10)
    for site in (b, c):
        bulk = [p for client_id, p in site.broker.published if p.topic == "bulk"]
        assert [p.payload for p in bulk] == [b"%d" % i for i in range(30)]
        assert {p.qos for p in bulk} == {1}
