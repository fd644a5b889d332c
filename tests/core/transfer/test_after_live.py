"""What waited when a link came up goes after what is newer, and in its share of the bytes."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.core.spool import NEVER
from ildm.core.transfer.batch import single
from ildm.core.transfer.catching_up import QUANTUM, CatchingUp
from ildm.core.transfer.classes import BEHIND, LinkClasses
from ildm.core.transfer.queue import Backlog, Entry
from ildm.mqtt import Publish
from ildm.net.neighbors_view import backlog
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.core.link.test_features import reload
from tests.core.transfer.test_classes import ALARM, away, classes, pair, topics
from tests.core.transfer.test_starvation import put
from tests.support.disk_spool import DiskSite
from tests.support.site import Site

LATER = {"topics": ["log/#"], "backlog": "after_live"}
SMALL = {"mode": "process", "page_bytes": 4096, "segment_bytes": 65536}
SPOOLS = [None, {"mode": "process"}, SMALL]
RATE = 4000


def logs(site: Site) -> list[int]:
    return [int(topic[4:]) for topic in topics(site) if topic.startswith("log/")]


def publish(client: MiniClient, numbers: range, qos: int, size: int = 200, name: str = "log") -> None:
    for number in numbers:
        put(client, f"{name}/{number}", size, qos, number + 1)


@pytest.mark.parametrize("spooling", SPOOLS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_newer_goes_first_and_each_part_keeps_its_order(
    world: World, spooling: dict[str, Any] | None, qos: int
) -> None:
    a, b = pair(world, LATER, ALARM, spooling=spooling, rate={"out": RATE, "burst": 0.25})
    client = a.client("p", properties={})
    with away(world, a):
        publish(client, range(400), qos)
        world.run(5)
        before = a.node.counters["link_set_back"]
    (sender,) = a.node.links.links["b"].senders
    assert a.node.counters["link_set_back"] > before
    assert sender.queue.behind > 200
    row = backlog(a.node.links.links["b"])
    assert row is not None
    assert row["messages"] == sender.queue.behind
    assert row["age"] > 5
    publish(client, range(1000, 1020), qos)
    publish(client, range(2000, 2003), qos, name="alarm")
    world.run(60)
    came = logs(b)
    old, new = [each for each in came if each < 1000], [each for each in came if each >= 1000]
    assert old == list(range(400))
    assert new == list(range(1000, 1020))
    assert came.index(1019) < came.index(300)
    assert topics(b).index("alarm/2002") < topics(b).index("log/1000")
    assert a.node.counters["link_set_back"] >= 300
    sender.queue.check()
    assert not sender.queue.has_behind
    assert backlog(a.node.links.links["b"]) == {"messages": 0, "age": 0.0}
    if a.node.custody is not None:
        assert not a.node.custody.report().messages


@pytest.mark.parametrize("spooling", SPOOLS)
@pytest.mark.parametrize("own", [{}, {"id": "b"}, {"id": "c"}], ids=["address", "id", "another"])
def test_while_newer_messages_wait_the_backlog_has_its_share(
    world: World, spooling: dict[str, Any] | None, own: dict[str, str]
) -> None:
    """That of the link, or of an entry for the neighbour."""
    entry = {"url": "c:2" if own else "b:2", "backlog": 0.6, **own}
    rate = {"out": RATE, "burst": 0.25}
    a, b = pair(world, LATER, spooling=spooling, rate=rate, queue_bytes="8MiB", neighbors=[entry])
    client = a.client("p", properties={})
    with away(world, a):
        publish(client, range(600), 1)
        world.run(5)
    done = len(logs(b))
    publish(client, range(1000, 1500), 1)
    world.run(20)
    came = logs(b)[done:]
    share = sum(each < 1000 for each in came) / len(came)
    assert len(came) > 200
    assert share == pytest.approx(0.3 if own.get("id") == "c" else 0.6, abs=0.03)


def test_another_part_is_taken_up_while_the_node_runs(world: World) -> None:
    a, _ = pair(world, LATER)
    found = a.node.links.links["b"].classes
    assert found is not None
    assert found.backlog == 0.3
    reload(world, a, backlog=0.2)
    assert found.backlog == 0.2
    reload(world, a, neighbors=[{"url": "b:2", "backlog": 0.5}])
    assert found is a.node.links.links["b"].classes
    assert found.backlog == 0.5


@pytest.mark.parametrize("qos", [1, 2])
def test_after_a_restart_the_highest_priority_is_read_first(world: World, qos: int) -> None:
    a, b = pair(world, ALARM, {**LATER, "priority": 1}, spooling=SMALL, rate={"out": RATE, "burst": 0.25})
    assert isinstance(a, DiskSite)
    client = a.client("p", properties={})
    with away(world, a):
        for number in range(300):
            put(client, f"{'x' if number % 7 else 'log'}/{number}", 200, qos, number + 1)
            if number % 100 == 99:
                put(client, f"alarm/{number}", 200, qos, 1000 + number)
        world.run(5)
        a.reborn("b")
    world.run(5)
    b_saw = topics(b)
    assert b_saw[:3] == ["alarm/99", "alarm/199", "alarm/299"]
    late = a.client("q", properties={})
    publish(late, range(2000, 2002), qos)
    publish(late, range(3000, 3002), qos, name="alarm")
    world.run(5)
    now = topics(b)
    assert now[len(b_saw) :].index("alarm/3001") < 10
    world.run(60)
    came = topics(b)
    assert [each for each in came if each[0] == "x"] == [f"x/{n}" for n in range(300) if n % 7]
    assert [each for each in logs(b) if each < 2000] == list(range(0, 300, 7))
    assert [each for each in logs(b) if each >= 2000] == [2000, 2001]
    assert came[len(b_saw) :].index("log/2001") < 20
    assert not a.node.custody.report().messages  # type: ignore[union-attr]


def test_messages_that_wait_move_once_and_stay_in_order() -> None:
    found, queue = classes(LATER, {"topics": ["#"]}), Backlog()

    def wait(topic: str, qos: int = 0) -> None:
        message = Publish(topic=topic, payload=b"x", qos=qos, packet_id=qos or None)
        queue.append(Entry(single(message, qos), None, found.rank(topic.encode(), 0)))

    for topic in ("log/1", "x/1", "log/2", "x/2"):
        wait(topic)
    assert queue.set_back(found.goes_back) == 2
    assert queue.behind == 2
    wait("log/3", qos=1)
    assert _order(queue) == ["x/1", "x/2", "log/3", "log/1", "log/2"]
    assert queue.set_back(found.goes_back) == 1
    assert _order(queue) == ["x/1", "x/2", "log/1", "log/2", "log/3"]
    assert queue.set_back(found.goes_back) == 0
    queue.favour(BEHIND, 1)
    queue.remove(1)
    assert _order(queue) == ["x/1", "x/2", "log/2", "log/3"]
    queue.check()


def _order(queue: Backlog) -> list[str]:
    """In which all would leave."""
    entries = queue.take_all()
    found = sorted(entries, key=lambda entry: (-entry.level, entry.turn))
    queue.put_back(entries)
    return [entry.whole.topic for entry in found]


def test_a_backlog_is_owed_its_share_and_no_more() -> None:
    queue, share = Backlog(), CatchingUp()
    found = classes(LATER)
    rank = found.rank(b"log", 0)
    for number in range(40):
        queue.append(Entry(single(Publish(topic=f"log/{number}", payload=b"x" * 500), 0), None, rank))
    queue.set_back(found.goes_back)
    for number in range(40):
        queue.append(Entry(single(Publish(topic=f"x/{number}", payload=b"x" * 500), 0), None, 0))
    behind = sent = 0
    while queue.first.level == 0 or behind < sent:
        entry = queue.first
        size, of = entry.size, entry.behind
        queue.remove(1)
        share.sent(queue, 0.25, size, of)
        sent += size
        behind += size if of else 0
        if sent > 12_000:
            break
    assert behind == pytest.approx(0.25 * sent, abs=QUANTUM + 600)
    share.begin()
    share.sent(queue, 0.25, 1000, behind=True)  # nothing newer waited
    share.sent(queue, 0.25, 3 * (QUANTUM - 1), behind=False)
    assert queue.first.level == 0


def test_what_no_class_sets_back_keeps_its_place() -> None:
    found = LinkClasses([])
    queue = Backlog()
    entry = Entry(single(Publish(topic="log/1", payload=b"x"), 0), None, 16)
    queue.append(entry)
    assert queue.set_back(found.goes_back) == 0
    assert (queue.first.level, queue.has_behind, entry.since) == (0, False, NEVER)
