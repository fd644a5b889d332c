"""What becomes of real messages over sites with real brokers: `ildm trace FILTER --for TIME`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.sites.client import until
from tests.sites.conftest import Sites
from tests.sites.site import Site


async def traced(site: Site, topic_filter: str, seconds: float = 60.0) -> str:
    answer = site.server.view.watch(topic_filter, seconds, 100, 1)
    name: str = answer["name"]
    await asyncio.sleep(0)
    return name


def steps(message: dict[str, Any]) -> set[tuple[str, str, str | None]]:
    return {(step["node"], step["what"], step["peer"]) for step in message["steps"]}


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
async def test_each_message_with_its_way_over_a_tree(sites: Sites, algorithm: str, topic_root: str) -> None:
    a, b, c = await sites.row(["mosquitto"] * 3, algorithm)
    subscriber = await c.connect()
    await subscriber.subscribe((f"{topic_root}/#", 1))
    name = await traced(a, f"{topic_root}/#")
    await until(lambda: c.node.router.recorder is not None, "the last site takes part")
    publisher = await a.connect()
    for number in range(3):
        await publisher.publish(f"{topic_root}/t", b"the same", 1)
        await subscriber.receive()
        assert number < 3
    await until(
        lambda: sum(len(each["steps"]) for each in a.server.view.watched(name)["messages"]) == 3 * 11,
        "all is told",
    )
    found = a.server.view.unwatch(name)
    assert len(found["messages"]) == 3
    for message in found["messages"]:
        assert (message["topic"], message["size"], message["qos"]) == (f"{topic_root}/t", 8, 1)
        assert steps(message) == {
            (a.name, "received", None), (a.name, "sent", b.name), (a.name, "acknowledged", b.name),
            (b.name, "received", a.name), (b.name, "sent", None), (b.name, "acknowledged", None),
            (b.name, "sent", c.name), (b.name, "acknowledged", c.name),
            (c.name, "received", b.name), (c.name, "sent", None), (c.name, "acknowledged", None),
        }  # fmt: skip
        assert message["node"] == a.name
        assert all(0 <= step["seconds"] < 5 for step in message["steps"])


async def test_over_an_overlay_where_it_enters_and_where_it_arrives(sites: Sites, topic_root: str) -> None:
    a, b, c = await sites.row(["mosquitto"] * 3, "sg_tbps")
    subscriber = await c.connect()
    await subscriber.subscribe((f"{topic_root}/#", 1))
    publisher = await a.connect()
    async with asyncio.timeout(120):
        while not subscriber.waiting:  # until the overlay knows of the subscriber
            await publisher.publish(f"{topic_root}/early", b"", 1)
            await asyncio.sleep(0.1)
    name = await traced(b, f"{topic_root}/late")
    await until(lambda: all(s.node.router.recorder is not None for s in (a, c)), "all sites take part")
    await publisher.publish(f"{topic_root}/late", b"x", 1)

    def last() -> bool:
        found = b.server.view.watched(name)["messages"]
        return bool(found) and (c.name, "acknowledged", None) in steps(found[0])

    await until(last, "its arrival is told")
    (message,) = b.server.view.unwatch(name)["messages"]
    assert {(a.name, "received", None), (c.name, "sent", None)} <= steps(message)
