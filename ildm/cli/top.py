"""`ildm top`: what a node does now, redrawn each second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from ildm.cli.terminal import cell, duration, facts, make_console, size, state, table
from ildm.text import json_text

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


def measured(before: Look, now: Look) -> Row:
    """What has happened between two looks, for programs.

    ``seconds`` between them; ``rates`` (per second) of counters; ``dropped`` meanwhile; ``status`` now;
    ``neighbors``, and ``clients`` that are connected, the busiest first, each with ``rates`` of its own.
    """
    passed = max(now.moment - before.moment, 1e-9)

    def rates(new: Mapping[str, Any], old: Mapping[str, Any], names: Iterable[str]) -> dict[str, float]:
        # counters begin anew with the node
        return {name: max(0, new.get(name, 0) - old.get(name, 0)) / passed for name in names}

    def rows(found: list[Row], earlier: list[Row], key: Callable[[Row], str], *names: str) -> list[Row]:
        known = {key(row): row for row in earlier}
        return [{**row, "rates": rates(row, known.get(key(row), row), names)} for row in found]

    clients = [row for row in now.clients if row["connected"]]
    clients = rows(clients, before.clients, lambda row: str(row["client_id"]), "messages_in", "messages_out")
    return {
        "seconds": passed,
        "rates": rates(now.status["counters"], before.status["counters"], RATES.values()),
        "dropped": max(0, now.status["queues"]["dropped"] - before.status["queues"]["dropped"]),
        "status": now.status,
        "neighbors": rows(
            now.neighbors,
            before.neighbors,
            lambda row: str(row["node_id"] or row["address"]),
            "transferred_out",
            "transferred_in",
        ),
        "clients": sorted(clients, key=lambda row: sum(row["rates"].values()), reverse=True),
    }


def picture(before: Look, now: Look) -> RenderableType:
    """The same for people."""
    found = measured(before, now)
    status = found["status"]
    broker, queues, spool = status["broker"], status["queues"], status["spool"]
    lost = found["dropped"]
    note = broker["contested"] or broker["reason"] or broker["address"]
    reached = state("active" if broker["connected"] else "down", cell(note))
    head = facts(
        [
            ("node", Text(f"{cell(status['node_id'])}  for {duration(status['uptime'])}")),
            ("broker", reached),
            ("clients", f"{status['clients']:,}"),
            *((name, _rate(found, key)) for name, key in RATES.items()),
            ("waiting", f"{_queue(queues['injection'])} for the broker, {_queue(queues['links'])} for links"),
            ("spool", f"{spool['messages']:,} messages, {size(spool['disk_bytes'])} on disk"),
            ("dropped", Text(f"{queues['dropped']:,}  (+{lost:,})", style="red" if lost else "")),
        ]
    )
    parts: list[RenderableType] = [head]
    neighbors, clients = found["neighbors"], found["clients"]
    if neighbors:
        links = table(["neighbour", "state", ">out", ">in", ">queued", ">dropped"])
        for row in neighbors[:NEIGHBORS]:
            links.add_row(
                cell(row["node_id"] or row["address"]),
                state(row["state"], cell(row["reason"]) if row["reason"] else None),
                _rate(row, "transferred_out"),
                _rate(row, "transferred_in"),
                f"{row['queued_messages']:,}",
                f"{row['dropped']:,}",
            )
        parts += [Text(), links, *_more(len(neighbors) - NEIGHBORS, "neighbours")]
    if clients:
        busiest = table(["client", "peer", ">in", ">out", ">filters"])
        for row in clients[:CLIENTS]:
            busiest.add_row(
                cell(row["client_id"]),
                cell(row["peer"]),
                _rate(row, "messages_in"),
                _rate(row, "messages_out"),
                cell(row["subscriptions"]),
            )
        parts += [Text(), busiest, *_more(len(clients) - CLIENTS, "clients")]
    return Group(*parts)


def _rate(row: Row, name: str) -> str:
    return f"{row['rates'][name]:,.0f}/s"


def _queue(queue: Mapping[str, int]) -> str:
    return f"{queue['messages']:,}"


def _more(left: int, what: str) -> list[RenderableType]:
    return [Text(f"{left:,} more {what}", style="dim")] if left > 0 else []


def show_top(node: AdminClient, interval: float, count: int | None, as_json: bool = False) -> None:
    """Draw every ``interval`` seconds, ``count`` times or until Ctrl-C; below each other without a terminal.

    ``as_json``: a line of JSON each (:func:`measured`) in place of pictures.

    Raises: as :class:`ildm.admin.client.AdminClient`.
    """
    console = make_console()
    before = look(node)
    drawn = 0
    live: Any = None
    if console.is_terminal and not as_json:
        from rich.live import Live  # noqa: PLC0415 - slow to import

        live = Live(console=console, screen=count is None, auto_refresh=False)
        live.start()
    try:
        while count is None or drawn < count:
            time.sleep(interval)
            now = look(node)
            if as_json:
                print(json_text(measured(before, now)), flush=True)
            elif live is not None:
                live.update(picture(before, now), refresh=True)
            else:
                console.print(picture(before, now))
            before, drawn = now, drawn + 1
    except KeyboardInterrupt:
        return
    finally:
        if live is not None:
            live.stop()
