"""What the admin API answers, as tables for people. JSON for programs does not come through here."""

from __future__ import annotations

import base64
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ildm.admin.client import Page
from ildm.terminal import cell, duration, facts, since, size, state, table
from ildm.text import printable

OPTIONS_WIDTH = 100


def show(name: str, data: Any) -> RenderableType:
    """The answer to the command with this name."""
    return SHOW[name](data)


def _status(data: Mapping[str, Any]) -> RenderableType:
    broker = data["broker"]
    reached = state("active" if broker["connected"] else "down")
    reached.plain = f"{reached.plain[:1]} {cell(broker['address'])}"
    note = f"MQTT {broker['protocol']}" if broker["connected"] and broker["protocol"] else broker["reason"]
    if note:
        reached.append(f"  {printable(str(note))}", style="dim")
    rows: list[tuple[str, RenderableType]] = [
        ("node", Text(f"{cell(data['node_id'])}  (ildm {cell(data['version'])})")),
        ("status", state(data["status"], f"for {duration(data['uptime'])}")),
        ("algorithm", cell(data["algorithm"] or "none: relays only")),
        ("clients at", cell(data["listen"])),
        ("neighbours at", cell(data["link_listen"])),
        ("local broker", reached),
        *_addresses(broker),
        *_contested(broker),
        ("clients", f"{data['clients']:,}  ({data['persistent_sessions']:,} persistent sessions)"),
        ("links", _links(data["links"])),
        ("queues", _queues(data["queues"])),
        ("spool", _spool_line(data["spool"])),
    ]
    saving = data["state"]
    if saving["failure"]:
        waiting = f"{saving['waiting_rows']:,} rows wait ({size(saving['waiting_bytes'])})"
        rows.append(("not saved", Text(f"{printable(str(saving['failure']))}: {waiting}", style="red")))
    if data["filters"]:
        rows.insert(3, ("filters", cell(", ".join(data["filters"]))))
    return Group(facts(rows), Text(), _counters(data["counters"]))


def _addresses(broker: Mapping[str, Any]) -> list[tuple[str, RenderableType]]:
    """Where else the broker may be, and whether the node had to go there."""
    others = [address for address in broker["addresses"] if address != broker["address"]]
    if not others:
        return []
    text = f"or at {', '.join(map(cell, others))}"
    if broker["failovers"]:
        text += f"  ({broker['failovers']:,} failovers, last {duration(broker['in_use_for'])} ago)"
    return [("", Text(text, style="dim"))]


def _contested(broker: Mapping[str, Any]) -> list[tuple[str, RenderableType]]:
    """That somebody else has the node's own session now and then, while it has it."""
    if broker["contested"] is None or not broker["connected"]:
        return []
    return [("", Text(printable(str(broker["contested"])), style="red"))]


def _links(numbers: Mapping[str, int]) -> str:
    shown = dict(numbers)
    on_demand = shown.pop("on_demand", 0)
    text = ", ".join(f"{number} {word}" for word, number in shown.items() if number or word != "refused")
    return f"{text}  ({on_demand:,} of them on demand)" if on_demand else text


def _queues(queues: Mapping[str, Any]) -> Text:
    dropped = queues["dropped"]
    text = Text(f"to the broker {_queue(queues['injection'])}, to neighbours {_queue(queues['links'])}, ")
    return text.append(f"{dropped:,} dropped since the start", style="red" if dropped else "")


def _queue(queue: Mapping[str, int]) -> str:
    return f"{queue['messages']:,} ({size(queue['bytes'])})" if queue["messages"] else "0"


def _counters(counters: Mapping[str, int]) -> RenderableType:
    if not counters:
        return Text("nothing counted yet", style="dim")
    grid = table(["counter", ">number"])
    for name in sorted(counters):
        grid.add_row(cell(name), cell(counters[name]))
    return grid


def _neighbors(page: Page) -> RenderableType:
    if not page.items:
        return Text("no neighbours; add one with: neighbor add HOST:PORT", style="dim")
    grid = table(
        ["neighbour", "address", "dir", "state", "for", ">sessions", ">out", ">in", ">queued", ">dropped"]
    )
    for row in page.items:
        sessions = row["sessions"]
        note = printable(str(row["reason"])) if row["reason"] else None
        grid.add_row(
            cell(row["node_id"]),
            cell(row["address"]),
            f"{row['direction']}, on demand" if row.get("on_demand") else row["direction"],
            state(row["state"], note),
            since(row["since"]),
            f"{sessions['open']}/{sessions['of']}",
            cell(row["transferred_out"]),
            cell(row["transferred_in"]),
            f"{row['queued_messages']:,} ({size(row['queued_bytes'])})" if row["queued_messages"] else "0",
            cell(row["dropped"]),
        )
    return Group(grid, *_rest(page))


def _neighbor(row: Mapping[str, Any]) -> RenderableType:
    line = Text("neighbour ")
    line.append(cell(row.get("address") or row.get("node_id")), style="bold")
    line.append(": ")
    line.append_text(state(row["state"], printable(str(row["reason"])) if row.get("reason") else None))
    if row.get("thrown_away") and row["thrown_away"]["messages"]:
        line.append(f"  {_thrown_away(row['thrown_away'])}", style="yellow")
    return line


def _clients(page: Page) -> RenderableType:
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
            cell(row["subscriptions"]),
            cell(row["messages_in"]),
            cell(row["messages_out"]),
        )
    return Group(grid, *_rest(page))


def _subscriptions(page: Page) -> RenderableType:
    if not page.items:
        return Text("no subscriptions", style="dim")
    grid = table(["filter", ">QoS", "wanted by"])
    for row in page.items:
        grid.add_row(Text(cell(row["filter"]), style="bold"), cell(row["qos"]), cell(row["source"]))
    return Group(grid, *_rest(page))


def _algorithm(data: Mapping[str, Any]) -> RenderableType:
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
        ("calls", f"{calls:,} in {_seconds(seconds)}, {_seconds(seconds / calls)} each" if calls else "0"),
        ("errors", Text(cell(data["errors"]), style="red" if data["errors"] else "")),
        ("slow hooks", Text(cell(data["slow_hooks"]), style="red" if data["slow_hooks"] else "")),
    ]
    if waiting:
        rows.append(("waiting", _pairs(waiting)))
    if data["refused"]:
        rows.append(("refused", Text(f"{_pairs(data['refused'])}  (beyond limits.plugin_*)", style="red")))
    yield facts(rows)
    if data["counters"]:
        yield Text()
        yield _counters(data["counters"])
    if data["gauges"]:
        grid = table(["gauge", ">value"])
        for name in sorted(data["gauges"]):
            grid.add_row(cell(name), f"{data['gauges'][name]:,.6g}")
        yield Text()
        yield grid


def _options(options: Mapping[str, Any]) -> str:
    """In several lines, which are the same where the output is no terminal."""
    text = _pairs(dict(_flat(options))) or "none"
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


def _pairs(pairs: Mapping[str, Any]) -> str:
    return ", ".join(f"{cell(name)}: {cell(value)}" for name, value in pairs.items())


def _seconds(seconds: float) -> str:
    """A time of use: ``2,400 s``, ``1.25 s``, ``310 ms``, ``12 µs``, ``90 ns``."""
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


RESULTS = {"changed": "green", "unchanged": "dim", "needs a restart": "yellow", "failed": "red"}


def _reloaded(data: Mapping[str, Any]) -> RenderableType:
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


def _reread(data: Mapping[str, Any]) -> RenderableType:
    done = "would change" if data["dry_run"] else "changed"
    parts: list[RenderableType] = [Text(f"{cell(data['file'])}: {done if data['changes'] else 'as before'}")]
    parts += [Text(f"  {cell(line)}", style="bold") for line in data["changes"]]
    parts += [Text(f"warning: {cell(line)}", style="yellow") for line in data["warnings"]]
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


def _overlay(data: Mapping[str, Any]) -> RenderableType:
    keys = data["keys"]
    rows: list[tuple[str, RenderableType]] = [("node", Text(cell(data["node"]), style="bold"))]
    if data["members"] is not None:
        rows.append(("members", cell(data["members"])))
    if keys:
        rows.append(("keys", cell(len(keys))))
    rows += [(cell(name), cell(value)) for name, value in data["facts"].items()]
    parts: list[RenderableType] = [facts(rows)]
    if keys:
        parts += [Text(), _Keys(keys)]
    for title, found in data["tables"].items():
        parts += [Text(), Text(cell(title), style="bold cyan"), _rows(found)]
    return Group(*parts)


class _Keys:
    """Each key with its facts, and below its neighbours at each level: their names may be long."""

    def __init__(self, keys: Sequence[Mapping[str, Any]]) -> None:
        self.keys = keys

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lefts = [cell(left) for key in self.keys for left, _ in key["levels"]]
        # the columns of all keys stand in line
        width = min((options.max_width - len("  10 ◂  ▸ ")) // 2, max(map(len, lefts), default=0))
        for key in self.keys:
            status = cell(key["status"])
            head = Text(cell(key["key"]), style="bold")
            head.append(f"  {status}", style="not bold green" if status == "in" else "not bold yellow")
            head.append(f"  {_notes(key['facts'])}", style="not bold dim")
            yield head
            grid = Table.grid(padding=(0, 1))
            for name_width in (None, None, width, None, None):
                grid.add_column(width=name_width, overflow="fold")
            for level, (left, right) in enumerate(key["levels"]):
                grid.add_row(Text(f"  {level}", style="dim"), "◂", cell(left), "▸", cell(right))
            if key["levels"]:
                yield grid


def _notes(found: Mapping[str, Any]) -> str:
    """Facts in a line: those that merely hold by their names, those that do not are left out."""
    return ", ".join(
        cell(name) if value is True else f"{cell(name)} {cell(value)}"
        for name, value in found.items()
        if value is not None and value is not False
    )


def _rows(rows: Iterable[Mapping[str, Any]]) -> RenderableType:
    """A table of whatever columns the rows have; numbers are set right."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        return Text("none", style="dim")
    numbers = {
        name
        for name in columns
        if all(isinstance(row.get(name), int | float | None) for row in rows)
        and not any(isinstance(row.get(name), bool) for row in rows)
    }
    grid = table([f"{'>' * (name in numbers)}{cell(name)}" for name in columns])
    for row in rows:
        grid.add_row(*(cell(row.get(name)) for name in columns))
    return grid


def _trace(data: Mapping[str, Any]) -> RenderableType:
    totals = ", ".join(f"{word} {cell(data[word])}" for word in ("nodes", "messages", "depth"))
    head = Text(cell(data["topic"]), style="bold").append(f"  {totals}", style="dim")
    if not data["complete"]:
        head.append("  incomplete: some nodes gave no answer", style="red")
    parts: list[RenderableType] = [head]
    if not data["trees"]:
        parts.append(Text("such a message goes nowhere", style="dim"))
    for traced in data["trees"]:
        title = Text(cell(traced["name"]), style="bold cyan")
        notes = _notes(traced["facts"])
        if traced["tree"] is None:
            notes = f"{notes}: nobody is reached" if notes else "nobody is reached"
        parts.append(_branches(title.append(f"  {notes}" if notes else "", style="yellow"), traced["tree"]))
    return Group(*parts)


def _ban(data: Mapping[str, Any]) -> RenderableType:
    ended = f", {data['ended']:,} connected now ended" if data["ended"] else ""
    return Text(f"{data['kind']} {cell(data['name'])} is kept out {_until(data['until'])}{ended}")


def _until(moment: float | None) -> str:
    return "until that is lifted" if moment is None else f"for {duration(max(0, ceil(moment - time.time())))}"


def _bans(page: Page) -> RenderableType:
    if not page.items:
        return Text("nobody is kept out", style="dim")
    grid = table(["kind", "name", "kept out", "by"])
    for row in page.items:
        by = "refused logins" if row["why"] == "authentication" else "an administrator"
        grid.add_row(row["kind"], cell(row["name"]), _until(row["until"]), by)
    return Group(grid, *_rest(page))


def _rules(page: Page) -> RenderableType:
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
    return Group(grid, *_rest(page))


def _events(page: Page) -> RenderableType:
    if not page.items:
        return Text("nothing has happened", style="dim")
    grid = table(["when", "level", "event", "what"])
    for row in page.items:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["time"]))
        style = {"warning": "yellow", "error": "red"}.get(row["level"], "")
        what = ", ".join(f"{cell(key)} {cell(value)}" for key, value in row["fields"].items())
        grid.add_row(when, Text(cell(row["level"]), style=style), cell(row["event"]), what)
    return Group(*_rest(page), grid)


def _retained(page: Page) -> RenderableType:
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
    return Group(grid, *_rest(page))


def _way(data: Mapping[str, Any]) -> RenderableType:
    """The sites on a message's way; with an overlay, its trees. Then who does not get it, and why."""
    kept = [
        Text(f"{cell(row['neighbor'] or 'here')}: {printable(row['why'])}", style="yellow")
        for row in data["kept"]
    ]
    return Group(_sites(data) if "hops" in data else _trace(data), *kept)


def _traced(data: Mapping[str, Any]) -> RenderableType:
    return _messages(data) if "messages" in data and "kept" not in data else _way(data)


def _messages(data: Mapping[str, Any]) -> RenderableType:
    parts: list[RenderableType] = []
    for message in data["messages"]:
        moment = time.strftime("%H:%M:%S", time.localtime(message["at"]))
        title = Text(cell(message["topic"]), style="bold")
        title.append(f"  QoS {message['qos']}  {size(message['size'])}", style="dim")
        title.append(f"  {moment}.{int(message['at'] % 1 * 1000):03}", style="dim")
        parts.append(_message(title, message))
    if not parts:
        parts.append(Text(f"no message on {cell(data['topic'])} was seen at any site", style="dim"))
    if data["left_out"]:
        parts.append(Text(f"{data['left_out']:,} more events were left out; see --messages", style="yellow"))
    return Group(*parts)


def _message(title: Text, message: Mapping[str, Any]) -> Tree:
    """A node below the one it has the message from; one of an overlay below the first."""
    steps: dict[str, list[Mapping[str, Any]]] = {}
    for step in message["steps"]:
        steps.setdefault(step["node"], []).append(step)
    above = {
        node: next((each["peer"] for each in found if each["what"] == "received" and each["peer"]), None)
        for node, found in steps.items()
    }
    made = Tree(title, guide_style="dim")
    branches: dict[str, Tree] = {}
    left = list(steps)
    while left:  # clocks are not so exact that a node always comes after the one it has the message from
        node = next((each for each in left if above[each] not in left or above[each] == each), left[0])
        left.remove(node)
        found = steps[node]
        label = Text(cell(node))
        acknowledged = {each["peer"]: each["seconds"] for each in found if each["what"] == "acknowledged"}
        for each in found:
            moment = f"{each['seconds'] * 1000:.1f} ms"
            if each["what"] == "received":
                label.append(f"  received {moment}", style="cyan")
            elif each["what"] == "sent":
                to = "its broker" if each["peer"] is None else cell(each["peer"])
                label.append(f"  to {to} {moment}", style="cyan")
                if each["peer"] in acknowledged:
                    label.append(f", acknowledged {acknowledged[each['peer']] * 1000:.1f} ms", style="green")
        branches[node] = branches.get(above[node] or message["node"], made).add(label)
    return made


def _sites(data: Mapping[str, Any]) -> RenderableType:
    hops = data["hops"]
    missed = sum(bool(hop["note"]) for hop in hops)
    title = Text(cell(data["topic"]), style="bold").append(f"  sites {len(hops)}", style="dim")
    if missed:
        title.append(f"  not as it should be {missed}", style="red")
    made = Tree(title, guide_style="dim")
    above = [made]
    for hop in hops:
        del above[hop["depth"] + 1 :]
        label = Text(cell(hop["node"]))
        if hop["seconds"] is not None and hop["depth"]:
            label.append(f"  {hop['seconds'] * 1000:.1f} ms", style="cyan")
        for what, number in (("for this link", hop["queued"]), ("for its broker", hop["injecting"])):
            if number:
                label.append(f"  {number:,} wait {what}", style="yellow")
        if hop["note"]:
            label.append(f"  {cell(hop['note'])}", style="red")
        above.append(above[-1].add(label))
    return Group(made) if len(hops) > 1 else Group(made, Text("no other site gets it", style="dim"))


def _branches(title: Text, root: Mapping[str, Any] | None) -> Tree:
    """A traced tree; not by recursion, as a message may pass from node to node in a long row."""
    made = Tree(title, guide_style="dim")
    left = [(made, root)] if root else []
    while left:
        parent, node = left.pop()
        label = Text(cell(node["node"]))
        keys = node.get("keys") or []
        label.append(f"  depth {cell(node['depth'])}", style="dim")
        if keys:
            label.append(f"  {', '.join(map(cell, keys))}", style="green")
        branch = parent.add(label)
        left += [(branch, child) for child in reversed(node.get("children") or [])]
    return made


def _rest(page: Page) -> list[RenderableType]:
    left = page.total - len(page.items)
    return [Text(f"{left:,} more of {page.total:,}; see --limit", style="dim")] if left > 0 else []


def _spool_line(spool: Mapping[str, Any]) -> Text:
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


def _spool(data: Mapping[str, Any]) -> RenderableType:
    rows: list[tuple[str, RenderableType]] = [("spool", _spool_line(data))]
    if data["mode"] == "off":
        return facts(rows)
    rows.append(("on disk", f"{size(data['disk_bytes'])} of {size(data['limit'])}"))
    rows.append(("in", cell(data["directory"])))
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


def _spooled(page: Page) -> RenderableType:
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
    return Group(grid, *_rest(page))


def _thrown_away(what: Mapping[str, Any]) -> str:
    return f"{what['messages']:,} messages ({size(what['bytes'])}) thrown away"


SHOW: dict[str, Callable[[Any], RenderableType]] = {
    "status": _status,
    "neighbor list": _neighbors,
    "neighbor add": _neighbor,
    "neighbor remove": _neighbor,
    "clients": _clients,
    "client kick": lambda data: Text(f"{cell(data['client_id'])}: {data['ended']} connection ended"),
    "client ban": _ban,
    "client allow": lambda data: Text(f"{data['kind']} {cell(data['name'])} may come again"),
    "client bans": _bans,
    "rules": _rules,
    "events": _events,
    "retained": _retained,
    "health": lambda data: Text("ready", style="green"),
    "subscriptions": _subscriptions,
    "algorithm": _algorithm,
    "plugin reload": _reloaded,
    "reload": _reread,
    "overlay": _overlay,
    "overlay trace": _trace,
    "trace": _traced,
    "spool": _spool,
    "spool show": _spooled,
    "spool export": lambda data: Text(f"{data['messages']:,} messages written to {cell(data['file'])}"),
    "spool drop": lambda data: Text(f"{cell(data['receiver'])}: {_thrown_away(data)}"),
    "log-level": lambda data: Text(f"log level is {data['level']}"),
    "stop": lambda data: Text("stopped" if data["stopped"] else "stopping"),
}
"""By name in :data:`ildm.admin.commands.COMMANDS`."""
