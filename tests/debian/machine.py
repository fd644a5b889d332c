"""This machine once more, to be changed at will: the same files, and what is written stays aside in memory.

It has processes and a network (loopback alone) of its own. Whatever runs in it ends with it, and nothing of
what was written is left. Needs root, and overlayfs.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.programs import missing, need

_MAKE = """
mount -t tmpfs -o mode=0755 none "$1"
mkdir "$1/written" "$1/work" "$1/merged"
mount -t overlay none -o "lowerdir=/,upperdir=$1/written,workdir=$1/work" "$1/merged"
mount --rbind /dev "$1/merged/dev"
mount -t proc none "$1/merged/proc"
mount -t tmpfs none "$1/merged/run"
mount -t tmpfs none "$1/merged/tmp"
ip link set lo up
echo ready
exec cat
"""


class Machine:
    """A copy of this machine; a context."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __enter__(self) -> Machine:
        need("ip")
        unshare = [need("unshare"), "--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child"]
        if os.geteuid() != 0:
            missing("only root may mount file systems and install packages")
        self._outside = subprocess.Popen(
            [*unshare, "sh", "-euc", _MAKE, "sh", self.directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._outside.stdout is not None
        assert self._outside.stderr is not None
        if self._outside.stdout.readline() != "ready\n":
            self._outside.kill()
            missing(f"no overlay of this machine can be made: {self._outside.stderr.read().strip()}")
        pid = self._outside.pid
        self._init = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
        return self

    def __exit__(self, *exception: object) -> None:
        self._outside.communicate(timeout=300)  # the end of its input is the end of its first process

    def within(self, *command: str | Path, user: int | None = None) -> list[str]:
        """What runs a command in it, from the directory / on; ``user``: not as root."""
        enter = ["nsenter", "--target", str(self._init), "--mount", "--net", "--ipc", "--pid"]
        chroot = ["chroot", *([f"--userspec={user}:{user}"] if user else []), f"{self.directory}/merged"]
        return [*enter, *chroot, *map(str, command)]

    def run(self, *command: str | Path, user: int | None = None, status: int = 0) -> str:
        """Its output; another exit status than the one expected is a failure of the test."""
        done = subprocess.run(
            self.within(*command, user=user),
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == status, (command, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def write(self, path: str, content: bytes) -> None:
        """Make a file, and the directories it is in."""
        make = 'mkdir -p "$(dirname "$1")" && cat > "$1"'
        subprocess.run(
            self.within("sh", "-c", make, "sh", path), env=ENVIRONMENT, input=content, check=True, timeout=60
        )

    def written(self) -> set[str]:
        """Every file, link and place of one removed that differs from the real machine; no directories."""
        there = ["nsenter", "--target", str(self._init), "--mount"]
        listed = subprocess.run(
            [*there, "find", f"{self.directory}/written", "!", "-type", "d", "-printf", "/%P\n"],
            capture_output=True,
            text=True,
            check=True,
        )
        return set(listed.stdout.splitlines())


ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
"""Nothing of the tests' own: what is installed has to get along without."""
