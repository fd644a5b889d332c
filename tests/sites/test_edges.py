"""Clients as they come over real sockets: those that go at once, and those that take their time."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from ildm.mqtt import ConnAck, Connect, Disconnect, PubAck, Publish, Version
from tests.sites.client import PATIENCE, Client, within
from tests.sites.conftest import Sites
from tests.sites.process import ProcessSite
from tests.sites.site import Site, join, settled
from tests.support.brokers import Fleet

CLIENTS = 50


async def fire_and_forget(address: tuple[str, int], data: bytes, half: bool) -> bytes:
    """Send all at once and go; what was answered, for who shuts one direction only."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    if half:
        writer.write_eof()
        answer = await reader.read()
    else:
        answer = b""
    writer.close()
    return answer


async def all_arrive(site: ProcessSite | Site, topic: str, half: bool) -> None:
    """So many clients that go at once; the messages of each must reach a subscriber."""
    subscriber = await site.connect()
    await subscriber.subscribe((topic, 0))
    for i in range(CLIENTS):
        data = Connect(client_id=uuid.uuid4().hex[:20]).encode()
        data += Publish(topic=topic, payload=str(i).encode()).encode(Version.V311)
        data += Disconnect().encode(Version.V311)
        answer = await within(fire_and_forget(site.address, data, half), "the end of the connection")
        assert not half or answer == b"\x20\x02\0\0"
    received = [int(message.payload) for message in await subscriber.receive_all(CLIENTS)]
    assert sorted(received) == list(range(CLIENTS))


@pytest.mark.parametrize("half", [True, False], ids=["shut", "closed"])
async def test_messages_of_clients_that_go_at_once_arrive(sites: Sites, half: bool, topic_root: str) -> None:
    await all_arrive(await sites.make("mosquitto", None), topic_root, half)


@pytest.mark.parametrize("half", [True, False], ids=["shut", "closed"])
async def test_also_with_the_event_loop_of_a_running_node(
    fleet: Fleet, tmp_path: Path, half: bool, topic_root: str
) -> None:
    site = ProcessSite(fleet.shared("mosquitto"), tmp_path / "node", "pf", f"n{uuid.uuid4().hex[:8]}")
    await site.start()
    try:
        await all_arrive(site, topic_root, half)
    finally:
        await site.stop()


async def test_a_client_lives_on_while_it_takes_longer_for_a_packet_than_its_keep_alive(
    sites: Sites, topic_root: str
) -> None:
    """As with the broker itself, which hears from it all the time."""
    here = await sites.make("mosquitto", "sf")
    there = await sites.make(sites.shared_broker("mosquitto", 1), "sf")
    await join(here, there)
    subscriber = await there.connect()
    await subscriber.subscribe((topic_root, 1))
    await settled(here, there)
    client = await Client.connect(here.address, keep_alive=1)
    payload = bytes(200_000)
    frame = Publish(topic=topic_root, payload=payload, qos=1, packet_id=1).encode(Version.V311)
    for start in range(0, len(frame), 20_000):
        client.send(frame[start : start + 20_000])
        await asyncio.sleep(0.4)  # four seconds in all, and no PINGREQ between
    assert (await client.packet(PubAck)).packet_id == 1
    assert (await subscriber.receive()).payload == payload


FILES = 256
"""File descriptors of the process, so that few clients are enough to use them up."""


async def test_a_node_keeps_file_descriptors_for_itself(
    fleet: Fleet, tmp_path: Path, topic_root: str
) -> None:
    """More clients than there are descriptors for: refused with a reason; all else goes on."""
    prefix = f"n{uuid.uuid4().hex[:8]}"
    near = ProcessSite(fleet.shared("mosquitto"), tmp_path / "near", "sf", f"{prefix}-near")
    limited = f"import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}));"
    near.command = [near.command[0], "-c", limited + "runpy.run_module('ildm')", *near.command[3:]]
    far = ProcessSite(
        fleet.shared("mosquitto", 1),
        tmp_path / "far",
        "sf",
        f"{prefix}-far",
        link={"neighbors": [f"{near.link_address[0]}:{near.link_address[1]}"]},
    )
    await near.start()
    try:
        subscriber = await near.connect()
        await subscriber.subscribe((topic_root, 1))
        versions = (Version.V311, Version.V5)
        clients, codes = [], []
        for i in range(FILES):
            client = await Client.open(near.address, versions[i % 2])
            client.send(Connect(client_id=uuid.uuid4().hex[:20], version=client.version))
            codes.append((await client.packet(ConnAck)).reason_code)
            clients.append(client)
        accepted = codes.count(0)
        assert 0 < accepted < FILES // 2
        assert set(codes[accepted:]) == {3, 0x97}
        counters = (await near.status())["counters"]
        assert counters["connections_refused_descriptors"] == FILES - accepted
        assert "out_of_descriptors" not in counters
        assert "no room for more clients" in near.log()
        await far.start()  # a neighbour can still join
        async with asyncio.timeout(PATIENCE):
            while not any(row["interest"] for row in await far.neighbors()):  # noqa: ASYNC110 - a process
                await asyncio.sleep(0.01)
        publisher = await far.connect()
        await publisher.publish(topic_root, b"still there", 1)
        assert (await subscriber.receive()).payload == b"still there"
    finally:
        await near.stop()
        if far.process is not None:
            await far.stop()
