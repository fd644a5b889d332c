"""``ildm-bench chaos run``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ildm.cli.terminal import make_console
from ildm.testing.live.brokers import KINDS, broker_class
from ildm_bench.chaos.drawing import SMALL, Scale, draw, draw_setting
from ildm_bench.chaos.excuses import OURS
from ildm_bench.chaos.live_runs import Finished, LiveRuns, Planned
from ildm_bench.chaos.outcome import Outcome, Setting, added
from ildm_bench.chaos.schedule import Kind, Schedule
from ildm_bench.chaos.verdict import INVARIANTS
from ildm_bench.options import RESULTS

CHUNK = 6.6
"""Messages of a publication, on average; see `ildm_bench.chaos.drawing`."""
LIVE = Scale(seconds=30.0, publications=round(60 * 30 / CHUNK), faults=3, pause=8.0)
MOST = 500_000
"""Messages of a run: it has some events for each (`ildm_bench.chaos.check.MOST_EVENTS`)."""
FAULTS = (*get_args(Kind), "kill-all", "mixed", "pair", "guests", "none")
COLUMNS = ("runs", "published", "owed", "lost", "twice", "order", "retained", "stale", "other", "apart")
"""Of the table; those between are invariants, with all that are not named in ``other``."""


TargetOption = Annotated[
    str,
    typer.Option(
        metavar="ildm|pair|bridge",
        help="Nodes, a pair of nodes at each site, or Mosquitto's own bridges between the brokers.",
    ),
]
AlgorithmOption = Annotated[
    list[str] | None, typer.Option(help="Cooperation algorithm. May be repeated.", show_default="sf")
]
BrokerOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MAKE[-default]",
        help=f"{', '.join(KINDS)}, which keep what they can on disk; with -default, what they are set up "
        "to keep. Several: mixed.",
        show_default="mosquitto",
    ),
]
SitesOption = Annotated[int | None, typer.Option(min=2, max=5, help="Default: 2 to 5, drawn.")]
ModeOption = Annotated[str, typer.Option(metavar="off|process|power", help="spool.mode of the nodes.")]
FaultOption = Annotated[
    str,
    typer.Option(
        metavar="KIND|kill-all|mixed|pair|none", help="What befalls them; see bench/ildm_bench/chaos."
    ),
]
RunsOption = Annotated[int, typer.Option(min=1)]
SeedOption = Annotated[int, typer.Option(help="Of the first run; the next ones count up.")]
ScheduleOption = Annotated[
    list[Path] | None,
    typer.Option("--schedule", metavar="FILE", help="Run this instead of what is drawn. May be repeated."),
]
VirtualOption = Annotated[
    bool, typer.Option("--virtual", help="In virtual time: real nodes, simulated disks and brokers.")
]
SecondsOption = Annotated[
    float | None,
    typer.Option(min=1, help="In which clients publish and faults come.", show_default="30; virtual: drawn"),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        min=1, max=2000, help="Messages a second that are published.", show_default="60; virtual: drawn"
    ),
]
FaultsOption = Annotated[
    int | None, typer.Option(min=1, help="At most, in a run.", show_default="3; virtual: 2")
]
PauseOption = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds that a fault lasts, at most.", show_default="8; virtual: drawn"),
]
QueriesOption = Annotated[
    bool,
    typer.Option("--queries", help="With --virtual: leave chaos.json, as live runs do."),
]
JobsOption = Annotated[int, typer.Option(min=1, max=64, help="Runs at the same time.")]
KeptOption = Annotated[Path, typer.Option(metavar="DIR", help="Histories, and what is kept of bad runs.")]


def run(
    target: TargetOption = "ildm",
    algorithm: AlgorithmOption = None,
    broker: BrokerOption = None,
    sites: SitesOption = None,
    mode: ModeOption = "process",
    fault: FaultOption = "mixed",
    runs: RunsOption = 1,
    seed: SeedOption = 1,
    file: ScheduleOption = None,
    virtual: VirtualOption = False,
    seconds: SecondsOption = None,
    rate: RateOption = None,
    faults: FaultsOption = None,
    pause: PauseOption = None,
    queries: QueriesOption = False,
    jobs: JobsOption = 1,
    out: KeptOption = RESULTS / "chaos",
) -> None:
    """Run clients, nodes and brokers under faults, and check what came of it.

    Exit status 1: something promised did not hold, or a run did not come to rest.
    """
    if fault not in FAULTS:
        raise typer.BadParameter(f"{fault!r} is none of {', '.join(FAULTS)}", param_hint="--fault")
    if virtual and fault == "handover":
        raise typer.BadParameter("in virtual time there is no process to hand over to", param_hint="--fault")
    scale = _scale(SMALL if virtual else LIVE, seconds, rate, faults, pause)
    if virtual:
        from ildm_bench.chaos.virtual.cli import replay, simulate  # noqa: PLC0415 - slow to import

        if target != "ildm":
            raise typer.BadParameter("in virtual time there are nodes alone", param_hint="--target")
        if file:
            replay(file)
            return
        given = (seconds, rate, faults, pause) != (None,) * 4
        simulate(
            algorithm or ["sf"],
            runs,
            seed,
            jobs,
            out,
            brokers=broker or [],
            queries=queries,
            scale=scale if given else None,
            sites=sites,
            mode=mode,
            fault=fault,
        )
        return
    _refuse_missing(broker or ["mosquitto"])
    if file:
        plans = [_replayed(path, target) for path in file]
    else:
        plans = [
            _drawn(number, name, target, broker or (), scale, sites=sites, mode=mode, fault=fault)
            for number in range(seed, seed + runs)
            for name in algorithm or ["sf"]
        ]
    out.mkdir(parents=True, exist_ok=True)
    _carry_out(plans, jobs, out)


def _scale(
    usual: Scale, seconds: float | None, rate: float | None, faults: int | None, pause: float | None
) -> Scale:
    """How much happens in a run: as usual, but for what is given."""
    seconds = usual.seconds if seconds is None else seconds
    scale = Scale(
        seconds=seconds,
        publications=max(1, round(rate * seconds / CHUNK)) if rate else usual.publications,
        faults=faults or usual.faults,
        pause=usual.pause if pause is None else pause,
    )
    if (messages := round(scale.publications * CHUNK)) > MOST:
        text = (
            f"{messages:,} messages in one run, of at most {MOST:,} that can be judged: make several (--runs)"
        )
        raise typer.BadParameter(text, param_hint="--seconds")
    return scale


def _refuse_missing(brokers: list[str]) -> None:
    for make in {each.partition("-")[0] for each in brokers}:
        if make not in KINDS:
            raise typer.BadParameter(f"{make!r} is none of {', '.join(KINDS)}", param_hint="--broker")
        if missing := broker_class(make).available():
            raise typer.BadParameter(missing, param_hint="--broker")


def _replayed(path: Path, target: str) -> Planned:
    """The run of a schedule that was kept."""
    schedule = Schedule.load(path)
    if target == "bridge" and len(schedule.setting.links) >= len(schedule.setting.sites):
        text = f"{path}: its links close a ring, in which bridges send messages round without end"
        raise typer.BadParameter(text, param_hint="--schedule")
    return Planned(f"{target}-{path.stem.removeprefix('schedule-')}", schedule, target)


def _drawn(
    seed: int,
    algorithm: str,
    target: str,
    brokers: Sequence[str],
    scale: Scale,
    *,
    sites: int | None,
    mode: str,
    fault: str,
) -> Planned:
    """The run that a seed stands for."""
    setting = draw_setting(seed, algorithm, sites=sites, brokers=brokers, mode=mode, rings=target != "bridge")
    schedule = draw(seed, algorithm, fault=fault, scale=scale, setting=setting)
    name = target if target != "ildm" else algorithm
    words = [name, *(brokers or ["mosquitto"]), mode, fault, str(seed)]
    return Planned("-".join(words), schedule, target)


def _carry_out(plans: list[Planned], jobs: int, out: Path) -> None:
    """Carry live runs out and print what came of them.

    Raises:
        typer.Exit: something promised did not hold, or a run did not come to rest.
    """
    finished = _shown(LiveRuns(out, jobs), plans)
    outcome = added(each.outcome for each in finished if each.outcome is not None)
    outcome.write(out)
    console = make_console()
    console.print(table_of(outcome))
    bad = [each for each in finished if not each.good]
    for each in bad:
        console.print(f"{each.planned.run}: {'; '.join(_words(each))}; {each.kept}")
    if bad:
        raise typer.Exit(1)


def _shown(runs: LiveRuns, plans: list[Planned]) -> list[Finished]:
    finished = []
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("running", total=len(plans))
        for each in runs.run(plans):
            finished.append(each)
            if not each.good:
                bars.console.print(f"{each.planned.run}: {'; '.join(_words(each))}", markup=False)
            bad = sum(not one.good for one in finished)
            bars.update(task, advance=1, description=f"running, {bad} bad" if bad else "running")
    return finished


def _words(finished: Finished) -> list[str]:
    """What is to be said of a run."""
    words = list(finished.wrong)
    if finished.outcome is not None:
        target = finished.planned.target
        totals = {name: finished.outcome.total(name, target=target) for name in INVARIANTS}
        words += [f"{name} {amount}" for name, amount in totals.items() if amount]
        if not finished.complete:
            words.append("did not come to rest")
    return words


def table_of(outcome: Outcome) -> Table:
    """What was published and owed, what was found against the promise, and what is said apart.

    Of all runs, then by fault: a run counts at each of its kinds.
    """
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("what")
    table.add_column("fault")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    rows: dict[tuple[str, str], Counter[str]] = {}

    def add(setting: Setting, **amounts: int) -> None:
        for fault in ("", *setting.fault.split("+")):
            rows.setdefault((setting.name, fault), Counter()).update(amounts)

    for each in outcome.counted:
        add(each.setting, runs=each.runs, published=each.published, owed=each.owed)
    for found in outcome.found:
        name = found.invariant if found.invariant in COLUMNS else "other"
        add(found.setting, **{name if found.cause == OURS else "apart": found.found})
    for (name, fault), row in sorted(rows.items()):
        table.add_row(name, fault or "all", *(f"{row[column]:,}" for column in COLUMNS))
    return table
