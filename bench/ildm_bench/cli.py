"""The command line ``ildm-bench``. Exit status: 0 done, 1 failed or void, 2 wrong usage or scenario."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

try:
    import typer

    from ildm_bench.analysis.cli import analyse
    from ildm_bench.chaos.cli import app as chaos
    from ildm_bench.chaos.soak.cli import soak
    from ildm_bench.load.scenario import Scenario, ScenarioError, load_scenario
    from ildm_bench.measure.procedure import SearchConfig, SearchError
    from ildm_bench.options import RESULTS, OutOption
    from ildm_bench.report.cli import report
    from ildm_bench.results.cli import results
    from ildm_bench.sim.cli import sim
    from ildm_bench.testbed.cli import app as testbed
except ImportError as error:
    sys.exit(
        f"ildm-bench: {error.name} is not installed. Install ildm with what its extra bench brings, as by "
        "pip install 'ildm[bench]'; in a clone: make setup-all"
    )

from ildm.mqtt import IldmError

if TYPE_CHECKING:
    from ildm_bench.measure.limits import Generators, Target

SECRET_VARIABLE = "ILDM_BENCH_SECRET"

app = typer.Typer(
    name="ildm-bench",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    help="Measure MQTT brokers and ILDM nodes: load, limits, testbed, analysis on Spark, reports, simulator.",
)
app.command()(analyse)
app.command()(report)
app.command()(soak)
app.add_typer(testbed, name="testbed")
app.add_typer(results, name="results")
app.add_typer(sim, name="sim")
app.add_typer(chaos, name="chaos")

TargetOption = Annotated[
    list[str],
    typer.Option("--target", metavar="HOST:PORT", help="Broker or node; once for each site of the scenario."),
]
PidOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pid",
        metavar="ROLE[:SITE]=PID",
        help="Process to sample, children included; ROLE is broker, node or proxy. May be repeated. Without "
        "it the process that listens at each target is taken, if it is on this machine.",
    ),
]
SecondsOption = Annotated[
    float | None, typer.Option(min=1.0, help="Length of a run instead of the scenario's, all parts alike.")
]
LabelOption = Annotated[str, typer.Option(help="What the target is called in reports.")]
WorkersOption = Annotated[int, typer.Option(min=1, max=64, help="Processes of the generator.")]
RemoteOption = Annotated[
    list[str] | None,
    typer.Option(
        "--remote",
        metavar="HOST:PORT",
        help=f"A worker on another machine (ildm-bench worker), which needs the secret in {SECRET_VARIABLE}. "
        "May be repeated.",
    ),
]


def prepared(
    scenario: Path, seconds: float | None, target: list[str], pid: list[str] | None, label: str
) -> tuple[Scenario, Target]:
    """Scenario and target from the options."""
    from ildm_bench.measure.limits import Target  # noqa: PLC0415 - slow to import

    loaded = load_scenario(scenario)
    if seconds is not None:
        loaded = loaded.shortened(seconds)
    for address in target:
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
            raise typer.BadParameter(f"{address!r} is not host:port", param_hint="--target")
    if len(target) != loaded.sites:
        text = f"{len(target)} given, but {scenario} has {loaded.sites} sites"
        raise typer.BadParameter(text, param_hint="--target")
    processes = [_process(text) for text in pid] if pid else _listeners(target)
    return loaded, Target(target, label or loaded.name, processes=processes)


def _listeners(targets: list[str]) -> list[Any]:
    """The processes that listen at the targets; what cannot be told apart from other programs is said."""
    from ildm_bench.listening import addresses, listener  # noqa: PLC0415
    from ildm_bench.measure.manifest import Process  # noqa: PLC0415
    from ildm_bench.processes import Snapshot  # noqa: PLC0415

    names = Snapshot.take().processes
    found: list[Any] = []
    for site, address in enumerate(targets):
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        pid = listener(host, int(port))
        if pid is not None:
            name = names[pid].name if pid in names else "?"
            words = {word.rpartition("/")[2] for word in Path(f"/proc/{pid}/cmdline").read_text().split("\0")}
            role = "node" if "ildm" in words else "proxy" if "haproxy" in words else "broker"
            record = {"name": f"{role}-{site}", "role": role, "site": site, "label": name}
            found.append((Process.model_validate(record), pid))
            behind = "; what stands behind it counts as another program without --pid"
            typer.echo(f"{address}: {role} {name} ({pid}){behind if role != 'broker' else ''}", err=True)
        elif any(each.is_loopback for each in addresses(host)):
            text = "its process is not seen from here, so it counts as another program: give --pid"
            typer.echo(f"warning: {address}: {text}", err=True)
    return found


def _process(text: str) -> Any:
    from ildm_bench.measure.manifest import Process  # noqa: PLC0415

    found = re.fullmatch(r"(broker|node|proxy)(?::(\d+))?=(\d+)", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not ROLE[:SITE]=PID", param_hint="--pid")
    role, site, pid = found[1], int(found[2] or 0), int(found[3])
    if not Path(f"/proc/{pid}").exists():
        raise typer.BadParameter(f"there is no process {pid}", param_hint="--pid")
    return Process(name=f"{role}-{site}", role=role, site=site), pid  # type: ignore[arg-type]


def _generators(workers: int, remote: list[str] | None) -> Generators:
    from ildm_bench.measure.limits import Generators  # noqa: PLC0415

    return Generators(workers, remote or (), os.environ.get(SECRET_VARIABLE, ""))


@app.command()
def load(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="Scenario file (configs/bench).")],
    target: TargetOption,
    interval: Annotated[
        float | None, typer.Option(metavar="MS", min=0.001, help="Interval instead of the scenario's.")
    ] = None,
    seconds: SecondsOption = None,
    pid: PidOption = None,
    label: LabelOption = "",
    workers: WorkersOption = 1,
    remote: RemoteOption = None,
    out: OutOption = RESULTS,
    analysis: Annotated[bool, typer.Option(help="Work out figures and the report with Spark.")] = True,
) -> None:
    """Put one load on, and report it. Exit status 1 if the run is void."""
    from ildm_bench.load.display import run_display  # noqa: PLC0415
    from ildm_bench.measure.limits import measure  # noqa: PLC0415

    loaded, to = prepared(scenario, seconds, target, pid, label)
    with run_display(loaded) as progress:
        manifest = measure(loaded, to, out, interval, _generators(workers, remote), progress)
    directory = out / f"run={manifest.run}"
    generator, summary = manifest.generator, manifest.summary
    typer.echo(
        f"{directory}: ingress {summary.ingress:,.0f}/s, egress {summary.egress:,.0f}/s, "
        f"ratio {summary.ratio:.4f}, generator {generator.verdict}"
        f"{f': {generator.reason}' if generator.reason else ''}; in the whole run "
        f"{summary.expected - summary.received} of {summary.expected} deliveries missing"
    )
    if not manifest.disturbance.quiet:
        typer.echo(f"VOID: {manifest.disturbance.reason}", err=True)
    if analysis:
        from ildm_bench.analysis.pipeline import analyse as analyse_runs  # noqa: PLC0415
        from ildm_bench.analysis.pipeline import write_figures  # noqa: PLC0415
        from ildm_bench.analysis.session import spark_session  # noqa: PLC0415
        from ildm_bench.report import write_run  # noqa: PLC0415

        (figures,) = analyse_runs(spark_session(quick=True), out, [manifest.run])
        write_figures([figures], out)
        typer.echo(write_run(figures, directory))
    if generator.verdict == "void":
        raise typer.Exit(1)


@app.command()
def limit(
    scenario: Annotated[Path, typer.Option(metavar="FILE", help="Scenario file (configs/bench).")],
    target: TargetOption,
    seconds: SecondsOption = None,
    pid: PidOption = None,
    label: LabelOption = "",
    workers: WorkersOption = 1,
    remote: RemoteOption = None,
    first: Annotated[float, typer.Option(metavar="MS", help="Smallest interval of Step 1.")] = 1.0,
    largest: Annotated[float, typer.Option(metavar="MS", help="Where Step 1 gives up.")] = 1024.0,
    start: Annotated[float | None, typer.Option(metavar="MS", help="Guess to begin with.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Measurements of an interval that decides.")] = 1,
    rounds: Annotated[
        int, typer.Option(min=1, max=99, help="Limits to find one after the other; shows how they spread.")
    ] = 1,
    full: Annotated[bool, typer.Option("--full", help="All measurements of the thesis's procedure.")] = False,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds of load before the first run.")] = 0.0,
    keep_logs: Annotated[bool, typer.Option("--keep-logs", help="Keep the logs of all runs.")] = False,
    out: OutOption = RESULTS / "limit",
) -> None:
    """Search for the limit of brokers or nodes (thesis 5.5.5), and say so if it is void.

    The same command goes on with an interrupted search.
    """
    from rich.console import Console  # noqa: PLC0415

    from ildm_bench.measure.limits import find_limit  # noqa: PLC0415
    from ildm_bench.measure.progress import render_limit  # noqa: PLC0415
    from ildm_bench.report import write_comparison, write_run  # noqa: PLC0415
    from ildm_bench.report.cli import compared  # noqa: PLC0415

    loaded, to = prepared(scenario, seconds, target, pid, label)
    config = SearchConfig(first_ms=first, largest_ms=largest, start_ms=start, repeat=repeat, full=full)
    found = find_limit(
        loaded,
        to,
        out,
        config,
        generators=_generators(workers, remote),
        warm_up=warm_up,
        keep_logs=keep_logs,
        rounds=rounds,
    )
    Console().print(render_limit(found))
    if found.figures is not None:
        typer.echo(write_run(found.figures, out, found))
    else:
        typer.echo(write_comparison(compared(found.label, [found]), out, void=True))
    if found.void:
        typer.echo(f"VOID: {found.void}", err=True)


@app.command()
def worker(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where coordinators connect.")],
) -> None:
    """Lend this machine to a load generator that runs elsewhere, until Ctrl-C."""
    from ildm_bench.load.worker import listen as serve  # noqa: PLC0415
    from ildm_bench.load.worker import run_loop  # noqa: PLC0415

    secret = os.environ.get(SECRET_VARIABLE, "")
    host = listen.rpartition(":")[0].strip("[]")
    if not secret and host not in {"127.0.0.1", "::1", "localhost"}:
        text = f"beyond loopback a worker needs a secret in {SECRET_VARIABLE}"
        raise typer.BadParameter(text, param_hint="--listen")
    run_loop(serve(listen, secret))


def main(arguments: list[str] | None = None) -> None:
    """Entry point of ``ildm-bench``."""
    _run(lambda: app(arguments, standalone_mode=True))


def _run(command: Callable[[], None]) -> None:
    try:
        command()
    except (ScenarioError, SearchError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except IldmError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
