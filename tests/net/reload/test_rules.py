"""Rules of links and addresses of the broker, taken up while two sites talk over real brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ildm.mqtt import Publish, SubAck, Subscribe, Subscription
from ildm.net.reload import ReloadError
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.ports import LOOPBACK, free_port
from tests.net.reload.conftest import MakeRig, Rig, Talker, until
from tests.net.transport.conftest import running


@pytest.fixture
async def sites(tmp_path: Path, mosquitto: Mosquitto) -> AsyncIterator[tuple[Rig, Rig]]:
    """Two linked sites, each before a broker of its own."""
    port = free_port()
    with running(Mosquitto(tmp_path / "broker")) as broker:
        made = []
        for name, at in (("a", mosquitto.address), ("b", broker.address)):
            (tmp_path / name).mkdir()
            link: dict[str, Any] = {"listen": f"{LOOPBACK}:{port if name == 'b' else 0}", "settle": 0.05}
            if name == "a":
                link["neighbors"] = [{"url": f"{LOOPBACK}:{port}", "id": "b"}]
            address = "{}:{}".format(*at)
            made.append(
                Rig(tmp_path / name, node_id=name, algorithm="sf", link=link, broker={"address": address})
            )
        a, b = made
        try:
            for each in (b, a):
                await each.start()
            for each, far in ((a, "b"), (b, "a")):
                await until(lambda each=each, far=far: active(each, far))
            yield a, b
        finally:
            for each in made:
                await each.stop()


def active(rig: Rig, neighbor: str) -> bool:
    link = rig.server.node.links.links.get(neighbor)
    return link is not None and link.in_cooperation and link.connected


async def subscribed(rig: Rig, *filters: str) -> Talker:
    talker = await rig.talker()
    wanted = [Subscription(topic_filter=each, qos=0) for each in filters]
    assert isinstance(await talker.ask(Subscribe(packet_id=1, subscriptions=wanted)), SubAck)
    return talker


async def heard(talker: Talker) -> str:
    packet = await talker.ask(b"")
    assert isinstance(packet, Publish)
    return packet.topic


def say(talker: Talker, topic: str, retain: bool = False) -> None:
    talker.send(Publish(topic=topic, payload=b"x", qos=0, retain=retain))


async def test_rules_of_all_links_and_of_one(sites: tuple[Rig, Rig]) -> None:
    a, b = sites
    listener, speaker = await subscribed(b, "#"), await a.talker()
    session = a.server.node.links.links["b"].control
    [line] = await a.reload(link={"rules": [{"allow": ["#"], "local": "plant/", "remote": "hq/"}]})
    assert line.startswith("link.rules: null -> [{allow: ")
    await until(lambda: "plant/#" in a.server.node.links.links["b"].interest)
    say(speaker, "x")
    say(speaker, "plant/t")
    assert await heard(listener) == "hq/t"
    neighbor = {**a.document["link"]["neighbors"][0], "rules": [{"allow": ["y/#"]}]}
    await a.reload(link={"neighbors": [neighbor]})
    say(speaker, "plant/t")
    say(speaker, "y/t")
    assert await heard(listener) == "y/t"
    await a.reload(link={"rules": [], "neighbors": [{**neighbor, "rules": None}]})
    await until(lambda: "#" in a.server.node.links.links["b"].interest)
    say(speaker, "z")
    assert await heard(listener) == "z"
    assert a.server.node.links.links["b"].control is session  # nobody has connected anew


async def test_rates_of_all_links_and_of_one(sites: tuple[Rig, Rig]) -> None:
    a, b = sites
    listener, speaker = await subscribed(b, "#"), await a.talker()
    link, far = (each.server.node.links.links[name] for each, name in ((a, "b"), (b, "a")))
    session = link.control
    lines = await a.reload(link={"rate": {"out": "64kbit", "in": "1mbit"}})
    assert lines == ["link.rate.out: null -> 8000", "link.rate.in: null -> 125000"]
    await until(lambda: far.budget is not None)
    assert [each.budget.rate for each in (link, far) if each.budget is not None] == [8000, 125_000]
    neighbor = {**a.document["link"]["neighbors"][0], "rate": {"out": "8kbit", "in": "2mbit"}}
    assert f"+ link.neighbors: {{id: b, rate: {{in: 250000, out: 1000}}, url: {neighbor['url']}}}" in (
        await a.reload(link={"neighbors": [neighbor]})
    )
    await until(lambda: far.budget is not None and far.budget.rate == 250_000)
    assert link.budget is not None
    assert link.budget.rate == 1000
    for number in range(10):
        say(speaker, f"t/{number}")
    assert [await heard(listener) for _ in range(10)] == [f"t/{number}" for number in range(10)]
    await a.reload(link={"rate": {}, "neighbors": [{**neighbor, "rate": None}]})
    await until(lambda: far.budget is None)
    assert link.budget is None
    assert link.control is session  # nobody has connected anew


async def test_retained_messages_that_may_cross_now_are_there_at_once(sites: tuple[Rig, Rig]) -> None:
    a, b = sites
    await a.reload(link={"rules": [{"allow": ["open/#"]}]})
    speaker = await a.talker()
    say(speaker, "closed/kept", retain=True)
    say(speaker, "open/kept", retain=True)
    await until(lambda: "open/kept" in b.server.node.retained.values)
    assert "closed/kept" not in b.server.node.retained.values
    await a.reload(link={"rules": []})
    await until(lambda: "closed/kept" in b.server.node.retained.values)  # sync_interval is a minute


async def test_rules_that_an_overlay_cannot_have_are_refused(rig: MakeRig) -> None:
    node = await rig(algorithm="sg_tbps", link={"listen": f"{LOOPBACK}:{free_port()}"})
    with pytest.raises(ReloadError, match=r"link\.rules: rules are for trees"):
        await node.reload(link={"rules": [{"allow": ["#"]}]})
    assert node.server.config.link.rules is None


async def test_a_list_of_brokers_with_the_one_in_use_changes_nothing_for_clients(
    rig: MakeRig, mosquitto: Mosquitto
) -> None:
    here = "{}:{}".format(*mosquitto.address)
    node = await rig(mosquitto.address)
    before = await node.talker()
    node.document["broker"] = {}
    assert await node.reload(broker={"addresses": [f"{LOOPBACK}:1", here]}) != []
    assert await before.lives()
    assert await (await node.talker()).lives()
    assert str(node.server.node.broker_address) == here
    assert len(node.server.node.sessions) == 2


async def test_who_is_at_a_broker_that_is_not_listed_any_more_goes_in_order(
    rig: MakeRig, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    node = await rig(mosquitto.address, algorithm="pf")
    await until(lambda: node.server.node.injector.connected)
    before = await node.talker()
    with running(Mosquitto(tmp_path / "other")) as other:
        there = "{}:{}".format(*other.address)
        await node.reload(broker={"address": there})
        assert await before.read_to_end() == 0x8B  # MQTT 5: the server shuts down
        await until(lambda: node.server.node.injector.connected)
        after = await node.talker()
        assert await after.lives()
        status = node.server.view.status()["broker"]
        assert (status["address"], status["connected"], status["failovers"]) == (there, True, 0)
        assert node.counted("broker_failovers") == 0
        await node.reload(broker={"address": "{}:{}".format(*mosquitto.address)})
        await until(lambda: node.server.node.injector.connected)
