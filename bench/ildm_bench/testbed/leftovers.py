"""What testbeds of the past have left in the system because both they and their reaper were killed."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from ildm.testing.live.reaper import INTERFACE, MARK, NAME, PREFIX, clear_up
from ildm_bench.testbed.cgroups import places

_live: set[str] = set()
"""Testbeds of this process."""


def new_name() -> str:
    """A name for a testbed of this process."""
    number = 1
    while (name := f"{PREFIX}{os.getpid()}-{number}") in _live:
        number += 1
    _live.add(name)
    return name


def give_up_name(name: str) -> None:
    """The testbed is gone, and all of it."""
    _live.discard(name)


def remove_leftovers() -> dict[str, list[str]]:
    """Kill and remove what testbeds have left whose process is dead.

    Gives their names, each with what could not be removed, such as another user's.
    """
    removed = {}
    names = sorted(name for name in _names() if not _is_alive(name))
    for name in names:
        directories = [str(path) for path in Path(tempfile.gettempdir()).glob(f"{name}-*")]
        above = [path for _, path in places()]
        removed[name] = clear_up(
            {
                "testbed": [name],
                "cgroup": [str(path / name) for path in above if (path / name).is_dir()],
                "supervisor": [str(path) for path in above],
                "network": [name],
                "directory": directories,
            }
        )
    return removed


def _names() -> set[str]:
    """The testbeds that there are traces of."""
    texts: list[str] = []
    for _, path in places():
        texts += os.listdir(path)
    if Path("/run/netns").is_dir():
        texts += os.listdir("/run/netns")
    texts += os.listdir(tempfile.gettempdir())
    names = {found[0] for text in texts if (found := NAME.match(text))}
    for interface in os.listdir("/sys/class/net"):
        if found := INTERFACE.match(interface):
            names.add(f"{PREFIX}{int(found[1], 36)}-{int(found[2], 36)}")
    mark = re.compile(rf"{MARK}=({NAME.pattern})".encode())
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{process}/environ").read_bytes()
        except OSError:  # gone, or somebody else's
            continue
        if marked := mark.search(environment):
            names.add(marked[1].decode())
    return names


def _is_alive(name: str) -> bool:
    """Whether its process lives. A namesake with our process id and no testbed of ours does not."""
    found = NAME.match(name)
    assert found is not None, name
    owner = int(found[1])
    if owner == os.getpid():
        return name in _live
    return Path(f"/proc/{owner}").exists()
