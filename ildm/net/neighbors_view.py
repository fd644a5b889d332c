"""Neighbours and links as plain data."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.manager import Neighbor
    from ildm.core.node import Node


def neighbor_rows(node: Node) -> list[dict[str, Any]]:
    links = dict(node.links.links)
    rows = []
    for neighbor in node.links.neighbors.values():
        link = links.get(neighbor.node_id or "")
        if link is not None and link.dialed and link.address == str(neighbor.address):
            rows.append(link_row(links.pop(link.node_id), neighbor))
        else:
            rows.append(neighbor_row(node, neighbor))
    rows.extend(link_row(link, None) for link in links.values())
    return rows


def refused_rows(node: Node) -> list[dict[str, Any]]:
    return [
        {
            "address": dialer.host,
            "node_id": dialer.node_id or None,
            "kind": dialer.kind,
            "reason": dialer.reason,
            "since": dialer.since,
            "last": dialer.last,
            "count": dialer.count,
        }
        for dialer in node.links.turned_away.lately()
    ]


def link_row(link: NeighborLink, neighbor: Neighbor | None) -> dict[str, Any]:
    state, reason = link.state.shown, link.reason
    if neighbor is not None and neighbor.state == "refused" and not link.connected:
        state, reason = neighbor.state, neighbor.reason  # the link keeps what is for it all the same
    return {
        "address": str(neighbor.address) if neighbor is not None else link.address,
        "node_id": link.node_id,
        "state": state,
        "since": link.since,
        "reason": reason,
        "sessions": {"open": len(link.open_sessions), "of": len(link.senders)},
        "direction": "out" if link.dialed else "in",
        **spoken(link),
        "transferred_out": link.transferred_out,
        "transferred_in": link.transferred_in,
        "queued_messages": link.queued,
        "queued_bytes": link.queued_bytes,
        "dropped": link.dropped,
        "compression": compression(link),
        "rate": rate(link),
        "backlog": backlog(link),
        "classes": class_rows(link),
        "interest": len(link.interest),
        "announced": len(link.announced),
        "rtt": link.round_trip.value if link.connected else None,
        "clock_skew": link.clock.skew,
        "on_demand": link.on_demand,
        "saved": neighbor.saved if neighbor is not None else False,
        "found": neighbor.found if neighbor is not None else False,
    }


def compression(link: NeighborLink) -> dict[str, Any] | None:
    """How it is compressed, and how many times fewer bytes crossed in the last minute; None: it is not."""
    found = [session.coded for session in link.open_sessions if session.coded is not None]
    if not found:
        return None
    minutes = [coded.last_minute() for coded in found]
    plain, made = sum(each[0] for each in minutes), sum(each[1] for each in minutes)
    totals = link.totals
    return {
        "codec": found[0].codec,
        "ratio": round(plain / made, 2) if made else None,
        "plain_in": totals.plain_in,
        "plain_out": totals.plain_out,
        "coded_in": totals.coded_in,
        "coded_out": totals.coded_out,
    }


def rate(link: NeighborLink) -> dict[str, Any] | None:
    """Bytes a second to the neighbour, which part of that was used lately, and bytes that had to wait; None:
    it has no budget."""
    budget = link.budget
    if budget is None:
        return None
    used = round(budget.used(link.driver.now()), 3)
    return {"bytes": budget.rate, "burst": budget.burst, "used": used, "waited": budget.waited}


def backlog(link: NeighborLink) -> dict[str, Any] | None:
    """Messages that go after newer ones, at most, and seconds that the oldest in memory has waited; None: no
    class has such messages."""
    if link.classes is None or not link.classes.after_live:
        return None
    since = min(sender.queue.behind_since for sender in link.senders)
    age = max(0.0, link.driver.now() - since)
    return {"messages": sum(sender.queue.behind for sender in link.senders), "age": round(age, 3)}


def class_rows(link: NeighborLink) -> list[dict[str, Any]]:
    """How messages wait for a neighbour, and what became of them."""
    return [
        {
            "topics": list(row.terms.topics),
            "priority": row.priority,
            "late": row.late,
            "expired": row.expired,
            "conflated": row.conflated,
        }
        for row in (() if link.classes is None else link.classes.rows)
    ]


OLDER = "0.2 or older"
"""The release of a neighbour that does not tell it."""


def release_rows(node: Node) -> list[dict[str, Any]]:
    """What is spoken with connected neighbours, and with how many; with most of them first."""
    found = Counter(
        (link.hello.release if link.hello is not None else "", link.protocol, tuple(sorted(link.features)))
        for link in node.links.links.values()
        if link.connected
    )
    return [
        {"release": release or None, "protocol": protocol, "features": [*features], "neighbors": number}
        for (release, protocol, features), number in found.most_common()
    ]


def mixed_releases(node: Node) -> str | None:
    """Releases of this node and its neighbours, for people; None where they are all of one."""
    found = Counter([node.release or OLDER])
    for row in release_rows(node):
        found[row["release"] or OLDER] += row["neighbors"]
    if len(found) == 1:
        return None
    return ", ".join(f"{release}: {number}" for release, number in sorted(found.items()))


def spoken(link: NeighborLink | None) -> dict[str, Any]:
    """What both ends of a link have agreed on, or had when it was up."""
    if link is None or link.hello is None:
        return {"release": None, "protocol": None, "features": []}
    return {
        "release": link.hello.release or None,
        "protocol": link.protocol,
        "features": sorted(link.features),
    }


def neighbor_row(node: Node, neighbor: Neighbor) -> dict[str, Any]:
    state = neighbor.state if neighbor.state != "linked" else "connecting"
    return {
        "address": str(neighbor.address),
        "node_id": neighbor.node_id,
        "state": state,
        "since": neighbor.since,
        "reason": neighbor.reason,
        "sessions": {"open": 0, "of": node.config.link.sessions},
        "direction": "out",
        **spoken(None),
        **dict.fromkeys(("transferred_out", "transferred_in", "queued_messages", "queued_bytes"), 0),
        **dict.fromkeys(("dropped", "interest", "announced"), 0),
        **dict.fromkeys(("compression", "rate", "backlog", "rtt", "clock_skew")),
        "on_demand": False,
        "classes": [],
        "saved": neighbor.saved,
        "found": neighbor.found,
    }
