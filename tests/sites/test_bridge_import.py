"""Two Mosquittos joined by a bridge, and two nodes with its configuration imported, deliver the same."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ildm.importing.mosquitto import convert
from ildm.testing.live.node import NodeProcess
from tests.support.brokers import Fleet, PahoClient, require_broker

ONCE = {
    "two lines with the same topics",
    "two lines with some topics in common",
    "a line with prefixes before one without",
}
"""Cases in which a bridge gets retained messages by each of its subscriptions, and a node once."""
MARKS = ("topic marks/met both 2", "topic marks/end both 2")
"""By what comes after everything else one sees that nothing else has come."""
TOPICS = (
    "a/temp",
    "plant/a/temp",
    "hq/plant/a/temp",
    "plant/x",
    "hq/plant/x",
    "state/1",
    "commands/go",
    "dev/commands/go",
    "x",
)
CASES = {
    "out is the default, at QoS 0": ["topic #"],
    "in": ["topic plant/# in 1"],
    "both, some topics": ["topic +/temp both 2", "topic state/+ both 1"],
    "names in one direction": ["topic # out 2 plant/ hq/plant/"],
    "names in both directions": ["topic # both 1 plant/ hq/plant/"],
    "a prefix there only": ['topic commands/# in 2 "" dev/'],
    "a prefix here only": ["topic +/temp both 2 plant/"],
    "one topic": ['topic "" both 1 plant/x hq/plant/x'],
    "several lines": [
        "topic +/temp out 1 plant/ hq/plant/",
        "topic x out 2 plant/ hq/plant/",
        'topic commands/# in 0 "" dev/',
    ],
    "a QoS that is no number": ['topic plant/# in "" ""', "topic x out 1x", "topic state/# both 257"],
    "two lines with the same topics": ["topic # both 0", "topic state/# both 2", "topic plant/x both 1"],
    "two lines with some topics in common": ["topic +/temp both 2", "topic a/+ both 1"],
    "a prefix that ends within a level": ["topic /x both 1 plant hq/plant", "topic /a/# out 2"],
    "a line with prefixes before one without": ["topic +/temp out 1", "topic temp out 1 a/ far/a/"],
    "two connections to one broker": [
        "topic +/temp out 1 # up",
        "connection second",
        "address {}",
        "notifications false",
        'topic commands/# in 2 "" dev/',
    ],
}


@contextlib.contextmanager
def bridged(directory: Path, lines: list[str]) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Two brokers, the first with the bridge."""
    fleet = Fleet(directory)
    try:
        far = fleet.start("mosquitto")
        conf = [
            "connection test",
            "address {}:{}".format(*far.address),
            "notifications false",
            *MARKS,
            *(line.replace("{}", "{}:{}".format(*far.address)) for line in lines),
        ]
        near = fleet.start("mosquitto", extra=conf)
        yield near.address, far.address
    finally:
        fleet.close()


@contextlib.contextmanager
def imported(directory: Path, lines: list[str]) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Two nodes before brokers of their own, the first with what the same lines become."""
    conf = ["connection test", "address far", "notifications false", *MARKS, *lines]
    found = convert("\n".join(conf).replace("{}", "far"), "m.conf")
    assert not found.differs
    fleet, nodes = Fleet(directory), []
    try:
        far = NodeProcess(directory / "far", fleet.start("mosquitto").address, "sf", node_id="far")
        nodes.append(far)
        far.start()
        link: dict[str, Any] = {**found.document["link"], "neighbors": [far.link_address]}
        broker = fleet.start("mosquitto").address
        near = NodeProcess(directory / "near", broker, found.document["algorithm"], node_id="near", link=link)
        nodes.append(near)
        near.start()
        yield near.address, far.address
    finally:
        for node in nodes:
            node.kill()
        fleet.close()


def meet(one: PahoClient, other: PahoClient) -> None:
    """Return when messages cross in both directions."""
    deadline = time.monotonic() + 300
    for number, (here, there) in enumerate(((one, other), (other, one))):
        mark = b"met %d" % number
        while time.monotonic() < deadline:
            here.publish("marks/met", mark, 1)
            with contextlib.suppress(queue.Empty):
                while there.receive(0.5).payload != mark:
                    pass
                break
        else:
            raise TimeoutError("no message crosses")


def delivered(near: tuple[str, int], far: tuple[str, int]) -> list[list[tuple[str, bytes, int, bool]]]:
    """What subscribers to everything get at both sites, live and then retained: topic, payload, QoS, retain
    flag."""
    with ExitStack() as stack:
        clients = [stack.enter_context(PahoClient(address)) for address in (near, far)]
        for client in clients:
            client.subscribe(("#", 2))
        meet(*clients)
        got: list[list[Any]] = [[], []]
        for place, client in enumerate(clients):
            for topic in TOPICS:
                for qos in (0, 1, 2):
                    client.publish(topic, b"%d live" % place, qos)
                kept = topic.replace("x", f"x{place}").replace("1", f"1{place}")
                client.publish(kept, b"%d kept" % place, 1, retain=True)
            end = b"end %d" % place
            client.publish("marks/end", end, 2)
            for messages, each in zip(got, clients, strict=True):
                messages += each.receive_until(end)
        for messages, address in zip(got, (near, far), strict=True):
            late = stack.enter_context(PahoClient(address))
            late.subscribe(("#", 2))
            late.publish("marks/late", b"late", 2)
            messages += late.receive_until(b"late")
    return [
        sorted((m.topic, m.payload, m.qos, m.retain) for m in messages if not m.topic.startswith("marks/"))
        for messages in got
    ]


@pytest.mark.parametrize("case", CASES)
def test_the_same_is_delivered(tmp_path: Path, case: str) -> None:
    require_broker("mosquitto")
    with bridged(tmp_path / "bridge", CASES[case]) as sites:
        expected = delivered(*sites)
    crossed = [
        payload for place in (0, 1) for _, payload, *_ in expected[place] if payload[0] != b"01"[place]
    ]
    assert any(payload.endswith(b"live") for payload in crossed)
    with imported(tmp_path / "nodes", CASES[case]) as sites:
        found = delivered(*sites)
    if case in ONCE:
        expected, found = (
            [[m for m in each if m[1].endswith(b"live")] for each in got] for got in (expected, found)
        )
    assert found == expected
