"""Churn on a network that loses, doubles and reorders messages: does the traffic stay in proportion?

``python -m ildm_bench.sim.storm --nodes 200 --rate 120 --loss 0.1`` lets so many nodes of SG-TBPS publish at
QoS 1 while nodes come, leave and crash, and prints what passes between nodes each few seconds, beside what
perfect trees need, one copy and one acknowledgement for each other node that has a key in the range: for the
messages published and the signals of their publishers (*needed*), and for all casts, questions after what
may be missing among them (*perfect*). The faults end with the churn; what follows shows whether the traffic
falls back.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from ildm.testing import Delivery, LinkModel, PluginWorld, SimNode, lognormal
from ildm_algorithms.exchange.messages import Message
from ildm_algorithms.overlay.graph import Arrival, SkipGraph
from ildm_algorithms.sg_tbps import SgTbps
from ildm_algorithms.tbps.messages import Signal, decode_payload
from ildm_bench.sim.member import overlay_kinds

__all__ = ["Storm", "Window"]

TOPIC = "topic"
SETTLED = 10.0
"""Virtual seconds a node is there before a message and stays after it, for the message to be due."""
CASTS = ("Cast", "CastAck", "CastBusy")
COUNTERS = ("cast", "part", "merges", "offers", "questions", "wants", "kept", "missed")


@dataclass
class Window:
    """What passed in some seconds. ``reached``: nodes that casts have reached, by what these carry;
    ``parts``: parts of casts that all nodes wait for at its end."""

    start: float
    seconds: float
    sent: Counter[str]
    reached: Counter[str]
    parts: int

    @property
    def casts(self) -> int:
        """Copies, their acknowledgements, and signs that one is still at it."""
        return sum(self.sent[kind] for kind in CASTS)

    @property
    def perfect(self) -> int:
        """What perfect trees need to reach whoever was reached."""
        return 2 * self.reached.total()

    @property
    def needed(self) -> int:
        """The same for messages published and signals of publishers."""
        return 2 * sum(self.reached[kind.__name__] for kind in (Message, Signal))


class Reaching(SgTbps):
    """SG-TBPS that tells of each node which a cast reaches for the first time."""

    reached: Callable[[tuple[str, int], str, bytes], None]

    def delivered(self, arrival: Arrival) -> None:
        """A cast has reached own keys."""
        if arrival.origin.node_id != self.api.node_id:
            type(self).reached(arrival.id, self.api.node_id, arrival.payload)
        super().delivered(arrival)


@dataclass
class _Due:
    time: float
    publisher: str
    subscribers: frozenset[str]
    got: Counter[str] = field(default_factory=Counter)


class Storm:
    """One run. ``rate``: changes per minute, half of them joins, a quarter leaves, a quarter crashes, of
    which half without a sign; ``publishes``: per second. Half of the nodes subscribe to the one topic."""

    def __init__(
        self, nodes: int, rate: float, qos: int, seed: int, *, loss: float, duplicate: float, publishes: float
    ) -> None:
        self.rate = rate
        self.qos = qos
        self.publishes = publishes
        self.random = Random(f"{seed}/{rate}/{qos}")
        self.calm = LinkModel(delay=lognormal(0.010, 0.5))
        self.faulty = LinkModel(
            delay=lognormal(0.010, 0.5), loss=loss, duplicate=duplicate, ordered=not (loss or duplicate)
        )
        self._reached: set[tuple[tuple[str, int], str]] = set()
        self._kinds: Counter[str] = Counter()
        algorithm = type("Reaching", (Reaching,), {"reached": staticmethod(self._reach)})
        self.world = PluginWorld(algorithm, {"qos": qos}, seed, self.calm)
        self.world.network.classify = overlay_kinds()
        self.world.on_delivery = self._delivered
        self.born: dict[str, float] = {}
        self.died: dict[str, float] = {}
        self.subscribers: set[str] = set()
        self.messages: list[_Due] = []
        self.windows: list[Window] = []
        self.nodes = nodes

    def run(self, seconds: float, after: float = 20.0, window: float = 5.0, say: bool = False) -> None:
        """Grow, storm for ``seconds`` of virtual time, go on publishing without faults for ``after``."""
        world = self.world
        for _ in range(self.nodes):
            self._join()
            world.run(0.1)
        world.run(SETTLED + 5.0)
        begin = world.kernel.now
        world.network.model = self.faulty
        if self.rate:
            world.kernel.post(self._pause(), self._change, begin + seconds)
        world.kernel.post(0.0, self._publish, begin + seconds + after)
        self._watch(seconds, window, say)
        world.network.model = self.calm
        self._watch(after, window, say)
        world.run(2 * SETTLED)

    def _watch(self, seconds: float, window: float, say: bool) -> None:
        world = self.world
        end = world.kernel.now + seconds
        while world.kernel.now < end - 1e-6:
            start, before, reached = world.kernel.now, world.network.sent.copy(), self._kinds.copy()
            world.run(min(window, end - start))
            took = world.kernel.now - start
            sent = world.network.sent - before
            self.windows.append(Window(start, took, sent, self._kinds - reached, self.parts()))
            if say:
                print(line(self.windows[-1]), flush=True)

    def _reach(self, cast: tuple[str, int], node_id: str, payload: bytes) -> None:
        if (cast, node_id) not in self._reached:
            self._reached.add((cast, node_id))
            self._kinds[type(decode_payload(payload)).__name__] += 1

    def parts(self) -> int:
        """Parts of reliable casts that nodes wait for."""
        return sum(graph(node).parts for node in self.world.alive())

    def _pause(self) -> float:
        return self.random.expovariate(self.rate / 60)

    def _living(self) -> list[str]:
        return [name for name in self.born if name not in self.died]

    def _join(self) -> None:
        name = f"n{len(self.born):05}"
        living = self._living()
        node = self.world.add(name)
        for known in self.random.sample(living, min(2, len(living))):
            self.world.link(name, known)
        self.born[name] = self.world.kernel.now
        if self.random.random() < 0.5:
            self.subscribers.add(name)
            node.subscribe(TOPIC, self.qos)

    def _change(self, end: float) -> None:
        if self.random.random() < 0.5:
            self._join()
        elif len(living := self._living()) > 2:
            name = self.random.choice(living)
            self.died[name] = self.world.kernel.now
            if self.random.random() < 0.5:
                self.world.stop(name)
            else:
                self.world.kill(name, silent=self.random.random() < 0.5)
        pause = self._pause()
        if self.world.kernel.now + pause < end:
            self.world.kernel.post(pause, self._change, end)

    def _publish(self, end: float) -> None:
        now = self.world.kernel.now
        living = self._living()
        settled = [name for name in living if now - self.born[name] >= SETTLED]
        publishers = [name for name in settled if name not in self.subscribers]
        if publishers:
            publisher = self.random.choice(publishers)
            self.messages.append(_Due(now, publisher, frozenset(settled) & self.subscribers))
            self.world[publisher].publish(TOPIC, str(len(self.messages) - 1).encode(), self.qos)
        if now + 1 / self.publishes < end:
            self.world.kernel.post(1 / self.publishes, self._publish, end)

    def _delivered(self, node: SimNode, delivery: Delivery) -> None:
        self.messages[int(delivery.payload)].got[node.node_id] += 1

    def due(self) -> tuple[int, int, int]:
        """Deliveries due, those of them that came, and those that came more than once."""
        due = got = twice = 0
        for message in self.messages:
            last = message.time + SETTLED
            if self.died.get(message.publisher, last) >= last:
                stayed = [name for name in message.subscribers if self.died.get(name, last) >= last]
                due += len(stayed)
                got += sum(message.got[name] > 0 for name in stayed)
            twice += sum(count - 1 for count in message.got.values())
        return due, got, twice

    def suspicions(self) -> tuple[int, int]:
        """Of nodes that were gone, and of nodes that lived."""
        gone = wrong = 0
        for when, _, event, fields in self.world.logs:
            if event == "node suspected":
                dead = self.died.get(str(fields["suspect"]), float("inf")) <= when
                gone, wrong = gone + dead, wrong + (not dead)
        return gone, wrong


def graph(node: SimNode) -> SkipGraph:
    """The overlay of a node."""
    assert isinstance(node.algorithm, SgTbps)
    return node.algorithm.graph


def line(window: Window) -> str:
    per = window.seconds
    sent = window.sent
    return (
        f"{window.start:6.0f} s  {sent.total() / per:8,.0f} messages/s  "
        + "  ".join(f"{kind} {sent[kind] / per:7,.0f}" for kind in CASTS)
        + f"  perfect {window.perfect / per:6,.0f}  needed {window.needed / per:6,.0f}"
        + f"  casts {window.casts / max(1, window.needed):5.2f} x needed  parts {window.parts:6,}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--rate", type=float, default=120, help="changes per minute")
    parser.add_argument("--qos", type=int, default=1)
    parser.add_argument("--loss", type=float, default=0.1)
    parser.add_argument("--duplicate", type=float, default=0.05)
    parser.add_argument("--publishes", type=float, default=4.0, help="per second")
    parser.add_argument("--seconds", type=float, default=60.0, help="of churn and faults")
    parser.add_argument("--after", type=float, default=20.0, help="seconds without them")
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    begin = time.process_time()
    storm = Storm(
        options.nodes,
        options.rate,
        options.qos,
        options.seed,
        loss=options.loss,
        duplicate=options.duplicate,
        publishes=options.publishes,
    )
    storm.run(options.seconds, options.after, say=True)
    due, got, twice = storm.due()
    gone, wrong = storm.suspicions()
    counters = storm.world.counters()
    print(
        f"{got:,} of {due:,} delivered ({got / max(1, due):.3%}), {twice} twice; "
        f"at most {max(window.parts for window in storm.windows):,} parts open; "
        f"{gone:,} suspicions of nodes that were gone and {wrong:,} of others; "
        f"{time.process_time() - begin:.0f} s of CPU"
    )
    print("nodes reached:", dict(sum((window.reached for window in storm.windows), Counter()).most_common()))
    print({name: count for name, count in sorted(counters.items()) if name.startswith(COUNTERS)})


if __name__ == "__main__":
    main()
