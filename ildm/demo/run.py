"""Start the sites, show them or prove that they work, and end everything."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from rich.console import Console
from rich.live import Live

from ildm.cli.terminal import make_console
from ildm.demo.live import Picture, commands
from ildm.demo.proof import prove
from ildm.demo.sites import MAKES, SitesInRow
from ildm.demo.traffic import Traffic

__all__ = ["ALGORITHMS", "MAKES", "run_demo"]

ALGORITHMS = ("sf", "pf")
LINE_EVERY = 5.0
"""Seconds between the lines for an output that is no terminal."""


DRAW_EVERY = 1.0
STEP = 0.1
"""Seconds until a new size of the terminal is seen."""


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
    picture, traffic = Picture(row), Traffic(row)
    try:
        if sys.stdout.isatty():
            _draw(row, console, picture, traffic)
        console.print(commands(row))
        while True:
            _work(traffic, LINE_EVERY, lambda: False)
            row.check()
            picture.update()
            console.print(picture.line())
    finally:
        traffic.close()


def _draw(row: SitesInRow, console: Console, picture: Picture, traffic: Traffic) -> NoReturn:
    console.print()
    size = console.size
    with Live(picture.render(*size), console=console, auto_refresh=False) as live:
        while True:
            _work(traffic, DRAW_EVERY, lambda drawn=size: console.size != drawn)  # type: ignore[misc]
            if console.size != size:
                size = console.size
                console.clear()  # what the terminal has wrapped is not where it was drawn
            row.check()
            picture.update()
            live.update(picture.render(*size), refresh=True)


def _work(traffic: Traffic, seconds: float, over: Callable[[], bool]) -> None:
    """Let messages flow for so long, or until it is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not over():
        traffic.work(STEP)


def _end(number: int, _frame: FrameType | None) -> None:
    raise Ended(number)
