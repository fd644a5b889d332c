"""What a message costs the two nodes of a link: features unset and set, beside the last release.

``release`` is the wheel that ``tests/skew`` keeps. It holds sources alone, so it runs interpreted and is held
against this code ``interpreted``, both with what is the default. The other rows are this code as it is
installed, compiled or not, each held against ``unset``: with a rate and with classes that nothing waits for,
with the tree by age, which needs no weights, and with compression. Messages are the readings of
:mod:`ildm_bench.micro.corpora`, at QoS 0 or 1 and an even rate. Ratios are medians over the rounds.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ildm import compiled
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.process import HERE, Placement
from ildm_bench.micro.corpora import Message, messages
from ildm_bench.micro.link_bytes import publish
from ildm_bench.micro.link_ways import BOOT
from ildm_bench.micro.measure import Column, heading, in_turn, line, machine, median, options, pid_of, run_ns
from ildm_bench.micro.relay import ONE_ADDRESS, start
from ildm_bench.testbed.bridging import wait_crossing

WHEELS = Path(__file__).parents[3] / "tests" / "skew"
INTERPRETED = Placement(environment={compiled.SWITCH: "0"})
RELEASE, UNSET = "release", "unset"
COLUMNS = (
    Column("near us", 9, ".2f"),
    Column("far us", 9, ".2f"),
    Column("both", 9, ".2f"),
    Column("ratio", 7, ".3f"),
    Column("to", 12, ""),
)


class Case(NamedTuple):
    """A row: what it is held against, and the section ``link`` of both nodes."""

    to: str
    link: Mapping[str, Any] = {}
    interpreted: bool = False


CASES = {
    RELEASE: Case("", interpreted=True),
    "interpreted": Case(RELEASE, interpreted=True),
    UNSET: Case(""),
    "rate": Case(UNSET, {"rate": {"out": "1gbit", "burst": 1.0}}),
    "classes": Case(UNSET, {"classes": [{"topics": ["#"], "priority": 1, "backlog": "after_live"}]}),
    "no weights": Case(UNSET, {"tree": "age"}),
    "deflate": Case(UNSET, {"compression": "deflate"}),
}


class Cost(NamedTuple):
    """Microseconds of CPU for a message."""

    near: float
    far: float

    @property
    def both(self) -> float:
        return self.near + self.far


def the_wheel() -> Path:
    """The last release, as it is kept for tests. Raises: FileNotFoundError."""
    found = sorted(WHEELS.glob("ildm-*.whl"))
    if not found:
        raise FileNotFoundError(f"there is no wheel of a release in {WHEELS}: name one with --wheel")
    return found[-1]


@contextmanager
def opened(case: Case, released: Path | None) -> Iterator[tuple[NodeProcess, Mosquitto, list[NodeProcess]]]:
    """Two sites with a link: the near node, the far broker, and both nodes.

    Args:
        released: where the code of another release is; None: this one.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        nodes: list[NodeProcess] = []
        for site in ("far", "near"):
            broker = start(stack, Mosquitto(Path(name) / f"{site}-broker", tuned=True))
            node = NodeProcess(
                Path(name) / site,
                broker.address,
                "pf",
                node_id=site,
                link={**case.link, "neighbors": [other.link_address for other in nodes]},
                extra={"log": {"level": "error"}, "limits": ONE_ADDRESS},
                python_path=released,
                place=INTERPRETED if case.interpreted else HERE,
            )
            nodes.append(start(stack, node))
            if site == "far":
                far = broker
        there, here = nodes
        here.wait_linked(there)
        wait_crossing(here.address, far.address, BOOT)
        yield here, far, [here, there]


def cost_of(case: Case, released: Path | None, corpus: Sequence[Message], rate: float, qos: int) -> Cost:
    """Of each message, once the nodes are warm."""
    with opened(case, released) as (here, far, nodes):
        publish(here.address, far.address, corpus[: int(rate)], rate, qos)
        before = [run_ns(pid_of(node)) for node in nodes]
        publish(here.address, far.address, corpus, rate, qos)
        used = [run_ns(pid_of(node)) - began for node, began in zip(nodes, before, strict=True)]
    return Cost(*(each / 1e3 / len(corpus) for each in used))


def row_of(name: str, results: Mapping[str, Sequence[Cost]]) -> list[float | str | None]:
    """What :data:`COLUMNS` show of a case; the ratio round by round, because machines drift."""
    found, to = results[name], CASES[name].to
    values: list[float | str | None] = [median(getattr(each, key) for each in found) for key in Cost._fields]
    ratio = None
    if to in results:
        ratio = median(one.both / other.both for one, other in zip(found, results[to], strict=True))
    return [*values, median(each.both for each in found), ratio, f"/ {to}" if ratio else ""]


def main() -> None:
    parser = options(__doc__, rounds=3, seconds=2.0)
    parser.add_argument("--rate", type=float, default=20_000, help="messages a second")
    parser.add_argument("--qos", type=int, default=0, choices=[0, 1])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--wheel", type=Path, help="of the release; default: that of tests/skew")
    given = parser.parse_args()
    corpus = messages("readings", int(given.rate * given.seconds))
    with tempfile.TemporaryDirectory() as name:
        released = Path(name)
        if RELEASE in given.cases:
            with zipfile.ZipFile(given.wheel or the_wheel()) as wheel:
                wheel.extractall(released)

        def measured(way: str) -> Cost:
            where = released if way == RELEASE else None
            return cost_of(CASES[way], where, corpus, given.rate, given.qos)

        results = in_turn(given.rounds, given.cases, measured, lambda cost: f"{cost.both:.2f}")
    print(f"{machine()}; this code is {compiled.form()}")
    print(heading(f"CPU of a message, {given.rate:g}/s", 26, COLUMNS))
    for way in results:
        print(line(way, 26, COLUMNS, row_of(way, results)))


if __name__ == "__main__":
    main()
