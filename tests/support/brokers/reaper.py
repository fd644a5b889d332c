"""Kills the brokers of a test run whose process has gone, however it went.

Started with one end of a pipe as its standard input. Lines ``+PGID`` and ``-PGID`` tell which process groups
are alive; the end of the input means that the test run is over, and what is left of the groups is killed.
Exit handlers cannot do this: they do not run after SIGKILL or ``os._exit``. PR_SET_PDEATHSIG cannot either:
it fires when the *thread* that forked ends, and a broker started in a worker thread must outlive that thread.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


class Reaper:
    """The test run's end of the pipe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, start_new_session=True, cwd="/"
        )

    def watch(self, group: int) -> None:
        """From now on kill this process group when the test run ends."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """The process group is gone, and its number may be somebody else's soon."""
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Kill what is left, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()


def main() -> None:
    """Read the pipe to its end, then kill."""
    groups: set[int] = set()
    for line in sys.stdin:
        if line.startswith("+"):
            groups.add(int(line))
        else:
            groups.discard(-int(line))
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    main()
