"""The ways of messages: overlays, probes, traces of real messages."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ildm.cli.render.parts import listed, noted
from ildm.cli.terminal import cell, facts, size
from ildm.text import printable


def overlay(data: Mapping[str, Any]) -> RenderableType:
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
        parts += [Text(), Text(cell(title), style="bold cyan"), listed(found)]
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
            head.append(f"  {noted(key['facts'])}", style="not bold dim")
            yield head
            grid = Table.grid(padding=(0, 1))
            for name_width in (None, None, width, None, None):
                grid.add_column(width=name_width, overflow="fold")
            for level, (left, right) in enumerate(key["levels"]):
                grid.add_row(Text(f"  {level}", style="dim"), "◂", cell(left), "▸", cell(right))
            if key["levels"]:
                yield grid


def trace(data: Mapping[str, Any]) -> RenderableType:
    totals = ", ".join(f"{word} {cell(data[word])}" for word in ("nodes", "messages", "depth"))
    head = Text(cell(data["topic"]), style="bold").append(f"  {totals}", style="dim")
    if not data["complete"]:
        head.append("  incomplete: some nodes gave no answer", style="red")
    parts: list[RenderableType] = [head]
    if not data["trees"]:
        parts.append(Text("such a message goes nowhere", style="dim"))
    nowhere: dict[str, list[str]] = {}
    for traced in data["trees"]:
        notes = noted(traced["facts"])
        if traced["tree"] is None:
            nowhere.setdefault(notes, []).append(cell(traced["name"]))
            continue
        title = Text(cell(traced["name"]), style="bold cyan")
        parts.append(_branches(title.append(f"  {notes}" if notes else "", style="yellow"), traced["tree"]))
    nobody = "nobody else" if len(parts) > 1 else "nobody"
    for notes, names in nowhere.items():
        line = f"{nobody} is reached by {', '.join(names)}"
        parts.append(Text(f"{line} ({notes})" if notes else line, style="dim"))
    return Group(*parts)


def _way(data: Mapping[str, Any]) -> RenderableType:
    """The sites on a message's way; with an overlay, its trees. Then who does not get it, and why."""
    kept = [
        Text(f"{cell(row['neighbor'] or 'here')}: {printable(row['why'])}", style="yellow")
        for row in data["kept"]
    ]
    return Group(_sites(data) if "hops" in data else trace(data), *kept)


def traced(data: Mapping[str, Any]) -> RenderableType:
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
        parts.append(
            Text(f"no message on {cell(data['topic'])} was seen that any other site wants", style="dim")
        )
        parts.append(
            Text("ildm trace TOPIC, without --for, says who would get one, and why not", style="dim")
        )
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
