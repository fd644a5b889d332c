"""O7 to O9: advertisements over the number of publishers."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.framework import Experiment, Line, Say, Scale, Summary, Tables, table
from ildm_bench.sim.experiments.octopia.setting import (
    APART,
    COSTS,
    NODES,
    OCTOPIA,
    PADRES,
    Delays,
    Quantity,
    line,
    measured,
    percent,
    picture,
    summarise,
    system,
)
from ildm_bench.sim.octopia import Octopia
from ildm_bench.sim.workload import publishers

DELAY = Quantity(
    "O7", "longest delay of an advertisement", PADRES, OCTOPIA, "+266 %, nearly constant", "ms", least=1.0,
    why="an advertisement of OctopiA takes one hop, one of PADRES five: where only hops take time, and are "
    "drawn, the fastest of many ways is short, and the longest of three single hops is not",
)  # fmt: skip
ROWS = Quantity(
    "O8", "rows of SRT or CLT", OCTOPIA, PADRES, "-93 %", "rows of a broker", below=True, check=True,
    why="1 of 14 regions",
    always=True,
)  # fmt: skip
MESSAGES = Quantity(
    "O9", "messages", PADRES, OCTOPIA, "88.5 times as many", "messages", least=59.0, times=True,
    why="217 against 3: PADRES floods 136 links and sends nothing back to the broker from which an "
    "advertisement came first; if it did, it were 272 (91 times)",
    always=True,
)  # fmt: skip
QUANTITIES = (DELAY, ROWS, MESSAGES)
FLAT = 0.1


def sizes(scale: Scale) -> list[int]:
    return [100, 200, 300, 400, 500] if scale == "full" else [20, 50]


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each quantity, costs, repeat and number of publishers."""
    rows: list[dict[str, Any]] = []
    for costs in COSTS:
        for repeat in range(3):
            say(f"{costs}, {repeat + 1} of 3")
            for count in sizes(scale):
                found = {
                    name: advertised(name, costs, count, f"{seed}/{repeat}") for name in (OCTOPIA, PADRES)
                }
                for place, quantity in enumerate(QUANTITIES):
                    values = {name: each[place] for name, each in found.items()}
                    rows.append({**measured(quantity, costs, repeat, count, values)})
    return {"rows": table(rows)}


def advertised(name: str, costs: str, count: int, seed: str) -> tuple[float, float, float]:
    """Mean of the longest delays (ms), rows of a broker, and messages of so many publishers."""
    under = system(name, COSTS[costs], seed)
    delays = Delays()
    under.reached = delays.reached
    for number, publisher in enumerate(publishers(Random(f"{seed}/{count}"), NODES, count)):
        delays.begin(publisher, number * APART)
        under.advertise(publisher, number * APART)
    under.links.run(under.receive)
    if isinstance(under, Octopia):
        entries = sum(len(broker.clt) for broker in under.brokers.values())
    else:
        entries = sum(len(broker.srt) for broker in under.brokers.values())
    return delays.mean("Publisher"), entries / len(NODES), float(under.links.sent["ADV"])


def compare(summary: Summary, scale: Scale) -> list[Line]:
    lines = [line(quantity, summary) for quantity in QUANTITIES]
    ends = {}
    for name in COSTS:
        rows = [row for row in summary["first"] if (row["quantity"], row["costs"]) == (DELAY.key, name)]
        rows.sort(key=lambda row: int(row["size"]))
        ends[name] = rows[-1]["mean"] / rows[0]["mean"] - 1
    lines.insert(
        1,
        Line(
            quantity=f"O7: delay of PADRES at {sizes(scale)[-1]} publishers against {sizes(scale)[0]}",
            paper="nearly constant",
            ours="; ".join(f"{name}: {percent(change)}" for name, change in ends.items()),
            band=f"at most {FLAT:.0%}",
            verdict="agree" if all(abs(change) <= FLAT for change in ends.values()) else "differs",
            why="" if all(abs(change) <= FLAT for change in ends.values()) else "more than 10 %",
        ),
    )
    return lines


def draw(summary: Summary) -> Sequence[Picture]:
    return [
        picture([DELAY], summary, ("publishers", 100), "Longest delay of an advertisement"),
        picture([MESSAGES], summary, ("publishers", 100), "Messages for all advertisements"),
    ]


EXPERIMENT = Experiment(
    name="O7-9",
    runs="event model",
    title="Advertisements over the number of publishers",
    parameters=lambda scale: (
        f"56 brokers; {sizes(scale)[0]} to {sizes(scale)[-1]} publishers, one after the other; four costs, "
        f"3 seeds"
    ),
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=[
        "An advertisement's longest delay is until the last broker has it that gets it at all.",
        "OctopiA's answers (one for each advertisement and neighbour, which our plugin adds so that nobody "
        "waits in doubt) are not counted.",
    ],
)
