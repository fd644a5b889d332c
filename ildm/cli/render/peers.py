"""Who is there, and what they may do: neighbours, clients, filters, bans, rules, retained messages."""

from __future__ import annotations

import base64
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ildm.admin.client import Neighbors, Page
from ildm.cli.render.parts import rest, used
from ildm.cli.render.spool import thrown_away
from ildm.cli.terminal import cell, duration, since, size, state, table
from ildm.text import printable, shown_source


def neighbors(page: Neighbors) -> RenderableType:
    refused = [] if not page.refused else [Text(), _refused(page.refused)]
    if not page.items:
        return Group(Text("no neighbours; add one with: neighbor add HOST:PORT", style="dim"), *refused)
    compressed = any(row.get("compression") for row in page.items)
    limited = any(row.get("rate") for row in page.items)
    grid = table(
        [
            "neighbour",
            "address",
            "dir",
            "state",
            "for",
            ">sessions",
            ">rtt",
            ">out",
            ">in",
            ">queued",
            ">dropped",
            *([">compression"] if compressed else []),
            *([">rate", ">waited"] if limited else []),
        ]
    )
    for row in page.items:
        sessions = row["sessions"]
        note = printable(str(row["reason"])) if row["reason"] else None
        grid.add_row(
            cell(row["node_id"]),
            cell(row["address"]),
            f"{row['direction']}, on demand"
            if row.get("on_demand")
            else f"{row['direction']}, found"
            if row.get("found")
            else row["direction"],
            state(row["state"], note),
            since(row["since"]),
            f"{sessions['open']}/{sessions['of']}",
            "-" if row.get("rtt") is None else used(row["rtt"]),
            cell(row["transferred_out"]),
            cell(row["transferred_in"]),
            f"{row['queued_messages']:,} ({size(row['queued_bytes'])})" if row["queued_messages"] else "0",
            cell(row["dropped"]),
            *([_ratio(row.get("compression"))] if compressed else []),
            *(_rate(row.get("rate")) if limited else []),
        )
    return Group(grid, *rest(page), *_spoken(page.items), *_classes(page.items), *refused)


def _spoken(rows: Iterable[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Releases, protocols and features, each once with its neighbours."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row.get("protocol") is not None:
            spoken = cell(row["release"]), cell(row["protocol"]), cell(", ".join(row["features"]) or None)
            found.setdefault(spoken, []).append(cell(row["node_id"]))
    if found:
        grid = table(["release", ">protocol", "features", "neighbours"])
        for spoken, names in found.items():
            grid.add_row(*spoken, ", ".join(names))
        yield from (Text(), grid)


def _classes(rows: Iterable[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """The classes of links, and what became of their messages."""
    if any(row.get("classes") for row in rows):
        grid = table(["neighbour", "class", ">priority", ">late", ">expired", ">conflated"])
        for row in rows:
            for each in row.get("classes", ()):
                counts = (cell(each[key]) for key in ("priority", "late", "expired", "conflated"))
                grid.add_row(cell(row["node_id"]), cell(", ".join(each["topics"])), *counts)
        yield from (Text(), grid)


def _ratio(compression: Mapping[str, Any] | None) -> str:
    """How many times fewer bytes crossed in the last minute, and by what."""
    if compression is None:
        return "-"
    ratio = compression["ratio"]
    return f"{compression['codec']} {'-' if ratio is None else f'{ratio:.1f}'}"


def _rate(rate: Mapping[str, Any] | None) -> tuple[str, str]:
    """Bytes a second at most, which part of them was used lately, and what has waited for that."""
    if rate is None:
        return "-", "-"
    return f"{size(rate['bytes'])}/s {rate['used']:.0%}", size(rate["waited"])


def _refused(rows: Iterable[Mapping[str, Any]]) -> RenderableType:
    grid = table(
        ["refused here, from", "calls itself", "why", ">times", ">last"],
    )
    for row in rows:
        why = Text(printable(str(row["reason"])), style="red")
        grid.add_row(cell(row["address"]), cell(row["node_id"]), why, cell(row["count"]), since(row["last"]))
    return grid


def neighbor(row: Mapping[str, Any]) -> RenderableType:
    line = Text("neighbour ")
    line.append(cell(row.get("address") or row.get("node_id")), style="bold")
    line.append(": ")
    line.append_text(state(row["state"], printable(str(row["reason"])) if row.get("reason") else None))
    if row.get("thrown_away") and row["thrown_away"]["messages"]:
        line.append(f"  {thrown_away(row['thrown_away'])}", style="yellow")
    return line


def clients(page: Page) -> RenderableType:
    if not page.items:
        return Text("no clients", style="dim")
    grid = table(["client", "peer", "MQTT", "connected", ">for", "clean", ">filters", ">in", ">out"])
    for row in page.items:
        grid.add_row(
            cell(row["client_id"]),
            cell(row["peer"] or None),
            cell(row["version"] or None),
            Text("yes", style="green") if row["connected"] else Text("away", style="yellow"),
            since(row["since"]),
            cell(row["clean_start"]),
            f"{cell(row['subscriptions'])} + unknown"
            if row["filters_unknown"]
            else cell(row["subscriptions"]),
            cell(row["messages_in"]),
            cell(row["messages_out"]),
        )
    return Group(grid, *rest(page))


def imported(data: Mapping[str, Any]) -> RenderableType:
    line = Text(f"{data['sessions']:,} sessions with {data['filters']:,} filters taken")
    if data["skipped"]:
        line.append(f"; {data['skipped']:,} are the node's own")
    if data["unknown"]:
        line.append(f"; of {data['unknown']:,} sessions the filters are still unknown", style="yellow")
    return line


def adopted(data: Mapping[str, Any]) -> RenderableType:
    line = Text("all topics cross no more for sessions whose clients are away")
    if data["unknown"]:
        line.append(f"; they do for {data['unknown']:,} clients that are back", style="yellow")
    return line


def subscriptions(page: Page) -> RenderableType:
    if not page.items:
        return Text("no subscriptions", style="dim")
    grid = table(["filter", ">QoS", "wanted by"])
    for row in page.items:
        grid.add_row(
            Text(cell(row["filter"]), style="bold"), cell(row["qos"]), cell(shown_source(row["source"]))
        )
    return Group(grid, *rest(page))


def ban(data: Mapping[str, Any]) -> RenderableType:
    ended = f", {data['ended']:,} connected now ended" if data["ended"] else ""
    return Text(f"{data['kind']} {cell(data['name'])} is kept out {_until(data['until'])}{ended}")


def _until(moment: float | None) -> str:
    return "until that is lifted" if moment is None else f"for {duration(max(0, ceil(moment - time.time())))}"


def bans(page: Page) -> RenderableType:
    if not page.items:
        return Text("nobody is kept out", style="dim")
    grid = table(["kind", "name", "kept out", "by"])
    for row in page.items:
        by = "refused logins" if row["why"] == "authentication" else "an administrator"
        grid.add_row(row["kind"], cell(row["name"]), _until(row["until"]), by)
    return Group(grid, *rest(page))


def rules(page: Page) -> RenderableType:
    if not page.items:
        return Text("no rules: everything may cross", style="dim")
    grid = table(["rule", "for", "what", "way", ">out", ">in"])
    for row in page.items:
        what = Text(f"{row['action']} {cell(', '.join(row['filters']))}")
        if row["action"] == "deny":
            what.stylize("red")
        elif row["local"] != row["remote"]:
            names = [cell(row[side] or "(none)") for side in ("local", "remote")]
            what.append(f"  {' = '.join(names)}", style="dim")
        if row["qos"] not in (None, 2):
            what.append(f"  qos {row['qos']}", style="dim")
        counts = f"{row['hits_out']:,}", f"{row['hits_in']:,}"
        grid.add_row(cell(row["rule"]), cell(row["neighbor"] or "all"), what, row["direction"], *counts)
    return Group(grid, *rest(page))


def retained(page: Page) -> RenderableType:
    if not page.items:
        return Text("no retained messages", style="dim")
    grid = table(["topic", ">QoS", ">bytes", ">for", "from", "payload"])
    for row in page.items:
        payload = base64.b64decode(row["payload"]).decode(errors="replace")
        grid.add_row(
            cell(row["topic"]),
            cell(row["qos"]),
            cell(row["size"]),
            since(row["since"]),
            cell(row["origin"]),
            textwrap.shorten(printable(payload), 60, placeholder=" …"),
        )
    return Group(grid, *rest(page))
