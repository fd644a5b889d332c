"""What stands in the units that the project gives away."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

UNITS = Path(__file__).parents[3] / "configs" / "systemd"
SERVICE = UNITS / "ildm@.service"
PAIR = UNITS / "ildm-pair@.service"
SOCKET = UNITS / "ildm@.socket"


def missing() -> str | None:
    return None if shutil.which("systemd-analyze") else "systemd-analyze is not installed"


def settings(unit: Path) -> Iterator[tuple[str, str]]:
    for line in unit.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            yield key, value


def values(unit: Path, key: str) -> list[str]:
    return [value for name, value in settings(unit) if name == key]


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def rules(unit: Path) -> dict[str, Any]:
    """How the unit confines its process, for ``confined.py``."""
    allowed: set[str] = set()
    for line in values(unit, "SystemCallFilter"):
        named = set(expanded(line.removeprefix("~").split()))
        allowed = allowed - named if line.startswith("~") else allowed | named
    families = values(unit, "RestrictAddressFamilies")[0].split()
    return {
        # systemd itself has to start the program
        "allowed": sorted(allowed | {"execve", "exit", "exit_group", "rt_sigreturn"}),
        "families": [int(getattr(socket, family)) for family in families],
        "no_new_code": values(unit, "MemoryDenyWriteExecute") == ["yes"],
    }


def expanded(names: list[str]) -> Iterator[str]:
    for name in names:
        if not name.startswith("@"):
            yield name
            continue
        done = analyze("syscall-filter", name)
        assert done.returncode == 0, done.stderr
        inside = [line.strip() for line in done.stdout.splitlines() if line.startswith("    ")]
        yield from expanded([each for each in inside if not each.startswith("#")])
