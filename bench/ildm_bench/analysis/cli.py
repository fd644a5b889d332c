"""The command ``ildm-bench analyse``, to be mounted by the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from ildm.cli.options import JsonOption
from ildm_bench.options import LOCAL, MasterOption


def analyse(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="Directory with the runs, also in directories below.")
    ],
    mqttloader: Annotated[
        list[Path] | None,
        typer.Option(
            "--mqttloader",
            metavar="FILE",
            help="Records of MQTTLoader (CSV), put into RESULTS as a run, which alone is analysed; may be "
            "repeated for the machines of one measurement. Or its summary, shown beside the figures.",
        ),
    ] = None,
    ramp: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Of MQTTLoader's records, cut at both ends.")
    ] = 0.0,
    run: Annotated[
        list[str] | None, typer.Option("--run", metavar="ID", help="Only this run; may be repeated.")
    ] = None,
    master: MasterOption = LOCAL,
    bad: Annotated[
        Literal["refuse", "skip"],
        typer.Option(help="A log of no use: end with an error, or leave it out and note it."),
    ] = "refuse",
    as_json: JsonOption = False,
    driver_memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory for Spark's driver.")] = "2g",
) -> None:
    """Work out the figures of runs from their logs and write figures.json beside these."""
    import json  # noqa: PLC0415 - all of these are only for this command, Spark is slow to import

    from ildm_bench.analysis.errors import AnalysisError  # noqa: PLC0415
    from ildm_bench.analysis.job import table  # noqa: PLC0415
    from ildm_bench.analysis.logs import are_small  # noqa: PLC0415
    from ildm_bench.analysis.pipeline import analyse as analyse_runs  # noqa: PLC0415
    from ildm_bench.analysis.pipeline import write_figures  # noqa: PLC0415
    from ildm_bench.analysis.session import spark_session  # noqa: PLC0415

    def tell(line: str) -> None:
        typer.echo(line, err=True)

    summaries: list[list[list[str]]] = []
    try:
        if mqttloader:
            imported, summaries = imported_from(mqttloader, results, ramp)
            run = [*(run or ()), *imported]
        tell("starting Spark")
        spark = spark_session(master, driver_memory, quick=are_small(results))
        figures = []
        for directory, names in runs_below(results, run, tell).items():
            found = analyse_runs(spark, directory, names, bad, tell)
            write_figures(found, directory)
            figures += found
    except AnalysisError as error:
        tell(f"error: {error}")
        raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps([one.model_dump() for one in figures], indent=1))
    else:
        typer.echo(table(figures))
        for rows in summaries:
            typer.echo(
                "\n" + "\n".join(f"{name:<40} {value:>14} {unit}".rstrip() for name, unit, value in rows)
            )
    spark.stop()


def imported_from(
    files: Sequence[Path], results: Path, ramp: float
) -> tuple[list[str], list[list[list[str]]]]:
    """MQTTLoader's records as runs below ``results``: their names; and the tables of its summaries.

    Raises:
        MissingLog, CorruptLog: a file is neither.
    """
    from ildm_bench.analysis.errors import MissingLog  # noqa: PLC0415
    from ildm_bench.analysis.mqttloader import import_run, is_summary, summary_table  # noqa: PLC0415

    if absent := next((path for path in files if not path.is_file()), None):
        raise MissingLog(absent, "not there")
    summaries = [path for path in files if is_summary(path)]
    records = [path for path in files if path not in summaries]
    names = [import_run(records, results, ramp)] if records else []
    return names, [summary_table(path) for path in summaries]


def runs_below(
    results: Path, names: Sequence[str] | None, tell: Callable[[str], None]
) -> dict[Path, list[str] | None]:
    """The directories at or below one that have runs, and the names of these; without ``names`` all.

    A search for a limit keeps the logs of the runs at the limit alone: the others are told, and left out.
    """
    found: dict[Path, list[str] | None] = {}
    without = 0
    for path in sorted(path for path in results.rglob("run=*") if path.is_dir()):
        name = path.name.removeprefix("run=")
        if names is not None and name not in names:
            continue
        if names is None and path.parent != results and not any(path.glob("role=*")):
            without += 1
            continue
        of_directory = found.setdefault(path.parent, [])
        assert of_directory is not None
        of_directory.append(name)
    if without:
        tell(f"{without} runs have no logs, as a search keeps those at its limit alone: left out")
    known = {name for each in found.values() for name in each or ()}
    missing = [name for name in names or () if name not in known]
    # what is not there is refused where runs are read
    return (
        {**found, results: [*(found.get(results) or ()), *missing]} if missing else found or {results: None}
    )
