"""Priorities in the simulator: one node sends one message after the other, the highest priority first."""

from __future__ import annotations

import heapq
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ildm.api import Link, NodeApi, PluginConfig, Route, TreeAlgorithm, Via
from ildm.mqtt import Publish
from ildm.testing import LinkModel, PluginWorld, constant, uniform
from tests.support.examples import examples

SENDING = 0.1
DELAY = 0.01


class ByTopic(TreeAlgorithm):
    """The topic is the priority, for all neighbours."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.writable: list[tuple[float, str]] = []

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        return [Via(link, 2, int(topic)) for link in self.api.links if source is None]

    def on_writable(self, link: Link) -> None:
        self.writable.append((self.api.now(), link.node_id))


class Call(NamedTuple):
    time: float
    far: str
    priority: int
    number: int


def star(model: LinkModel, seed: int = 0) -> PluginWorld:
    """Node a with two neighbours, which keep all they get."""
    world = PluginWorld(ByTopic, seed=seed, model=model)
    for name in "abc":
        world.add(name)
    for name in "bc":
        world.link("a", name)
        world[name].subscribe("#")
    world.run(5)
    return world


def link_to(world: PluginWorld, name: str) -> Link:
    return next(link for link in world["a"].links if link.node_id == name)


def expected(calls: list[Call], begin: float) -> dict[str, list[tuple[float, int]]]:
    """When each neighbour gets which message."""
    got: dict[str, list[tuple[float, int]]] = {"b": [], "c": []}
    waiting: list[tuple[int, int, str]] = []
    left = list(calls)
    now = begin
    while left or waiting:
        if not waiting:  # the first is begun at once
            call = left.pop(0)
            now = max(now, call.time)
            waiting.append((-call.priority, call.number, call.far))
        _, number, far = heapq.heappop(waiting)
        now += SENDING
        got[far].append((round(now + DELAY, 6), number))
        while left and left[0].time <= now:
            call = left.pop(0)
            heapq.heappush(waiting, (-call.priority, call.number, call.far))
    return got


@given(
    st.lists(
        st.tuples(st.integers(0, 90), st.sampled_from("bc"), st.sampled_from([0, 0, 3, -8, 7])), max_size=30
    )
)
@examples(60)
def test_the_highest_priority_leaves_first(asked: list[tuple[int, str, int]]) -> None:
    """What is being sent is not interrupted; of one priority the order is kept, over both links."""
    world = star(LinkModel(delay=constant(DELAY), sending=SENDING))
    begin = world.kernel.now
    # times at which nothing else ends
    calls = [
        Call(begin + at * 0.013, far, priority, number)
        for number, (at, far, priority) in enumerate(sorted(asked, key=lambda each: each[0]))
    ]
    for call in calls:
        message = Publish(topic="t", payload=b"%d" % call.number)
        world.kernel.post_at(
            call.time, world["a"].transfer, link_to(world, call.far), message, 0, call.priority
        )
    world.settle()
    for name, got in expected(calls, begin).items():
        assert [(round(d.time, 6), int(d.payload)) for d in world[name].deliveries] == got


def test_what_waits_is_shown() -> None:
    world = star(LinkModel(delay=constant(DELAY), sending=SENDING))
    link, other = link_to(world, "b"), link_to(world, "c")
    for _ in range(4):
        assert world["a"].transfer(link, Publish(topic="t", payload=bytes(94)))
    assert (link.queued, link.queued_bytes, other.queued) == (4, 400, 0)
    world.run(2.5 * SENDING)
    assert (link.queued, link.queued_bytes) == (2, 200)
    world.settle()
    assert (link.queued, link.queued_bytes) == (0, 0)


def test_when_the_queue_is_full_the_lowest_priority_is_dropped_and_transfer_says_no() -> None:
    """Room is told of when half of it has arrived."""
    world = star(LinkModel(delay=constant(DELAY), sending=SENDING, queue_messages=4))
    node, link = world["a"], link_to(world, "b")
    for topic in ("0", "-3", "5", "-3", "-8", "5", "7"):
        node.publish(topic, topic.encode())
    assert world.network.lost["queue"] == 2 * 3  # for each neighbour
    assert not node.transfer(link, Publish(topic="9"), 0, 7)
    begin = world.kernel.now
    world.settle()
    algorithm = node.algorithm
    assert isinstance(algorithm, ByTopic)
    ((told, name),) = algorithm.writable
    assert name == "b"
    assert told > begin
    assert [delivery.topic for delivery in world["b"].deliveries] == ["0", "7", "5", "5"]


@given(st.integers(0, 1000))
@examples(10)
def test_with_chance_each_session_keeps_its_order_within_a_priority(seed: int) -> None:
    world = star(LinkModel(delay=uniform(0.001, 0.5), sending=0.02, sessions=3), seed)
    random = world["a"].random
    ranks: dict[int, tuple[int, int]] = {}
    for number in range(60):
        ranks[number] = turn, priority = number % 3, random.choice([0, 5, -5])
        link = link_to(world, random.choice("bc"))
        assert world["a"].transfer(link, Publish(topic="t", payload=b"%d" % number), turn, priority)
        world.run(random.uniform(0, 0.02))
    world.settle()
    numbers = {name: [int(delivery.payload) for delivery in world[name].deliveries] for name in "bc"}
    assert sorted(numbers["b"] + numbers["c"]) == list(range(60))
    for got in numbers.values():
        for rank in ranks.values():
            of_rank = [number for number in got if ranks[number] == rank]
            assert of_rank == sorted(of_rank)
