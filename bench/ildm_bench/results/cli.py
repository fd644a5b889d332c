"""``ildm-bench results NAME``: each result by one command, ``all`` of them by one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ildm_bench.quiet import PATIENCE

if TYPE_CHECKING:
    from ildm_bench.results.common import Bench

OUT = Path("bench-results")

results = typer.Typer(
    name="results",
    no_args_is_help=True,
    help="The tables of bench/README.md, each by one command. Interrupted, the same command goes on. What is "
    "not measured in quiet is measured again; a machine that does not become quiet ends it.",
)
FullOption = Annotated[
    bool, typer.Option("--full", help="Runs of 80 s and all measurements, as in the papers: hours.")
]
OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory of the results.")]
AgainOption = Annotated[bool, typer.Option("--again", help="Forget what was measured before.")]
PatienceOption = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="To wait for a quiet machine before a measurement.")
]
NoisyOption = Annotated[
    bool, typer.Option("--noisy", help="Measure beside other programs, too; pages then say that it is void.")
]
SocketsOption = Annotated[
    Literal["nodelay", "default", "both"],
    typer.Option(help="Mosquitto with set_tcp_nodelay true, as it comes, or rows for each."),
]


def bench_of(out: Path, full: bool, noisy: bool, patience: float) -> Bench:
    """Where and how results are measured."""
    from rich.console import Console  # noqa: PLC0415 - slow to import

    from ildm_bench.quiet import Gate  # noqa: PLC0415
    from ildm_bench.results.common import FULL, QUICK, Bench  # noqa: PLC0415

    console = Console(stderr=True, highlight=False)
    gate = Gate(
        lambda line: console.print(line, style="yellow", markup=False, soft_wrap=True), patience, noisy
    )
    return Bench(out, FULL if full else QUICK, console, gate)


def _produce(
    name: str, options: str, full: bool, out: Path, again: bool, noisy: bool, patience: float, **given: Any
) -> None:
    """One result by its command; ``options`` are those of the command, ``given`` those of its function."""
    from ildm_bench.report import markdown_table  # noqa: PLC0415
    from ildm_bench.results.suite import WORK, Result, produce, slug  # noqa: PLC0415

    command = name + options
    directory = slug(command) + ("-noisy" if noisy else "")
    bench = bench_of(out / directory, full, noisy, patience)
    result = Result(directory, command + (" --noisy" if noisy else ""), 0, WORK[name], given)
    comparison, page = produce(result, bench, full, again)
    typer.echo(markdown_table(comparison, void=noisy))
    typer.echo(page)


@results.command("all")
def all_results(
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
    full: FullOption = False,
    out: OutOption = OUT / "all",
    again: AgainOption = False,
    noisy: NoisyOption = False,
    patience: PatienceOption = PATIENCE,
) -> None:
    """Every result in turn, and what of it is valid. Exit status 1 if one is not."""
    from ildm_bench.results.suite import chosen_of, fill_in, run_all  # noqa: PLC0415

    chosen = chosen_of(only or [])
    if plan:
        for result in chosen:
            typer.echo(f"{result.name:<18} {result.minutes:4} min  ildm-bench results {result.command}")
        typer.echo(f"{'together':<18} {sum(result.minutes for result in chosen):4} min")
        return
    bench = bench_of(out / "noisy" if noisy else out, full, noisy, patience)
    summary = run_all(bench, chosen, full, again)
    for line in summary.lines():
        typer.echo(line)
    usable = {"valid", "void"} if noisy else {"valid"}
    measured = [each.name for each in summary.outcomes if each.state in usable]
    if page is not None:
        for name in fill_in(page, bench.out, measured, void=noisy):
            typer.echo(f"{page} has no place for {name}", err=True)
    if not summary.valid:
        raise typer.Exit(1)


@results.command()
def single(
    sockets: SocketsOption = "both",
    full: FullOption = False,
    out: OutOption = OUT,
    again: AgainOption = False,
    noisy: NoisyOption = False,
    patience: PatienceOption = PATIENCE,
) -> None:
    """Single brokers side by side: limit, latency, loss."""
    _produce("single", _sockets(sockets), full, out, again, noisy, patience, sockets=sockets)


@results.command()
def patterns(
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
    full: FullOption = False,
    out: OutOption = OUT,
    again: AgainOption = False,
    noisy: NoisyOption = False,
    patience: PatienceOption = PATIENCE,
) -> None:
    """Pattern A against broker and HAProxy; none, low, high with five pairs, PF and SF."""
    from ildm_bench.results.patterns import OVERLAYS  # noqa: PLC0415

    options = "" if quota_model == "per-process" else " --quota-model shared"
    given: dict[str, Any] = {"model": quota_model, "sockets": sockets}
    if overlays:
        options += " --overlays"
        given |= {"algorithms": OVERLAYS, "patterns": ["low"]}
    elif not pairs:
        options += " --no-pairs"
        given |= {"pairs": False}
    options += f" --sockets {sockets}" if sockets else ""
    _produce("patterns", options, full, out, again, noisy, patience, **given)


@results.command()
def link(
    qos: Annotated[int, typer.Option(min=0, max=2, help="Of messages, link and bridge.")] = 0,
    publishers: Annotated[int, typer.Option(min=1, max=1000, help="For each of the five topics.")] = 1,
    sockets: SocketsOption = "both",
    full: FullOption = False,
    out: OutOption = OUT,
    again: AgainOption = False,
    noisy: NoisyOption = False,
    patience: PatienceOption = PATIENCE,
) -> None:
    """One link with 1, 2 and 4 sessions against a Mosquitto bridge."""
    options = (f" --qos {qos}" if qos else "") + (f" --publishers {publishers}" if publishers > 1 else "")
    given = {"qos": qos, "publishers": publishers, "sockets": sockets}
    _produce("link", options + _sockets(sockets), full, out, again, noisy, patience, **given)


@results.command()
def latency(
    sockets: SocketsOption = "both",
    full: FullOption = False,
    out: OutOption = OUT,
    again: AgainOption = False,
    noisy: NoisyOption = False,
    patience: PatienceOption = PATIENCE,
) -> None:
    """Latency that a relay and a link add, against HAProxy and the bridge."""
    _produce("latency", _sockets(sockets), full, out, again, noisy, patience, sockets=sockets)


@results.command()
def durability(
    full: FullOption = False,
    out: OutOption = OUT,
    again: AgainOption = False,
    noisy: NoisyOption = False,
    patience: PatienceOption = PATIENCE,
) -> None:
    """What it costs to keep on disk what was acknowledged, beside a bridge."""
    _produce("durability", "", full, out, again, noisy, patience)


@results.command()
def traffic(
    qos: Annotated[int, typer.Option(min=0, max=2, help="Of messages, link and bridge.")] = 0,
    kind: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="gateway, gateway-10k, devices, fan-in, fan-out.")
    ] = None,
    full: FullOption = False,
    out: OutOption = OUT,
    again: AgainOption = False,
    noisy: NoisyOption = False,
    patience: PatienceOption = PATIENCE,
) -> None:
    """A gateway, many devices, fan-in, fan-out: over relays and over one link, at a fixed rate."""
    from ildm_bench.results.traffic import KINDS  # noqa: PLC0415

    kinds = tuple(dict.fromkeys(kind or KINDS))
    if unknown := [each for each in kinds if each not in KINDS]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(KINDS)}", param_hint="--kind")
    options = (f" --qos {qos}" if qos else "") + "".join(f" --kind {each}" for each in kind or ())
    _produce("traffic", options, full, out, again, noisy, patience, qos=qos, kinds=kinds)


@results.command()
def mixed(
    full: FullOption = False,
    out: OutOption = OUT,
    again: AgainOption = False,
    noisy: NoisyOption = False,
    patience: PatienceOption = PATIENCE,
) -> None:
    """Mosquitto, ActiveMQ, RabbitMQ and Moquette joined by SF: nothing may be lost."""
    _produce("mixed", "", full, out, again, noisy, patience)


@results.command()
def overlay(
    full: FullOption = False,
    out: OutOption = OUT,
    again: AgainOption = False,
    noisy: NoisyOption = False,
    patience: PatienceOption = PATIENCE,
) -> None:
    """Twelve sites in three regions: SF in a row and in a star, SG-TBPS, ATM-TBPS, STLA."""
    _produce("overlay", "", full, out, again, noisy, patience)


@results.command()
def content(
    messages: Annotated[
        int, typer.Option(min=1, help="While expressions come and go, 80 of them a second.")
    ] = 100_000,
    out: OutOption = OUT,
    again: AgainOption = False,
    noisy: NoisyOption = False,
    patience: PatienceOption = PATIENCE,
) -> None:
    """Twelve sites, each wants 5 % of the readings: OctopiA against SF; and whether it is exact."""
    options = "" if messages == 100_000 else f" --messages {messages}"
    _produce("content", options, False, out, again, noisy, patience, messages=messages)


@results.command("slow-link")
def slow_link(
    out: OutOption = OUT,
    again: AgainOption = False,
    noisy: NoisyOption = False,
    patience: PatienceOption = PATIENCE,
) -> None:
    """A link between clusters becomes slow: OctopiA with SPR and with IDR, delay over time."""
    _produce("slow-link", "", False, out, again, noisy, patience)


@results.command()
def distance(
    sites: Annotated[
        int, typer.Option(min=3, max=999, help="That subscribe, each with a node and a broker.")
    ] = 60,
    out: OutOption = OUT,
    again: AgainOption = False,
    noisy: NoisyOption = False,
    patience: PatienceOption = PATIENCE,
) -> None:
    """Subscribers at three places: STLA against SG-TBPS, live and simulated (S13)."""
    options = "" if sites == 60 else f" --sites {sites}"
    _produce("distance", options, False, out, again, noisy, patience, sites=sites)


def _sockets(sockets: str) -> str:
    return "" if sockets == "both" else f" --sockets {sockets}"
