"""T3.14: mean size of routing tables over the number of topics of a node (thesis 3.4.4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Words, panels
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables
from ildm_bench.sim.experiments.summary import collected, means
from ildm_bench.sim.experiments.thesis.table_sizes import Interests, scribe_entries, skip_graph_entries
from ildm_bench.sim.experiments.topics import SCRIBE, SG, Integers

WANTED = (2, 4, 6, 8, 10)
"""Topics of a node."""
WITH_DHT = f"{SCRIBE} with DHT"
METHODS = (SG, SCRIBE, WITH_DHT)


def nodes_of(scale: Scale) -> int:
    return 100_000 if scale == "full" else 8_000


def topics_of(scale: Scale) -> int:
    """Topics there are to choose from."""
    return 1_000 if scale == "full" else 80


def chosen(generator: np.random.Generator, nodes: int, topics: int, each: int) -> Integers:
    """int64[nodes, each]: different topics of each node, all choices equally likely."""
    found = generator.integers(topics, size=(nodes, each))
    while True:
        ordered = np.sort(found, axis=1)
        again = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if not again.size:
            return found
        found[again] = generator.integers(topics, size=(again.size, each))


def interests(generator: np.random.Generator, nodes: int, topics: int, each: int) -> Interests:
    """The first half of the nodes publish, the others subscribe."""
    node = np.repeat(np.arange(nodes), each)
    return Interests(nodes, topics, node, chosen(generator, nodes, topics, each).ravel(), node < nodes // 2)


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each node, method and number of topics: entries of its tables, different nodes among them."""
    generator = np.random.default_rng(seed)
    parts = []
    for each in WANTED:
        asked = interests(generator, nodes_of(scale), topics_of(scale), each)
        say(f"{each} topics, {SG}")
        entries, unique = skip_graph_entries(generator, asked, unique=True)
        parts.append(_rows(SG, each, entries, unique))
        say(f"{each} topics, {SCRIBE}")
        scribe = scribe_entries(generator, asked)
        parts.append(_rows(SCRIBE, each, *scribe["topics"]))
        parts.append(_rows(WITH_DHT, each, *scribe["with DHT"]))
    return {"rows": pa.concat_tables(parts)}


def _rows(method: str, each: int, entries: Integers, unique: Integers) -> pa.Table:
    size = entries.size
    return pa.table(
        {
            "method": pa.array([method] * size, pa.string()),
            "topics": np.full(size, each, np.int32),
            "node": np.arange(size, dtype=np.int32),
            "entries": entries,
            "different": unique,
        }
    )


def summarise(frames: Frames) -> Summary:
    by = ["method", "topics"]
    rows = frames["rows"]
    return {column: collected(means(rows, by, column), *by) for column in ("entries", "different")}


def mean_entries(summary: Summary, method: str, column: str) -> list[float]:
    """Means of a method in the order of `WANTED`."""
    found = {row["topics"]: row["mean"] for row in summary[column] if row["method"] == method}
    return [found[each] for each in WANTED]


def off_the_line(values: Sequence[float]) -> float:
    """Largest distance of the values from the line that fits best, as a share of the largest value."""
    line = np.polynomial.Polynomial.fit(WANTED, values, 1)
    return float(np.abs(line(np.asarray(WANTED)) - values).max() / max(values))


def compare(summary: Summary, scale: Scale) -> list[Line]:
    lines = []
    for column, words in (("entries", "entries"), ("different", "entries without redundancy")):
        proposed, scribe, dht = (mean_entries(summary, method, column) for method in METHODS)
        bent = {SG: off_the_line(proposed), SCRIBE: off_the_line(scribe)}
        lines += [
            Line(
                quantity=f"{words}: linear in the topics of a node",
                paper="both methods",
                ours=", ".join(f"{method} within {value:.1%} of a line" for method, value in bent.items()),
                band="within 5 % of a line",
                verdict="agree" if max(bent.values()) <= 0.05 else "differs",
                why="up to 5 % of the largest value counts as linear",
            ),
            Line(
                quantity=f"{words}: SG-TBPS larger than Scribe",
                paper="yes",
                ours=f"{proposed[0]:.1f} to {proposed[-1]:.1f} against {scribe[0]:.1f} to {scribe[-1]:.1f} "
                f"({dht[0]:.1f} to {dht[-1]:.1f} with the tables of the DHT)",
                band="larger, all means",
                verdict="agree"
                if all(
                    one > max(other, third) for one, other, third in zip(proposed, scribe, dht, strict=True)
                )
                else "differs",
                why=f"means for {WANTED[0]} to {WANTED[-1]} topics",
            ),
        ]
    redundant, different = mean_entries(summary, SG, "entries"), mean_entries(summary, SG, "different")
    lines.append(
        Line(
            quantity="SG-TBPS: share of entries that name a node once more",
            paper="not in numbers",
            ours=f"{1 - different[0] / redundant[0]:.0%} to {1 - different[-1] / redundant[-1]:.0%}",
            verdict="beyond",
        )
    )
    return lines


def draw(summary: Summary) -> list[Picture]:
    parts = {
        title: {
            f"{method}{label}": (WANTED, mean_entries(summary, method, column))
            for method in methods
            for column, label in (("entries", ""), ("different", ", w/o redundancy"))
        }
        for title, methods in ((SG, (SG,)), (f"{SCRIBE}, another scale", (SCRIBE, WITH_DHT)))
    }
    words = Words(
        "T3.14",
        "Mean size of routing tables",
        "topics of each node",
        "entries",
        "Scribe: children tables and known roots; with DHT: the tables that route its JOINs, too. Without "
        "redundancy: different nodes in a table. Means of so many nodes that errors are smaller than marks.",
    )
    return [panels(words, parts, limit_y=(0, None), height=3.6)]


def parameters(scale: Scale) -> str:
    return (
        f"N = {nodes_of(scale):,}, half of them publishers, half subscribers, each of 2, 4, 6, 8, 10 of "
        f"{topics_of(scale):,} topics, drawn at random"
    )


EXPERIMENT = Experiment(
    name="T3.14",
    title="Size of routing tables",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=(
        "An entry of the Skip Graph is a neighbour of a key at one level and side; own keys are no entries.",
        "The thesis does not say whether Scribe's counts include the tables of the DHT below it; its "
        "analysis (Table 3.1) counts children tables and known roots alone. Both are given.",
    ),
)
