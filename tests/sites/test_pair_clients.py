"""Clients at a member that does not own the site, before and after it has changed its owner."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ildm.mqtt import PubAck, PubComp, Publish, PubRec, PubRel, Version, Will
from ildm.testing.live.node import NodeProcess
from tests.sites.client import Client, within
from tests.sites.test_pair import Pair, is_owner


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made = Pair(tmp_path, serve="all")
    try:
        await asyncio.to_thread(made.start)
        await asyncio.to_thread(made.b.wait_for, "this member's clients are served with the owner")
        yield made
    finally:
        await asyncio.to_thread(made.kill)


async def follow(pair: Pair, number: signal.Signals = signal.SIGKILL) -> None:
    """Member a ends, b owns the site and has its link."""
    assert pair.a.process is not None
    os.kill(pair.a.process.pid, number)
    await asyncio.to_thread(pair.b.wait_until, lambda: is_owner(pair.b), "b does not own the site")
    await asyncio.to_thread(pair.far.wait_linked, pair.b)


async def crossing(sender: Client, receiver: Client, topic: str, payload: bytes) -> None:
    """One message of QoS 2, which is the next that the receiver gets."""
    await sender.publish(topic, payload, 2)
    assert (await receiver.receive()).payload == payload


async def at(
    node: NodeProcess, name: str | None = None, clean: bool = True, will: Will | None = None
) -> Client:
    return await Client.connect(node.address, name, clean=clean, will=will, version=Version.V311)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_client_of_a_standby_is_one_of_the_site(pair: Pair, qos: int) -> None:
    here, beside, there = await at(pair.b), await at(pair.a), await at(pair.far)
    for client in (here, beside, there):
        await client.subscribe(("t/#", qos))
    for number, sender in enumerate((here, beside, there)):
        payload = b"%d" % number
        await sender.publish("t/x", payload, qos)
        for client in (here, beside, there):
            assert (await client.receive()).payload == payload
    assert [client.waiting for client in (here, beside, there)] == [0, 0, 0]


async def test_a_session_goes_on_at_the_other_member_amid_qos_2(pair: Pair) -> None:
    there = await at(pair.far)
    await there.subscribe(("t/#", 2))
    message = Publish(topic="t/x", payload=b"once", qos=2, packet_id=7)
    first = await at(pair.b, "mover", clean=False)
    await first.subscribe(("u/#", 2))
    first.send(message)
    await first.packet(PubRec)
    first.drop()
    second = await at(pair.a, "mover", clean=False)
    message.dup = True
    second.send(message)
    await second.packet(PubRec)
    await crossing(there, second, "u/x", b"still wanted")
    second.drop()
    third = await at(pair.b, "mover", clean=False)
    third.send(PubRel(packet_id=7))
    await third.publish("t/x", b"end", 1)
    assert [each.payload for each in await there.receive_until(b"end")] == [b"once"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
async def test_clients_of_a_standby_stay_when_it_becomes_the_owner(
    pair: Pair, number: signal.Signals
) -> None:
    here, there = await at(pair.b), await at(pair.far)
    await here.subscribe(("t/#", 2))
    await there.subscribe(("u/#", 2))
    await crossing(there, here, "t/x", b"before")
    await follow(pair, number)
    await crossing(there, here, "t/x", b"after")
    await crossing(here, there, "u/x", b"back")
    newcomer = await at(pair.b)
    await newcomer.subscribe(("t/#", 2))
    await there.publish("t/x", b"both", 2)
    for client in (here, newcomer):
        assert (await client.receive()).payload == b"both"
    assert not here.closed.is_set()


async def test_what_no_owner_has_taken_waits_and_crosses_once(pair: Pair) -> None:
    here, there = await at(pair.b), await at(pair.far)
    await there.subscribe(("t/#", 2))
    await here.publish("t/x", b"first", 2)
    assert (await there.receive()).payload == b"first"
    assert pair.a.process is not None
    os.kill(pair.a.process.pid, signal.SIGSTOP)
    for number in range(1, 40):
        qos = 1 + number % 2
        here.send(Publish(topic="t/x", payload=b"%d" % number, qos=qos, packet_id=number))
    for number in range(1, 40):
        qos = 1 + number % 2
        answer: PubAck | PubRec = await (here.packet(PubAck) if qos == 1 else here.packet(PubRec))
        assert answer.packet_id == number
        if qos == 2:
            here.send(PubRel(packet_id=number))
    for _ in range(1, 40, 2):
        await here.packet(PubComp)
    await here.publish("t/x", b"end", 2)
    got = [int(each.payload) for each in await there.receive_until(b"end")]
    assert sorted(got) == list(range(1, 40))
    assert [number for number in got if number % 2] == list(range(1, 40, 2))


async def test_a_killed_members_clients_leave_their_wills(pair: Pair) -> None:
    there = await at(pair.far)
    await there.subscribe(("t/#", 1))
    await at(pair.b, "left", will=Will(topic="t/will", payload=b"gone", qos=1))
    assert pair.b.process is not None
    os.kill(pair.b.process.pid, signal.SIGKILL)
    assert (await within(there.receive(), "no will")).payload == b"gone"
    assert there.waiting == 0


async def test_an_administrator_sees_clients_where_they_are(pair: Pair) -> None:
    seen = await at(pair.b, "seen")
    rows = await asyncio.to_thread(pair.b.admin.clients)
    assert [row["client_id"] for row in rows.items] == ["seen"]
    rows = await asyncio.to_thread(pair.a.admin.clients)
    assert [(row["client_id"], row["peer"].partition(" ")[2]) for row in rows.items] == [
        ("seen", "at member b")
    ]
    assert (await asyncio.to_thread(pair.a.admin.status))["pair"]["guests"] == 1
    await asyncio.to_thread(pair.b.admin.kick, "seen")
    await seen.wait_closed()
