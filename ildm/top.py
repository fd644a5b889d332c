"""`ildm top`: what a node does now, redrawn each second."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from ildm.terminal import cell, duration, facts, make_console, size, state, table

if TYPE_CHECKING:
    from ildm.admin.client import AdminClient
    from ildm.admin.view import Row

RATES = {
    "from clients": "messages_in",
    "to clients": "messages_out",
    "to other sites": "transferred_out",
    "from other sites": "transferred_in",
    "injected": "injected",
}
"""Counters whose rates are shown."""
CLIENTS = 10
"""Clients shown, those with most messages."""
NEIGHBORS = 20
ASKED = 10_000
"""Clients asked for: beyond that their list costs the node too much."""


class Look(NamedTuple):
    """What the node said at one moment (monotonic seconds)."""

    moment: float
    status: Row
    neighbors: list[Row]
    clients: list[Row]


def look(node: AdminClient) -> Look:
    """Ask the node. Raises: as :class:`ildm.admin.client.AdminClient`."""
    status = node.status()
    clients = node.clients(ASKED).items if status["clients"] <= ASKED else []
    return Look(time.monotonic(), status, node.neighbors().items, clients)


def picture(before: Look, now: Look) -> RenderableType:
    """What has happened between two looks."""
    passed = max(now.moment - before.moment, 1e-9)

    def rate(new: Mapping[str, Any], old: Mapping[str, Any] | None, name: str) -> str:
        grown = new.get(name, 0) - (old.get(name, 0) if old is not None else new.get(name, 0))
        return f"{max(0, grown) / passed:,.0f}/s"

    status = now.status
    broker = status["broker"]
    queues, spool = status["queues"], status["spool"]
    old = before.status["counters"]
    lost = queues["dropped"] - before.status["queues"]["dropped"]
    head = facts(
        [
            ("node", Text(f"{cell(status['node_id'])}  for {duration(status['uptime'])}")),
            (
                "broker",
                state(
                    "active" if broker["connected"] else "down", cell(broker["reason"] or broker["address"])
                ),
            ),
            ("clients", f"{status['clients']:,}"),
            *((name, rate(status["counters"], old, key)) for name, key in RATES.items()),
            ("waiting", f"{_queue(queues['injection'])} for the broker, {_queue(queues['links'])} for links"),
            ("spool", f"{spool['messages']:,} messages, {size(spool['disk_bytes'])} on disk"),
            ("dropped", Text(f"{queues['dropped']:,}  (+{lost:,})", style="red" if lost else "")),
        ]
    )
    parts: list[RenderableType] = [head]
    if now.neighbors:
        known = {row["node_id"] or row["address"]: row for row in before.neighbors}
        links = table(["neighbour", "state", ">out", ">in", ">queued", ">dropped"])
        for row in now.neighbors[:NEIGHBORS]:
            name = row["node_id"] or row["address"]
            links.add_row(
                cell(name),
                state(row["state"], cell(row["reason"]) if row["reason"] else None),
                rate(row, known.get(name), "transferred_out"),
                rate(row, known.get(name), "transferred_in"),
                f"{row['queued_messages']:,}",
                f"{row['dropped']:,}",
            )
        parts += [Text(), links, *_more(len(now.neighbors) - NEIGHBORS, "neighbours")]
    connected = [row for row in now.clients if row["connected"]]
    if connected:
        earlier = {row["client_id"]: row for row in before.clients}

        def grown(row: Row) -> int:
            old_row = earlier.get(row["client_id"], row)
            return int(sum(row[key] - old_row[key] for key in ("messages_in", "messages_out")))

        busiest = sorted(connected, key=grown, reverse=True)[:CLIENTS]
        rows = table(["client", "peer", ">in", ">out", ">filters"])
        for row in busiest:
            past = earlier.get(row["client_id"])
            rows.add_row(
                cell(row["client_id"]),
                cell(row["peer"]),
                rate(row, past, "messages_in"),
                rate(row, past, "messages_out"),
                cell(row["subscriptions"]),
            )
        parts += [Text(), rows, *_more(len(connected) - CLIENTS, "clients")]
    return Group(*parts)


def _queue(queue: Mapping[str, int]) -> str:
    return f"{queue['messages']:,}"


def _more(left: int, what: str) -> list[RenderableType]:
    return [Text(f"{left:,} more {what}", style="dim")] if left > 0 else []


def show_top(node: AdminClient, interval: float, count: int | None) -> None:
    """Draw every ``interval`` seconds, ``count`` times or until Ctrl-C; below each other without a terminal.

    Raises: as :class:`ildm.admin.client.AdminClient`.
    """
    console = make_console()
    before = look(node)
    drawn = 0
    live: Any = None
    if console.is_terminal:
        from rich.live import Live  # noqa: PLC0415 - slow to import

        live = Live(console=console, screen=count is None, auto_refresh=False)
        live.start()
    try:
        while count is None or drawn < count:
            time.sleep(interval)
            now = look(node)
            shown = picture(before, now)
            if live is not None:
                live.update(shown, refresh=True)
            else:
                console.print(shown)
            before, drawn = now, drawn + 1
    except KeyboardInterrupt:
        return
    finally:
        if live is not None:
            live.stop()
