"""Reports: one page of HTML that needs nothing else, and each of its pictures as PNG."""

from __future__ import annotations

from pathlib import Path

from ildm_bench.measure.figures import Comparison, Limit, RunFigures
from ildm_bench.report.errors import ReportError
from ildm_bench.report.tables import markdown_table

__all__ = ["ReportError", "markdown_table", "write_comparison", "write_run"]

# matplotlib is optional and slow to import: only who draws pays for it.
_DRAWING = {"matplotlib", "numpy"}


def write_run(figures: RunFigures, directory: Path, limit: Limit | None = None) -> Path:
    """Write the report of one run and return its page, ``report.html`` in `directory`, which is made.

    Beside it: ``throughput.png``, ``latency.png``, ``resources.png`` and, with `limit`, ``limit.png``, each
    only where there is something to draw.

    Raises:
        ReportError: matplotlib is not installed.
        OSError: the directory cannot be written.
    """
    try:
        from ildm_bench.report.pages import run_page  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _explained(error) from error
    return run_page(figures, directory, limit)


def write_comparison(comparison: Comparison, directory: Path, void: bool = False) -> Path:
    """Write the report of a comparison and return its page, ``report.html`` in `directory`, which is made.

    Beside it: ``ingress.png``, ``egress.png``, ``latency.png`` (bars as in Fig. 5.10 to 5.15 of the thesis),
    ``limit.png``, ``cdf.png`` and ``cpu.png``, each only where there is something to draw.

    Raises:
        ReportError: matplotlib is not installed; some of it is void, and ``void`` does not ask for that.
        OSError: the directory cannot be written.
    """
    try:
        from ildm_bench.report.pages import comparison_page  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _explained(error) from error
    return comparison_page(comparison, directory, void)


def _explained(error: ModuleNotFoundError) -> Exception:
    if error.name in _DRAWING:
        return ReportError(f"reports need {error.name}: install the extra 'bench'")
    return error
