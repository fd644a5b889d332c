"""The command ``ildm-bench analyse``, to be mounted by the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def analyse(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Directory with the runs.")],
    run: Annotated[
        list[str] | None, typer.Option("--run", metavar="ID", help="Only this run; may be repeated.")
    ] = None,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Spark master, such as spark://host:7077.")
    ] = "local[*]",
    bad: Annotated[
        Literal["refuse", "skip"],
        typer.Option(help="A log of no use: end with an error, or leave it out and note it."),
    ] = "refuse",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    driver_memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory for Spark's driver.")] = "2g",
) -> None:
    """Work out the figures of runs from their logs and write figures.json beside these."""
    import json  # noqa: PLC0415 - all of these are only for this command, Spark is slow to import

    from ildm_bench.analysis.errors import AnalysisError  # noqa: PLC0415
    from ildm_bench.analysis.job import table  # noqa: PLC0415
    from ildm_bench.analysis.pipeline import analyse as analyse_runs  # noqa: PLC0415
    from ildm_bench.analysis.pipeline import write_figures  # noqa: PLC0415
    from ildm_bench.analysis.session import spark_session  # noqa: PLC0415

    def tell(line: str) -> None:
        typer.echo(line, err=True)

    try:
        tell("starting Spark")
        spark = spark_session(master, driver_memory)
        figures = analyse_runs(spark, results, run, bad, tell)
        write_figures(figures, results)
    except AnalysisError as error:
        tell(f"error: {error}")
        raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps([one.model_dump() for one in figures], indent=1))
    else:
        typer.echo(table(figures))
    spark.stop()
