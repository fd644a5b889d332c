"""What the load generator costs beside the broker that it loads: CPU for each message delivered.

Mosquitto alone, under the load of a scenario (five topics x 10 publishers and 10 subscribers, if no other
is named) at a fixed rate, and flat out: at the highest rate that it bears (Definition 1 of the thesis,
5.5.4), which is looked for first. A generator that costs more than the broker would measure itself.

``--beside`` gives the command of another generator, which takes its turn in each round with the same broker
and rate: the words ``{port}``, ``{rate}`` (messages published per second) and ``{seconds}`` in it are
replaced, it warms up for at most a second, and its last line is a JSON object with ``egress`` (messages
delivered per second).
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from ildm.testing.live.brokers import Mosquitto
from ildm_bench.analysis.samples import process_uses
from ildm_bench.load.scenario import Scenario, load_scenario
from ildm_bench.measure.figures import LIMIT_RATIO
from ildm_bench.measure.limits import Target, measure, settle
from ildm_bench.measure.manifest import Process
from ildm_bench.measure.schema import run_directory
from ildm_bench.micro.measure import Column, Usage, heading, line, machine, median, pid_of
from ildm_bench.micro.relay import start

SCENARIOS = Path(__file__).parents[3] / "configs/bench"
OWN, OTHER = "this one", "beside"
STEP = 1.2
"""By how much the rate grows from try to try, on the way to the limit."""
TRIES = 20
SETTLED = 1.5
"""Seconds after its start at which another generator must be at work."""


@dataclass(frozen=True)
class Cost:
    """One run: CPU microseconds per message delivered."""

    egress: float
    """Messages delivered per second."""
    generator: float
    broker: float
    held: bool
    """The broker bore the load, and the generator was in time."""
    notes: str = ""


def own(scenario: Scenario, rate: float, broker: Mosquitto, directory: Path) -> Cost:
    """A run of the load generator, ``rate`` deliveries per second; its processes together."""
    publishers = sum(sum(scenario.counts(topic, "publishers")) for topic in scenario.throughput_topics)
    interval_ms = 1000 * publishers * scenario.sp_ratio / rate
    sampled = (Process(name="broker", role="broker"), pid_of(broker))
    settle([sampled])
    target = Target([f"127.0.0.1:{broker.port}"] * scenario.sites, "broker", processes=[sampled])
    manifest = measure(scenario, target, directory, interval_ms)
    deliveries = round(manifest.summary.egress * manifest.seconds)
    sums = {"broker": 0.0, "generator": 0.0}
    notes = list(manifest.notes)
    for use in process_uses(run_directory(directory, manifest.run), manifest, deliveries, notes.append):
        sums[use.role] += use.cpu_us_per_delivery
    held = manifest.generator.verdict == "ok" and manifest.summary.ratio >= LIMIT_RATIO
    if manifest.generator.reason:
        notes.append(manifest.generator.reason)
    return Cost(manifest.summary.egress, sums["generator"], sums["broker"], held, "; ".join(notes))


def beside(command: str, scenario: Scenario, rate: float, broker: Mosquitto) -> Cost:
    """A run of another generator.

    Raises:
        RuntimeError: it fails, ends too soon or prints something else.
    """
    words = command
    given = {"port": broker.port, "rate": rate / scenario.sp_ratio, "seconds": scenario.duration}
    for name, value in given.items():
        words = words.replace(f"{{{name}}}", str(round(value)))
    with subprocess.Popen(shlex.split(words), stdout=subprocess.PIPE, text=True) as child:
        try:
            time.sleep(SETTLED)
            usage = Usage(child.pid, pid_of(broker))
            time.sleep(scenario.duration - SETTLED)
            if child.poll() is not None:
                raise RuntimeError(f"{words}: ended after less than {scenario.duration:g} s")
            passed, used = usage.passed(), usage.used()
            output, _ = child.communicate(timeout=60)
        finally:
            child.kill()
    if child.returncode:
        raise RuntimeError(f"{words}: exit status {child.returncode}")
    try:
        egress = float(json.loads(output.splitlines()[-1])["egress"])
    except (ValueError, LookupError, TypeError) as error:
        raise RuntimeError(f"{words}: its last line is no JSON object with egress: {error!r}") from error
    generator, mosquitto = (1e6 * cpu / (egress * passed) if egress else 0.0 for cpu in used)
    return Cost(egress, generator, mosquitto, egress >= LIMIT_RATIO * rate)


def highest(scenario: Scenario, broker: Mosquitto, directory: Path, first: float) -> float:
    """The highest rate of a geometric series that the broker bears.

    Raises:
        RuntimeError: it does not even bear ``first``.
    """
    found = 0.0
    rate = first
    for _ in range(TRIES):
        cost = own(scenario, rate, broker, directory)
        print(f"{rate:,.0f}/s {'held' if cost.held else f'not held: {cost.notes}'}", file=sys.stderr)
        if not cost.held:
            break
        found, rate = rate, rate * STEP
    if not found:
        raise RuntimeError(f"the load of {first:,.0f} deliveries/s is not borne: try a smaller --rate")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", default="single", help="name in configs/bench, or a file")
    parser.add_argument("--rate", type=float, default=25_000.0, help="deliveries per second")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run, at least 4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flat-out", type=float, metavar="RATE", help="is this rate; 0: the fixed one alone")
    parser.add_argument("--beside", metavar="COMMAND", help="of another generator")
    options = parser.parse_args()
    if options.rate <= 0 or options.seconds < 4 or options.rounds < 1:
        parser.error("a rate above 0, at least 4 seconds and a round are needed")
    path = Path(options.scenario)
    scenario = load_scenario(path if path.suffix else SCENARIOS / f"{options.scenario}.yaml")
    scenario = scenario.shortened(options.seconds)
    try:
        report(compare(scenario, options))
    except RuntimeError as error:
        sys.exit(str(error))


def compare(scenario: Scenario, options: argparse.Namespace) -> dict[str, dict[str, list[Cost]]]:
    """Load -> generator -> its runs; in each round every load and generator once.

    Raises:
        RuntimeError: the load is not borne, or the other generator fails.
    """
    results: dict[str, dict[str, list[Cost]]] = {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        broker = start(stack, Mosquitto(directory / "broker", tuned=True))
        rates = {"fixed": options.rate}
        if options.flat_out != 0:
            rates["flat out"] = options.flat_out or highest(scenario, broker, directory, options.rate)
        for round_ in range(options.rounds):
            for load, rate in rates.items():
                runs = results.setdefault(load, {OWN: []})
                runs[OWN].append(own(scenario, rate, broker, directory))
                if options.beside:
                    runs.setdefault(OTHER, []).append(beside(options.beside, scenario, rate, broker))
                print(f"round {round_ + 1}, {load}: {runs[OWN][-1]}", file=sys.stderr)
    return results


COLUMNS = (
    Column("generator", 9, ""),
    Column("egress/s", 9, ",.0f"),
    Column("generator us/delivery", 22, ""),
    Column("broker us/delivery", 22, ""),
    Column("ratio", 6, ".2f"),
    Column(" held", 5, ""),
)


def report(results: dict[str, dict[str, list[Cost]]]) -> None:
    """Medians over the rounds with the smallest and the largest, generator beside broker."""
    print(machine())
    print(heading("load", 9, COLUMNS))
    for load, generators in results.items():
        for generator, costs in generators.items():
            values = (
                generator,
                median(cost.egress for cost in costs),
                _spread([cost.generator for cost in costs]),
                _spread([cost.broker for cost in costs]),
                median([cost.generator / cost.broker for cost in costs if cost.broker] or [0.0]),
                f" {sum(cost.held for cost in costs)} of {len(costs)}",
            )
            print(line(load, 9, COLUMNS, values))
    for note in dict.fromkeys(c.notes for runs in results.values() for cs in runs.values() for c in cs):
        if note:
            print(f"note: {note}")
    print(json.dumps({k: {g: [asdict(c) for c in cs] for g, cs in v.items()} for k, v in results.items()}))


def _spread(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


if __name__ == "__main__":
    main()
