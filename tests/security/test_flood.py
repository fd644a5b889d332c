"""One address floods the node with connections, or with filters: it has its share, and others theirs."""

from __future__ import annotations

import asyncio

from ildm.mqtt import Connect, Subscribe, Subscription, Version
from tests.net.transport.client import WAIT, PahoClient, echoes
from tests.net.transport.conftest import until
from tests.security.conftest import FILTERS, PER_ADDRESS, Target

CONNECTS = 3000
AT_ONCE = 500
REFUSED = "connections_refused_address_connections"
ACCEPTED = b"\x20\x02\0\0"
REQUESTS = 10
"""SUBSCRIBE packets, of as many filters as one may have."""
EACH = 2000


async def attempt(
    port: int, number: int, limit: asyncio.Semaphore
) -> tuple[bytes, asyncio.StreamWriter | None]:
    """What one connection with its CONNECT is answered; it stays open."""
    async with limit:
        writer = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(Connect(client_id=f"flood{number}", keep_alive=0).encode())
            return await reader.read(4), writer
        except ConnectionError:
            return b"", writer


def from_elsewhere(port: int) -> None:
    client = PahoClient(client_id="elsewhere")
    client.paho.connect("127.0.0.1", port, 60, bind_address="127.0.0.2")
    client.paho.loop_start()
    try:
        assert client.answers.get(timeout=WAIT) == 0
        for turn in range(10):
            echoes(client, f"elsewhere/{turn}")
    finally:
        client.close()


async def test_a_flood_of_connects_from_one_address_takes_its_share_and_no_more(target: Target) -> None:
    until(lambda: target.status["clients"] == 0)
    refused = target.counted(REFUSED)
    limit = asyncio.Semaphore(AT_ONCE)
    async with asyncio.timeout(2 * WAIT), asyncio.TaskGroup() as group:
        attempts = [group.create_task(attempt(target.plain, n, limit)) for n in range(CONNECTS)]
        group.create_task(asyncio.to_thread(from_elsewhere, target.plain))
    found = [each.result() for each in attempts]
    answers = [answer for answer, _ in found]
    try:
        assert answers.count(ACCEPTED) == PER_ADDRESS
        assert answers.count(b"") == CONNECTS - PER_ADDRESS
        await asyncio.to_thread(until, lambda: target.status["clients"] == PER_ADDRESS)
        assert target.counted(REFUSED) == refused + CONNECTS - PER_ADDRESS
    finally:
        for _, writer in found:
            if writer is not None:
                writer.transport.abort()
    await asyncio.to_thread(until, lambda: target.status["clients"] == 0)


async def test_filters_without_end_are_kept_up_to_the_bound(target: Target) -> None:
    until(lambda: target.status["clients"] == 0)
    over = target.counted("subscriptions_over_limit")
    reader, writer = await asyncio.open_connection("127.0.0.1", target.plain)
    async with asyncio.timeout(WAIT * 2):
        writer.write(Connect(client_id="many", keep_alive=0).encode())
        assert await reader.readexactly(4) == ACCEPTED
        for request in range(REQUESTS):
            filters = [f"filter/{request * EACH + n}/of/many" for n in range(EACH)]
            wanted = [Subscription(topic_filter=each, qos=1) for each in filters]
            writer.write(Subscribe(packet_id=request + 1, subscriptions=wanted).encode(Version.V311))
            # type, length in two bytes, packet identifier, a code for each filter
            answer = await reader.readexactly(1 + 2 + 2 + EACH)
            assert answer[0] == 0x90
            assert answer[5:] == b"\x01" * EACH, "the client's own broker takes them all"
    (row,) = target.node.admin.clients().items
    assert row["subscriptions"] == FILTERS
    assert target.counted("subscriptions_over_limit") == over + REQUESTS * EACH - FILTERS
    writer.close()
    await writer.wait_closed()
