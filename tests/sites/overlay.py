"""What nodes tell of their overlay, put together: how a test sees that an overlay is whole and at rest."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

import pytest

from ildm.core.plugin.loading import ALGORITHMS

OVERLAYS = ("sg_tbps", "atm_tbps", "stla")
"""All topic-based algorithms on an overlay."""
REGIONS = 3
"""Regions that sites are spread over, where an algorithm asks for them."""
QUICK: dict[str, Any] = {
    "status_interval": 1.0,
    "probe_interval": 1.0,
    "overlay": {
        "ping_interval": 0.4,
        "ping_timeout": 0.5,
        "check_interval": 2.0,
        "retry": 0.1,
        "ack_timeout": 1.0,
        "suspect_time": 3.0,
        "grace": 0.1,
    },
}
"""Options with shorter times, so that failures are noticed soon."""


def quick(algorithm: str) -> str | dict[str, Any]:
    """An overlay with :data:`QUICK`; other algorithms as they are."""
    return {"name": algorithm, **QUICK} if algorithm in OVERLAYS else algorithm


def placed(choice: str | Mapping[str, Any] | None, name: str) -> str | Mapping[str, Any] | None:
    """What a test has chosen, as the section ``algorithm`` of a node of that name.

    In an overlay a node that has left goes on answering for a short time only; STLA is told a region.
    """
    document = {"name": choice} if isinstance(choice, str) else choice
    if document is None or document["name"] not in OVERLAYS:
        return choice
    if not entry_points(group=ALGORITHMS, name=document["name"]):
        pytest.skip(f"{document['name']} is not installed yet: make setup does it")
    options: dict[str, Any] = {"overlay": {"grace": 0.05}}
    if document["name"] == "stla":
        options["locality"] = [f"region-{sum(name.encode()) % REGIONS}"]
    return {**options, **document}


Row = Mapping[str, Any]
Rows = Mapping[str, Row]
"""Keys of several nodes by their text."""


def plain(key: str) -> str:
    """The text of a key without the place of its node: ``a/b subscriber n1`` of ``a/b subscriber eu n1``."""
    return re.sub(r" (subscriber|publisher|aggregate) .+ (\S+)$", r" \1 \2", key)


def rows_of(overlays: Iterable[Mapping[str, Any]]) -> dict[str, Row]:
    """What the nodes told (:class:`ildm.api.OverlayView`) as one table, facts beside the rest."""
    return {
        plain(row["key"]): {
            **row,
            **row["facts"],
            "levels": [[side and plain(side) for side in pair] for pair in row["levels"]],
        }
        for overlay in overlays
        for row in overlay["keys"]
    }


def segment(key: str) -> str:
    """``a/b`` of ``a/b subscriber n1``."""
    return key.rsplit(" ", 2)[0]


def chains(rows: Rows) -> list[list[str]]:
    """The lists at level 0 from left to right; one for each overlay if :func:`list_fault` finds nothing."""
    found = []
    for key, row in rows.items():
        if row["levels"] and row["levels"][0][0] is None:
            chain = [key]
            while (right := rows[chain[-1]]["levels"][0][1]) in rows and len(chain) <= len(rows):
                chain.append(right)
            found.append(chain)
    return found


def list_fault(rows: Rows, top: int | None = 0) -> str | None:
    """What is wrong with the lists; None if every key is in one and all neighbours know each other.

    ``top`` is the highest level looked at. Messages come through when level 0 is right; those above, which
    make the way short, may take a moment more (None: all of them).
    """
    for key, row in rows.items():
        if row["status"] != "in" or not row["levels"]:
            return f"{key} is {row['status']}"
        for level, pair in enumerate(row["levels"][: None if top is None else top + 1]):
            for side, neighbor in enumerate(pair):
                if neighbor is None:
                    continue
                if neighbor not in rows:
                    return f"{key} has {neighbor} beside it at level {level}, which is not there"
                back = rows[neighbor]["levels"]
                if level < len(back) and back[level][1 - side] != key:
                    return f"{key} has {neighbor} beside it at level {level}, but that has {back[level]}"
    return None


def overlay_fault(rows: Rows, groups: Iterable[Collection[str]]) -> str | None:
    """Which nodes are in different overlays, of groups that ought to be in one each."""
    found = {key: number for number, chain in enumerate(chains(rows)) for key in chain}
    for key, number in found.items():
        node_id = key.rsplit(" ", 1)[1]
        if number != found.get(f"default {node_id}"):
            return f"{key} is in another overlay than its node's default key"
    for group in groups:
        if len({found.get(f"default {node_id}") for node_id in group}) > 1:
            return f"{', '.join(sorted(group))} are not in one overlay"
    return None


def status_fault(rows: Rows) -> str | None:
    """What is wrong with rendezvous points and suspended publishers (thesis 3.2.1)."""
    for chain in chains(rows):
        subscribed = {segment(key) for key in chain if rows[key]["role"] == "subscriber"}
        led: set[str] = set()
        for key in chain:
            row, topic = rows[key], segment(key)
            if row["role"] != "publisher":
                continue
            if row["rendezvous"] is not (topic not in led):
                return f"{key} is {'' if row['rendezvous'] else 'not '}the rendezvous point"
            led.add(topic)
            if row["suspended"] is not (topic not in subscribed):
                return f"{key}: suspended is {row['suspended']}, epoch {row['epoch']}"
    return None


def together(rows: Rows, node_ids: Iterable[str]) -> bool:
    """Whether these nodes, and only they, are in one overlay, and it is all there is."""
    found = chains(rows)
    wanted = {f"default {node_id}" for node_id in node_ids}
    return len(found) == 1 and {key for key in found[0] if rows[key]["role"] == "default"} == wanted


def reached(tree: Mapping[str, Any] | None) -> list[str]:
    """Nodes of a traced tree with keys in the range, sorted; those only on the way are left out."""
    names: list[str] = []
    below = [] if tree is None else [tree]
    while below:
        branch = below.pop()
        if branch["keys"]:
            names.append(branch["node"])
        below += branch["children"]
    return sorted(names)
