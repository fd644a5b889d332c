"""Which code was measured. Imports nothing of the node, so that a fuzzer can have it first."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit_of(directory: Path) -> str:
    """The commit of the working tree a directory is in; ``unknown`` if it is in none."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--abbrev=7", "--dirty=+", "--exclude=*"],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip()
