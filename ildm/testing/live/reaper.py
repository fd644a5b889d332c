"""Clears up after a process that has gone, however it went: its children, cgroups, namespaces, directories.

Started with one end of a pipe as its standard input, whose lines say what there is; the end of the input
means that the owner is gone. Exit handlers cannot do this: they do not run after SIGKILL or ``os._exit``.
PR_SET_PDEATHSIG cannot either: it fires when the *thread* that forked ends, and a process started in a
worker thread must outlive that thread.

It runs as a script of its own (quick to start, independent of any search path), so it needs the standard
library alone. What a testbed has in the system bears its name, ``ildm-bench-PID-NUMBER``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PREFIX = "ildm-bench-"
NAME = re.compile(r"ildm-bench-(\d+)-(\d+)(?![0-9])")
SUPERVISOR = "-supervisor"
MARK = "ILDM_TESTBED"
"""Environment variable with the name of the testbed, in each of its processes."""
INTERFACE = re.compile(r"il([0-9a-z]+)\.([0-9a-z]+)[CL]")
"""Names of network interfaces: at most 15 characters, so process id and number have base 36."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NETNS = Path("/run/netns")
_PATIENCE = 5.0


class Reaper:
    """The owner's end of the pipe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            bufsize=0,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def watch(self, group: int) -> None:
        """From now on kill this process group when the owner has gone."""
        self._tell(f"+group {group}\n")

    def forget(self, group: int) -> None:
        """The process group is gone, and its number may be somebody else's soon."""
        self._untell(f"-group {group}\n")

    def add(self, kind: str, what: str) -> None:
        """Clear this up when the owner has gone.

        ``kind`` is ``testbed`` (its processes) or ``network`` with a testbed's name; ``cgroup``,
        ``supervisor`` (see `release_supervisors`) or ``directory`` with a path.
        """
        self._tell(f"+{kind} {what}\n")

    def discard(self, kind: str, what: str) -> None:
        """It has been cleared up."""
        self._untell(f"-{kind} {what}\n")

    def close(self) -> None:
        """Clear up what is left, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())

    def _untell(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # It was killed, and so has nothing to forget.
            self._tell(line)


def base36(number: int) -> str:
    """Digits and small letters."""
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text or "0"


def interface_prefix(name: str) -> str:
    """What the network interfaces of a testbed begin with."""
    found = NAME.match(name)
    assert found is not None, name
    return f"il{base36(int(found[1]))}.{base36(int(found[2]))}"


def kill_marked(name: str) -> None:
    """SIGKILL to all processes of a testbed, until there are none."""
    mark = f"{MARK}={name}".encode()
    give_up = time.monotonic() + _PATIENCE
    while pids := [pid for pid in _processes() if mark in _environment(pid)]:
        _kill(pids)
        if time.monotonic() > give_up:
            raise OSError(f"processes {pids} outlived a SIGKILL")
        time.sleep(0.01)


def remove_cgroup(directory: Path) -> None:
    """Kill what is in a cgroup and those below it, and remove them."""
    give_up = time.monotonic() + _PATIENCE
    while directory.is_dir():
        tree = [directory, *(path for path in directory.rglob("*") if path.is_dir())]
        for path in reversed(tree):  # the inner ones come after the outer ones
            _kill([pid for pid in members(path) if pid != os.getpid()])
            try:
                path.rmdir()
            except FileNotFoundError:
                continue
            except OSError:  # busy until the kernel has done away with the killed
                if time.monotonic() > give_up:
                    raise
        time.sleep(0.01)


def members(cgroup: Path) -> list[int]:
    """The processes in a cgroup."""
    try:
        return [int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()]
    except OSError:  # removed meanwhile
        return []


def write(file: Path, text: str) -> None:
    """Tell the kernel something by a file of a cgroup."""
    file.write_text(text)


def release_supervisors(above: Path) -> None:
    """Move the processes of the leaves ``*-supervisor`` (v2) back to the cgroup above, remove the leaves.

    The cgroup above must give up control of its children first: with it, it may hold no processes. So
    nothing happens while a testbed is there.
    """
    ours = [path for path in above.glob(f"{PREFIX}*") if path.is_dir()]
    leaves = [path for path in ours if path.name.endswith(SUPERVISOR)]
    if not leaves or len(leaves) < len(ours):
        return
    write(above / "cgroup.subtree_control", "-cpu")
    for leaf in leaves:
        give_up = time.monotonic() + _PATIENCE
        while pids := members(leaf):  # they may have children meanwhile
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    write(above / "cgroup.procs", str(pid))
            if time.monotonic() > give_up:
                raise OSError(f"{leaf}: processes {pids} stay")
        leaf.rmdir()


def remove_network(name: str) -> None:
    """Remove the network interfaces and namespaces of a testbed."""
    prefix = interface_prefix(name)
    for interface in sorted(os.listdir("/sys/class/net")):
        if re.match(rf"{re.escape(prefix)}[CL]", interface):
            subprocess.run(["ip", "link", "delete", interface], check=False, capture_output=True)
    for namespace in namespaces(name):
        done = subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)
        if (_NETNS / namespace).exists():  # not removed by somebody else at the same time either
            raise OSError(done.stderr.decode().strip())


def namespaces(name: str) -> list[str]:
    """The network namespaces of a testbed."""
    if not _NETNS.is_dir():
        return []
    return [entry for entry in sorted(os.listdir(_NETNS)) if entry.startswith(f"{name}-")]


def _processes() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid())


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, or somebody else's
        return []


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def clear_up(things: dict[str, list[str]]) -> list[str]:
    """Kill and remove all of it; what could not be, as text."""
    steps: dict[str, Callable[[str], None]] = {
        "group": lambda what: os.killpg(int(what), signal.SIGKILL),
        "testbed": kill_marked,
        "cgroup": lambda what: remove_cgroup(Path(what)),
        "supervisor": lambda what: release_supervisors(Path(what)),
        "network": remove_network,
        "directory": lambda what: shutil.rmtree(what, ignore_errors=True),
    }
    failures = []
    for kind, step in steps.items():
        for what in things.get(kind, []):
            try:
                step(what)
            except ProcessLookupError:
                continue
            except (OSError, subprocess.SubprocessError) as error:
                failures.append(f"{kind} {what}: {error}")
    return failures


def main() -> None:
    """Read the pipe to its end, then clear up."""
    things: dict[str, list[str]] = {}
    for line in sys.stdin:
        kind, _, what = line[1:].rstrip("\n").partition(" ")
        if line.startswith("+"):
            things.setdefault(kind, []).append(what)
        else:
            things[kind].remove(what)
    for failure in clear_up(things):
        print(failure, file=sys.stderr)


if __name__ == "__main__":
    main()
