"""How much a node may keep, and how much work others may make it do: sums of what is configured."""

from __future__ import annotations

from typing import Any

from ildm.core.node import Node

OBJECT = 1000
"""Bytes that Python needs beside what a thing consists of: a message, a filter, a route."""
CALLS_PER_BYTE = 100
"""Of all nodes and brokers together, for each byte a hostile peer or the innocent publisher has sent."""
CALLS_AT_REST = 150_000
"""Beyond that: what the innocent cost, timers, links that come again."""
CALLS_IN_ONE_EVENT = 150_000
"""So long the event loop serves nobody else: some tens of milliseconds."""


def allowed(node: Node) -> int:
    """Bytes that a node may keep by its configuration, with the clients and neighbours it has now."""
    link, limits = node.config.link, node.config.limits
    queues = 1 + len(node.links.links)  # links, and the node's own sessions with the broker
    clients = len(node.sessions) + len(node.clients.records)
    each: Any = getattr(link, "inflight_bytes", 8 << 20)
    size = queues * (2 * link.queue_bytes + 2 * link.sessions * each + link.packet_size)
    size += (2 * clients + len(node.links.links)) * 4 * limits.write_buffer
    size += clients * limits.packet_size + limits.retained_bytes
    things = queues * (2 * link.queue_messages + 2 * link.inflight)
    things += queues * link.max_filters + clients * limits.subscriptions_per_client
    things += 2 * limits.retained_messages + limits.route_cache + link.max_nodes
    return size + things * OBJECT
