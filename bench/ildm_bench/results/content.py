"""Result 8: each wants a twentieth of the readings, by content-based filters or by choosing itself."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from statistics import mean
from typing import Any, NamedTuple

from ildm.mqtt import Publish
from ildm.testing.live.process import ProcessError
from ildm_bench.clients import Client, came_true, paced
from ildm_bench.measure.figures import Comparison
from ildm_bench.measure.spread import words
from ildm_bench.micro.measure import cpu_seconds
from ildm_bench.results.common import Bench, client_figures, comparison, testbed
from ildm_bench.results.exactness import Outcome, Plan, exactness
from ildm_bench.results.overlay import DISTANCES, crossing
from ildm_bench.results.tables import Metric, Row, averaged
from ildm_bench.testbed.distance import Distances, load_distances
from ildm_bench.testbed.spec import TestbedSpec
from ildm_bench.testbed.testbed import Testbed

WAYS: dict[str, str | Mapping[str, Any]] = {
    "SF, subscribers choose": "sf",
    "OctopiA": "octopia",
    "OctopiA, bits of the paper": {"name": "octopia", "summary": 0},
}
"""Each in a row: of sites in the regions, or within each cluster."""
SYMBOLS = 100
SHARE = 0.05
"""Of all readings, that each subscriber wants."""
PUBLISHER = 5
RATE = 50.0
"""Readings a second."""
SIZE = 200
"""Bytes of a reading, about."""
MESSAGES = 500
"""In each round."""
WARM_UP = 300
SEED = 8
PATIENCE = 30.0
"""Seconds for the subscribers to be known, and for the last readings to arrive."""
EXACT = Plan(messages=100_000, rate=80.0, changes=2.0, wishes=6, seed=SEED)
METRICS = (
    averaged("copies between regions, per reading", "copies", ".2f"),
    averaged("bytes between regions, per reading", "bytes_between", ",.0f"),
    Metric(
        "got of wanted", lambda row: f"{row.figures.expected - row.figures.missing} of {row.figures.expected}"
    ),
    Metric("came unwanted", lambda row: f"{sum(row.rounds['unwanted']):,.0f}"),
    averaged("delivery ms, mean", "delivery_ms", ".0f"),
    Metric(
        "CPU ms per reading",
        lambda row: ", ".join(
            f"{name.removeprefix('cpu.')} {words(mean(values), values, '.2f')}"
            for name, values in row.rounds.items()
            if name.startswith("cpu.")
        ),
    ),
)


class Wanted(NamedTuple):
    """The symbols that the subscriber at one site wants: from ``low``, below ``high``."""

    low: int
    high: int

    def __contains__(self, symbol: object) -> bool:
        return isinstance(symbol, int) and self.low <= symbol < self.high


def wanted(sites: int) -> list[Wanted]:
    """Of each site its own share, from the first symbols on."""
    width = round(SHARE * SYMBOLS)
    return [Wanted(site * width % SYMBOLS, site * width % SYMBOLS + width) for site in range(sites)]


def topic_filter(algorithm: str, share: Wanted) -> str:
    """What a subscriber subscribes to."""
    return "stock/#" if algorithm == "sf" else f"filter/sym>={share.low}&sym<{share.high}/stock/#"


def least_copies(distances: Distances) -> float:
    """Copies between regions of a reading, if one goes to each other region that wants it."""
    here = distances.regions[PUBLISHER]
    regions = {region for region in distances.regions if region != here}
    shares = list(zip(distances.regions, wanted(len(distances.names)), strict=True))
    wishes = sum(
        any(symbol in share for region, share in shares if region == there)
        for there in regions
        for symbol in range(SYMBOLS)
    )
    return wishes / SYMBOLS


def run(bench: Bench, messages: int = 100_000) -> Comparison:
    """Copies and bytes between regions, then the same testbed while expressions come and go."""
    distances = load_distances(DISTANCES)
    rows: list[Row] = []
    for label, algorithm in WAYS.items():
        bench.console.rule(label)
        name = algorithm if isinstance(algorithm, str) else "-".join(map(str, algorithm.values()))
        spec = TestbedSpec(["mosquitto"] * len(distances.names), algorithm=algorithm, distances=distances)
        found, disturbance = bench.client_rounds(name, label, spec, measure)
        spread = {name: [each[name] for each in found] for name in ("copies", "bytes_between")}
        rounds = {
            **spread,
            "unwanted": [each["unwanted"] for each in found],
            "delivery_ms": [mean(each["latencies_ms"]) for each in found if each["latencies_ms"]],
            **{f"cpu.{role}": [each["cpu_ms"][role] for each in found] for role in found[0]["cpu_ms"]},
        }
        figures = client_figures(
            label,
            [each["latencies_ms"] for each in found],
            sum(each["wanted"] for each in found),
            sum(each["missing"] for each in found),
            1000 / RATE,
            disturbance,
            spread,
        )
        rows.append(Row(label, figures, rounds=rounds))
    done = bench.out / "exactness.json"
    if not done.exists():
        bench.console.rule("Exactness")
        spec = TestbedSpec(
            ["mosquitto"] * len(distances.names), algorithm="octopia", distances=distances, link_qos=1
        )
        with testbed(spec, bench.out / "testbed", "exactness") as (_, bed):
            plan = EXACT._replace(messages=messages)
            outcome = asyncio.run(exactness(addresses(bed), plan, bench.console.print))
        done.write_text(json.dumps(outcome))
    outcome = Outcome(*json.loads(done.read_text()))
    text = [
        "Twelve sites in three regions, 40 ms one way between regions and 4 ms within. One publishes "
        f"{RATE:g} readings a second, of {SYMBOLS} symbols and {SIZE} bytes (QoS 0); a subscriber at each "
        f"site wants {SHARE:.0%} of the symbols, each other ones. With SF it subscribes to all and chooses "
        "itself. "
        "A copy to each other region where somebody wants it would be "
        f"{least_copies(distances):.2f} per reading.",
        outcome.words(messages),
        *outcome.examples,
    ]
    return comparison("Content-based subscriptions over distance", text, METRICS, rows)


class Reading(NamedTuple):
    """What is published; the topic has less in it than the payload."""

    number: int
    symbol: int

    @property
    def topic(self) -> str:
        return f"stock/{self.symbol // 20}"

    def payload(self) -> bytes:
        values = {"n": self.number, "sym": self.symbol, "price": self.symbol + 0.5}
        return json.dumps({**values, "note": "-" * (SIZE - 60)}).encode()


async def measure(bed: Testbed) -> dict[str, Any]:
    """Publish readings at one site of a testbed.

    Returns what the table shows, and ``latencies_ms`` of the deliveries that were wanted.

    Raises:
        ProcessError: the subscribers do not get what they want within the warm-up.
    """
    name = bed.spec.algorithm_name or ""
    distances = bed.spec.distances
    assert distances is not None
    readers = Readers(bed)
    clients = []
    for site, address in enumerate(addresses(bed)):
        clients.append(await Client.connect(address, f"content-{site}", readers.arrived(site)))
        await clients[-1].subscribe(topic_filter(name, readers.shares[site]))
    publisher = await Client.connect(addresses(bed)[PUBLISHER], "content-publisher")
    numbers = Random(SEED)
    give_up = time.monotonic() + 2 * PATIENCE
    first = 0  # links are made, bits are set
    while missing := await readers.publish(
        publisher, numbers, first, WARM_UP
    ):  # links are made, bits are set
        first += WARM_UP
        if time.monotonic() > give_up:
            raise ProcessError(f"{missing} readings of the warm-up are missing")
    await asyncio.sleep(1.0)
    readers.latencies_ms.clear()
    readers.unwanted = readers.due = 0
    traffic, copies, cpu = _traffic(bed), copies_between(bed, distances), cpu_by_role(bed)
    missing = await readers.publish(publisher, numbers, first + WARM_UP, MESSAGES)
    await asyncio.sleep(1.0)  # what nobody wants is counted, too
    now = cpu_by_role(bed)
    for client in (*clients, publisher):
        client.close()
    return {
        "copies": (copies_between(bed, distances) - copies) / MESSAGES,
        "bytes_between": crossing(_traffic(bed), traffic, distances) / MESSAGES,
        "wanted": readers.due,
        "missing": missing,
        "unwanted": readers.unwanted,
        "cpu_ms": {role: 1000 * (now[role] - used) / MESSAGES for role, used in cpu.items()},
        "latencies_ms": readers.latencies_ms,
    }


class Readers:
    """What the subscribers of all sites have got."""

    def __init__(self, bed: Testbed) -> None:
        self.shares = wanted(len(bed.servers))
        self.latencies_ms: list[float] = []
        """Of the deliveries that were wanted."""
        self.unwanted = 0
        self.due = 0
        """Deliveries of what was published."""
        self._sent: dict[int, float] = {}
        self._got: Counter[tuple[int, int]] = Counter()

    def arrived(self, site: int) -> Callable[[Publish], None]:
        def at_once(message: Publish) -> None:
            reading = json.loads(message.payload)
            if reading["sym"] in self.shares[site]:
                self._got[site, reading["n"]] += 1
                self.latencies_ms.append(1000 * (time.monotonic() - self._sent[reading["n"]]))
            else:
                self.unwanted += 1

        return at_once

    async def publish(self, publisher: Client, numbers: Random, first: int, count: int) -> int:
        """Publish so many readings; how many deliveries of them are missing."""
        due: Counter[tuple[int, int]] = Counter()
        async for step in paced(RATE, count):
            reading = Reading(first + step, numbers.randrange(SYMBOLS))
            sites = (site for site, share in enumerate(self.shares) if reading.symbol in share)
            due.update((site, reading.number) for site in sites)
            self._sent[reading.number] = time.monotonic()
            publisher.send(reading.topic, reading.payload())
        self.due += due.total()
        await came_true(lambda: not due - self._got, PATIENCE)
        return (due - self._got).total()


def addresses(bed: Testbed) -> list[tuple[str, int]]:
    """Where clients connect to."""
    return [server.front.address for server in bed.servers if server.front is not None]


def cpu_by_role(bed: Testbed) -> dict[str, float]:
    """CPU seconds so far of the brokers, of the nodes, and of what keeps the sites apart."""
    used: dict[str, float] = {}
    for each in bed.processes:
        used[each.process.role] = used.get(each.process.role, 0.0) + cpu_seconds(each.pid)
    return used


def copies_between(bed: Testbed, distances: Distances) -> int:
    """Messages that nodes have sent to nodes of other regions so far; of OctopiA publications alone."""
    count = 0
    for server in bed.servers:
        assert server.node is not None
        if bed.spec.algorithm_name == "sf":
            count += sum(
                row["transferred_out"]
                for row in server.node.admin.neighbors().items
                if distances.crosses(server.index, int(row["node_id"].removeprefix("site-")))
            )
        else:  # clusters are the regions of the distances: what leaves one goes over a secondary link
            count += server.node.admin.algorithm()["counters"].get("copies_secondary", 0)
    return count


def _traffic(bed: Testbed) -> Counter[tuple[str, str]]:
    assert bed.distance is not None
    return bed.distance.traffic()
