"""Beyond the paper: nodes come, leave and crash, networks lose and part, while messages are published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from ildm.testing import Delivery, LinkModel, PluginWorld, SimNode, lognormal
from ildm_algorithms.sg_tbps import SgTbps
from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Words, curves
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables, table
from ildm_bench.sim.experiments.summary import collected, means
from ildm_bench.sim.experiments.verdicts import Band, judged
from ildm_bench.sim.member import overlay_kinds

TOPIC = "topic"
QOS = (0, 1)
JOINED = 2.0
"""Virtual seconds for which a node has subscribed, at least, when what is due there is published."""
STAYS = 10.0
"""Virtual seconds for which its publisher and its subscriber are there after it, at least."""
STAYS_PARTED = 75.0
"""The same where the network is in halves: until some time after it has healed."""
STAYS_ON = 6.0
"""The same of a subscriber that comes and goes."""
PUBLISH_EVERY = 0.25
SUBSCRIBERS = 0.5
"""Share of the nodes; the others publish."""
TOGGLE = 15.0
"""Seconds for which the one subscriber of the case that is named so subscribes, and then does not."""
TOGGLING_EVERY = 0.05
"""Between two messages there."""
INTRODUCERS = 2
"""Neighbours in the configuration of a new node."""
WARM_UP = 30.0
REST = 60.0
"""Seconds in which what was published may still arrive."""
MRF = "churn, MRF"
"""SFB's longer-known rival: thesis 4.3 says that SFB's fewer hops make it more tolerant of churn."""
CASTS = frozenset({"Cast", "CastAck", "CastBusy"})
"""Messages that carry publishes and signals; all others keep the overlay in order."""


class Case(NamedTuple):
    """What befalls an overlay."""

    name: str = "churn"
    rate: float = 0.0
    """Changes per minute: half joins, a quarter leaves in order, a quarter crashes, half of those without a
    sign to the peers."""
    qos: int = 1
    loss: float = 0.0
    """Share of messages that are lost; half as many come twice, and none keeps its place."""
    toggling: bool = False
    """One node subscribes, now and then; all others publish."""
    parted: float = 0.0
    """Share of the time in which the network is in halves."""


@dataclass
class Due:
    """A message on its way, and who has got it how often."""

    published: float
    publisher: str
    subscribers: frozenset[str]
    """Those to whom it is due, if they stay, and not the publisher's node."""
    got: Counter[str] = field(default_factory=Counter)
    hops: list[int] = field(default_factory=list)
    late: float = 0.0
    """Seconds until the last of them had got it."""


class Churn:
    """One run of a case."""

    def __init__(self, nodes: int, case: Case, seed: int, routing: str = "sfb") -> None:
        self.case = case
        self.random = Random(f"{seed}/{case}")
        model = LinkModel(
            delay=lognormal(0.010, 0.5),
            loss=case.loss,
            duplicate=case.loss / 2,
            ordered=not case.loss,
        )
        self.world = PluginWorld(SgTbps, {"qos": case.qos, "routing": routing}, seed, model)
        self.world.network.classify = overlay_kinds()
        self.world.on_delivery = self.delivered
        self.born: dict[str, float] = {}
        self.died: dict[str, float] = {}
        self.since: dict[str, float] = {}
        """Subscribers, and since when they are."""
        self.ended: dict[tuple[str, float], float] = {}
        """When a subscription, named by its subscriber and beginning, has ended."""
        self.messages: list[Due] = []
        self.begun: list[dict[str, float]] = []
        """For each message the subscriptions of the time."""
        self.changes: Counter[str] = Counter()
        self.nodes = nodes
        self.lived = 0.0
        """Seconds that nodes were alive while it was measured, of all together."""

    def run(self, seconds: float) -> dict[str, Any]:
        """Grow, change for ``seconds`` of virtual time, come to rest; answers the figures."""
        world, case = self.world, self.case
        for _ in range(self.nodes):
            self.join()
            world.run(0.2)
        world.run(WARM_UP)
        before = world.network.sent.copy()
        begin = world.kernel.now
        end = begin + seconds
        if case.rate:
            world.kernel.post(self._pause(), self._change, end)
        if case.toggling:
            world.kernel.post(0.0, self._toggle, end)
        if case.parted:
            world.kernel.post(seconds / 4, self._part, seconds * case.parted)
        world.kernel.post(0.0, self._publish, end)
        world.run(seconds)
        sent = world.network.sent - before
        self.lived = sum(
            max(0.0, min(self.died.get(name, end), end) - max(born, begin))
            for name, born in self.born.items()
        )
        world.run(REST)
        return self._figures(sent)

    def _pause(self) -> float:
        return self.random.expovariate(self.case.rate / 60)

    def _living(self) -> list[str]:
        return [name for name in self.born if name not in self.died]

    def join(self) -> None:
        """A new node, by way of two picked at random: one may die before it has answered."""
        name = f"n{len(self.born):05}"
        living = self._living()
        self.world.add(name)
        for known in self.random.sample(living, min(INTRODUCERS, len(living))):
            self.world.link(name, known)
        self.born[name] = self.world.kernel.now
        if not self.case.toggling and self.random.random() < SUBSCRIBERS:
            self._subscribe(name)

    def _subscribe(self, name: str) -> None:
        self.since[name] = self.world.kernel.now
        self.world[name].subscribe(TOPIC, self.case.qos)

    def _toggle(self, end: float) -> None:
        """The first of all comes and goes as a subscriber."""
        name = next(iter(self.born))
        now = self.world.kernel.now
        if name in self.since:
            self.ended[name, self.since.pop(name)] = now
            self.world[name].unsubscribe(TOPIC)
        else:
            self._subscribe(name)
        if now + TOGGLE < end:
            self.world.kernel.post(TOGGLE, self._toggle, end)

    def _part(self, seconds: float) -> None:
        living = self._living()
        self.random.shuffle(living)
        self.world.partition(living[::2], living[1::2])
        self.world.kernel.post(seconds, self.world.heal)

    def _change(self, end: float) -> None:
        if self.random.random() < 0.5:
            self.join()
            self.changes["joins"] += 1
        elif len(living := self._living()[self.case.toggling :]) > 2:
            name = self.random.choice(living)
            self.died[name] = self.world.kernel.now
            if self.random.random() < 0.5:
                self.world.stop(name)
                self.changes["leaves"] += 1
            else:
                self.world.kill(name, silent=self.random.random() < 0.5)
                self.changes["crashes"] += 1
        pause = self._pause()
        if self.world.kernel.now + pause < end:
            self.world.kernel.post(pause, self._change, end)

    def _publish(self, end: float) -> None:
        now = self.world.kernel.now
        publishers = [name for name in self._living()[self.case.toggling :] if name not in self.since]
        if publishers:
            number = str(len(self.messages)).encode()
            publisher = self.random.choice(publishers)
            due = {n: at for n, at in self.since.items() if n not in self.died and now - at >= JOINED}
            self.messages.append(Due(now, publisher, frozenset(due)))
            self.begun.append(due)
            self.world[publisher].publish(TOPIC, number, self.case.qos)
        pause = TOGGLING_EVERY if self.case.toggling else PUBLISH_EVERY
        if now + pause < end:
            self.world.kernel.post(pause, self._publish, end)

    def delivered(self, node: SimNode, delivery: Delivery) -> None:
        """A local client has got a message."""
        message = self.messages[int(delivery.payload)]
        message.got[node.node_id] += 1
        message.late = max(message.late, self.world.kernel.now - message.published)
        if delivery.hops is not None:
            message.hops.append(delivery.hops)

    def _stayed(self, name: str, message: Due) -> bool:
        stays = STAYS_PARTED if self.case.parted else STAYS
        return self.died.get(name, float("inf")) >= message.published + stays

    def _subscribed(self, name: str, message: Due, since: float) -> bool:
        return self.ended.get((name, since), float("inf")) >= message.published + STAYS_ON

    def _figures(self, sent: Counter[str]) -> dict[str, Any]:
        due = got = twice = 0
        hops: list[int] = []
        for message, begun in zip(self.messages, self.begun, strict=True):
            if self._stayed(message.publisher, message):
                for name in message.subscribers:
                    if self._stayed(name, message) and self._subscribed(name, message, begun[name]):
                        due += 1
                        got += message.got[name] > 0
            twice += sum(count - 1 for count in message.got.values())
            hops += message.hops
        upkeep = sum(count for kind, count in sent.items() if kind not in CASTS)
        return {
            "published": len(self.messages),
            "due": due,
            "delivered": got,
            "lost": due - got,
            "ratio": got / due if due else 1.0,
            "twice": twice,
            "mean_hops": sum(hops) / len(hops) if hops else 0.0,
            "latest": max((message.late for message in self.messages), default=0.0),
            "upkeep": upkeep * 60 / self.lived,
            "casts": sum(sent[kind] for kind in CASTS) / max(1, len(self.messages)),
            **{kind: self.changes[kind] for kind in ("joins", "leaves", "crashes")},
        }


def nodes_of(scale: Scale, case: Case) -> int:
    """Nodes at the beginning; joins and departures balance."""
    return (40 if case.toggling else 50) if scale == "full" else 14


def rates(scale: Scale) -> Sequence[float]:
    """Changes per minute."""
    return (0.0, 10.0, 30.0, 60.0) if scale == "full" else (0.0, 20.0)


def cases(scale: Scale) -> list[Case]:
    """All that is simulated: churn alone, and what else may befall an overlay at QoS 1; by SFB."""
    rate = rates(scale)[-1]
    return [
        *(Case("churn", rate, qos) for qos in QOS for rate in rates(scale)),
        Case("loss", rate / 2, loss=0.05),
        Case("toggling", rate, toggling=True),
        Case("toggling and loss", rate / 2, loss=0.02, toggling=True),
        Case("parted", parted=1 / 3),
    ]


def seconds_of(scale: Scale) -> float:
    """Virtual time that is measured."""
    return 90.0 if scale == "full" else 30.0


def repeats(scale: Scale) -> int:
    """Runs of each case."""
    return 3 if scale == "full" else 2


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each case and repeat."""
    rows = []
    routed = [(case, "sfb", case.name) for case in cases(scale)]
    routed.append((Case("churn", rates(scale)[-1], 0), "mrf", MRF))
    for case, routing, name in routed:
        for repeat in range(repeats(scale)):
            say(f"{spoken(case)}, {routing}, run {repeat + 1}")
            nodes = nodes_of(scale, case)
            figures = Churn(nodes, case, seed * 1000 + repeat, routing).run(seconds_of(scale))
            rows.append({"case": name, "qos": case.qos, "rate": case.rate, "repeat": repeat, **figures})
    return {"rows": table(rows)}


FIGURES = ("ratio", "lost", "twice", "mean_hops", "latest", "upkeep", "casts", "due", "delivered")
BY = ["case", "qos", "rate"]
Key = tuple[str, int, float]


def summarise(frames: Frames) -> Summary:
    rows = frames["rows"]
    found = {figure: collected(means(rows, BY, figure), *BY) for figure in FIGURES}
    return {**found, "runs": collected(rows.select(*BY, "repeat", "ratio"), *BY, "repeat")}


def by_case(summary: Summary, figure: str) -> dict[Key, Mapping[str, Any]]:
    """Mean, smallest and largest of one figure by name, QoS and rate."""
    return {(row["case"], row["qos"], row["rate"]): row for row in summary[figure]}


def spoken(case: Case) -> str:
    """The case in words."""
    words = [f"QoS {case.qos}, {case.rate:g} changes per minute"]
    if case.toggling:
        words.append("one subscriber that comes and goes")
    if case.loss:
        words.append(f"{case.loss:.0%} lost, {case.loss / 2:.1%} doubled, all out of order")
    if case.parted:
        words.append("a third of the time in halves")
    return ", ".join(words)


def compare(summary: Summary, scale: Scale) -> list[Line]:
    of = {figure: by_case(summary, figure) for figure in FIGURES}
    lines = []
    for case in cases(scale):
        key = case.name, case.qos, case.rate
        row = {figure: of[figure][key] for figure in FIGURES}
        lines.append(Line(quantity=spoken(case), paper="not measured", ours=told(row), verdict="beyond"))
    return [*lines, by_routing(summary, rates(scale)[-1])]


def by_routing(summary: Summary, rate: float) -> Line:
    """Runs of MRF and SFB with the same changes, in pairs: share of messages that MRF loses more at QoS 0."""
    lost = {
        name: [1 - row["ratio"] for row in summary["runs"] if (row["case"], row["qos"], row["rate"]) == key]
        for name, key in {"MRF": (MRF, 0, rate), "SFB": ("churn", 0, rate)}.items()
    }
    more = [one - other for one, other in zip(lost["MRF"], lost["SFB"], strict=True)]
    return judged(
        Band(0.0, None, "sign: MRF loses more, paired"),
        more,
        quantity=f"SFB is more tolerant of churn than MRF, QoS 0, {rate:g} changes per minute",
        paper="yes (thesis 4.3)",
        ours="; ".join(f"{name} loses {fmean(shares):.2%}" for name, shares in lost.items())
        + f"; {min(more):+.2%} to {max(more):+.2%} in pairs",
        why="fewer hops are fewer nodes whose death loses a message",
    )


def told(row: Mapping[str, Mapping[str, Any]]) -> str:
    """The figures of one case in words."""
    mean = {figure: found["mean"] for figure, found in row.items()}
    runs = row["due"]["count"]
    ratio, upkeep = row["ratio"], row["upkeep"]
    return (
        f"{mean['delivered'] * runs:,.0f} of {mean['due'] * runs:,.0f} delivered in {runs} runs "
        f"({mean['ratio']:.3%}, {ratio['smallest']:.3%} to {ratio['largest']:.3%}), "
        f"{mean['twice'] * runs:,.0f} twice, the last after {row['latest']['largest']:.1f} s; "
        f"{mean['mean_hops']:.2f} hops, {mean['casts']:,.1f} messages per publish; "
        f"upkeep {mean['upkeep']:,.0f} ({upkeep['smallest']:,.0f} to {upkeep['largest']:,.0f}) messages per "
        "node and minute"
    )


def draw(summary: Summary) -> list[Picture]:
    x = "joins, leaves and crashes per minute"
    pictures = []
    for figure, name, title, y, caption in (
        (
            "ratio",
            "churn_delivery",
            "Messages delivered under churn",
            "share delivered",
            f"Of those due: the subscriber had subscribed for {JOINED:g} s, it and the publisher stayed for "
            f"{STAYS:g} s. Means, bars from the least to the most of the runs.",
        ),
        (
            "upkeep",
            "churn_upkeep",
            "What keeping the overlay in order costs",
            "messages per node and minute",
            "All messages between nodes but those that carry publishes and their acknowledgements, per node "
            "alive. Means, bars from the least to the most of the runs.",
        ),
    ):
        found = {
            (q, rate): row for (name_, q, rate), row in by_case(summary, figure).items() if name_ == "churn"
        }
        series, errors = {}, {}
        for qos in QOS:
            drawn = [(rate, row) for (q, rate), row in sorted(found.items()) if q == qos]
            series[f"QoS {qos}"] = [rate for rate, _ in drawn], [row["mean"] for _, row in drawn]
            errors[f"QoS {qos}"] = [row["smallest"] for _, row in drawn], [row["largest"] for _, row in drawn]
        limit = (0.0, None) if figure == "upkeep" else None
        pictures.append(curves(Words(name, title, x, y, caption), series, errors=errors, limit_y=limit))
    return pictures


def parameters(scale: Scale) -> str:
    listed = ", ".join(f"{rate:g}" for rate in rates(scale))
    return (
        f"SG-TBPS itself, message by message; {nodes_of(scale, Case())} nodes, half subscribers of one topic "
        f"and half publishers; a publish each {PUBLISH_EVERY:g} s for {seconds_of(scale):g} s; {listed} "
        "changes per minute: half joins, a quarter leaves, a quarter crashes, half of those without a sign "
        "to the peers; delays lognormal, median 10 ms. With one subscriber: "
        f"{nodes_of(scale, Case(toggling=True))} nodes, it subscribes for {TOGGLE:g} s, and does not for "
        f"{TOGGLE:g} s, all others publish, a message each {TOGGLING_EVERY:g} s. {repeats(scale)} runs of "
        "each case"
    )


EXPERIMENT = Experiment(
    name="churn",
    runs="plugin sg_tbps",
    title="Joins, leaves and crashes while messages are published",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=(
        f"Due is a message at whoever has subscribed for {JOINED:g} s when it is published and stays for "
        f"{STAYS:g} s (the one that comes and goes: {STAYS_ON:g} s; where the network parts: "
        f"{STAYS_PARTED:g} s), if its publisher stays as long: a node keeps what its clients have "
        "published, and what dies with it before it has arrived is lost. What is not due is delivered, too, "
        "where it can be.",
        "A crash without a sign (power cut) is noticed by unanswered pings alone. Until then QoS 0 messages "
        "that the dead node had to forward are lost; those of QoS 1 are sent again another way.",
        f"A new node has {INTRODUCERS} neighbours in its configuration. If all of them die before it is in "
        "the overlay it stays alone, and what is published then counts as not delivered to it.",
    ),
)
