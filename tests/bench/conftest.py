"""Spark for the tests of the pipeline, one session for all of them, on two cores; a browser for the pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.programs import missing, need

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """The session."""
    from ildm_bench.analysis.session import spark_session

    session = spark_session("local[2]", driver_memory="1g", quick=True)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def java() -> None:
    """Skip where Spark cannot run; fail where all parts must be there (``CI`` or ``ILDM_REQUIRE_ALL``)."""
    try:
        from ildm_bench.analysis.session import find_java

        find_java()
    except Exception as error:
        from ildm.mqtt import IldmError

        if not isinstance(error, ImportError | IldmError):
            raise
        missing(f"Spark cannot run: {error}")


@pytest.fixture(scope="session")
def chromium() -> str:
    """A browser; without one the tests are skipped, but fail where all parts must be there."""
    return need(*_BROWSERS)
