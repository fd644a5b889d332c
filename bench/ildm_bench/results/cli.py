"""``ildm-bench results NAME``: each result by one command, ``all`` of them by one."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal, ParamSpec

import typer

from ildm_bench.measure.quiet import PATIENCE
from ildm_bench.options import RESULTS, OutOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from ildm_bench.results.common import Bench

P = ParamSpec("P")

results = typer.Typer(
    name="results",
    no_args_is_help=True,
    help="The tables of bench/README.md, each by one command. Interrupted, the same command goes on. What is "
    "not measured in quiet is measured again; a machine that does not become quiet ends it.",
)
SocketsOption = Annotated[
    Literal["nodelay", "default", "both"],
    typer.Option(help="Mosquitto with set_tcp_nodelay true, as it comes, or rows for each."),
]


QosOption = Annotated[int, typer.Option(min=0, max=2, help="Of messages, link and bridge.")]


@dataclass(frozen=True)
class Manner:
    """How to measure, the same options of all commands."""

    full: Annotated[
        bool, typer.Option("--full", help="Runs of 80 s and all measurements, as in the papers: hours.")
    ] = False
    out: OutOption = RESULTS
    again: Annotated[bool, typer.Option("--again", help="Forget what was measured before.")] = False
    noisy: Annotated[
        bool,
        typer.Option("--noisy", help="Measure beside other programs, too; pages then say that it is void."),
    ] = False
    patience: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="To wait for a quiet machine before a measurement."),
    ] = PATIENCE
    own: str = ""
    """The command's own options as they were given, but for those by default."""

    def bench(self, directory: Path) -> Bench:
        """Where and how results are measured."""
        from rich.console import Console  # noqa: PLC0415 - slow to import

        from ildm_bench.measure.quiet import Gate  # noqa: PLC0415
        from ildm_bench.results.common import FULL, QUICK, Bench  # noqa: PLC0415

        console = Console(stderr=True, highlight=False)
        gate = Gate(
            lambda line: console.print(line, style="yellow", markup=False, soft_wrap=True),
            self.patience,
            self.noisy,
        )
        return Bench(directory, FULL if self.full else QUICK, console, gate)


def _with_manner(
    out: Path = RESULTS, can_be_full: bool = True
) -> Callable[[Callable[Concatenate[Manner, P], None]], Callable[..., None]]:
    """Give a command the options of `Manner`, which it takes as its first argument.

    Args:
        out: the default of ``--out``.
        can_be_full: the command has ``--full``.
    """
    of_manner = dict(inspect.signature(Manner, eval_str=True).parameters)
    of_manner["out"] = of_manner["out"].replace(default=out)
    del of_manner["own"]
    if not can_be_full:
        del of_manner["full"]

    def decorate(command: Callable[Concatenate[Manner, P], None]) -> Callable[..., None]:
        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [*own, *of_manner.values()]

        @functools.wraps(command)
        def with_manner(**given: Any) -> None:
            of_all = {name: given.pop(name) for name in of_manner}
            text = "".join(_words(each.name, given[each.name], each.default) for each in own)
            command(Manner(**of_all, own=text), **given)  # type: ignore[call-arg]

        with_manner.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_manner.__annotations__ = {each.name: each.annotation for each in parameters}
        return with_manner

    return decorate


def _words(name: str, value: Any, default: Any) -> str:
    """An option as it is given on the command line, nothing for the default."""
    option = name.replace("_", "-")
    if value == default or value is None:
        return ""
    if isinstance(value, bool):
        return f" --{option}" if value else f" --no-{option}"
    return "".join(f" --{option} {each}" for each in (value if isinstance(value, list) else [value]))


def _produce(manner: Manner, name: str, **given: Any) -> None:
    """One result by its command; ``given`` are options of its function."""
    from ildm_bench.report import markdown_table  # noqa: PLC0415
    from ildm_bench.results.suite import WORK, Result, produce, slug  # noqa: PLC0415

    command = name + manner.own
    directory = slug(command) + ("-noisy" if manner.noisy else "")
    result = Result(directory, command + (" --noisy" if manner.noisy else ""), 0, WORK[name], given)
    comparison, page = produce(result, manner.bench(manner.out / directory), manner.full, manner.again)
    typer.echo(markdown_table(comparison, void=manner.noisy))
    typer.echo(page)


@results.command("all")
@_with_manner(out=RESULTS / "all")
def all_results(
    manner: Manner,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="This one alone; may be repeated.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what there is and how long it takes.")] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            metavar="FILE",
            help="Put the tables there, between <!-- table: NAME --> and <!-- end -->, such as "
            "bench/reports/README.md. What is void goes there with --noisy alone, and marked.",
        ),
    ] = None,
) -> None:
    """Every result in turn, and what of it is valid. Exit status 1 if one is not."""
    from ildm_bench.results.suite import chosen_of, fill_in, run_all  # noqa: PLC0415

    chosen = chosen_of(only or [])
    if plan:
        for result in chosen:
            typer.echo(f"{result.name:<18} {result.minutes:4} min  ildm-bench results {result.command}")
        typer.echo(f"{'together':<18} {sum(result.minutes for result in chosen):4} min")
        return
    bench = manner.bench(manner.out / "noisy" if manner.noisy else manner.out)
    summary = run_all(bench, chosen, manner.full, manner.again)
    for line in summary.lines():
        typer.echo(line)
    usable = {"valid", "void"} if manner.noisy else {"valid"}
    measured = [each.name for each in summary.outcomes if each.state in usable]
    if page is not None:
        for name in fill_in(page, bench.out, measured, void=manner.noisy):
            typer.echo(f"{page} has no place for {name}", err=True)
    if not summary.valid:
        raise typer.Exit(1)


@results.command()
def verdicts(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Of results: has NAME/comparison.json, as `all` writes them."),
    ] = RESULTS / "all",
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            metavar="FILE",
            help="Put the table there, between <!-- table: verdicts --> and <!-- end -->.",
        ),
    ] = None,
) -> None:
    """What the papers say of live systems, beside what was measured; nothing is measured here."""
    from ildm_bench.report.verdicts import fill_in, markdown  # noqa: PLC0415
    from ildm_bench.report.verdicts import verdicts as judged  # noqa: PLC0415

    lines = judged(directory)
    typer.echo(markdown(lines), nl=False)
    if page is not None:
        fill_in(page, lines)


@results.command()
@_with_manner()
def single(
    manner: Manner,
    sockets: SocketsOption = "both",
    quota: Annotated[
        str, typer.Option(metavar="CORES|none", help="Of each broker; none: the whole machine (S2).")
    ] = "0.5",
) -> None:
    """Single brokers side by side: limit, latency, loss."""
    _produce(manner, "single", sockets=sockets, cores=_cores_of(quota))


def _cores_of(quota: str) -> float | None:
    """Raises: typer.BadParameter, for what is neither cores nor ``none``."""
    if quota == "none":
        return None
    try:
        cores = float(quota)
    except ValueError:
        cores = 0.0
    if not 0 < cores < float("inf"):
        raise typer.BadParameter(
            f"{quota!r} is neither a number of cores above 0 nor none", param_hint="--quota"
        )
    return cores


@results.command()
@_with_manner()
def patterns(
    manner: Manner,
    quota_model: Annotated[
        Literal["per-process", "shared"], typer.Option(help="A quota for each process, or one for each pair.")
    ] = "per-process",
    pairs: Annotated[bool, typer.Option(help="With the patterns of five pairs, or A alone.")] = True,
    overlays: Annotated[
        bool, typer.Option("--overlays", help="Overlays alone, in the pattern of low locality.")
    ] = False,
    sockets: Annotated[
        Literal["nodelay", "default", "both"] | None,
        typer.Option(help="Mosquitto's, for all; without it both for A and sum, nodelay for five pairs."),
    ] = None,
    load: Annotated[
        float, typer.Option(min=0.01, max=1, help="Part of its limit at which each is measured, such as 0.9.")
    ] = 1.0,
) -> None:
    """Pattern A against broker and HAProxy; none, low, high with five pairs, PF and SF."""
    from ildm_bench.results.patterns import OF_OVERLAYS  # noqa: PLC0415

    given = OF_OVERLAYS if overlays else {"pairs": pairs}
    _produce(manner, "patterns", model=quota_model, sockets=sockets, load=load, **given)


@results.command()
@_with_manner()
def link(
    manner: Manner,
    qos: QosOption = 0,
    publishers: Annotated[int, typer.Option(min=1, max=1000, help="For each of the five topics.")] = 1,
    sockets: SocketsOption = "both",
) -> None:
    """One link with 1, 2 and 4 sessions against a Mosquitto bridge."""
    _produce(manner, "link", qos=qos, publishers=publishers, sockets=sockets)


@results.command()
@_with_manner()
def latency(manner: Manner, sockets: SocketsOption = "both") -> None:
    """Latency that a relay and a link add, against HAProxy and the bridge."""
    _produce(manner, "latency", sockets=sockets)


@results.command()
@_with_manner()
def durability(manner: Manner) -> None:
    """What it costs to keep on disk what was acknowledged, beside a bridge."""
    _produce(manner, "durability")


@results.command()
@_with_manner()
def traffic(
    manner: Manner,
    qos: QosOption = 0,
    kind: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="gateway, gateway-10k, devices, fan-in, fan-out.")
    ] = None,
) -> None:
    """A gateway, many devices, fan-in, fan-out: over relays and over one link, at a fixed rate."""
    from ildm_bench.results.traffic import KINDS  # noqa: PLC0415

    kinds = tuple(dict.fromkeys(kind or KINDS))
    if unknown := [each for each in kinds if each not in KINDS]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(KINDS)}", param_hint="--kind")
    _produce(manner, "traffic", qos=qos, kinds=kinds)


@results.command()
@_with_manner()
def mixed(
    manner: Manner,
    limit: Annotated[
        bool, typer.Option("--limit", help="The highest load that they bear, and which of them ends it.")
    ] = False,
) -> None:
    """Mosquitto, ActiveMQ, RabbitMQ and Moquette joined by SF: nothing may be lost."""
    _produce(manner, "mixed", limit=limit)


@results.command()
@_with_manner()
def overlay(manner: Manner) -> None:
    """Twelve sites in three regions: SF in a row and in a star, SG-TBPS, ATM-TBPS, STLA."""
    _produce(manner, "overlay")


@results.command()
@_with_manner(can_be_full=False)
def content(
    manner: Manner,
    messages: Annotated[
        int, typer.Option(min=1, help="While expressions come and go, 80 of them a second.")
    ] = 100_000,
) -> None:
    """Twelve sites, each wants 5 % of the readings: OctopiA against SF; and whether it is exact."""
    _produce(manner, "content", messages=messages)


@results.command("slow-link")
@_with_manner(can_be_full=False)
def slow_link(manner: Manner) -> None:
    """A link between clusters becomes slow: OctopiA with SPR and with IDR, delay over time."""
    _produce(manner, "slow-link")


@results.command()
@_with_manner(can_be_full=False)
def distance(
    manner: Manner,
    sites: Annotated[
        int, typer.Option(min=3, max=999, help="That subscribe, each with a node and a broker.")
    ] = 60,
) -> None:
    """Subscribers at three places: STLA against SG-TBPS, live and simulated (S13)."""
    _produce(manner, "distance", sites=sites)
