"""What a node is and does: status, plugins, reloads, events."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ildm.admin.client import Page
from ildm.cli.render.parts import counters, pairs, rest, used
from ildm.cli.render.spool import spool_line
from ildm.cli.terminal import cell, duration, facts, size, state, table
from ildm.text import printable

RELAY_KEEPS = "none: the broker has what it acknowledges"


def status(data: Mapping[str, Any]) -> RenderableType:
    broker = data["broker"]
    reached = state("active" if broker["connected"] else "down")
    reached.plain = f"{reached.plain[:1]} {cell(broker['address'])}"
    note = f"MQTT {broker['protocol']}" if broker["connected"] and broker["protocol"] else broker["reason"]
    if note:
        reached.append(f"  {printable(str(note))}", style="dim")
    rows: list[tuple[str, RenderableType]] = [
        ("node", Text(f"{cell(data['node_id'])}  (ildm {cell(data['version'])})")),
        ("status", state(data["status"], f"for {duration(data['uptime'])}")),
        *_pair(data.get("pair")),
        ("algorithm", cell(data["algorithm"] or "none: relays only")),
        ("clients at", cell(data["listen"])),
        ("neighbours at", cell(data["link_listen"])),
        ("local broker", reached),
        *_addresses(broker),
        *_contested(broker),
        *_shared(broker, data["links"]),
        ("clients", f"{data['clients']:,}  ({data['persistent_sessions']:,} persistent sessions)"),
        *_unknown(data["sessions_unknown"], data["sessions_adopted_for"]),
        *_waiting(data["clients_wait_for"]),
        ("links", _links(data["links"])),
        *_releases(data.get("releases", ())),
        *_clock(data.get("clock", ())),
        ("queues", _queues(data["queues"])),
        ("spool", spool_line(data["spool"]) if data["algorithm"] else Text(RELAY_KEEPS, style="dim")),
    ]
    saving = data["state"]
    if saving["failure"]:
        waiting = f"{saving['waiting_rows']:,} rows wait ({size(saving['waiting_bytes'])})"
        rows.append(("not saved", Text(f"{printable(str(saving['failure']))}: {waiting}", style="red")))
    if data["filters"]:
        rows.insert(3, ("filters", cell(", ".join(data["filters"]))))
    return Group(facts(rows), Text(), counters(data["counters"]))


def _pair(member: Mapping[str, Any] | None) -> list[tuple[str, RenderableType]]:
    """Which member of its site the node is, and who owns the site."""
    if member is None:
        return []
    line = Text(f"member {cell(member['member'])}: {member['state']}")
    if member["owner"] not in (None, member["member"]):
        line.append(f"  {cell(member['owner'])} owns the site", style="dim")
    if member["epoch"]:
        line.append(f"  epoch {member['epoch']}", style="dim")
    if member["spared"]:
        line.append(f"  the owner is silent and stays: {printable(str(member['spared']))}", style="red")
    return [("pair", line)]


def _unknown(sessions: int, adopted_for: float) -> list[tuple[str, RenderableType]]:
    """Sessions older than the node make their site want everything."""
    texts = []
    if adopted_for:
        sessions -= 1  # it stands for those whose clients are away
        more = duration(adopted_for)
        texts.append(f"all topics cross for older sessions of clients that are away: {more} more")
    if sessions:
        older = f"{sessions:,} with a session older than the node"
        texts.append(f"{older}: all topics cross until they begin a clean one")
    return [("", Text(text, style="yellow")) for text in texts]


def _addresses(broker: Mapping[str, Any]) -> list[tuple[str, RenderableType]]:
    """Where else the broker may be, and whether the node had to go there."""
    others = [address for address in broker["addresses"] if address != broker["address"]]
    if not others:
        return []
    text = f"or at {', '.join(map(cell, others))}"
    if broker["failovers"]:
        text += f"  (failovers: {broker['failovers']:,}, the last {duration(broker['in_use_for'])} ago)"
    return [("", Text(text, style="dim"))]


def _contested(broker: Mapping[str, Any]) -> list[tuple[str, RenderableType]]:
    """A second client with the node's identifier, and retained messages that cannot be compared."""
    if not broker["connected"]:
        return []
    notes = [broker["contested"], broker.get("unmended")]
    return [("", Text(printable(str(note)), style="red")) for note in notes if note is not None]


def _shared(broker: Mapping[str, Any], links: Mapping[str, int]) -> list[tuple[str, RenderableType]]:
    """Neighbours with the same broker, or that none would be noticed."""
    nodes, unknown = broker["shared_with"], broker["sharing_unknown"]
    if nodes:
        text = f"also the broker of {', '.join(map(cell, nodes))}: linked nodes need a broker each"
        return [("", Text(text, style="red"))]
    if unknown is not None and any(links.values()):
        return [("", Text(printable(str(unknown)), style="dim"))]
    return []


def _waiting(neighbors: Sequence[str]) -> list[tuple[str, RenderableType]]:
    """That clients are not served yet, and which neighbours have not told their interest."""
    if not neighbors:
        return []
    return [("", Text(f"they wait for the interest of {', '.join(map(cell, neighbors))}", style="red"))]


def _clock(lines: Sequence[str]) -> list[tuple[str, RenderableType]]:
    """Clocks that are apart."""
    return [("" if at else "clock", Text(printable(line), style="red")) for at, line in enumerate(lines)]


def _links(numbers: Mapping[str, int]) -> str:
    shown = dict(numbers)
    on_demand = shown.pop("on_demand", 0)
    text = ", ".join(f"{number} {word}" for word, number in shown.items() if number or word != "refused")
    return f"{text}  ({on_demand:,} of them on demand)" if on_demand else text


def _releases(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, RenderableType]]:
    """What is spoken with neighbours."""
    lines = []
    for row in rows:
        release = "of release 0.2 or older" if row["release"] is None else f"of {cell(row['release'])}"
        features = f", {cell(', '.join(row['features']))}" if row["features"] else ""
        lines.append(f"{row['neighbors']:,} {release}: protocol {row['protocol']}{features}")
    return [("" if at else "neighbours", line) for at, line in enumerate(lines)]


def _queues(queues: Mapping[str, Any]) -> Text:
    dropped = queues["dropped"]
    text = Text(f"to the broker {_queue(queues['injection'])}, to neighbours {_queue(queues['links'])}, ")
    return text.append(f"{dropped:,} dropped since the start", style="red" if dropped else "")


def _queue(queue: Mapping[str, int]) -> str:
    return f"{queue['messages']:,} ({size(queue['bytes'])})" if queue["messages"] else "0"


OPTIONS_WIDTH = 100


def algorithm(data: Mapping[str, Any]) -> RenderableType:
    parts: list[RenderableType] = []
    if data["name"] is None:
        parts.append(Text("no algorithm: this node relays only", style="dim"))
    else:
        parts += _plugin("algorithm", data, [("topology", cell(data["topology"]))])
    for row in data["filters"]:
        parts += [Text(), *_plugin("filter", row, [])]
    return Group(*parts)


def _plugin(
    kind: str, data: Mapping[str, Any], more: list[tuple[str, RenderableType]]
) -> Iterator[RenderableType]:
    calls, seconds = data["calls"], data["seconds"]
    waiting = {name: number for name, number in data["waiting"].items() if number}
    rows: list[tuple[str, RenderableType]] = [
        (kind, Text(cell(data["name"]), style="bold")),
        *more,
        ("options", _options(data["options"])),
        (
            "calls",
            f"{calls:,} in {used(seconds)}, {used(seconds / calls)} each" if calls else "0",
        ),
        ("errors", Text(cell(data["errors"]), style="red" if data["errors"] else "")),
        ("slow hooks", Text(cell(data["slow_hooks"]), style="red" if data["slow_hooks"] else "")),
    ]
    if waiting:
        rows.append(("waiting", pairs(waiting)))
    if data["refused"]:
        rows.append(("refused", Text(f"{pairs(data['refused'])}  (beyond limits.plugin_*)", style="red")))
    yield facts(rows)
    if data["counters"]:
        yield Text()
        yield counters(data["counters"])
    if data["gauges"]:
        grid = table(["gauge", ">value"])
        for name in sorted(data["gauges"]):
            grid.add_row(cell(name), f"{data['gauges'][name]:,.6g}")
        yield Text()
        yield grid


def _options(options: Mapping[str, Any]) -> str:
    """In several lines, which are the same where the output is no terminal."""
    text = pairs(dict(_flat(options))) or "none"
    whole = text.replace(": ", ":\N{NO-BREAK SPACE}")  # a value stands beside its name
    lines = textwrap.fill(whole, OPTIONS_WIDTH, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\N{NO-BREAK SPACE}", " ")


def _flat(options: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """Options of options under their path, as the configuration's errors name them."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{within}{name}.")
        else:
            yield f"{within}{name}", value


RESULTS = {"changed": "green", "unchanged": "dim", "needs a restart": "yellow", "failed": "red"}


def reloaded(data: Mapping[str, Any]) -> RenderableType:
    parts: list[RenderableType] = []
    if data["plugins"]:
        grid = table(["kind", "name", "result", "options"])
        for row in data["plugins"]:
            result = Text(cell(row["result"]), style=RESULTS.get(row["result"], ""))
            options = cell(", ".join(row["options"]) or None)
            grid.add_row(cell(row["kind"]), Text(cell(row["name"]), style="bold"), result, options)
        parts.append(grid)
    else:
        parts.append(Text("this node has no plugins", style="dim"))
    if data["not_applied"]:
        keys = cell(", ".join(data["not_applied"]))
        parts.append(Text(f"not applied, these need a restart: {keys}", style="yellow"))
    return Group(*parts)


def health(data: Mapping[str, Any]) -> RenderableType:
    lines = [Text(printable(line), style="yellow") for line in data.get("warnings", ())]
    return Group(Text("ready", style="green"), *lines)


def reread(data: Mapping[str, Any]) -> RenderableType:
    done = "would change" if data["dry_run"] else "changed"
    parts: list[RenderableType] = [Text(f"{cell(data['file'])}: {done if data['changes'] else 'as before'}")]
    parts += [Text(f"  {cell(line)}", style="bold") for line in data["changes"]]
    parts += [Text(f"warning: {cell(line)}", style="yellow") for line in data.get("warnings", ())]
    return Group(*parts)


def installed_plugins(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What ``ildm plugin list`` shows, which needs no node."""
    if not rows:
        return Text("no plugins are installed", style="dim")
    grid = table(["kind", "name", "", "package", ">API", "class"])
    for row in rows:
        grid.add_row(
            cell(row["kind"]),
            Text(cell(row["name"]), style="bold"),
            Text("✕ unusable", style="red") if row["problem"] else Text("● ok", style="green"),
            cell(f"{row['package']} {row['version']}" if row["package"] else None),
            cell(row["api_version"]),
            cell(row["target"]),
        )
    problems = dict.fromkeys(row["problem"] for row in rows if row["problem"])
    lines = [Text(f"✕ {cell(problem)}", style="red") for problem in problems]
    return Group(grid, Text(), *lines) if lines else grid


def events(page: Page) -> RenderableType:
    if not page.items:
        return Text("nothing has happened", style="dim")
    grid = table(["when", "level", "event", "what"])
    for row in page.items:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["time"]))
        style = {"warning": "yellow", "error": "red"}.get(row["level"], "")
        what = ", ".join(f"{cell(key)} {cell(value)}" for key, value in row["fields"].items())
        grid.add_row(when, Text(cell(row["level"]), style=style), cell(row["event"]), what)
    return Group(*rest(page), grid)
