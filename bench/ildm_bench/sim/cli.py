"""``ildm-bench sim``: the experiments in the simulator."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ildm_bench.options import RESULTS, OutOption

if TYPE_CHECKING:
    from rich.console import Console

    from ildm_bench.sim.experiments.framework import Experiment, Result, Setting

OUT = RESULTS / "sim"
HERE = Path(__file__).parent
"""Where ``--publish`` puts the page and its figures."""

sim = typer.Typer(
    name="sim",
    no_args_is_help=True,
    help="The overlays in the simulator: experiments of the papers and beyond.",
)


@sim.command("list")
def show() -> None:
    """The experiments, one in a line."""
    from ildm_bench.sim.experiments import experiments  # noqa: PLC0415 - slow to import

    for experiment in experiments().values():
        typer.echo(f"{experiment.name:<14} {experiment.title}")


@sim.command()
def run(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="T3.7 and so on, or: all.")],
    scale: Annotated[
        Literal["small", "full"], typer.Option(help="full: the papers' parameters; small: seconds.")
    ] = "full",
    seed: Annotated[int, typer.Option(min=0, help="Of everything drawn at random.")] = 1,
    seeds: Annotated[
        str, typer.Option(help="Instead, one after another: 101-110; writes SEEDS.md, the verdicts by seed.")
    ] = "",
    out: OutOption = OUT,
    at_once: Annotated[int, typer.Option(min=1, help="Processes that simulate beside each other.")] = 2,
    publish: Annotated[
        bool,
        typer.Option(
            "--publish",
            help="Put the page and figures of all that DIR holds beside the simulator's code, too.",
        ),
    ] = False,
) -> None:
    """Carry experiments out: rows as Parquet, figures, and RESULTS.md with the paper's values beside ours."""
    from rich.console import Console  # noqa: PLC0415

    from ildm_bench.sim.experiments.report import tally, write_page  # noqa: PLC0415
    from ildm_bench.sim.running import carry_out_all  # noqa: PLC0415

    chosen = _chosen(names)
    console = Console(stderr=True, highlight=False)
    if seeds:
        page = _run_seeds(chosen, names, scale, seeds, out, at_once, console)
        typer.echo(page)
        if publish:
            typer.echo(shutil.copy(page, HERE))
        return
    setting = _setting(names, scale, seed, out)
    with console.status("starts") as status:
        for done, result in enumerate(carry_out_all(chosen, setting, status.update, at_once), 1):
            console.print(
                f"{done} of {len(chosen)}, {result.name}: {tally(result.compared)}; {result.rows:,} rows, "
                f"{result.seconds:.1f} s"
            )
            page = write_page(stored(out), out)
    typer.echo(page)
    if publish:
        typer.echo(published(stored(out), out, HERE))


def _run_seeds(
    chosen: list[Experiment],
    names: list[str],
    scale: Any,
    text: str,
    out: Path,
    at_once: int,
    console: Console,
) -> Path:
    """Each seed's results, without figures, in ``out/seed-N``; the path of the page about all of them."""
    from ildm_bench.sim.experiments.seeds import parsed, write_page  # noqa: PLC0415
    from ildm_bench.sim.running import carry_out_all  # noqa: PLC0415

    try:
        wanted = parsed(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--seeds") from error
    found: dict[int, dict[str, Result]] = {}
    with console.status("starts") as status:
        for seed in wanted:
            setting = replace(_setting(names, scale, seed, out / f"seed-{seed}"), pictures=False)
            results = {
                result.name: result for result in carry_out_all(chosen, setting, status.update, at_once)
            }
            found[seed] = {one.name: results[one.name] for one in chosen}
            console.print(f"seed {seed}: {sum(result.seconds for result in results.values()):.1f} s")
    return write_page(found, out)


@sim.command()
def advise(
    networks: Annotated[int, typer.Option(min=1, help="Drawn at random.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of the first; each has the next.")] = 1001,
    out: OutOption = OUT,
    simulate: Annotated[bool, typer.Option(help="Or judge by what DIR has.")] = True,
) -> None:
    """Hold `ildm advise` against the simulator: how often the algorithm it names is the best, or within 10 %.

    Interrupted, the same command goes on. Writes advise.jsonl: each network with the costs of each algorithm.
    """
    from ildm_bench.sim.advising import lines, simulated  # noqa: PLC0415

    rows = []
    wanted = range(seed, seed + networks)
    for row in simulated(wanted, out / "advise.jsonl", simulate):
        rows.append(row)
        typer.echo(f"{len(rows)} of {networks}", err=True)
    if not rows:
        raise typer.BadParameter(f"{out / 'advise.jsonl'} has none of these networks", param_hint="--out")
    for line in lines(rows):
        typer.echo(line)


def stored(out: Path) -> list[Result]:
    """The results in a directory, in the order of the experiments."""
    from ildm_bench.sim.experiments import experiments  # noqa: PLC0415
    from ildm_bench.sim.experiments.framework import RESULT, Result  # noqa: PLC0415

    return [Result.read(out / name) for name in experiments() if (out / name / RESULT).exists()]


def published(results: list[Result], out: Path, directory: Path) -> Path:
    """Copy the figures of the results and write the page into another directory; figures of old go."""
    from ildm_bench.sim.experiments.framework import FIGURES  # noqa: PLC0415
    from ildm_bench.sim.experiments.report import write_page  # noqa: PLC0415

    figures = directory / FIGURES
    if figures.exists():
        shutil.rmtree(figures)
    figures.mkdir(parents=True)
    for result in results:
        for figure in result.figures:
            shutil.copy(out / FIGURES / f"{figure.name}.png", figures)
    return write_page(results, directory)


def _chosen(names: list[str]) -> list[Experiment]:
    from ildm_bench.sim.experiments import experiments  # noqa: PLC0415

    known = experiments()
    wanted = [*known] if names == ["all"] else list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        text = f"there is no experiment {', '.join(unknown)}; see: ildm-bench sim list"
        raise typer.BadParameter(text, param_hint="NAME...")
    return [known[name] for name in wanted]


def _setting(names: list[str], scale: Any, seed: int, out: Path) -> Setting:
    from datetime import UTC, datetime  # noqa: PLC0415

    from ildm_bench.commit import commit_of  # noqa: PLC0415
    from ildm_bench.micro.measure import machine  # noqa: PLC0415
    from ildm_bench.sim.experiments.framework import Setting  # noqa: PLC0415

    options = f"{' '.join(names)} --scale {scale} --seed {seed}"
    day = datetime.now(UTC).date().isoformat()
    return Setting(scale, seed, out, f"ildm-bench sim run {options}", machine(), day, commit_of(HERE))
