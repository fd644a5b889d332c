"""``ildm-bench results NAME``: each result by one command."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from ildm_bench.figures import Comparison
    from ildm_bench.results.common import Bench

OUT = Path("bench-results")

results = typer.Typer(
    name="results",
    no_args_is_help=True,
    help="The results of the README, each by one command. Interrupted, the same command goes on.",
)
FullOption = Annotated[
    bool, typer.Option("--full", help="Runs of 80 s and all measurements, as in the papers: hours.")
]
OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory of the results.")]
AgainOption = Annotated[bool, typer.Option("--again", help="Forget what was measured before.")]


def _produce(
    name: str, full: bool, out: Path, again: bool, work: Callable[[Bench, str], Comparison], options: str = ""
) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to import

    from ildm_bench.results.common import FULL, QUICK, Bench  # noqa: PLC0415

    command = f"ildm-bench results {name}{options}{' --full' if full else ''}"
    directory = out / (name + options.replace(" ", "").replace("--", "-"))
    if again and directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    bench = Bench(directory, FULL if full else QUICK, Console(stderr=True, highlight=False))
    page = bench.publish(work(bench, command))
    from ildm_bench.figures import Comparison  # noqa: PLC0415
    from ildm_bench.report import markdown_table  # noqa: PLC0415

    typer.echo(markdown_table(Comparison.model_validate_json((directory / "comparison.json").read_text())))
    typer.echo(page)


@results.command()
def single(full: FullOption = False, out: OutOption = OUT, again: AgainOption = False) -> None:
    """Single brokers side by side: limit, latency, loss."""
    from ildm_bench.results.single import run  # noqa: PLC0415

    _produce("single", full, out, again, run)


@results.command()
def patterns(
    quota_model: Annotated[
        Literal["per-process", "shared"], typer.Option(help="A quota for each process, or one for each pair.")
    ] = "per-process",
    pairs: Annotated[bool, typer.Option(help="With the patterns of five pairs, or A alone.")] = True,
    overlays: Annotated[
        bool, typer.Option("--overlays", help="Overlays alone, in the pattern of low locality.")
    ] = False,
    full: FullOption = False,
    out: OutOption = OUT,
    again: AgainOption = False,
) -> None:
    """Pattern A against broker and HAProxy; none, low, high with five pairs and each algorithm."""
    from ildm_bench.results.patterns import OVERLAYS, run  # noqa: PLC0415

    def work(bench: Any, command: str) -> Any:
        if overlays:
            return run(bench, command, quota_model, algorithms=OVERLAYS, patterns=["low"])
        return run(bench, command, quota_model, pairs)

    options = ("" if quota_model == "per-process" else " --quota-model shared") + (
        " --overlays" if overlays else "" if pairs else " --no-pairs"
    )
    _produce("patterns", full, out, again, work, options)


@results.command()
def link(
    qos: Annotated[int, typer.Option(min=0, max=2, help="Of messages, link and bridge.")] = 0,
    publishers: Annotated[int, typer.Option(min=1, max=1000, help="For each of the five topics.")] = 1,
    full: FullOption = False,
    out: OutOption = OUT,
    again: AgainOption = False,
) -> None:
    """One link with 1, 2 and 4 sessions against a Mosquitto bridge."""
    from ildm_bench.results.link import run  # noqa: PLC0415

    options = (f" --qos {qos}" if qos else "") + (f" --publishers {publishers}" if publishers > 1 else "")
    _produce("link", full, out, again, lambda b, c: run(b, c, qos, publishers), options)


@results.command()
def latency(full: FullOption = False, out: OutOption = OUT, again: AgainOption = False) -> None:
    """Latency that a relay and a link add, against HAProxy and the bridge."""
    from ildm_bench.results.latency import run  # noqa: PLC0415

    _produce("latency", full, out, again, run)


@results.command()
def durability(full: FullOption = False, out: OutOption = OUT, again: AgainOption = False) -> None:
    """What it costs to keep on disk what was acknowledged, beside a bridge."""
    from ildm_bench.results.durability import run  # noqa: PLC0415

    _produce("durability", full, out, again, run)


@results.command()
def traffic(
    qos: Annotated[int, typer.Option(min=0, max=2, help="Of messages, link and bridge.")] = 0,
    kind: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="gateway, gateway-10k, devices, fan-in, fan-out.")
    ] = None,
    full: FullOption = False,
    out: OutOption = OUT,
    again: AgainOption = False,
) -> None:
    """A gateway, many devices, fan-in, fan-out: over relays and over one link, at a fixed rate."""
    from ildm_bench.results.traffic import KINDS, run  # noqa: PLC0415

    kinds = tuple(dict.fromkeys(kind or KINDS))
    if unknown := [each for each in kinds if each not in KINDS]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(KINDS)}", param_hint="--kind")
    options = (f" --qos {qos}" if qos else "") + "".join(f" --kind {each}" for each in kind or ())
    _produce("traffic", full, out, again, lambda b, c: run(b, c, qos, kinds), options)


@results.command()
def mixed(full: FullOption = False, out: OutOption = OUT, again: AgainOption = False) -> None:
    """Mosquitto, ActiveMQ, RabbitMQ and Moquette joined by SF: nothing may be lost."""
    from ildm_bench.results.mixed import run  # noqa: PLC0415

    _produce("mixed", full, out, again, run)


@results.command()
def overlay(full: FullOption = False, out: OutOption = OUT, again: AgainOption = False) -> None:
    """Twelve sites in three regions: SF in a row and in a star, SG-TBPS, ATM-TBPS, STLA."""
    from ildm_bench.results.overlay import run  # noqa: PLC0415

    _produce("overlay", full, out, again, run)


@results.command()
def content(
    messages: Annotated[
        int, typer.Option(min=1, help="While expressions come and go, 80 of them a second.")
    ] = 100_000,
    out: OutOption = OUT,
    again: AgainOption = False,
) -> None:
    """Twelve sites, each wants 5 % of the readings: OctopiA against SF; and whether it is exact."""
    from ildm_bench.results.content import run  # noqa: PLC0415

    options = "" if messages == 100_000 else f" --messages {messages}"
    _produce("content", False, out, again, lambda bench, command: run(bench, command, messages), options)


@results.command("slow-link")
def slow_link(out: OutOption = OUT, again: AgainOption = False) -> None:
    """A link between clusters becomes slow: OctopiA with SPR and with IDR, delay over time."""
    from ildm_bench.results.slow_link import run  # noqa: PLC0415

    _produce("slow-link", False, out, again, run)


@results.command()
def distance(
    sites: Annotated[
        int, typer.Option(min=3, max=999, help="That subscribe, each with a node and a broker.")
    ] = 60,
    out: OutOption = OUT,
    again: AgainOption = False,
) -> None:
    """Subscribers at three places: STLA against SG-TBPS, live and simulated (S13)."""
    from ildm_bench.results.distance import run  # noqa: PLC0415

    options = "" if sites == 60 else f" --sites {sites}"
    _produce("distance", False, out, again, lambda bench, command: run(bench, command, sites), options)
