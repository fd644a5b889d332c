"""Reports are slow to draw: those that only get read are shared."""

from __future__ import annotations

from pathlib import Path

import pytest

from ildm_bench.report import write_comparison, write_run
from tests.bench.report import samples


@pytest.fixture(scope="session")
def run_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run with its limit search."""
    found = samples.limit("SF, 5 pairs", 3120, notes=["14 ms was measured twice"])
    return write_run(samples.run(), tmp_path_factory.mktemp("run"), found)


@pytest.fixture(scope="session")
def losing_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run over the limit, without a search."""
    return write_run(samples.losing(), tmp_path_factory.mktemp("losing"))


@pytest.fixture(scope="session")
def patterns_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a comparison of limits."""
    return write_comparison(samples.patterns(), tmp_path_factory.mktemp("patterns"))


@pytest.fixture(scope="session")
def latencies_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a comparison of runs."""
    return write_comparison(samples.latencies(), tmp_path_factory.mktemp("latencies"), void=True)
