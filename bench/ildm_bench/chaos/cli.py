"""``ildm-bench chaos``: runs under faults, and the check of what came of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ildm.cli.options import JsonOption
from ildm.cli.terminal import make_console
from ildm_bench.chaos.run_cli import run
from ildm_bench.chaos.virtual.cli import shrink
from ildm_bench.options import LOCAL, MasterOption

LEDGER = Path("bench/reports/chaos/hunts.csv")

app = typer.Typer(no_args_is_help=True, help="Does what was acknowledged arrive? Runs under faults, checked.")
app.command()(run)
app.command()(shrink)


@app.command()
def tally(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DIR...", help="Directories that hunts in virtual time have left; with those in them."
        ),
    ] = None,
    ledger: Annotated[Path, typer.Option(metavar="FILE", help="What they are added to.")] = LEDGER,
) -> None:
    """Add hunts to the ledger, and show what it comes to. What it has already is passed over."""
    from ildm_bench.chaos.ledger_cli import add_to, table_of  # noqa: PLC0415 - slow to import

    if directories:
        typer.echo(add_to(ledger, directories), err=True)
    make_console().print(table_of(ledger))


@app.command()
def check(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...", help="Directories of histories, or the chaos.json of earlier checks."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where chaos.json and report.html go. Default: the first directory."
        ),
    ] = None,
    engine: Annotated[
        Literal["python", "spark"],
        typer.Option(help="What judges runs: one after the other here, or many at a time on Spark."),
    ] = "python",
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
) -> None:
    """Check the histories of runs, and report them. Exit status 1 if something promised did not hold."""
    from ildm_bench.chaos.check import checked  # noqa: PLC0415 - slow to import
    from ildm_bench.chaos.report import write_report  # noqa: PLC0415

    def tell(line: str) -> None:
        typer.echo(line, err=True)

    outcome = checked(paths, engine, master, tell)
    into = out or next((path if path.is_dir() else path.parent for path in paths), Path())
    outcome.write(into)
    page = write_report(outcome, into, f"ildm-bench chaos check {' '.join(map(str, paths))}")
    if as_json:
        typer.echo(outcome.model_dump_json(indent=1))
    else:
        from ildm_bench.chaos.summary import summary  # noqa: PLC0415

        typer.echo(summary(outcome))
        typer.echo(page)
    if not outcome.holds():
        raise typer.Exit(1)
