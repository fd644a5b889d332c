"""The network as a running node knows it, over the admin API.

A node knows a part: its neighbours with their round trips, the sites whose interest it has heard, in an
overlay how many there are. What it does not know is assumed, and said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from ildm.admin.client import PAGE_LIMIT, AdminClient, NoNodeError, Page
from ildm.admin.view import AdminError, Row
from ildm.advice.network import Network, Preference, Topic

APART = 3.0
"""Neighbours whose delay is so many times that of nearer ones, and `FAR_MS` more, are in another region."""
FAR_MS = 5.0
LEAST_MS = 0.05
"""Less is the noise of a loopback."""


class Known(NamedTuple):
    network: Network
    assumed: list[str]
    """What the node could not tell."""


def ask(node: AdminClient, prefer: Preference) -> Known:
    """The network of a node, a lower bound of it where it sees neighbours alone.

    Raises:
        AdminError: the node does not answer, knows no other site, or no filter of one.
    """
    neighbors, subscriptions = node.neighbors(), node.subscriptions()
    return known(neighbors, subscriptions, _members(node), prefer)


def _members(node: AdminClient) -> int | None:
    """The number of sites in its overlay; None where it has none."""
    if not node.algorithm().get("name"):
        return None
    try:
        members: int | None = node.overlay().get("members")
    except NoNodeError:
        raise
    except AdminError:
        return None
    return members


def known(neighbors: Page, subscriptions: Page, members: int | None, prefer: Preference) -> Known:
    """The same from the node's answers."""
    assumed = ["each topic has one message a second, and QoS 1; no site comes or goes"]
    wanted = _wanted(subscriptions.items)
    sites = members or 1 + len({row["node_id"] for row in neighbors.items if row["node_id"]})
    sites = max(sites, 1 + max((len(each) for each in wanted.values()), default=0))
    if sites < 2:
        raise AdminError("the node knows no other site: describe the network in a file")
    if not wanted:
        raise AdminError("no other site wants anything yet: describe the network in a file")
    if members is None:
        assumed.append(f"there are {sites} sites: this one and its neighbours, as it sees no farther")
    for what, page in (("neighbours", neighbors), ("subscriptions", subscriptions)):
        if page.total > len(page.items):
            assumed.append(f"{page.total:,} {what} are like the first {PAGE_LIMIT:,}")
    near, far, regions = _distances(neighbors.items, assumed)
    topics = [
        Topic(name=name, subscribers=min(len(sources), sites - 1)) for name, sources in sorted(wanted.items())
    ]
    network = Network(
        sites=sites, regions=min(regions, sites), near_ms=near, far_ms=far, topics=topics, prefer=prefer
    )
    return Known(network, assumed)


def _wanted(rows: Sequence[Row]) -> dict[str, set[str]]:
    """The neighbours that want each filter; what a neighbour wants for the sites behind it counts once."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        kind, _, who = row["source"].partition(" ")
        if kind == "neighbor":
            found[row["filter"]].add(who)
    return found


def _distances(rows: Sequence[Row], assumed: list[str]) -> tuple[float, float | None, int]:
    """One way to near and to far neighbours in ms, and the number of regions."""
    delays = sorted(max(LEAST_MS, 500 * row["rtt"]) for row in rows if row.get("rtt") is not None)
    if not delays:
        assumed.append("all sites are in one region, 1 ms apart, as no neighbour has answered a ping yet")
        return 1.0, None, 1
    groups = [[delays[0]]]
    for delay in delays[1:]:
        last = groups[-1][-1]
        if delay > APART * last and delay - last > FAR_MS:
            groups.append([])
        groups[-1].append(delay)
    if len(groups) == 1 and delays[0] > FAR_MS:
        assumed.append("each neighbour is a region of its own, as all are far")
        return LEAST_MS, median(delays), 1 + len(delays)
    near, *others = groups
    far = [delay for group in others for delay in group]
    return median(near), median(far) if far else None, len(groups)
