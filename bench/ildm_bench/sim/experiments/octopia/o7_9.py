"""O7 to O9: advertisements over the number of publishers."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.framework import (
    Experiment,
    Frames,
    Line,
    Say,
    Scale,
    Summary,
    Tables,
    table,
)
from ildm_bench.sim.experiments.octopia.setting import (
    APART,
    ASSUMED,
    NODES,
    OCTOPIA,
    PADRES,
    Delays,
    Quantity,
    changes,
    line,
    measured,
    percent,
    picture,
    sized,
    system,
)
from ildm_bench.sim.experiments.octopia.setting import (
    summarise as summarise_rows,
)
from ildm_bench.sim.experiments.summary import collected
from ildm_bench.sim.experiments.verdicts import around, judged
from ildm_bench.sim.octopia import Octopia
from ildm_bench.sim.padres import Padres
from ildm_bench.sim.workload import publishers

DELAY = Quantity(
    "O7", "longest delay of an advertisement", PADRES, OCTOPIA, "+266 %, nearly constant", "ms", least=1.0,
    stated=266,
    why="an advertisement of OctopiA takes one hop, one of PADRES five: where only hops take time, and are "
    "drawn, the fastest of many ways is short, and the longest of three single hops is not",
)  # fmt: skip
LAST = Quantity(
    "O7", "delay until every copy of an advertisement is discarded", PADRES, OCTOPIA, "+266 %", "ms",
    stated=266, why="the paper's change lies between that of first arrivals and this one",
)  # fmt: skip
ROWS = Quantity(
    "O8", "rows of SRT or CLT", OCTOPIA, PADRES, "-93 %", "rows of a broker", below=True, check=True,
    why="1 of 14 regions",
    always=True,
)  # fmt: skip
MESSAGES = Quantity(
    "O9", "messages", PADRES, OCTOPIA, "88.5 times as many", "messages",
    why="217 against 3: PADRES floods 136 links and sends nothing back to the broker from which an "
    "advertisement came first",
)  # fmt: skip
QUANTITIES = (DELAY, ROWS, MESSAGES, LAST)
ANSWERS = "a broker floods an advertisement to the one it came from, too"
FLAT = 0.1


def sizes(scale: Scale) -> list[int]:
    return [100, 200, 300, 400, 500] if scale == "full" else [20, 50]


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each quantity, costs, repeat and number of publishers."""
    rows: list[dict[str, Any]] = []
    answered: list[dict[str, Any]] = []
    for costs in ASSUMED:
        for repeat in range(3):
            say(f"{costs}, {repeat + 1} of 3")
            for count in sizes(scale):
                found = {
                    name: advertised(name, costs, count, f"{seed}/{repeat}") for name in (OCTOPIA, PADRES)
                }
                for place, quantity in enumerate(QUANTITIES):
                    values = {name: each[place] for name, each in found.items()}
                    rows.append({**measured(quantity, costs, repeat, count, values)})
        few = sizes(scale)[0]
        messages = [advertised(name, costs, few, f"{seed}/0", answers=True)[2] for name in (PADRES, OCTOPIA)]
        answered.append({"costs": costs, "times": messages[0] / messages[1]})
    return {"rows": table(rows), "answered": table(answered)}


def advertised(
    name: str, costs: str, count: int, seed: str, *, answers: bool = False
) -> tuple[float, float, float, float]:
    """Mean of the longest delays (ms), rows of a broker, messages of so many publishers, and the mean of the
    delays until the last copy has come (ms). ``answers``: PADRES floods to the sender, too."""
    under = system(name, costs, seed)
    delays, last = Delays(), Delays()

    def reached(node_id: str, what: Any, at: float) -> None:
        delays.reached(node_id, what, at)
        last.reached(node_id, what, at)

    under.reached = reached
    if isinstance(under, Padres):
        under.discarded = last.reached
        under.answers = answers
    for number, publisher in enumerate(publishers(Random(f"{seed}/{count}"), NODES, count)):
        delays.begin(publisher, number * APART)
        last.begin(publisher, number * APART)
        under.advertise(publisher, number * APART)
    under.links.run(under.receive)
    if isinstance(under, Octopia):
        entries = sum(len(broker.clt) for broker in under.brokers.values())
    else:
        entries = sum(len(broker.srt) for broker in under.brokers.values())
    messages = float(under.links.sent["ADV"])
    return delays.mean("Publisher"), entries / len(NODES), messages, last.mean("Publisher")


def summarise(frames: Frames) -> Summary:
    return {**summarise_rows(frames), "answered": collected(frames["answered"], "costs")}


def compare(summary: Summary, scale: Scale) -> list[Line]:
    lines = [line(quantity, summary) for quantity in (DELAY, ROWS)]
    lines += [sized(quantity, summary) for quantity in (DELAY, LAST)]
    once = [1 + each / 100 for name in ASSUMED for each in changes(MESSAGES, name, summary)]
    answered = [row["times"] for row in summary["answered"]]
    lines += [
        judged(
            around(88.5),
            once,
            quantity="O9: messages, times as many",
            paper="88.5",
            ours=f"{sum(once) / len(once):.1f}",
            why=MESSAGES.why,
        ),
        judged(
            around(88.5),
            answered,
            quantity="O9: messages, times as many, where brokers answer the sender",
            paper="88.5",
            ours=f"{sum(answered) / len(answered):.1f}",
            reading=ANSWERS,
            tried=1,
        ),
    ]
    ends = {}
    for name in ASSUMED:
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
