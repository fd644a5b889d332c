"""What is kept on disk for others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ildm.admin.client import Page
from ildm.cli.render.parts import rest
from ildm.cli.terminal import cell, facts, since, size, table
from ildm.text import printable


def spool_line(spool: Mapping[str, Any]) -> Text:
    mode = cell(spool["mode"])
    if mode == "off":
        return Text("off: what is acknowledged is lost with the node", style="dim")
    if not spool["messages"]:
        text = Text(f"empty  ({mode})")
    else:
        old = since(spool["oldest"])
        messages = f"{spool['messages']:,} messages ({size(spool['bytes'])})"
        text = Text(f"{messages}, the oldest for {old}  ({mode})")
    if spool["failure"]:
        text.append(f"  nothing is acknowledged: {printable(str(spool['failure']))}", style="red")
    elif spool["full"]:
        text.append("  full", style="red")
    return text


def spool(data: Mapping[str, Any]) -> RenderableType:
    rows: list[tuple[str, RenderableType]] = [("spool", spool_line(data))]
    if data["mode"] == "off":
        return facts(rows)
    rows.append(("on disk", f"{size(data['disk_bytes'])} of {size(data['limit'])}"))
    rows.append(("in", cell(data["directory"])))
    if data["lost"]["places"] or data["lost"]["messages"]:
        rows.append(("lost", Text(_lost(data["lost"]), style="red")))
    if not data["receivers"]:
        return facts(rows)
    grid = table(["receiver", ">messages", ">bytes", ">on disk alone", ">oldest"])
    for row in data["receivers"]:
        grid.add_row(
            Text(cell(row["receiver"]), style="bold"),
            cell(row["messages"]),
            size(row["bytes"]),
            cell(row["on_disk"]),
            since(row["oldest"]),
        )
    return Group(facts(rows), Text(), grid)


def _lost(lost: Mapping[str, Any]) -> str:
    whose = "".join(
        f", {messages:,} of {receiver}" for receiver, messages in sorted(lost["receivers"].items())
    )
    more = f", at most {lost['entries']:,} more" if lost["entries"] else ""
    more += ", and what stood at the end of a file, nobody knows how many" if lost["ends"] else ""
    return printable(
        f"{lost['messages']:,} messages are known{whose}{more}; damaged places: {lost['places']:,}"
    )


def spooled(page: Page) -> RenderableType:
    if not page.items:
        return Text("nothing is kept for this receiver", style="dim")
    grid = table(["topic", ">QoS", "retained", ">bytes", ">for", "from", ">number"])
    for row in page.items:
        grid.add_row(
            Text(cell(row["topic"]), style="bold"),
            cell(row["qos"]),
            cell(row["retain"]),
            cell(row["size"]),
            since(row["since"]),
            cell(row["origin"]),
            cell(row["number"]),
        )
    return Group(grid, *rest(page))


def thrown_away(what: Mapping[str, Any]) -> str:
    return f"{what['messages']:,} messages ({size(what['bytes'])}) thrown away"
