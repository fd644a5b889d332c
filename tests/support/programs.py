"""Programs that tests need: without one a test is skipped, but fails where all parts must be there."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip; fail with ``CI`` or ``ILDM_REQUIRE_ALL``."""
    if any(os.environ.get(name, "").lower() not in {"", "0", "false"} for name in ("CI", "ILDM_REQUIRE_ALL")):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def need(*names: str) -> str:
    """The path of the first of some programs that is installed."""
    found = next(filter(None, map(shutil.which, names)), None)
    return found or missing(f"{names[0]} is not installed")
