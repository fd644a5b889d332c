"""A link between two brokers and, to hold it against, Mosquitto's bridge between the same."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm_bench.micro.relay import ONE_ADDRESS, start
from ildm_bench.micro.traffic_run import SOCKETS, Way
from ildm_bench.testbed.bridging import bridge_lines, wait_crossing

BRIDGE, LINK = "bridge", "link"
BOOT = 20.0
"""Seconds until the bridge has to pass messages."""


Changed = dict[str, dict[str, float]]
"""Keys of a configuration that differ from the default, by section."""


def ways(delays: Sequence[float], read_waits: Sequence[float] = ()) -> dict[str, Changed]:
    """The bridge, which all else is held against, a link, and one more for each ``link.delay`` and
    ``limits.read_wait`` in seconds."""
    found: dict[str, Changed] = {BRIDGE: {}, LINK: {}}
    found |= {f"{LINK}, {delay * 1e3:g} ms": {"link": {"delay": delay}} for delay in delays}
    return found | {f"{LINK}, read {wait * 1e3:g} ms": {"limits": {"read_wait": wait}} for wait in read_waits}


@contextmanager
def opened(way: str, sockets: str, qos: int, changed: Changed) -> Iterator[Way]:
    """Publishers at the near site, subscribers at the far broker itself in all ways.

    A link is two nodes with PF and what is ``changed``; the bridge is the near broker's for all topics.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory, lines = Path(name), SOCKETS[sockets]
        far = start(stack, Mosquitto(directory / "far-broker", tuned=True, extra=lines))
        if way == BRIDGE:
            lines += bridge_lines("near", "far", f"127.0.0.1:{far.port}", qos)
        near = start(stack, Mosquitto(directory / "near-broker", tuned=True, extra=lines))
        brokers = {"near broker": near, "far broker": far}
        if way == BRIDGE:
            wait_crossing(near.address, far.address, BOOT)
            yield Way(near.port, far.port, brokers)
            return
        extra = {"log": {"level": "error"}, "limits": ONE_ADDRESS | changed.get("limits", {})}
        nodes: dict[str, NodeProcess] = {}
        for site, broker in (("far", far), ("near", near)):
            node = NodeProcess(directory / site, broker.address, "pf", node_id=site, extra=extra)
            node.document["link"]["neighbors"] = [other.link_address for other in nodes.values()]
            node.document["link"] |= changed.get("link", {})
            nodes[site] = start(stack, node)
        nodes["near"].wait_linked(nodes["far"])
        wait_crossing(nodes["near"].address, far.address, BOOT)
        yield Way(
            nodes["near"].port,
            far.port,
            {"near node": nodes["near"], "far node": nodes["far"], **brokers},
        )
