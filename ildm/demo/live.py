"""The live picture of the demo: the sites in a row, the links between them, and what to try."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from rich import box
from rich.align import Align
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ildm.admin.view import Row
from ildm.cli.terminal import STATES, cell
from ildm.demo.sites import Site, SitesInRow, described, neighbors, status

TOPIC = "demo/clock"
"""What the demo itself publishes."""
COLUMNS = 74
"""Narrower terminals get a line for each site."""
LINE = 58
"""Narrower ones leave the broker out there."""
LINES = 23
"""Lower ones, too."""
TOTALS = 96
"""Terminals at least so wide get totals beside the rates."""

COUNTERS = {
    "in": ("messages_in",),
    "out": ("messages_out",),
    "crossed": ("transferred_out", "transferred_in"),
}
"""Messages from local clients, to local clients, and over links."""


@dataclass
class Sample:
    """What the nodes say at one moment (monotonic seconds)."""

    moment: float = field(default_factory=time.monotonic)
    status: dict[str, Row | None] = field(default_factory=dict)
    links: dict[str, dict[str, Row]] = field(default_factory=dict)

    @classmethod
    def take(cls, row: SitesInRow) -> Sample:
        sample = cls()
        for site in row.sites:
            sample.status[site.name] = status(site)
            sample.links[site.name] = neighbors(site)
        return sample

    def counter(self, site: str, name: str) -> int:
        found = self.status.get(site)
        return int(found["counters"].get(name, 0)) if found else 0

    def transferred(self, near: str, far: str) -> int:
        return int(self.links.get(near, {}).get(far, {}).get("transferred_out", 0))


class Picture:
    """Turns one sample after the other into something to look at."""

    def __init__(self, row: SitesInRow) -> None:
        self.row = row
        self.brokers = {site.name: described(site.make) for site in row.sites}
        self.before = self.now = Sample.take(row)

    def update(self) -> None:
        self.before, self.now = self.now, Sample.take(self.row)

    def render(self, width: int, height: int) -> RenderableType:
        sites = self.row.sites
        small = width < COLUMNS or height < LINES
        if small:
            middle: RenderableType = Group(self._lines(width), *self._link_lines())
        else:
            grid = Table.grid(expand=True)
            totals = width >= TOTALS
            cells: list[RenderableType] = [self._site(sites[0], totals)]
            grid.add_column(ratio=1)
            for left, right in pairwise(sites):
                grid.add_column(width=11, justify="center", vertical="middle")
                grid.add_column(ratio=1)
                cells += [self._link(left, right), self._site(right, totals)]
            grid.add_row(*cells)
            middle = grid
        title = Text.assemble(
            ("ILDM demo", "bold cyan"),
            ("   three brokers, one MQTT network", "bold"),
            f"   {self.row.algorithm}",
        )
        return Group(title, Text(), middle, Text(), commands(self.row, small))

    def line(self) -> str:
        """The same in one line, for output that is no terminal."""
        parts = [
            f"{site.name}: {self._clients(site)} clients, {self._rate(site, 'messages_in')} in, "
            f"{self._rate(site, 'messages_out')} out"
            for site in self.row.sites
        ]
        parts += [line.plain for line in self._link_lines()]
        return "; ".join(parts)

    def _lines(self, width: int) -> Table:
        """A line for each site."""
        grid = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
        makes = ("broker",) if width >= LINE else ()
        for name in ("site", *makes, "port", "clients", *COUNTERS):
            grid.add_column(name, justify="left" if name in ("site", "broker") else "right", no_wrap=True)
        for site in self.row.sites:
            found = self.now.status[site.name]
            connected = bool(found and found["broker"]["connected"])
            grid.add_row(
                Text.assemble(
                    ("● " if connected else "○ ", "green" if connected else "red"), (site.name, "bold")
                ),
                *(
                    Text(site.make.title() if found else "no answer", style="" if found else "red")
                    for _ in makes
                ),
                Text(str(site.port), style="bold cyan"),
                self._clients(site),
                *(self._rates(site, names) for names in COUNTERS.values()),
            )
        return grid

    def _rates(self, site: Site, names: tuple[str, ...]) -> str:
        now, before = (sum(each.counter(site.name, n) for n in names) for each in (self.now, self.before))
        return self._per_second(now - before)

    def _site(self, site: Site, totals: bool) -> RenderableType:
        found = self.now.status[site.name]
        body = Table.grid(padding=(0, 1), expand=True)
        body.add_column(style="dim", no_wrap=True)
        for _ in range(1 + totals):
            body.add_column(justify="right", no_wrap=True)
        connected = bool(found and found["broker"]["connected"])
        body.add_row("port", *[""] * totals, Text(str(site.port), style="bold cyan"))
        body.add_row("clients", *[""] * totals, self._clients(site))
        for word, names in COUNTERS.items():
            now = sum(self.now.counter(site.name, name) for name in names)
            body.add_row(word, *[Text(f"{now:,}", style="dim")] * totals, self._rates(site, names))
        broker = Text.assemble(
            ("● " if connected else "○ ", "green" if connected else "red"),
            (self.brokers[site.name] if totals else site.make.title(), "" if connected else "red"),
        )
        state = cell(found["status"]) if found else "no answer"
        return Panel(
            Group(Align.center(broker), Text(), body),
            title=Text(site.name, style="bold"),
            subtitle=Text(state, style=STATES.get(state, ("", "red"))[1]),
            border_style="cyan" if found else "red",
            box=box.ROUNDED,
        )

    def _link(self, left: Site, right: Site) -> RenderableType:
        state = self._state(left, right)
        symbol, style = STATES.get(state, ("·", "dim"))
        return Group(
            Align.center(Text(f"{self._between(left, right)} ▶", style=style)),
            Align.center(Text(f"━━━━{symbol}━━━━", style=style)),
            Align.center(Text(f"◀ {self._between(right, left)}", style=style)),
            Align.center(Text(state, style=style)),
        )

    def _link_lines(self) -> list[Text]:
        return [
            Text(
                f"{left.name} - {right.name} {self._state(left, right)}, "
                f"{self._between(left, right)} there, {self._between(right, left)} back",
                style=STATES.get(self._state(left, right), ("", "dim"))[1],
            )
            for left, right in pairwise(self.row.sites)
        ]

    def _state(self, left: Site, right: Site) -> str:
        return cell(self.now.links[left.name].get(right.name, {}).get("state", "down"))

    def _clients(self, site: Site) -> str:
        found = self.now.status[site.name]
        return cell(found["clients"]) if found else "-"

    def _rate(self, site: Site, name: str) -> str:
        return self._per_second(self.now.counter(site.name, name) - self.before.counter(site.name, name))

    def _between(self, near: Site, far: Site) -> str:
        passed = self.now.transferred(near.name, far.name) - self.before.transferred(near.name, far.name)
        return self._per_second(passed)

    def _per_second(self, number: int) -> str:
        passed = self.now.moment - self.before.moment
        return f"{max(0, round(number / passed)) if passed > 0 else 0:,}/s"


def commands(row: SitesInRow, narrow: bool = False) -> RenderableType:
    """What to type in another terminal."""
    program = spelled()
    first, middle, last = row.sites
    lines: list[tuple[str, str | Text]] = [
        ("subscribe at one site", f"{program} sub -p {last.port} -t 'demo/#'"),
        ("publish at another", f"{program} pub -p {first.port} -t demo/hello -m hi"),
        ("a node from inside", f"{program} shell --socket {middle.socket}"),
    ]
    if middle.page is not None:
        # a link, so that it can be clicked on where it takes two lines
        lines.append(("the same in a browser", Text(middle.page, style=f"link {middle.page}")))
    grid = Table.grid(padding=(0, 2))
    if narrow:
        grid.add_column(style="bold green", overflow="fold")
        for _, line in lines:
            grid.add_row(line)
    else:
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(style="bold green", overflow="fold")
        for note, line in lines:
            grid.add_row(note, line)
    moves = f"{TOPIC} goes from {first.name} to {last.name} by itself.\nCtrl-C ends the demo."
    return Group(Text("In another terminal:", style="bold"), grid, Text(moves, style="dim"))


def spelled() -> str:
    """How the user can start the program, here and now."""
    program = Path(sys.argv[0])
    if program.name != "ildm":
        return f"{_short(Path(sys.executable))} -m ildm"
    found = shutil.which("ildm")
    if found is not None and Path(found).samefile(program):
        return "ildm"
    return _short(program.absolute())


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
