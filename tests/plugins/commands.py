"""``ildm`` where a package was installed into a directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PATIENCE = 30.0
"""Seconds until a wait is given up: a bound for failures, never reached by a test that passes."""


def environment(installed: Path) -> dict[str, str]:
    """The environment of a process that finds the project and what was installed into a directory."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(installed), str(PROJECT)))}


def ildm(installed: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Carry out ``ildm ARGUMENTS`` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "ildm", *map(str, arguments)],
        env=environment(installed),
        cwd=installed,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
