"""What an operator does to a node before a real broker: kick, ban, look up."""

from __future__ import annotations

import asyncio
import base64
import io

import pytest

from ildm.admin.client import AdminClient
from ildm.admin.view import AdminError, UnknownError
from ildm.cli.terminal import make_console
from ildm.cli.top import look, picture
from ildm.mqtt import Version, Will
from tests.sites.client import until
from tests.sites.conftest import Sites


async def test_a_kicked_client_is_told_its_will_is_sent_and_it_may_come_again(
    sites: Sites, topic_root: str
) -> None:
    here, there = await sites.row(["mosquitto"] * 2, "pf")
    near, far = await here.connect(), await there.connect()
    for each in (near, far):
        await each.subscribe((f"{topic_root}/will", 1))
    will = Will(topic=f"{topic_root}/will", payload=b"gone", qos=1)
    client = await here.connect("to-be-kicked", version=Version.V5, will=will)
    assert (await here.shell("client kick to-be-kicked"))["ended"] == 1
    await client.wait_closed()
    assert client.end is not None
    assert client.end.reason_code == 0x98
    for each in (near, far):
        assert (await each.receive()).payload == b"gone"
    assert here.node.counters["clients_kicked"] == 1
    await (await here.connect("to-be-kicked")).publish(topic_root, b"again", 1)
    with pytest.raises(UnknownError, match="nobody-of-that-name"):
        await here.shell("client kick nobody-of-that-name")


async def test_a_ban_ends_who_is_there_keeps_out_and_outlives_the_node(sites: Sites) -> None:
    site = await sites.make("mosquitto", "pf")
    client = await site.connect("unwanted", version=Version.V5)
    assert (await site.shell("client ban client unwanted"))["ended"] == 1
    await client.wait_closed()
    refused = await site.connect("unwanted", version=Version.V5, accepted=False)
    assert refused.connack.reason_code == 0x8A
    await site.stop()
    await site.start()
    assert (await site.connect("unwanted", accepted=False)).connack.reason_code == 5
    assert (await site.shell("client bans"))[1] == [
        {"kind": "client", "name": "unwanted", "until": None, "why": "administrator"}
    ]
    await site.shell("client allow client unwanted")
    assert (await site.connect("unwanted")).connack.reason_code == 0
    with pytest.raises(UnknownError):
        await site.shell("client allow client unwanted")


async def test_what_happened_is_there_to_be_read(sites: Sites) -> None:
    site = await sites.make("mosquitto", "pf")
    client = await site.connect("somebody")
    await client.disconnect()
    await until(lambda: not site.node.sessions, "the client has gone")
    _, rows = await site.shell("events --limit 100")
    happened = [row["event"] for row in rows]
    assert happened.index("client connected") < happened.index("client disconnected")
    assert "broker reachable" not in happened or rows[0]["time"] <= rows[-1]["time"]
    assert [row["number"] for row in rows] == sorted(row["number"] for row in rows)


async def test_retained_messages_are_found_by_filter(sites: Sites, topic_root: str) -> None:
    site = await sites.make("mosquitto", "pf")
    client = await site.connect()
    for name in ("a", "b", "deep/c"):
        await client.publish(f"{topic_root}/{name}", name.encode() * 300, 1, retain=True)
    await until(lambda: len(site.node.retained.values) == 3, "they are remembered")

    async def topics(filter: str) -> list[str]:
        _, rows = await site.shell(f"retained --filter {topic_root}/{filter}")
        return sorted(row["topic"].removeprefix(f"{topic_root}/") for row in rows)

    assert await topics("#") == ["a", "b", "deep/c"]
    assert await topics("+") == ["a", "b"]
    assert await topics("b") == ["b"]
    assert await topics("c") == []
    total, rows = await site.shell("retained --limit 1")
    assert (total, len(rows), rows[0]["origin"]) == (3, 1, site.name)
    (row,) = (await site.shell(f"retained --filter {topic_root}/a"))[1]
    assert (row["size"], base64.b64decode(row["payload"])) == (300, b"a" * 256)


async def test_top_shows_what_has_happened_between_two_looks(sites: Sites, topic_root: str) -> None:
    here, _ = await sites.row(["mosquitto"] * 2, "pf")
    client = await here.connect("busy")
    node = AdminClient(here.config.admin_socket)
    before = await asyncio.to_thread(look, node)
    for number in range(50):
        await client.publish(topic_root, str(number).encode(), 1)
    now = (await asyncio.to_thread(look, node))._replace(moment=before.moment + 1)
    stream = io.StringIO()
    make_console(stream).print(picture(before, now))
    rows = [line.split() for line in stream.getvalue().splitlines() if line.strip()]
    assert ["from", "clients", "50/s"] in rows
    (busy,) = (row for row in rows if row[0] == "busy")
    assert busy[2] == "50/s"


async def test_health_is_told_by_the_admin_socket(sites: Sites) -> None:
    broker = await sites.own_broker("mosquitto")
    site = await sites.make(broker, "pf")
    assert await site.shell("health") == {"ready": True, "problems": [], "warnings": []}
    broker.kill()
    await until(lambda: not any(sender.open for sender in site.node.injector.senders), "the broker is missed")
    with pytest.raises(AdminError, match="not ready: broker 127"):
        await site.shell("health")
