"""What a page shows first, as plain data: what is wrong, figures, neighbours, the graph of sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.declared import COUNTED
from ildm.core.link.tree import TreeMembership
from ildm.net.neighbors_view import mixed_releases
from ildm.net.spool_view import spool_row
from ildm.net.view import DROPPED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ildm.admin.view import Row
    from ildm.core.node import Node
    from ildm.net.view import LiveView

NEIGHBORS = 250
"""Neighbours told each second: those with a problem first, those made on demand last."""
CONNECTING = 10.0
"""Seconds after which a link that is still being made counts as a problem."""
FULL = 0.8
"""Part of a link's queue from which on it counts as a problem."""
FORGOTTEN = 86_400.0
"""Seconds after which a site that went away is no problem any more."""
GONE = 200
"""Sites that went away and are remembered."""
WORST = {"bad": 0, "warn": 1}
FIRST = ("broker", "node", "state", "spool", "messages", "neighbor", "site")
"""Kinds of problems, those first that concern everybody here."""
COLUMNS = (
    "time",
    "messages_in",
    "messages_out",
    "sent",
    "transferred_in",
    "dropped",
    "waiting_bytes",
    "waiting_messages",
    "spool_messages",
)
"""Of a sample: Unix time, counters since the start, then what waits now."""


class Sent:
    """Messages that have left for neighbours: what waits for a link is not among them.

    The node's own counter has them when they are routed; links know when they go, and come and go themselves.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._seen: dict[str, int] = {}
        self.total = 0

    def look(self) -> None:
        seen = {name: link.transferred_out for name, link in self._node.links.links.items()}
        self.total += sum(max(0, number - self._seen.get(name, 0)) for name, number in seen.items())
        self._seen = seen


def sample(view: LiveView, status: Row, sent: int) -> list[float]:
    """One line of the charts, in the order of :data:`COLUMNS`; ``sent`` have left for neighbours."""
    counters, queues = status["counters"], status["queues"]
    return [
        view.node.driver.wall(),
        counters.get("messages_in", 0),
        counters.get("messages_out", 0),
        sent,
        counters.get("transferred_in", 0),
        queues["dropped"],
        queues["injection"]["bytes"] + queues["links"]["bytes"],
        queues["injection"]["messages"] + queues["links"]["messages"],
        status["spool"]["messages"],
    ]


class Sites:
    """The other sites of a tree of links, as far as they can be reached; remembers those that went away."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._known: set[str] = set()
        self._gone: dict[str, float] = {}
        self._beside: dict[str, str] = {}
        """A site that is gone -> the one that was linked with it."""
        self._told: object = None
        self.edges: list[tuple[str, str, bool]] = []
        """Pairs of nodes, and whether the link is part of the tree."""
        self.version = 0
        """Counts changes of what :meth:`graph` gives."""

    def look(self) -> None:
        """Learn what has changed."""
        membership = self._node.links.membership
        if not isinstance(membership, TreeMembership):
            return
        topology = membership.topology
        told = [(each.node, each.boot, each.sequence) for each in topology.advertisements()], topology.weights
        if told == self._told:
            return
        self._told = told
        edges = topology.graph()
        here = {site for a, b, _ in edges for site in (a, b)} - {self._node.node_id}
        now = self._node.driver.wall()
        for site in self._known - here:
            self._gone.setdefault(site, now)
            ends = [b if a == site else a for a, b, _ in self.edges if site in (a, b)]
            self._beside[site] = next(iter(ends), self._node.node_id)
        for site in here:
            self._gone.pop(site, None)
        while len(self._gone) > GONE:
            del self._gone[next(iter(self._gone))]
        self._beside = {site: self._beside[site] for site in self._gone}
        self._known = here
        if edges != self.edges:
            self.edges = edges
            self.version += 1

    def gone(self) -> dict[str, float]:
        """Sites that could be reached once: since when they cannot."""
        since = self._node.driver.wall() - FORGOTTEN
        for site in [site for site, at in self._gone.items() if at < since]:
            del self._gone[site]
            self.version += 1
        return self._gone

    def graph(self) -> Row:
        return {
            "node": self._node.node_id,
            "topology": "any" if self._node.has_overlay else "tree",
            "edges": self.edges,
            "gone": [(site, self._beside[site]) for site in self.gone()],
        }


def snapshot(view: LiveView, status: Row, sites: Sites, waits: list[str], lately: int) -> Row:
    """``status`` is the view's; ``waits`` is why the node is not ready, a line each; ``lately`` is how many
    messages were dropped within the last minute."""
    node = view.node
    rows = view.neighbors()
    spool = spool_row(node)
    oldest = {each["receiver"]: each["oldest"] for each in spool.get("receivers", ())}
    for row in rows:
        row["oldest"] = oldest.get(f"link/{row['node_id']}")
    found = sorted(
        problems(node, status, rows, sites.gone(), waits, lately),
        key=lambda each: (WORST[each["grade"]], FIRST.index(each["kind"]), each["since"] or 0),
    )
    wrong = {each["name"] for each in found}
    rows.sort(key=lambda row: (row["on_demand"], (row["node_id"] or row["address"]) not in wrong))
    return {
        "time": node.driver.wall(),
        **{
            key: status[key]
            for key in ("node_id", "version", "algorithm", "filters", "status", "uptime", "listen", "pair")
        },
        "ready": not waits,
        "broker": {**status["broker"], "since": node.reach.since},
        **{key: status[key] for key in ("clients", "persistent_sessions", "links", "queues", "state")},
        "mixed_releases": mixed_releases(node),
        "queue_limit": node.config.link.queue_bytes,
        "spool": {
            **{key: value for key, value in spool.items() if key != "receivers"},
            "broker_oldest": oldest.get("broker"),
        },
        "retained": len(node.retained.values),
        "problems": found,
        "drops": list(drops(status["counters"])),
        "neighbors": rows[:NEIGHBORS],
        "neighbors_total": len(rows),
    }


def problems(
    node: Node, status: Row, rows: list[Row], gone: Mapping[str, float], waits: list[str], lately: int
) -> Iterator[Row]:
    """What an operator has to know; ``grade`` is bad or warn."""

    def problem(grade: str, kind: str, name: str, state: str, since: float | None, reason: str | None) -> Row:
        return {"grade": grade, "kind": kind, "name": name, "state": state, "since": since, "reason": reason}

    broker, now = status["broker"], node.driver.wall()
    if not node.accepting:
        yield problem("warn", "node", node.node_id, "stopping", None, "it drains, and takes no more clients")
    if not broker["connected"]:
        yield problem("bad", "broker", broker["address"], "down", node.reach.since, broker["reason"])
    elif waits and node.accepting:
        yield problem("bad", "node", node.node_id, "not ready", None, "; ".join(waits))
    for line in status["clock"]:
        yield problem("warn", "clock", "clock", "apart", None, line)
    if status["state"]["failure"] is not None:
        yield problem("bad", "state", "state file", "failing", None, status["state"]["failure"])
    spool = status["spool"]
    if spool["failure"] is not None:
        yield problem("bad", "spool", "spool", "failing", None, spool["failure"])
    elif spool["full"]:
        yield problem(
            "bad", "spool", "spool", "full", spool["oldest"], "no room: publishers wait, or are refused"
        )
    if lately:
        yield problem("warn", "messages", "messages", "dropped", None, f"{lately:,} within the last minute")
    for row in rows:
        name = row["node_id"] or row["address"]
        if row["state"] in ("down", "refused"):
            yield problem("bad", "neighbor", name, row["state"], row["since"], row["reason"])
        elif row["state"] == "connecting" and row["since"] is not None and now - row["since"] > CONNECTING:
            yield problem("warn", "neighbor", name, "connecting", row["since"], row["reason"])
        elif row["queued_bytes"] > FULL * node.config.link.queue_bytes:
            part = 100 * row["queued_bytes"] / node.config.link.queue_bytes
            yield problem(
                "warn", "neighbor", name, "queue full", row["oldest"], f"{part:.0f} % of its queue is used"
            )
    near = {row["node_id"] for row in rows}
    for site, since in gone.items():
        if site not in near:
            yield problem("bad", "site", site, "out of reach", since, "no link leads there any more")


def drops(counters: Mapping[str, int]) -> Iterator[Row]:
    """Messages dropped since the start, by where and why; the most first."""
    found = [(number, name) for name, number in counters.items() if number and name.startswith(DROPPED)]
    for number, name in sorted(found, reverse=True):
        counted = COUNTED.get(name)
        where = name.partition("_dropped_")[0]
        why, qos = (*(counted.values if counted is not None else (name,)), "")[:2]
        yield {"where": where, "reason": why, "qos": qos, "messages": number}
