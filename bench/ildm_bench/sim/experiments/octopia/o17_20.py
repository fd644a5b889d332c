"""O17 to O20: a publisher that sends fast, for a while, and how long its queues last.

A run may have a part of the paper's messages only: then each message, and everything that happens while it
waits, takes as much longer, so that brokers are as busy and delays as long as with all of them.
``python -m ildm_bench.sim.experiments.octopia.o17_20 --part 1 --repeats 20`` simulates all of the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from ildm_bench.report.svg import Picture
from ildm_bench.sim.brokers import Costs, Links
from ildm_bench.sim.experiments.drawing import Points, Words, panels
from ildm_bench.sim.experiments.framework import (
    Experiment,
    Frames,
    Line,
    Say,
    Scale,
    Summary,
    Tables,
    in_all,
    table,
)
from ildm_bench.sim.experiments.octopia.o10_16 import IDR, SPR, TID_D, TID_S, publish
from ildm_bench.sim.experiments.octopia.setting import (
    APART,
    GRID,
    NEIGHBORS,
    NODES,
    OCTOPIA,
    PADRES,
)
from ildm_bench.sim.experiments.summary import collected
from ildm_bench.sim.experiments.verdicts import Band, around, change, judged
from ildm_bench.sim.octopia import Octopia
from ildm_bench.sim.padres import Padres
from ildm_bench.sim.workload import SYMBOLS, Publication, Publisher, Subscriber, publishers, subscribers

SYSTEMS = {OCTOPIA: (SPR, IDR), PADRES: (TID_S, TID_D)}
ROUTINGS = (SPR, IDR, TID_S, TID_D)
RATES = {"O17": 100_000, "O18": 80_000, "O19": 60_000, "O20": 40_000}
"""Of the burst, messages a minute."""
PUBLISHERS, SUBSCRIBERS, WIDTH = 100, 10_000, 20
MESSAGES, BURST, POINT = 1_000, 50_000, 5_000
"""Of each publisher, of the fast one, and deliveries of which one point is the longest delay."""
INTERESTED = 10
"""Subscribers of the fast publisher."""
STABLE = 1.0
"""Seconds: all later points are below."""
TAU, WINDOW = 10.0, 0.05
SYMBOL = SYMBOLS // 2 + 2
"""Of the fast publisher; nobody else has it."""
PAYLOAD = "payload"
COSTS: dict[str, Costs] = {
    "sending": Costs(serial=False),
    "links apart": Costs(sending=0.001, shared=False, serial=False),
    "matching": Costs(),
    PAYLOAD: Costs(sending=0.0007, serial=False),
}
"""What limits a broker: sending, its links in turn; its links, each by itself; matching, one at a time.
``payload``: sending, with TIDs that make each copy of PADRES twice as long as one of OctopiA."""
ASSUMED = tuple(name for name in COSTS if name != PAYLOAD)
PAYLOADS = {PAYLOAD: 2.0}
READING = (
    "a copy takes 0.7 ms to send, one of PADRES 1.4 ms for the TIDs it carries; figures show the deliveries "
    "of the fast publisher alone"
)
TRIED = 20
"""Sets of costs that were tried, on seed 1 and 1 % of the messages. This one was fixed before fresh seeds."""


REPEATED = ("sending", PAYLOAD)
"""At each rate, and in each repeat."""


@dataclass(frozen=True)
class Size:
    """How much of it is simulated."""

    part: float
    """Of the paper's messages."""
    repeats: int
    costs: Mapping[str, Sequence[str]]
    """Figures by costs; under those that are not ``REPEATED``, the first repeat alone."""


def size(scale: Scale) -> Size:
    if scale == "full":
        return Size(0.05, 3, {name: ([*RATES] if name in REPEATED else ["O17"]) for name in COSTS})
    return Size(0.01, 1, {name: ["O17", "O20"] for name in REPEATED})


class Burst:
    """The tables of one system, on which bursts are run one after the other."""

    def __init__(self, name: str, costs: Costs, part: float, seed: str, payload: float = 1.0) -> None:
        self.costs = replace(
            costs,
            sending=costs.sending / part,
            # what is a delay alone stays as long as it is
            matching=costs.matching / part if costs.serial else costs.matching,
            prt_row=costs.prt_row / part if costs.serial else costs.prt_row,
        )
        self.part = part
        random = Random(f"{seed}/clients")
        self.publishers = publishers(random, NODES, PUBLISHERS)
        self.fast = Publisher(PUBLISHERS, random.choice(NODES), SYMBOL)
        links = Links(costs, Random(f"{seed}/{name}"))
        self.system: Octopia | Padres
        if name == OCTOPIA:
            self.system = Octopia(GRID, links, tau=TAU, window=WINDOW / part)
        else:
            self.system = Padres(NEIGHBORS, links, tau=TAU, window=WINDOW / part, payload=payload)
        for publisher in (*self.publishers, self.fast):
            self.system.advertise(publisher, links.now + APART * (1 + publisher.uid))
        links.run(self.system.receive)
        for number, subscriber in enumerate(interested(random, self.fast.node_id)):
            self.system.subscribe(subscriber, links.now + APART * (1 + number))
        links.run(self.system.receive)
        self.system.tables_changed()

    def run(self, routing: str, rate: int, seed: str) -> dict[str, Any]:
        """One burst. ``points``: end and longest delay of each; the other figures are of all deliveries, and
        ``_fast`` of those of the fast publisher."""
        links = Links(self.costs, Random(f"{seed}/hops"))
        if isinstance(self.system, Octopia):
            self.system.anew(links, routing=routing.lower())
        else:
            self.system.anew(links, dynamic=routing == TID_D)
        delays: list[tuple[float, float]] = []
        fast: list[tuple[float, float]] = []

        def reached(node_id: str, what: Any, at: float) -> None:
            delays.append((at, at - what.began))
            if what.symbol == SYMBOL:
                fast.append((at, at - what.began))

        self.system.reached = reached
        random = Random(f"{seed}/times")  # the same for all routings
        number = 0
        for publisher in self.publishers:
            pause = 60 / random.uniform(100, 120) / self.part
            first = random.uniform(0, pause)
            for turn in range(round(MESSAGES * self.part)):
                number += 1
                self._publish(publisher, number, first + turn * pause)
        for turn in range(round(BURST * self.part)):
            number += 1
            self._publish(self.fast, number, turn * 60 / rate / self.part)
        links.run(self.system.receive)
        points = self._points(delays)
        points_fast = self._points(fast)
        return {
            "points": points,
            "deliveries": len(delays),
            "mean": sum(delay for _, delay in delays) / len(delays),
            "mean_fast": sum(delay for _, delay in fast) / len(fast),
            "quick": sum(delay < STABLE for _, delay in delays) / len(delays),
            "quick_fast": sum(delay < STABLE for _, delay in fast) / len(fast),
            "stable": stable(points),
            "stable_fast": stable(points_fast),
            "messages": links.sent["PUB"],
            "queue": links.ahead / links.sent["PUB"],
        }

    def _points(self, delays: list[tuple[float, float]]) -> list[tuple[float, float]]:
        """The end and the longest delay of consecutive deliveries, of times and delays."""
        delays.sort()
        each = max(1, round(POINT * self.part))
        return [
            (delays[min(start + each, len(delays)) - 1][0], max(d for _, d in delays[start : start + each]))
            for start in range(0, len(delays), each)
        ]

    def _publish(self, publisher: Publisher, number: int, at: float) -> None:
        publish(self.system, publisher, Publication(number, publisher.symbol, at))


def interested(random: Random, but: str) -> list[Subscriber]:
    """All subscribers; the first ten want the fast publisher's symbol, none of them at its broker, some in
    each cluster. The others do not want it."""
    homes = [node_id for node_id in NODES if node_id != but]
    chosen = random.sample(homes, INTERESTED)
    while len({GRID.cluster(node_id) for node_id in chosen}) < len(GRID.clusters):
        chosen = random.sample(homes, INTERESTED)
    found = []
    for uid, node_id in enumerate(chosen):
        low = random.uniform(SYMBOL - WIDTH + 0.01, SYMBOL)
        found.append(Subscriber(uid, node_id, low, low + WIDTH))
    drawn = subscribers(random, NODES, 2 * SUBSCRIBERS, WIDTH)
    others = [subscriber for subscriber in drawn if not subscriber.wants(SYMBOL)]
    return found + [others[uid]._replace(uid=uid) for uid in range(INTERESTED, SUBSCRIBERS)]


def stable(points: Sequence[tuple[float, float]]) -> float:
    """When the last point of a second or more ended."""
    return max((end for end, longest in points if longest >= STABLE), default=0.0)


def bursts(wanted: Size, seed: int, say: Say) -> Iterator[dict[str, Any]]:
    """All runs, one after the other."""
    for costs, figures in wanted.costs.items():
        for repeat in range(wanted.repeats if costs in REPEATED else 1):
            for name, routings in SYSTEMS.items():
                say(f"{costs}, {repeat + 1} of {wanted.repeats}, {name}")
                burst = Burst(name, COSTS[costs], wanted.part, f"{seed}/{repeat}", PAYLOADS.get(costs, 1.0))
                for figure in figures:
                    for routing in routings:
                        key = {"costs": costs, "figure": figure, "repeat": repeat, "routing": routing}
                        yield key | burst.run(routing, RATES[figure], f"{seed}/{repeat}/{figure}")


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """``runs``: a row for each; ``points``: the curve of each."""
    runs: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    for found in bursts(size(scale), seed, say):
        key = {name: found[name] for name in ("costs", "figure", "repeat", "routing")}
        runs.append({name: value for name, value in found.items() if name != "points"})
        points += [
            key | {"point": number, "end": end, "longest": longest}
            for number, (end, longest) in enumerate(found["points"])
        ]
    return {"runs": table(runs), "points": table(points)}


def summarise(frames: Frames) -> Summary:
    return {
        "runs": collected(frames["runs"], "costs", "figure", "repeat", "routing"),
        # what is drawn is one run of each
        "points": collected(frames["points"].where("repeat = 0"), "costs", "figure", "routing", "point"),
    }


Pairs = dict[str, list[tuple[float, float]]]


def pairs(summary: Summary, what: str, first: str, second: str, names: Sequence[str] = ASSUMED) -> Pairs:
    """By costs the values of two routings in each run."""
    found: Pairs = {}
    runs = {
        (row["costs"], row["figure"], row["repeat"], row["routing"]): row[what] for row in summary["runs"]
    }
    for costs, figure, repeat, routing in runs:
        if routing == first and costs in names:
            both = runs[costs, figure, repeat, first], runs[costs, figure, repeat, second]
            found.setdefault(costs, []).append(both)
    return found


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def differences(found: Pairs, unit: str = " s") -> str:
    """First less second, by costs: on average, and the ends."""
    said = []
    for costs, both in found.items():
        each = [a - b for a, b in both]
        ends = "" if min(each) == max(each) else f" ({min(each):+.1f} to {max(each):+.1f})"
        said.append(f"{costs}: {mean(each):+.1f}{unit}{ends}")
    return "; ".join(said)


def changes(found: Pairs, digits: int = 0) -> str:
    """The same of first over second."""
    said = []
    for costs, both in found.items():
        each = [a / b - 1 for a, b in both]
        average, low, high = (
            f"{round(value, digits + 2) + 0.0:+.{digits}%}" for value in (mean(each), min(each), max(each))
        )
        said.append(f"{costs}: {average}" if low == high else f"{costs}: {average} ({low} to {high})")
    return "; ".join(said)


def relation(quantity: str, paper: str, ours: str, found: Pairs, why: str) -> Line:
    """A line that agrees if in each run the first is the less; where both are 0 there is nothing to say."""
    holds = [a < b for both in found.values() for a, b in both if a or b]
    verdict = in_all(holds) if holds else "differs"
    of = sum(map(len, found.values()))
    return Line(
        quantity=quantity,
        paper=paper,
        ours=f"{ours}; so in {sum(holds)} of {of} runs",
        band="sign: less in each run",
        verdict=verdict,
        why="" if verdict == "agree" else why,
    )


SAME_SERVER = (
    "IDR puts fewer copies into the queues of the publisher's broker, which helps where sending is what it "
    "has no time for. Where its links send by themselves those of the tree are as busy as before, and where "
    "matching takes longest no queue is long enough to turn anything"
)


def compare(summary: Summary, scale: Scale) -> list[Line]:
    def both(what: str, first: str, second: str) -> Pairs:
        return pairs(summary, what, first, second)

    def fast(what: str, first: str, second: str) -> list[tuple[float, float]]:
        return pairs(summary, what, first, second, (PAYLOAD,))[PAYLOAD]

    of_stable, of_mean = both("stable", IDR, SPR), both("mean", IDR, SPR)
    messages, queues = both("messages", IDR, SPR), both("queue", IDR, SPR)
    near = max(abs(a / b - 1) for each in messages.values() for a, b in each)
    quick = both("quick", SPR, IDR)
    to_padres, stable_padres = both("mean", SPR, TID_S), both("stable", SPR, TID_S)
    tid = both("mean", TID_S, TID_D)
    tids = [(a, b) for each in tid.values() for a, b in each]
    better, worse = sum(a < b * 0.99 for a, b in tids), sum(a > b * 1.01 for a, b in tids)
    turned = in_all([a < b for a, b in tids if abs(a / b - 1) > 0.01] or [False])
    load = (
        "where sending takes longest it depends on how many links the fast publisher's broker has to use: "
        "four of "
        "OctopiA's here, to three clusters and its own, and those of the tree with PADRES. Where matching "
        "does, "
        "PADRES is late before the burst: at 4 % its brokers have a row for each of four trees"
    )
    return [
        relation(
            "IDR is stable before SPR: sign", "35 s earlier", differences(of_stable), of_stable, SAME_SERVER
        ),
        relation("mean delay, IDR against SPR: sign", "less", changes(of_mean), of_mean, SAME_SERVER),
        Line(
            quantity="messages, IDR against SPR",
            paper="+0.04 %",
            ours=changes(messages, 2),
            band="at most 1 % apart",
            verdict="check" if near <= 0.01 else "differs",
            why="each routing enters each cluster once, by construction"
            if near <= 0.01
            else "more than 1 % apart",
        ),
        relation(
            "queues that copies are put into, IDR against SPR: sign",
            "-32 %",
            changes(queues),
            queues,
            SAME_SERVER,
        ),
        relation(
            "deliveries within a second, SPR against IDR: sign",
            "48 % against 51 %",
            "; ".join(
                f"{costs}: {mean([a for a, _ in each]):.1%} against {mean([b for _, b in each]):.1%}"
                for costs, each in quick.items()
            ),
            quick,
            "IDR hands copies of the burst on to other brokers, and there others' messages wait for them",
        ),
        relation(
            "mean delay, OctopiA (SPR) against PADRES (TID-S): sign",
            "-54 %",
            changes(to_padres),
            to_padres,
            load,
        ),
        relation(
            "OctopiA (SPR) is stable before PADRES (TID-S): sign",
            "200 s earlier",
            differences(stable_padres),
            stable_padres,
            load,
        ),
        relation(
            "TID-S is stable before TID-D: sign",
            "15 s earlier",
            differences(both("stable", TID_S, TID_D)),
            both("stable", TID_S, TID_D),
            "where no other tree of a subscription leads round the burst both are the same",
        ),
        Line(
            quantity="mean delay, TID-D against TID-S: sign",
            paper="+18 %; TID-S better in 65 % of runs, worse in 25 %",
            ours=f"{changes(both('mean', TID_D, TID_S))}; TID-S better in {better / len(tids):.0%}, worse in "
            f"{worse / len(tids):.0%} (by more than 1 %)",
            band="sign: TID-S less where they are 1 % apart",
            verdict=turned,
            why="" if turned == "agree" else "other trees may lead round the burst or into it",
        ),
        *(
            _percent(f"mean delay, {text}", paper, fast("mean_fast", first, second))
            for text, first, second, paper in (
                ("OctopiA (SPR) against PADRES (TID-S)", SPR, TID_S, -54),
                ("TID-D against TID-S", TID_D, TID_S, 18),
            )
        ),
        _percent("queues that copies are put into, IDR against SPR", -32, fast("queue", IDR, SPR)),
        *(
            _earlier(text, paper, fast("stable_fast", first, second))
            for text, first, second, paper in (
                ("OctopiA (SPR) is stable before PADRES (TID-S)", SPR, TID_S, 200),
                ("IDR is stable before SPR", IDR, SPR, 35),
                ("TID-S is stable before TID-D", TID_S, TID_D, 15),
            )
        ),
        _points_more("deliveries within a second, IDR over SPR", 3, fast("quick_fast", IDR, SPR)),
    ]


def _percent(quantity: str, paper: float, both: Sequence[tuple[float, float]]) -> Line:
    values = [100 * (one / other - 1) for one, other in both]
    return _judged(change(paper), values, quantity, f"{paper:+g} %", "%")


def _earlier(quantity: str, paper: float, both: Sequence[tuple[float, float]]) -> Line:
    values = [other - one for one, other in both]
    return _judged(around(paper), values, quantity, f"{paper:g} s earlier", "s earlier")


def _points_more(quantity: str, paper: float, both: Sequence[tuple[float, float]]) -> Line:
    values = [100 * (one - other) for one, other in both]
    return _judged(change(paper), values, quantity, "51 % against 48 %", "points more")


def _judged(band: Band, values: Sequence[float], quantity: str, paper: str, unit: str) -> Line:
    """A size under the reading, over all runs."""
    return judged(
        band,
        values,
        quantity=f"{quantity}, {PAYLOAD}",
        paper=paper,
        ours=f"{mean(values):.1f} ({min(values):.1f} to {max(values):.1f}) {unit}, all rates",
        why="no one set of costs was found that gives the sizes of both PADRES and IDR",
        reading=READING,
        tried=TRIED,
    )


def draw(summary: Summary) -> Sequence[Picture]:
    found = []
    costs = next(iter(COSTS))
    parts: dict[str, dict[str, Points]] = {}
    for figure, rate in RATES.items():
        series: dict[str, Points] = {}
        for routing in ROUTINGS:
            rows = [
                row
                for row in summary["points"]
                if (row["costs"], row["figure"], row["routing"]) == (costs, figure, routing)
            ]
            if rows:
                series[routing] = ([row["end"] for row in rows], [max(row["longest"], 1e-3) for row in rows])
        if series:
            parts[f"{figure}: {rate // 1000}K a minute"] = series
    words = Words(
        "O17-20",
        "The longest delay while a burst lasts and after it",
        "seconds",
        "s",
        "Each point is the longest delay of consecutive deliveries (the paper: 5,000); sending is what "
        "limits a "
        "broker; the first seed.",
    )
    found.append(panels(words, parts, markers=False, log_y=10, shared=True))
    return found


def parameters(scale: Scale) -> str:
    wanted = size(scale)
    part = "all of" if wanted.part == 1 else f"1/{1 / wanted.part:.0f} of"
    return (
        f"56 brokers, {SUBSCRIBERS:,} subscribers (4 %), {PUBLISHERS} publishers with {MESSAGES:,} messages "
        f"at 100 "
        f"to 120 a minute, one with {BURST:,} at 40,000 to 100,000; {part} the messages, each taking as much "
        f"longer; tau {TAU:g}, {wanted.repeats} seeds"
    )


EXPERIMENT = Experiment(
    name="O17-20",
    runs="event model",
    title="Bursts",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=[
        "Costs here say what a broker has least of. **Sending**: 0.5 ms for each copy, in turn; matching "
        "takes 1 "
        "ms and more, but any number at a time. **Links apart**: each link sends for itself, 1 ms for each "
        "copy. "
        "**Matching**: one message at a time, besides. These two with one seed, at 100,000 a minute.",
        "**Payload**: sending, 0.7 ms for each copy and 1.4 ms for each of PADRES, whose copies carry "
        "TIDs; its rows are of the fast publisher's deliveries, but for queues.",
        "Stable: from when each later point is below 1 s. A delivery is that to a broker with matching "
        "subscribers.",
        "TID-D goes through the whole PRT once for each message that it finds a way congested for.",
        "That a part with longer times stands for the whole: with a fifth of the messages, four times as "
        "many, SPR is stable after 139.6 s in the first run of O17 and IDR after 104.1 s, here after 139.9 "
        "and 104.3 s.",
        "All of the paper's messages: `python -m ildm_bench.sim.experiments.octopia.o17_20 --part 1 "
        "--repeats 20`.",
    ],
)


def main() -> None:
    import argparse  # noqa: PLC0415

    parser = argparse.ArgumentParser(description="Bursts with as many of the paper's messages as wanted.")
    parser.add_argument("--part", type=float, default=1.0, help="of the paper's messages")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--costs", choices=[*COSTS], default=next(iter(COSTS)))
    chosen = parser.parse_args()
    wanted = Size(chosen.part, chosen.repeats, {chosen.costs: [*RATES]})
    for found in bursts(wanted, chosen.seed, lambda text: None):
        print(
            f"{found['figure']} {found['repeat']} {found['routing']:<6} stable after {found['stable']:7.1f} "
            f"s, "
            f"mean {found['mean']:7.3f} s, {found['quick']:.1%} within 1 s, {found['messages']:,} messages, "
            f"queue {found['queue']:.1f}; of the fast publisher stable after {found['stable_fast']:.1f} s, "
            f"mean {found['mean_fast']:.3f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
