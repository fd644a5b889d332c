"""Beyond the paper: nodes come, leave and crash while messages are published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from algorithms.sg_tbps import SgTbps
from bench.report.svg import Picture
from bench.sim.experiments.drawing import Words, curves
from bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables, table
from bench.sim.experiments.summary import collected, means
from bench.sim.member import overlay_kinds
from ildm.testing import Delivery, LinkModel, SimNode, World, lognormal

TOPIC = "topic"
QOS = (0, 1)
SETTLED = 10.0
"""Virtual seconds a node has to be there before a message and to stay after it, as its subscriber or its
publisher, for the message to be due."""
PUBLISH_EVERY = 0.25
SUBSCRIBERS = 0.5
"""Share of the nodes; the others publish."""
INTRODUCERS = 2
"""Neighbours in the configuration of a new node."""
WARM_UP = 30.0
CASTS = frozenset({"Cast", "CastAck", "CastBusy"})
"""Messages that carry publishes and signals; all others keep the overlay in order."""
BY = ["qos", "rate"]


@dataclass
class Due:
    """A message on its way, and who has got it how often."""

    published: float
    publisher: str
    subscribers: frozenset[str]
    """Settled when it was published, and not the publisher's node."""
    got: Counter[str] = field(default_factory=Counter)
    hops: list[int] = field(default_factory=list)


class Churn:
    """One run. ``rate``: changes per minute, of which half are joins, a quarter leave in order, and a
    quarter crash, half of those without a sign to the peers."""

    def __init__(self, nodes: int, rate: float, qos: int, seed: int) -> None:
        self.rate = rate
        self.qos = qos
        self.random = Random(f"{seed}/{rate}/{qos}")
        self.world = World(SgTbps, {"qos": qos}, seed, LinkModel(delay=lognormal(0.010, 0.5)))
        self.world.network.classify = overlay_kinds()
        self.world.on_delivery = self.delivered
        self.born: dict[str, float] = {}
        self.died: dict[str, float] = {}
        self.subscribers: set[str] = set()
        self.messages: list[Due] = []
        self.changes: Counter[str] = Counter()
        self.nodes = nodes

    def run(self, seconds: float) -> dict[str, Any]:
        """Grow, change for ``seconds`` of virtual time, come to rest; answers the figures."""
        world = self.world
        for _ in range(self.nodes):
            self.join()
            world.run(0.2)
        world.run(WARM_UP)
        before = world.network.sent.copy()
        begin = world.kernel.now
        if self.rate:
            world.kernel.post(self._pause(), self._change, begin + seconds)
        world.kernel.post(0.0, self._publish, begin + seconds)
        world.run(seconds)
        sent = world.network.sent - before
        world.run(2 * SETTLED)
        return self._figures(seconds, sent)

    def _pause(self) -> float:
        return self.random.expovariate(self.rate / 60)

    def _living(self) -> list[str]:
        return [name for name in self.born if name not in self.died]

    def join(self) -> None:
        """A new node, by way of two picked at random: one may die before it has answered."""
        name = f"n{len(self.born):05}"
        living = self._living()
        node = self.world.add(name)
        for known in self.random.sample(living, min(INTRODUCERS, len(living))):
            self.world.link(name, known)
        self.born[name] = self.world.kernel.now
        if self.random.random() < SUBSCRIBERS:
            self.subscribers.add(name)
            node.subscribe(TOPIC, self.qos)

    def _change(self, end: float) -> None:
        if self.random.random() < 0.5:
            self.join()
            self.changes["joins"] += 1
        elif len(living := self._living()) > 2:
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
        living = [name for name in self._living() if now - self.born[name] >= SETTLED]
        publishers = [name for name in living if name not in self.subscribers]
        if publishers:
            number = str(len(self.messages)).encode()
            publisher = self.random.choice(publishers)
            self.messages.append(Due(now, publisher, frozenset(living) & self.subscribers))
            self.world[publisher].publish(TOPIC, number, self.qos)
        if now + PUBLISH_EVERY < end:
            self.world.kernel.post(PUBLISH_EVERY, self._publish, end)

    def delivered(self, node: SimNode, delivery: Delivery) -> None:
        """A local client has got a message."""
        message = self.messages[int(delivery.payload)]
        message.got[node.node_id] += 1
        if delivery.hops is not None:
            message.hops.append(delivery.hops)

    def _stayed(self, name: str, message: Due) -> bool:
        return self.died.get(name, float("inf")) >= message.published + SETTLED

    def _figures(self, seconds: float, sent: Counter[str]) -> dict[str, Any]:
        due = got = twice = 0
        hops: list[int] = []
        for message in self.messages:
            if self._stayed(message.publisher, message):
                for name in message.subscribers:
                    if self._stayed(name, message):
                        due += 1
                        got += message.got[name] > 0
            twice += sum(count - 1 for count in message.got.values())
            hops += message.hops
        upkeep = sum(count for kind, count in sent.items() if kind not in CASTS)
        per_minute = 60 / seconds / self.nodes
        return {
            "published": len(self.messages),
            "due": due,
            "delivered": got,
            "ratio": got / due if due else 1.0,
            "twice": twice,
            "mean_hops": sum(hops) / len(hops) if hops else 0.0,
            "upkeep": upkeep * per_minute,
            "casts": sum(sent[kind] for kind in CASTS) / max(1, len(self.messages)),
            **{kind: self.changes[kind] for kind in ("joins", "leaves", "crashes")},
        }


def nodes_of(scale: Scale) -> int:
    """Nodes at the beginning; joins and departures balance."""
    return 50 if scale == "full" else 16


def rates(scale: Scale) -> Sequence[float]:
    """Changes per minute."""
    return (0.0, 10.0, 30.0, 60.0) if scale == "full" else (0.0, 20.0)


def seconds_of(scale: Scale) -> float:
    """Virtual time that is measured."""
    return 90.0 if scale == "full" else 30.0


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each QoS and rate."""
    rows = []
    for qos in QOS:
        for rate in rates(scale):
            say(f"QoS {qos}, {rate:g} changes per minute")
            figures = Churn(nodes_of(scale), rate, qos, seed).run(seconds_of(scale))
            rows.append({"qos": qos, "rate": rate, **figures})
    return {"rows": table(rows)}


FIGURES = ("ratio", "twice", "mean_hops", "upkeep", "casts", "due", "delivered")


def summarise(frames: Frames) -> Summary:
    rows = frames["rows"]
    return {figure: collected(means(rows, BY, figure), *BY) for figure in FIGURES}


def by_rate(summary: Summary, figure: str) -> dict[tuple[int, float], float]:
    """One figure by QoS and rate."""
    return {(row["qos"], row["rate"]): row["mean"] for row in summary[figure]}


def compare(summary: Summary, scale: Scale) -> list[Line]:
    of = {figure: by_rate(summary, figure) for figure in FIGURES}
    lines = []
    for qos in QOS:
        for rate in rates(scale):
            case = qos, rate
            lines.append(
                Line(
                    quantity=f"QoS {qos}, {rate:g} changes per minute",
                    paper="not measured",
                    ours=(
                        f"{of['delivered'][case]:,.0f} of {of['due'][case]:,.0f} delivered "
                        f"({of['ratio'][case]:.3%}), {of['twice'][case]:,.0f} twice; "
                        f"{of['mean_hops'][case]:.2f} hops, {of['casts'][case]:,.1f} messages per publish; "
                        f"upkeep {of['upkeep'][case]:,.1f} messages per node and minute"
                    ),
                    verdict="beyond",
                )
            )
    return lines


def draw(summary: Summary) -> list[Picture]:
    x = "joins, leaves and crashes per minute"
    pictures = []
    for figure, name, title, y, caption in (
        (
            "ratio",
            "churn_delivery",
            "Messages delivered under churn",
            "share delivered",
            f"Of those due: publisher and subscriber were there {SETTLED:g} s before and after the publish.",
        ),
        (
            "upkeep",
            "churn_upkeep",
            "What keeping the overlay in order costs",
            "messages per node and minute",
            "All messages between nodes but those that carry publishes and their acknowledgements.",
        ),
    ):
        found = by_rate(summary, figure)
        series = {
            f"QoS {qos}": (
                [rate for q, rate in sorted(found) if q == qos],
                [value for (q, _), value in sorted(found.items()) if q == qos],
            )
            for qos in QOS
        }
        pictures.append(curves(Words(name, title, x, y, caption), series))
    return pictures


def parameters(scale: Scale) -> str:
    listed = ", ".join(f"{rate:g}" for rate in rates(scale))
    return (
        f"SG-TBPS itself, message by message; {nodes_of(scale)} nodes, half subscribers of one topic, half "
        f"publishers; a publish each {PUBLISH_EVERY:g} s for {seconds_of(scale):g} s; {listed} changes per "
        "minute: half joins, a quarter leaves, a quarter crashes, half of those without a sign to the peers; "
        "delays lognormal, median 10 ms"
    )


EXPERIMENT = Experiment(
    name="churn",
    title="Joins, leaves and crashes while messages are published",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=(
        "A crash without a sign (power cut) is noticed by unanswered pings alone. Until then QoS 0 messages "
        "that the dead node had to forward are lost; those of QoS 1 are sent again another way.",
        f"A new node has {INTRODUCERS} neighbours in its configuration. If all of them die before it is in "
        "the overlay it stays alone, and what is published then counts as not delivered to it.",
    ),
)
