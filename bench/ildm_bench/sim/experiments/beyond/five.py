"""Beyond the papers: five algorithms side by side, over subscribers of a topic and distance between sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import numpy as np

from ildm.testing import Delivery, SimNode
from ildm_bench.report.numbers import counted
from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.beyond.five_churn import Changing
from ildm_bench.sim.experiments.beyond.five_scribe import scribe_rows
from ildm_bench.sim.experiments.beyond.five_sites import (
    CALM,
    DISTANCES,
    METHODS,
    NEAR,
    PROCESSING,
    REGIONS,
    SENDING,
    Sites,
)
from ildm_bench.sim.experiments.drawing import Ends, Points, Words, bars, panels
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables, table
from ildm_bench.sim.experiments.summary import collected, means_of_repeats
from ildm_bench.sim.experiments.topics import SCRIBE

ALL = (*METHODS, SCRIBE)
WARM = 10
"""Messages of each topic before any is measured: from them ATM-TBPS learns, and STLA finds its start."""
LEARNING = 20.0
"""Virtual seconds after them."""
IDLE = 30.0
"""Virtual seconds in which nobody publishes: what is sent then is upkeep."""
SPACING = 0.3
QOS = (0, 1)


class Size(NamedTuple):
    nodes: int
    subscribers: tuple[int, ...]
    messages: int
    seeds: int
    changing: int
    seconds: float


def size(scale: Scale) -> Size:
    """Sites, subscribers of each topic, messages of each, worlds; sites under churn and for how long."""
    if scale == "full":
        return Size(81, (1, 5, 20, 80), 10, 3, 40, 60.0)
    return Size(16, (1, 5, 15), 4, 1, 12, 10.0)


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """``topics``: a row for each method, distance, topic and world; ``sites``: one for each method and world;
    ``churn``: one for each plugin, QoS and world."""
    given = size(scale)
    topics: list[dict[str, Any]] = []
    sites: list[dict[str, Any]] = []
    churn: list[dict[str, Any]] = []
    for repeat in range(given.seeds):
        world = {"repeat": repeat}
        for distance in DISTANCES:
            for method in METHODS:
                say(f"{method}, {distance}, {repeat + 1} of {given.seeds}")
                found, site = measured(method, distance, given, seed + repeat)
                topics += [row | world for row in found]
                sites.append(site | world)
            found, site = scribe_rows(distance, given.nodes, given.subscribers, seed + repeat)
            topics += [row | world for row in found]
            sites.append(site | world)
        for method in METHODS:
            for qos in QOS:
                say(f"{method} under churn, QoS {qos}, {repeat + 1} of {given.seeds}")
                changing = Changing(method, given.changing, seed + repeat, qos)
                churn.append({"method": method, "qos": qos, **changing.run(given.seconds)} | world)
    return {"topics": table(topics), "sites": table(sites), "churn": table(churn)}


def measured(
    method: str, distance: str, given: Size, seed: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each topic, and that of the sites."""
    sites = Sites(method, distance, given.nodes, seed)
    world = sites.world
    arrived: list[Delivery] = []

    def delivered(node: SimNode, delivery: Delivery) -> None:
        arrived.append(delivery)

    world.on_delivery = delivered
    chosen: dict[str, SimNode] = {}
    interested: dict[str, list[SimNode]] = {}
    random = Random(f"{seed}/topics")  # the same sites under all algorithms
    for count in given.subscribers:
        topic = f"topic-{count}"
        chosen[topic], *interested[topic] = random.sample(sites.living(), count + 1)
        for node in interested[topic]:
            node.subscribe(topic)
    world.run(CALM)
    for _ in range(WARM):
        for topic, publisher in chosen.items():
            publisher.publish(topic)
        world.run(1.0)
    world.run(LEARNING)
    before = world.network.sent.total()
    world.run(IDLE)
    upkeep = (world.network.sent.total() - before) / given.nodes * 60 / IDLE
    rows = []
    for count, (topic, publisher) in zip(given.subscribers, chosen.items(), strict=True):
        arrived.clear()
        copies, crossed = sites.copies, sites.crossed
        for _ in range(given.messages):
            publisher.publish(topic)
            world.run(SPACING)
        world.run(2.0)
        delays = [1000 * (one.time - one.sent) for one in arrived if one.sent is not None]
        rows.append(
            {
                "method": method,
                "distance": distance,
                "subscribers": count,
                "messages": (sites.copies - copies) / given.messages,
                "crossing": float(sites.crossings(publisher, interested[topic]))
                if sites.shape
                else (sites.crossed - crossed) / given.messages,
                "delivered": len(arrived) / given.messages / count,
                "hops": float(np.mean([one.hops for one in arrived if one.hops is not None])),
                "mean_ms": float(np.mean(delays)),
                "worst_ms": max(delays),
            }
        )
    return rows, {"method": method, "entries": sites.entries(), "upkeep": upkeep, "distance": distance}


FIGURES = ("messages", "crossing", "delivered", "hops", "mean_ms", "worst_ms")


def summarise(frames: Frames) -> Summary:
    by = ["method", "distance", "subscribers"]
    found = {
        figure: collected(means_of_repeats(frames["topics"], by, "repeat", figure), *by) for figure in FIGURES
    }
    for figure in ("entries", "upkeep"):
        each = means_of_repeats(frames["sites"].where(f"{figure} >= 0"), ["method"], "repeat", figure)
        found[figure] = collected(each, "method")
    by = ["method", "qos"]
    for figure in ("lost", "due", "twice"):
        found[figure] = collected(means_of_repeats(frames["churn"], by, "repeat", figure), *by)
    return found


def of_topic(summary: Summary, figure: str, method: str, distance: str) -> list[Mapping[str, Any]]:
    """Mean and extremes of the worlds, by subscribers."""
    return [row for row in summary[figure] if (row["method"], row["distance"]) == (method, distance)]


def compare(summary: Summary, scale: Scale) -> list[Line]:
    lines = []
    counts = ", ".join(f"{count:,}" for count in size(scale).subscribers)
    for distance in DISTANCES:
        for method in ALL:
            row = {figure: of_topic(summary, figure, method, distance) for figure in FIGURES}
            crossing = f", {_listed(row['crossing'], 1)} of them from region to region"
            if DISTANCES[distance] == NEAR:  # no regions to tell apart
                crossing = ""
            lines.append(
                Line(
                    quantity=f"{method}, {distance}; {counts} subscribers",
                    paper="not compared",
                    ours=f"{_listed(row['messages'], 1)} copies"
                    f"{crossing}; {_listed(row['hops'], 1)} hops; {_listed(row['mean_ms'])} ms on average; "
                    f"{_listed(row['worst_ms'])} ms at most",
                    verdict="beyond",
                    why="" if all(one["mean"] == 1 for one in row["delivered"]) else "NOT ALL DELIVERED",
                )
            )
    for method in ALL:
        entries = next(row for row in summary["entries"] if row["method"] == method)
        upkeep = [row for row in summary["upkeep"] if row["method"] == method]
        said = f"{upkeep[0]['mean']:,.0f} messages of upkeep per minute" if upkeep else "upkeep not simulated"
        lines.append(
            Line(
                quantity=f"{method}: a site with its part in {len(size(scale).subscribers)} topics",
                paper="not compared",
                ours=f"{entries['mean']:,.1f} entries; {said}",
                verdict="beyond",
            )
        )
    for method in METHODS:
        found = {
            figure: {row["qos"]: row for row in summary[figure] if row["method"] == method}
            for figure in ("lost", "due", "twice")
        }
        lines.append(
            Line(
                quantity=f"{method} under churn",
                paper="not compared",
                ours="; ".join(
                    f"QoS {qos}: {found['lost'][qos]['mean']:.2%} lost "
                    f"({found['lost'][qos]['smallest']:.2%} to {found['lost'][qos]['largest']:.2%}) of "
                    f"{found['due'][qos]['mean']:,.0f}, {found['twice'][qos]['mean']:,.1f} twice"
                    for qos in QOS
                ),
                verdict="beyond",
            )
        )
    return lines


def _listed(rows: Sequence[Mapping[str, Any]], digits: int = 0) -> str:
    return ", ".join(f"{row['mean']:,.{digits}f}" for row in rows)


def draw(summary: Summary) -> list[Picture]:
    x = "subscribers of the topic"
    layout = (
        "Regions are 40 ms apart and 4 ms wide, or all is one place of 4 ms. Mean of the worlds, bars from "
        "the least to the most. Trees are laid as well as one can."
    )
    pictures = []
    for figure, title, y in (
        ("mean_ms", "Mean time from publisher to subscriber", "ms"),
        ("worst_ms", "Longest time from publisher to subscriber", "ms"),
    ):
        parts = {distance: _series(summary, figure, distance) for distance in DISTANCES}
        words = Words(f"five_{figure}", title, x, y, layout)
        pictures.append(
            panels(
                words,
                {distance: series for distance, (series, _) in parts.items()},
                errors={distance: ends for distance, (_, ends) in parts.items()},
                log_x=10,
                log_y=10,
                height=3.9,
                shared=True,
            )
        )
    both = {
        "between sites": _series(summary, "messages", [*DISTANCES][-1]),
        "from region to region": _series(summary, "crossing", [*DISTANCES][-1]),
    }
    words = Words("five_copies", "Copies of one message", x, "copies", layout)
    pictures.append(
        panels(
            words,
            {title: series for title, (series, _) in both.items()},
            errors={title: ends for title, (_, ends) in both.items()},
            log_x=10,
            height=3.9,
        )
    )
    entries = "Different keys that a site knows; with SF, filters of its neighbours; with Scribe, nodes."
    upkeep = "All messages between sites but the keep-alive of links. Scribe's are not simulated."
    return [
        *pictures,
        _cost(summary, "five_entries", "entries", "What a site keeps", "entries", entries),
        _cost(
            summary,
            "five_upkeep",
            "upkeep",
            "What a site sends while nobody publishes",
            "messages per minute",
            upkeep,
        ),
        _lost(summary),
    ]


def _series(summary: Summary, figure: str, distance: str) -> tuple[dict[str, Points], Ends]:
    rows = {method: of_topic(summary, figure, method, distance) for method in ALL}
    series: dict[str, Points] = {
        method: ([row["subscribers"] for row in found], [row["mean"] for row in found])
        for method, found in rows.items()
    }
    ends = {
        method: ([row["smallest"] for row in found], [row["largest"] for row in found])
        for method, found in rows.items()
    }
    return series, ends


def _cost(summary: Summary, name: str, figure: str, title: str, y: str, caption: str) -> Picture:
    found = {row["method"]: row for row in summary[figure]}
    shown = [method for method in ALL if method in found]
    values = {y: [found[method]["mean"] for method in shown]}
    lows, highs = ([found[method][end] for method in shown] for end in ("smallest", "largest"))
    words = Words(name, title, "algorithm", y, caption)
    return bars(
        words, [method.replace(", ", "\n") for method in shown], values, errors={y: (lows, highs)}, height=2.4
    )


def _lost(summary: Summary) -> Picture:
    words = Words(
        "five_churn",
        "Messages lost while sites come, leave and crash",
        "algorithm",
        "lost, % of those due",
        "Publisher and subscriber were there long enough before and after. Mean of the worlds, bars from the "
        "least to the most. With SF the operator mends the tree 2 s after a site has gone.",
    )
    series: dict[str, list[float | None]] = {}
    errors = {}
    for qos in QOS:
        found = {row["method"]: row for row in summary["lost"] if row["qos"] == qos}
        label = f"QoS {qos}"
        series[label] = [100 * found[method]["mean"] for method in METHODS]
        errors[label] = (
            [100 * found[method]["smallest"] for method in METHODS],
            [100 * found[method]["largest"] for method in METHODS],
        )
    return bars(words, [method.replace(", ", "\n") for method in METHODS], series, errors=errors)


def parameters(scale: Scale) -> str:
    given = size(scale)
    counts = ", ".join(map(str, given.subscribers))
    delays = " or ".join(f"{1000 * delay:g}" for delay in DISTANCES.values())
    return (
        f"{given.nodes} sites in {REGIONS} regions, {1000 * NEAR:g} ms within one and {delays} between them; "
        f"a site takes {1000 * PROCESSING:g} ms for a message and {1000 * SENDING:g} ms for each it sends; "
        f"topics of one publisher and {counts} subscribers, {given.messages} messages each at QoS 0; "
        f"{counted(given.seeds, 'world')}. Churn: {given.changing} sites in three regions, "
        f"{Changing.RATE:g} changes a minute for {given.seconds:g} s"
    )


EXPERIMENT = Experiment(
    name="five",
    runs="plugins sf, sg_tbps, atm_tbps, stla; tables (Scribe)",
    title="Five algorithms side by side over subscribers and distance",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=(
        "SF, SG-TBPS (SFB), ATM-TBPS (60 entries) and STLA are the plugins themselves, message by message. "
        "Scribe is no plugin: trees on converged tables with the same delays, without upkeep and churn.",
        "Copies of messages are counted, not their acknowledgements; what subscribing costs is not counted.",
        "Churn: half of the sites subscribe to the topic, the others publish in turns; half of the changes "
        "are joins, a quarter leaves, a quarter crashes, half of those without a sign. A message is due "
        "where publisher and subscriber were there 10 s before and after it.",
    ),
)
