"""What is left of a testbed in the system."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ildm.testing.live.reaper import MARK, interface_prefix, namespaces
from ildm_bench.testbed.cgroups import places


def traces(name: str) -> list[str]:
    """Everything in the system that bears the name of the testbed."""
    found = [str(path / name) for _, path in places() if (path / name).exists()]
    found += namespaces(name)
    found += [entry for entry in os.listdir("/sys/class/net") if entry.startswith(interface_prefix(name))]
    found += [str(path) for path in Path(tempfile.gettempdir()).glob(f"{name}-*")]
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            marked = f"{MARK}={name}".encode() in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        if marked:
            found.append(f"process {process}")
    return found
