"""Use of resources within the window, from the samples that were taken during the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ildm_bench.analysis.logs import read_table
from ildm_bench.measure.figures import ProcessUse
from ildm_bench.measure.manifest import Manifest
from ildm_bench.measure.schema import NETWORK, RESOURCES

RESOURCES_FILE = "resources.parquet"
NETWORK_FILE = "network.parquet"


def process_uses(
    directory: Path, manifest: Manifest, deliveries: int, note: Callable[[str], None]
) -> list[ProcessUse]:
    """What each process of the manifest used within the window; counters are taken to grow evenly between two
    samples. ``deliveries`` are those to t-clients that were received within the window.

    Raises:
        MissingLog, CorruptLog, WrongSchema: the manifest has processes, but the samples are of no use.
    """
    if not manifest.processes:
        return []
    table = read_table(directory / RESOURCES_FILE, RESOURCES)
    uses = []
    for process in manifest.processes:
        samples = table.filter(pc.equal(table["process"], process.name)).sort_by("time_ns")
        if not samples.num_rows:
            note(f"no samples of the process {process.name}")
            continue
        begin, end = manifest.window_begin_ns, manifest.window_end_ns
        times = _numbers(samples, "time_ns")
        if times[0] > begin or times[-1] < end:
            note(f"the samples of the process {process.name} do not cover the whole window")
        cpu = _growth(samples, "user_s", begin, end) + _growth(samples, "system_s", begin, end)
        resident = _numbers(samples, "rss_bytes")
        inside = resident[(times >= begin) & (times <= end)]
        uses.append(
            ProcessUse(
                name=process.name,
                role=process.role,
                site=process.site,
                label=process.label,
                quota=process.quota,
                cores=cpu / manifest.seconds,
                cpu_us_per_delivery=cpu * 1e6 / deliveries if deliveries else 0.0,
                rss_bytes=int((inside if inside.size else resident).max()),
                voluntary_switches=round(_growth(samples, "voluntary_switches", begin, end)),
                involuntary_switches=round(_growth(samples, "involuntary_switches", begin, end)),
            )
        )
    return uses


def network_growth(directory: Path) -> dict[str, dict[str, int]]:
    """By namespace and counter, its last value minus its first; nothing where none were sampled.

    Raises:
        CorruptLog, WrongSchema: the samples are of no use.
    """
    path = directory / NETWORK_FILE
    if not path.exists():
        return {}
    growth: dict[str, dict[str, int]] = {}
    first: dict[tuple[str, str], int] = {}
    for row in read_table(path, NETWORK).sort_by("time_ns").to_pylist():
        namespace, counter, value = row["namespace"], row["counter"], row["value"]
        start = first.setdefault((namespace, counter), value)
        growth.setdefault(namespace, {})[counter] = value - start
    return growth


def _numbers(samples: pa.Table, column: str) -> np.ndarray:
    return np.asarray(samples[column].to_numpy())


def _growth(samples: pa.Table, column: str, begin: int, end: int) -> float:
    # Relative times, as nanoseconds since the epoch have more digits than a float.
    times = (_numbers(samples, "time_ns") - begin).astype(float)
    at = np.interp([0.0, float(end - begin)], times, _numbers(samples, column).astype(float))
    return float(at[1] - at[0])
