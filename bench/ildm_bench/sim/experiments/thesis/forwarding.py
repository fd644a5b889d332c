"""What T3.12 and T3.13 share: what each node sends, receives and forwards (thesis 3.4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from ildm_bench.sim.experiments.framework import Frames, Say, Scale, Summary, Tables
from ildm_bench.sim.experiments.scribe_topics import scribe_topics
from ildm_bench.sim.experiments.summary import collected, correlations, fisher_interval
from ildm_bench.sim.experiments.topics import SCRIBE, SG, Integers, Topics, topics_in

METHODS = (SG, SCRIBE)
BASE_4 = f"{SG}, base 4"
LEVELS = 8
FEWER = f"{SG}, {LEVELS} levels"
"""Variants that the thesis does not mention: what r depends on."""
TICKED = f"{SG}, periods of whole ticks"
READING = "periods of whole ticks"
TICKS = 200
TRIED = 108
"""A reading of "1 to 100 messages": a publisher of k messages in so many ticks sends one each floor(TICKS /
k) ticks. Tick lengths and roundings that were tried."""
TOPICS = 100
SHOWN = 1_000
"""Subscribers in the picture, as in the paper."""


def subscribers(scale: Scale) -> int:
    """sub_t."""
    return 1_000 if scale == "full" else 40


def scribe_repeats(scale: Scale) -> int:
    """Graphs of Scribe, which differ by more: ten seeds have as many as one run of the paper asks for."""
    return 20 if scale == "full" else 3


def ticked(wanted: Integers) -> Integers:
    """int64[topics]: messages of publishers whose periods are whole ticks, for ``wanted`` ones."""
    found: Integers = TICKS // (TICKS // wanted)
    return found


def repeats(scale: Scale) -> int:
    """Graphs of the same parameters; the paper has one."""
    return 10 if scale == "full" else 3


def simulate(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each publisher and subscriber: what it sent, received and forwarded.

    Topic t has one publisher, which sends t + 1 messages. ``forwarded`` is what a node sends to other nodes,
    the first hop of own messages included; ``others`` is that without them.
    """
    generator = np.random.default_rng(seed)
    exact = np.arange(1, TOPICS + 1)
    whole = ticked(exact)
    parts = []
    for repeat in range(repeats(scale)):
        say(f"graph {repeat + 1} of {repeats(scale)}")
        count = subscribers(scale)
        topics = topics_in(generator, exact.size * (count + 1), exact.size, 1, count)
        for method, sent, (first, rest) in (
            (SG, exact, _proposed(topics, exact)),
            (TICKED, whole, _proposed(topics, whole)),
            (BASE_4, exact, _proposed(topics.of_base_4(), exact)),
            (FEWER, exact, _proposed(topics.of_levels(LEVELS), exact)),
            (SCRIBE, exact, _scribe(generator, exact, count)),
        ):
            parts.append(_rows(method, repeat, "publisher", sent, 1, *first))
            parts.append(_rows(method, repeat, "subscriber", sent, count, rest, rest))
    for repeat in range(repeats(scale), scribe_repeats(scale)):
        say(f"graph {repeat + 1} of {scribe_repeats(scale)}, {SCRIBE}")
        first, rest = _scribe(generator, exact, subscribers(scale))
        parts.append(_rows(SCRIBE, repeat, "publisher", exact, 1, *first))
        parts.append(_rows(SCRIBE, repeat, "subscriber", exact, subscribers(scale), rest, rest))
    return {"rows": pa.concat_tables(parts)}


Copies = tuple[tuple[Integers, Integers], Integers]
"""What publishers send, with first hops and without, and what subscribers send; each topic by topic."""


def _proposed(topics: Topics, sent: Integers) -> Copies:
    """By MRF."""
    spreads = topics.publish("mrf")
    if (spreads.hops != 1).any():
        raise RuntimeError("a publisher beside its subscribers reaches them in one hop")
    of_tree = np.empty(sent.size, np.int64)
    of_tree[spreads.tree] = sent
    copies = np.zeros(topics.graph.keys, np.int64)
    forwards = spreads.parent >= 0
    np.add.at(copies, spreads.ranks[spreads.parent[forwards]], of_tree[spreads.member[forwards]])
    others = copies[topics.publisher_ranks()]
    ranks = topics.lows[:, None] + np.arange(topics.subscribers)
    return (others + sent, others), copies[ranks.ravel()]


def _scribe(generator: np.random.Generator, sent: Integers, count: int) -> Copies:
    topics = scribe_topics(generator, sent.size * (count + 1), sent.size, 1, count)
    copies = topics.forest.forwarding(sent)
    publishers = topics.publishers.ravel()
    others = copies[publishers]
    first = np.where(publishers == topics.forest.roots, 0, sent)
    return (others + first, others), copies[topics.subscribers.ravel()]


def _rows(
    method: str, repeat: int, role: str, sent: Integers, each: int, copies: Integers, others: Integers
) -> pa.Table:
    size = copies.size
    messages = np.repeat(sent, each)
    nothing = np.zeros(size, np.int64)
    return pa.table(
        {
            "method": pa.array([method] * size, pa.string()),
            "repeat": np.full(size, repeat, np.int32),
            "role": pa.array([role] * size, pa.string()),
            "topic": np.repeat(np.arange(sent.size, dtype=np.int32), each),
            "node": np.arange(size, dtype=np.int32),
            "sent": messages if role == "publisher" else nothing,
            "received": nothing if role == "publisher" else messages,
            "forwarded": copies,
            "others": others,
        }
    )


def summary_of(frames: Frames, role: str, load: str) -> Summary:
    """Correlation of the column ``load`` with ``forwarded`` by graph; the points of the picture; extremes."""
    rows = frames["rows"].where(F.col("role") == role)
    by = ["method", "repeat"]
    ratio = F.col("forwarded") / F.col(load)
    extremes = rows.groupBy(by).agg(
        F.max(ratio).alias("most"),
        (F.sum((ratio >= 2).cast("long")) / F.count("*")).alias("doubled"),
    )
    first = rows.where(F.col("repeat") == 0)
    drawn = first.orderBy(F.xxhash64("node")).select("method", "node", load, "forwarded")
    points = [drawn.where(F.col("method") == method).limit(SHOWN) for method in METHODS]
    ends = [
        how(column).alias(f"{name}_{column}")
        for name, how in (("min", F.min), ("max", F.max))
        for column in (load, "forwarded")
    ]
    return {
        "correlations": collected(correlations(rows, by, load, "forwarded"), *by),
        "without_first": collected(correlations(rows, by, load, "others"), *by),
        "extremes": collected(extremes, *by),
        "ends": collected(first.groupBy("method").agg(*ends), "method"),
        "points": collected(points[0].unionByName(points[1]), "method", "node"),
    }


def coefficients(summary: Summary, method: str, kind: str = "correlations") -> list[tuple[float, int]]:
    """r and number of pairs of each graph."""
    return [(row["r"], row["count"]) for row in summary[kind] if row["method"] == method]


def extremes_of(summary: Summary, method: str, figure: str) -> list[float]:
    """``most`` forwards for a message, or ``doubled``, the share that forwards twice: of each graph."""
    return [row[figure] for row in summary["extremes"] if row["method"] == method]


def interval_words(r: float, count: int) -> str:
    """``-0.1290 to 0.3742``, or N/A."""
    interval = fisher_interval(r, count)
    return f"{interval[0]:.4f} to {interval[1]:.4f}" if interval else "N/A"


def repeats_words(found: Sequence[tuple[float, int]]) -> str:
    """``10 graphs: 0.5350 +- 0.0004, 0.5341 to 0.5354``: mean, standard deviation, extremes."""
    every = [r for r, _ in found]
    return (
        f"{len(every)} graphs: {np.mean(every):.4f} \u00b1 {np.std(every, ddof=1):.4f}, "
        f"{min(every):.4f} to {max(every):.4f}"
    )


def graphs_words(found: Sequence[float]) -> str:
    """``10 graphs: 973 to 1,365``."""
    return f"{len(found)} graphs: {min(found):,.0f} to {max(found):,.0f}"


def normalised(summary: Summary, method: str, load: str) -> tuple[list[float], list[float]]:
    """The points of a method, both numbers brought to 0..1 (thesis 3.4.3, Normalize)."""
    ends: Mapping[str, Any] = next(row for row in summary["ends"] if row["method"] == method)
    points = [row for row in summary["points"] if row["method"] == method]
    found = []
    for column in (load, "forwarded"):
        low, high = ends[f"min_{column}"], ends[f"max_{column}"]
        found.append([(row[column] - low) / max(high - low, 1) for row in points])
    return found[0], found[1]


def remark(summary: Summary, method: str) -> str:
    """``r = 0.1310``."""
    r, _ = coefficients(summary, method)[0]
    return f"r = {r:.4f}"
