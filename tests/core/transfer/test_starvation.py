"""A low priority gets a few bytes a second after a minute behind higher ones."""

from __future__ import annotations

import pytest

from ildm.core.counters import Counters
from ildm.core.transfer.batch import single
from ildm.core.transfer.queue import Backlog, Entry
from ildm.core.transfer.starvation import PATIENCE, QUANTUM, Starvation
from ildm.mqtt import Publish
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.core.transfer.test_classes import ALARM, pair, topics

LOW = {"topics": ["log/#"], "priority": -2}


def filled(*waiting: tuple[str, int, int]) -> Backlog:
    """A queue of so many messages of 100 bytes each on a topic, of a priority."""
    queue = Backlog()
    for topic, priority, count in waiting:
        for _ in range(count):
            message = Publish(topic=topic, payload=b"x" * (97 - len(topic)))
            queue.append(Entry(single(message, 0), None, priority))
    return queue


def sent(queue: Backlog, count: int) -> list[str]:
    found = []
    for _ in range(count):
        found.append(queue.first.batch.topic)
        queue.remove(1)
    queue.check()
    return found


def test_a_favoured_priority_goes_first_for_so_many_bytes() -> None:
    queue = filled(("a", 7, 5), ("b", 0, 5), ("c", -8, 3))
    assert queue.waiting() == [7, 0, -8]
    queue.favour(0, 250)
    assert sent(queue, 5) == ["b", "b", "b", "a", "a"]
    queue.favour(-8, 1000)
    assert sent(queue, 5) == ["c", "c", "c", "a", "a"]
    assert queue.waiting() == [7, 0]
    assert sent(queue, 3) == ["a", "b", "b"]


def test_each_priority_that_waits_has_its_quantum_once_a_second() -> None:
    counters = Counters()
    starvation, queue = Starvation(counters), filled(("a", 7, 200), ("b", 0, 50), ("c", -8, 50))
    starvation.look(queue, 0.0)
    starvation.look(queue, PATIENCE - 1)
    assert sent(queue, 3) == ["a", "a", "a"]
    starvation.look(queue, PATIENCE)
    assert sent(queue, 17) == ["b"] * 15 + ["a"] * 2
    starvation.look(queue, PATIENCE + 0.1)
    assert sent(queue, 17) == ["c"] * 15 + ["a"] * 2
    starvation.look(queue, PATIENCE + 0.2)
    assert sent(queue, 1) == ["a"]
    starvation.look(queue, PATIENCE + 1)
    assert sent(queue, 1) == ["b"]
    assert counters["link_starved"] == 3


def test_what_has_had_its_turn_or_a_new_connection_waits_anew() -> None:
    counters = Counters()
    starvation, queue = Starvation(counters), filled(("a", 7, 1), ("b", 0, 2))
    starvation.look(queue, 0.0)
    assert sent(queue, 1) == ["a"]
    starvation.look(queue, 50.0)  # it is at the front by now
    queue.append(filled(("a", 7, 1)).first)
    starvation.look(queue, 100.0)
    assert counters["link_starved"] == 0
    starvation.begin()
    starvation.look(queue, 170.0)
    assert counters["link_starved"] == 0
    starvation.look(queue, 230.0)
    assert counters["link_starved"] == 1


@pytest.mark.parametrize("spooling", [None, {"mode": "process"}])
@pytest.mark.parametrize("qos", [0, 1])
def test_low_messages_cross_a_full_link_after_a_minute(
    world: World, qos: int, spooling: dict[str, str] | None
) -> None:
    a, b = pair(world, ALARM, LOW, spooling=spooling, rate={"out": 4000, "burst": 0.25}, queue_bytes="8MiB")
    client = a.client("p", properties={})
    for number in range(400):
        put(client, f"alarm/{number}", 1000, qos, 2 * number + 1)
        put(client, f"log/{number}", 100, qos, 2 * number + 2)
    world.run(50)
    assert len([each for each in topics(b) if each.startswith("log/")]) <= 1
    world.run(30)
    low = [each for each in topics(b) if each.startswith("log/")]
    assert low == [f"log/{number}" for number in range(len(low))]
    assert a.node.counters["link_starved"] > 1
    assert QUANTUM // 200 < len(low) < 400


def put(client: MiniClient, topic: str, size: int, qos: int, packet_id: int) -> None:
    client.send(Publish(topic=topic, payload=b"x" * size, qos=qos, packet_id=packet_id if qos else None))
