"""What is compiled in this tree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ildm import compiled


def directory() -> Path:
    """Where it is; skips the test where there is none, but for CI, which has a compiler."""
    reason = compiled.stale(compiled.DIRECTORY)
    if reason is not None:
        assert not os.environ.get("CI"), f"{reason}: in CI everything is compiled"
        pytest.skip(f"{reason} (make compiled)")
    return compiled.DIRECTORY
