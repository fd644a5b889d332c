"""The pipeline as a Spark job: ``python -m ildm_bench.analysis.job RESULTS`` or ``spark-submit
bench/ildm_bench/analysis/job.py RESULTS``.

Exit status: 0 done, 1 a file cannot be used or Spark failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ildm_bench.analysis.errors import AnalysisError
from ildm_bench.analysis.logs import are_small
from ildm_bench.analysis.pipeline import analyse, write_figures
from ildm_bench.analysis.session import JAVA_VARIABLE, spark_session
from ildm_bench.measure.figures import Latency, RunFigures
from ildm_bench.options import LOCAL


def _whole(us: float | None) -> str:
    return "-" if us is None else f"{us:.0f}"


def table(figures: Sequence[RunFigures]) -> str:
    """The main figures of each run, a line each; latencies since sending, of l-clients if there are any."""
    rows = [("run", "ingress/s", "egress/s", "ratio", "verdict", "loss", "dup", "order", "p50 us", "p99 us")]
    for run in figures:
        latency: Latency | None = run.latency.get("latency.sent") or run.latency.get("throughput.sent")
        rows.append(
            (
                run.run,
                f"{run.ingress:.1f}",
                f"{run.egress:.1f}",
                f"{run.ratio:.4f}",
                run.verdict,
                f"{run.loss_rate:.2%}",
                str(run.duplicates),
                str(run.order_violations),
                _whole(latency.p50 if latency else None),
                _whole(latency.p99 if latency else None),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Analyse the runs, write their figures, print a table."""
    parser = argparse.ArgumentParser(prog="job.py", description="Figures from the logs of runs.")
    parser.add_argument("results", type=Path, help="directory with the runs")
    parser.add_argument("--out", type=Path, help="where the figures go; default: beside the logs")
    parser.add_argument("--run", action="append", metavar="ID", help="only this run; may be repeated")
    parser.add_argument("--bad", choices=("refuse", "skip"), default="refuse", help="logs of no use")
    parser.add_argument("--master", default=LOCAL, help="not for spark-submit, which has its own")
    parser.add_argument("--driver-memory", default="2g", metavar="SIZE", help="likewise")
    parser.add_argument(
        "--java", type=Path, metavar="HOME", help=f"home of the Java to use [env: {JAVA_VARIABLE}]"
    )
    options = parser.parse_args(arguments)
    try:
        quick = are_small(options.results)
        spark = spark_session(options.master, options.driver_memory, java=options.java, quick=quick)
        figures = analyse(spark, options.results, options.run, options.bad, _tell)
        write_figures(figures, options.results, options.out)
    except AnalysisError as error:
        _tell(f"error: {error}")
        return 1
    print(table(figures))
    spark.stop()
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
