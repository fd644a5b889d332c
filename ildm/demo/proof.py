"""``ildm demo --once``: messages cross between the three sites, and only where somebody wants them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.text import Text

from ildm.address import Address
from ildm.cli.terminal import table
from ildm.cli.tool.client import Connection, Target
from ildm.cli.tool.place import Place
from ildm.demo.processes import LOOPBACK, DemoError
from ildm.demo.sites import NAMES, Site, SitesInRow, neighbors
from ildm.mqtt import topic_matches

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessage

TIMEOUT = 30.0
DONE = "done/+"
"""Everybody wants it; each publisher's last message, which nothing of the same publisher overtakes."""
WANTED = {
    "site-1": ("demo/+/temperature", DONE),
    "site-2": ("demo/#", DONE),
    "site-3": ("demo/site-1/#", DONE),
}
RETAINED = "state/+"
"""Wanted only by the subscribers who come late."""
QUIET = "quiet"
"""First level of the topics which nobody wants."""


class Sent(NamedTuple):
    publisher: str
    topic: str
    qos: int
    retain: bool


class Route(NamedTuple):
    """One direction of a link."""

    near: str
    far: str


@dataclass
class Subscriber:
    site: str
    filters: tuple[str, ...]
    retained_only: bool = False
    received: Counter[str] = field(default_factory=Counter)
    """Publisher's site -> messages."""

    def connect(self, port: int, name: str) -> Connection:
        connection = Connection(Target(Place(Address(LOOPBACK, port)), name), self._arrived)
        connection.subscribe(self.filters, 1)
        return connection

    def _arrived(self, message: MQTTMessage) -> bool:
        if message.retain or not self.retained_only:
            self.received[message.payload.decode().partition(" ")[0]] += 1
        return True


def messages(publisher: str) -> list[Sent]:
    """What a site's publisher sends, in order."""
    topic = f"demo/{publisher}/temperature"
    return [
        *[Sent(publisher, topic, 0, False)] * 3,
        *[Sent(publisher, topic, 1, False)] * 3,
        *[Sent(publisher, f"demo/{publisher}/log/boot", 1, False)] * 2,
        *[Sent(publisher, f"{QUIET}/{publisher}", 1, False)] * 2,
        Sent(publisher, f"state/{publisher}", 1, True),
        Sent(publisher, f"done/{publisher}", 1, False),
    ]


def wanted_at(site: str, topic: str) -> bool:
    return any(topic_matches(topic_filter, topic) for topic_filter in WANTED[site])


def behind(route: Route) -> list[str]:
    """The sites that a message on this way comes nearer to."""
    near, far = NAMES.index(route.near), NAMES.index(route.far)
    return list(NAMES[far:] if far > near else NAMES[: far + 1])


def routes() -> list[Route]:
    """Both directions of all links."""
    return [way for left, right in pairwise(NAMES) for way in (Route(left, right), Route(right, left))]


def crosses(sent: Sent, route: Route, algorithm: str) -> bool:
    """Whether the algorithm is to carry a message this way (thesis 5.3.1 to 5.3.3)."""
    there = behind(route)
    if sent.publisher in there:
        return False
    return algorithm == "pf" or sent.retain or any(wanted_at(site, sent.topic) for site in there)


def prove(row: SitesInRow, console: Console) -> bool:
    """Publish at each site, and compare what arrives and what crosses with what should."""
    sites = {site.name: site for site in row.sites}
    subscribers = [Subscriber(name, WANTED[name]) for name in NAMES]
    connections: list[Connection] = []
    began = time.monotonic()
    try:
        connections += [s.connect(sites[s.site].port, f"subscriber-{s.site}") for s in subscribers]
        if row.algorithm != "pf":
            _work(connections, lambda: _routes_known(sites), "subscriptions to reach all sites")
        before = _transfers(sites)
        sent = [message for name in NAMES for message in messages(name)]
        connections += [_publish(sites[name]) for name in NAMES]
        expected = {name: _expected(sent, name) for name in NAMES}
        _work(
            connections,
            lambda: all(s.received[p] >= n for s in subscribers for p, n in expected[s.site].items()),
            "all messages to arrive",
            fatal=False,
        )
        carried = _transfers(sites) - before
        late = [Subscriber(name, (RETAINED,), retained_only=True) for name in NAMES]
        connections += [s.connect(sites[s.site].port, f"late-{s.site}") for s in late]
        _work(
            connections,
            lambda: all(s.received[p] for s in late for p in NAMES),
            "retained messages to arrive",
            fatal=False,
        )
    finally:
        for connection in connections:
            connection.close()
    return _report(console, row, sent, subscribers, late, carried, time.monotonic() - began)


def _publish(site: Site) -> Connection:
    connection = Connection(Target(Place(Address(LOOPBACK, site.port)), f"publisher-{site.name}"))
    for number, message in enumerate(messages(site.name)):
        payload = f"{site.name} {number}".encode()
        connection.publish(message.topic, payload, message.qos, message.retain)
    connection.flush()
    return connection


def _work(connections: list[Connection], reached: Callable[[], bool], what: str, fatal: bool = True) -> None:
    give_up = time.monotonic() + TIMEOUT
    while not reached():
        if time.monotonic() > give_up:
            if fatal:
                raise DemoError(f"waited {TIMEOUT:g} s for {what}")
            return  # the report shows what is missing
        for connection in connections:
            connection.step(0.01)


def _routes_known(sites: dict[str, Site]) -> bool:
    """Whether each node knows what is wanted behind each of its links."""
    known = {
        name: [(row["source"], row["filter"]) for row in site.client.subscriptions().items]
        for name, site in sites.items()
    }
    for route in routes():
        filters = [f for source, f in known[route.near] if source == f"neighbor {route.far}"]
        needed = {
            sent.topic
            for name in NAMES
            for sent in messages(name)
            if crosses(sent, route, "sf") and not sent.retain
        }
        if not all(any(topic_matches(f, topic) for f in filters) for topic in needed):
            return False
    return True


def _transfers(sites: dict[str, Site]) -> Counter[Route]:
    return Counter(
        {
            Route(name, far): link["transferred_out"]
            for name, site in sites.items()
            for far, link in neighbors(site).items()
        }
    )


def _expected(sent: list[Sent], site: str) -> Counter[str]:
    return Counter(message.publisher for message in sent if wanted_at(site, message.topic))


def _report(
    console: Console,
    row: SitesInRow,
    sent: list[Sent],
    subscribers: list[Subscriber],
    late: list[Subscriber],
    carried: Counter[Route],
    seconds: float,
) -> bool:
    good = True

    def verdict(found: int, due: int) -> Text:
        nonlocal good
        good = good and found == due
        return Text(
            f"{found}/{due} {'✓' if found == due else '✗'}", style="green" if found == due else "bold red"
        )

    received = table(["published at", *(f">at {name}" for name in NAMES)], "Messages received")
    for publisher in NAMES:
        cells = [verdict(s.received[publisher], _expected(sent, s.site)[publisher]) for s in subscribers]
        received.add_row(publisher, *cells)
    received.add_section()
    received.add_row("kept for later", *(verdict(sum(s.received.values()), len(NAMES)) for s in late))
    console.print(received, "")

    links = table(["link", ">transfers", ">with flooding"], "Transfers between the nodes")
    for route in routes():
        due = sum(crosses(message, route, row.algorithm) for message in sent)
        flooded = sum(crosses(message, route, "pf") for message in sent)
        links.add_row(
            f"{route.near} → {route.far}", verdict(carried[route], due), Text(str(flooded), style="dim")
        )
    console.print(links, "")

    quiet = sum(message.topic.startswith(QUIET) for message in sent)
    if row.algorithm != "pf" and good:
        console.print(Text(f"✓ {quiet} messages that nobody asked for stayed where they were", style="green"))
    if good:
        console.print(Text(f"✓ three brokers behaved as one ({seconds:.1f} s)", style="bold green"))
    else:
        console.print(Text("✗ not everything crossed as it should", style="bold red"))
    return good
