"""Start the sites, show them or prove that they work, and end everything."""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType

from rich.console import Console
from rich.live import Live

from ildm.demo.live import Picture, commands
from ildm.demo.proof import prove
from ildm.demo.sites import MAKES, SitesInRow
from ildm.terminal import make_console

__all__ = ["ALGORITHMS", "MAKES", "run_demo"]

ALGORITHMS = ("sf", "pf")
LINE_EVERY = 5.0
"""Seconds between the lines for an output that is no terminal."""


class Ended(BaseException):
    """A signal wants us to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run_demo(*, once: bool, algorithm: str, make: str) -> int:
    """Run the demo until it has proved its point or the user ends it; the exit status.

    Raises:
        DemoError: a broker or node cannot be started, or a node has ended.
    """
    console = make_console()
    before = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.getsignal(signal.SIGINT)
    try:
        with SitesInRow(algorithm, make, lambda text: console.print(text, style="dim")) as row:
            row.start()
            if once:
                console.print()
                return 0 if prove(row, console) else 1
            _show(row, console)
    except Ended as end:
        return 128 + end.number
    except KeyboardInterrupt:
        return 130 if once else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def _show(row: SitesInRow, console: Console) -> None:
    picture = Picture(row)
    if not sys.stdout.isatty():
        console.print(commands(row))
        while True:
            time.sleep(LINE_EVERY)
            row.check()
            picture.update()
            console.print(picture.line())
    console.print()
    with Live(picture.render(console.width), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(1)
            row.check()
            picture.update()
            live.update(picture.render(console.width), refresh=True)


def _end(number: int, _frame: FrameType | None) -> None:
    raise Ended(number)
