"""Which algorithm fits a network: estimates for each, the least of which is the advice.

The estimates are closed forms. Their constants are results of the simulator (``ildm-bench sim run five``):
81 sites in 3 regions, a site takes 1 ms for a message and 0.1 ms for each that it sends. `ildm-bench sim
advise` holds the advice against the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ildm.advice.network import Network, Preference, Topic

SITE_MS, SENDING_MS = 1.0, 0.1
"""What a site takes for a message, and for each copy that it sends."""
ENTRIES = 60
"""Subscribers that ATM-TBPS reaches in one hop: its option ``entries``."""
HOPS: Mapping[str, tuple[tuple[int, float], ...]] = {
    "sg_tbps": ((1, 1.0), (5, 2.3), (20, 3.8), (80, 5.6)),
    "stla": ((1, 1.0), (5, 2.1), (20, 4.3), (80, 5.3)),
    "atm_tbps": ((1, 1.0), (60, 1.0), (80, 1.3), (160, 2.0)),
}
"""Mean hops to a subscriber, by subscribers of the topic; between them by the logarithm."""
STLA_REPEATS = 0.036
"""STLA: further copies into a region, for each subscriber of the topic."""
CHURN = 30.0
"""Changes a minute among 40 sites under which `LOST` was found."""
LOST: Mapping[str, tuple[float, float]] = {
    "sf": (0.0028, 0.0028),
    "sg_tbps": (0.0231, 0.0),
    "atm_tbps": (0.0002, 0.0),
    "stla": (0.0380, 0.0),
}
"""Part of the messages lost under `CHURN` at QoS 0 and at QoS 1 or 2. SF's tree is mended within 2 s."""
NAMES = {"sf": "SF", "sg_tbps": "SG-TBPS", "atm_tbps": "ATM-TBPS", "stla": "STLA"}
FITS = {
    "sf": "the tree of links passes a region's border once, and sites send each other messages alone; "
    "somebody has to lay it",
    "sg_tbps": "a site sends a copy to a few others, which pass it on; small tables, no tree",
    "atm_tbps": f"one hop to each subscriber, up to about {ENTRIES} of a topic; a site sends all copies of "
    "its messages itself",
    "stla": "few copies cross from region to region, without a tree",
}


class Estimate(NamedTuple):
    """What an algorithm would cost."""

    algorithm: str
    delay_ms: float
    """Mean time from publisher to subscriber."""
    traffic: float
    """Copies from region to region for each message, or from site to site in one region."""
    lost: float
    """Part of the messages, from sites that come and go."""

    def cost(self, prefer: Preference) -> tuple[float, float]:
        """What counts first, then the other."""
        return (self.delay_ms, self.traffic) if prefer == "delay" else (self.traffic, self.delay_ms)


class Advice(NamedTuple):
    algorithm: str
    why: list[str]
    estimates: list[Estimate]
    """The best first; those that lose too much last."""

    def row(self) -> dict[str, object]:
        """For JSON."""
        return {
            "algorithm": self.algorithm,
            "why": self.why,
            "estimates": [each._asdict() for each in self.estimates],
        }


def advise(network: Network) -> Advice:
    """The algorithm of the least estimated cost among those that churn does not forbid."""
    found = [_estimate(algorithm, network) for algorithm in NAMES]
    allowed = [each for each in found if each.lost <= network.tolerated_loss]
    if not allowed:
        least = min(each.lost for each in found)
        allowed = [each for each in found if each.lost == least]
    order = sorted(allowed, key=lambda each: each.cost(network.prefer))
    rest = sorted((each for each in found if each not in order), key=lambda each: each.lost)
    return Advice(order[0].algorithm, _why(network, order, rest), [*order, *rest])


def _why(network: Network, order: list[Estimate], rest: list[Estimate]) -> list[str]:
    best = order[0]
    unit = "from region to region" if network.regions > 1 else "from site to site"
    lines = [
        FITS[best.algorithm],
        f"estimated {best.delay_ms:.1f} ms from publisher to subscriber, {best.traffic:.1f} copies {unit} "
        "for a message",
    ]
    if len(order) > 1:
        other = order[1]
        lines.append(f"next is {other.algorithm}: {other.delay_ms:.1f} ms, {other.traffic:.1f} copies {unit}")
    if best.lost > network.tolerated_loss:
        lines.append(f"no algorithm loses so little under this churn: {best.lost:.2%} here, the least")
    lines += [
        f"{each.algorithm} would lose {each.lost:.2%} of the messages of QoS {network.qos} while sites come "
        "and go"
        for each in rest
    ]
    if best.algorithm == "sf" and all(topic.subscribers == network.sites - 1 for topic in network.topics):
        lines.append("pf sends the same where all sites want all topics, and keeps nothing")
    return lines


def _estimate(algorithm: str, network: Network) -> Estimate:
    topics = network.topics
    delay = sum(topic.rate * topic.subscribers * _delay(algorithm, network, topic) for topic in topics)
    copies = sum(topic.rate * _copies(algorithm, network, topic) for topic in topics)
    return Estimate(
        algorithm,
        delay / sum(topic.rate * topic.subscribers for topic in topics),
        copies / sum(topic.rate for topic in topics),
        min(1.0, LOST[algorithm][1 if network.qos else 0] * network.churn / CHURN),
    )


def _delay(algorithm: str, network: Network, topic: Topic) -> float:
    """Mean ms of a delivery: each hop takes a link and a site; some hops go to another region."""
    apart = 1 - 1 / network.regions
    subscribers = topic.subscribers
    if algorithm == "sf":
        within = network.sites / network.regions
        far = apart * (2 - 2 / network.regions)
        hops = 2 * (1 - 1 / within) + far
        fan_out = within * min(1.0, subscribers / network.sites) + network.regions
    else:
        hops = _between(HOPS[algorithm], subscribers)
        far = hops * apart
        fan_out = min(subscribers, ENTRIES) if algorithm == "atm_tbps" else hops
        if algorithm == "stla":
            # the first copies go to the regions, all further ones stay there
            far = min(far, apart * (1 + 0.17 * math.log2(min(subscribers, 2 * network.regions))))
    each = network.near_ms + SITE_MS + SENDING_MS
    return hops * each + far * (network.between_ms - network.near_ms) + SENDING_MS * fan_out / 2


def _copies(algorithm: str, network: Network, topic: Topic) -> float:
    """Of one message."""
    regions, subscribers = network.regions, topic.subscribers
    absent = (1 - 1 / regions) ** subscribers
    """Chance that a region has no subscriber."""
    if regions == 1:
        return float(subscribers) if algorithm != "sf" else subscribers + 1 - 2 / network.sites
    if algorithm == "sf":
        alone = (regions - 1) / regions * (1 / regions) ** subscribers
        return (regions - 1) * (1 - absent * (1 - 1 / regions)) - alone
    each = subscribers * (1 - 1 / regions)
    if algorithm == "stla":
        return min(each, (regions - 1) * (1 - absent) * (1 + STLA_REPEATS * subscribers))
    return each


def _between(points: tuple[tuple[int, float], ...], count: int) -> float:
    """Linear in the logarithm of ``count``, before and after the points, too."""
    at: Callable[[int], float] = math.log2
    after = next((i for i, (x, _) in enumerate(points) if x >= count and i), len(points) - 1)
    (x0, y0), (x1, y1) = points[after - 1], points[after]
    return y0 + (y1 - y0) * (at(count) - at(x0)) / (at(x1) - at(x0))
