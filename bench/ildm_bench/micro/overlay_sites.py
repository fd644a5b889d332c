"""What benchmarks of a live overlay share: its sites, clients at them, and what the nodes tell.

A site is a node, as a process, before a Mosquitto of its own.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ildm.admin.client import AdminClient
from ildm.admin.view import AdminError
from ildm.testing.live.brokers import new_broker
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.process import POLL, ProcessError
from ildm.testing.live.site import Choice
from ildm_bench.clients import Client

PATIENCE = 60.0
"""Seconds that sites have to form one overlay."""
SomeClient = TypeVar("SomeClient", bound=Client)


@contextmanager
def sites(algorithms: Sequence[Choice]) -> Iterator[list[NodeProcess]]:
    """A node for each, ``node-0`` and so on; the first is the others' neighbour. They end with the block."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        nodes: list[NodeProcess] = []
        for index, algorithm in enumerate(algorithms):
            broker = new_broker("mosquitto", Path(name) / f"broker-{index}")
            broker.start()
            stack.callback(broker.kill)
            node_id = f"node-{index}"
            node = NodeProcess(Path(name) / node_id, broker.address, algorithm, node_id=node_id)
            if nodes:
                node.document["link"]["neighbors"] = [nodes[0].link_address]
            node.start()
            stack.callback(node.kill)
            nodes.append(node)
        yield nodes


async def connected(
    kind: type[SomeClient], node: NodeProcess, client_id: str, filters: Sequence[str] = ()
) -> SomeClient:
    """A client of that kind at the node, subscribed to the filters with QoS 1."""
    client = await kind.connect(node.address, client_id)
    if filters:
        await client.subscribe(*filters, qos=1)
    return client


def overlay(node: NodeProcess) -> dict[str, Any]:
    """The overlay as a node sees it; without keys while it has not begun to join."""
    try:
        return dict(AdminClient(node.admin_socket).overlay())
    except AdminError:
        return {"keys": []}


def whole(nodes: Sequence[NodeProcess]) -> bool:
    """Whether the keys of these nodes, each of which subscribes, form one list at level 0."""
    rows = {row["key"]: row for node in nodes for row in overlay(node)["keys"]}
    subscribers = [row for row in rows.values() if row["facts"]["role"] == "subscriber"]
    if sum(row["status"] == "in" for row in subscribers) < len(nodes):
        return False
    here = next((key for key, row in rows.items() if row["levels"] and row["levels"][0][0] is None), None)
    seen: list[str] = []
    while here is not None and here in rows and rows[here]["levels"] and len(seen) < len(rows):
        seen.append(here)
        here = rows[here]["levels"][0][1]
    return here is None and len(seen) == len(rows)


def figures(nodes: Sequence[NodeProcess]) -> Counter[str]:
    """Counters of the nodes together."""
    total: Counter[str] = Counter()
    for node in nodes:
        status = node.status()
        if status is not None:
            total.update(status["counters"])
    return total


async def until(reached: Callable[[], bool], what: str) -> None:
    """Ask, in a thread, until it is so; raises ProcessError with ``what`` it was about."""
    give_up = time.monotonic() + PATIENCE
    while not await asyncio.to_thread(reached):
        if time.monotonic() > give_up:
            raise ProcessError(f"{what}: not within {PATIENCE:g} s")
        await asyncio.sleep(POLL)
