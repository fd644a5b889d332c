"""`ildm trace` over sites with real brokers."""

from __future__ import annotations

import asyncio

import pytest

from ildm.admin.view import AdminError
from tests.sites.client import until
from tests.sites.conftest import Sites
from tests.sites.site import join


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
async def test_the_way_of_a_message_with_times(sites: Sites, algorithm: str, topic_root: str) -> None:
    row = await sites.row(["mosquitto"] * 3, algorithm)
    subscriber = await row[2].connect()
    await subscriber.subscribe((f"{topic_root}/#", 1))
    found = await row[0].shell(f"trace {topic_root}/a")
    assert [(hop["depth"], hop["node"]) for hop in found["hops"]] == list(enumerate(s.name for s in row))
    assert [hop["note"] for hop in found["hops"]] == [""] * 3
    first, second, third = (hop["seconds"] for hop in found["hops"])
    assert 0 == first < second < third
    await (await row[0].connect()).publish(f"{topic_root}/after", b"x", 1)
    assert (await subscriber.receive()).topic == f"{topic_root}/after", "nobody sees the probe"


async def test_a_broker_that_is_away_is_named(sites: Sites, topic_root: str) -> None:
    here, there = [await sites.own_broker("mosquitto") for _ in range(2)]
    one, other = await sites.make(here, "pf"), await sites.make(there, "pf")
    await join(one, other)
    await asyncio.to_thread(there.kill)
    await until(
        lambda: not any(sender.open for sender in other.node.injector.senders), "the broker is missed"
    )
    found = await one.shell(f"trace {topic_root}")
    assert [hop["note"] for hop in found["hops"]] == ["", "its broker is not there"]


async def test_where_there_is_nothing_to_follow(sites: Sites) -> None:
    alone = await sites.make("mosquitto", None)
    with pytest.raises(AdminError, match="without an algorithm"):
        await alone.shell("trace a/b")
    tree = await sites.make("mosquitto", "pf")
    with pytest.raises(AdminError, match="do not cross"):
        await tree.shell("trace $SYS/broker")


async def test_with_an_overlay_it_is_the_tree_of_the_algorithm(sites: Sites) -> None:
    alone = await sites.make("mosquitto", "sg_tbps")
    found = await alone.shell("trace a/b")
    assert (found["topic"], found["nodes"]) == ("a/b", 0)
    assert "trees" in found


async def test_why_a_message_does_not_go(sites: Sites, topic_root: str) -> None:
    rules = [{"deny": [f"{topic_root}/secret"]}, {"allow": [f"{topic_root}/#"]}]
    own = {"link": {"rules": rules, "queue_messages": 2}, "spool": {"mode": "off"}}
    publish = [{"deny": [f"{topic_root}/+/%c"]}]
    one = await sites.make("mosquitto", "sf", publish=publish, **own)
    other = await sites.make(sites.shared_broker("mosquitto", 1), "sf")
    await join(one, other)

    async def kept(words: str) -> list[tuple[str | None, str]]:
        return [(row["neighbor"], row["why"]) for row in (await one.shell(f"trace {words}"))["kept"]]

    subscriber = await other.connect(topic_root, clean=False)  # so that what it wants outlives the node
    await subscriber.subscribe((f"{topic_root}/wanted/#", 2))
    publisher = await one.connect("me")
    wanted, there = f"{topic_root}/wanted", other.name
    assert await kept(wanted) == []
    assert await kept(f"{topic_root}/other") == [(there, "algorithm sf knows of nobody there who wants it")]
    assert await kept(f"{topic_root}/secret") == [(there, "link.rules.0 denies it")]
    assert await kept("elsewhere") == [(there, "link.rules.rest denies it")]
    assert await kept(f"{wanted}/me --client me") == [
        (None, "the rules of publish keep here what client me sends on it")
    ]
    assert await kept(f"{wanted} --client nobody") == [(None, "client nobody is not connected here")]
    await other.stop()
    await until(lambda: not one.is_connected(other))
    await publisher.publish_all(wanted, [b"x"] * 3, 1)
    assert await kept(wanted) == [(there, "its queue is full (2 messages): the oldest are dropped")]
