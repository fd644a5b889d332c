"""All results in turn: what there is, how long each takes, what of it is valid, and where its table goes."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from ildm.mqtt import IldmError
from ildm_bench.measure.figures import Comparison
from ildm_bench.report import ReportError, markdown_table
from ildm_bench.report.cli import COMPARISON
from ildm_bench.report.entries import voids_of
from ildm_bench.report.pages import PAGE
from ildm_bench.results import (
    content,
    distance,
    durability,
    latency,
    link,
    mixed,
    overlay,
    patterns,
    single,
    slow_link,
    traffic,
)
from ildm_bench.results.common import Bench

SUMMARY = "summary.json"


@dataclass(frozen=True)
class Result:
    """One of the results."""

    name: str
    """Of its directory and of its table in a page."""
    command: str
    """What stands behind ``ildm-bench results`` to have it alone."""
    minutes: int
    """That it takes with runs of 8 s where nothing is repeated, counted from its runs: about 13 s each."""
    work: Callable[..., Comparison]
    """Produces it."""
    options: Mapping[str, Any] = field(default_factory=dict)

    def run(self, bench: Bench, command: str) -> Comparison:
        return self.work(bench, **self.options).model_copy(update={"command": command})


SUITE = (
    Result("mixed", "mixed", 3, mixed.run),
    Result("overlay", "overlay", 8, overlay.run),
    Result("latency", "latency", 11, latency.run),
    Result("durability", "durability", 12, durability.run),
    Result("slow-link", "slow-link", 10, slow_link.run),
    Result("distance", "distance", 15, distance.run),
    Result("single", "single", 18, single.run),
    Result("patterns-overlays", "patterns --overlays", 16, patterns.run, patterns.OF_OVERLAYS),
    Result("traffic", "traffic", 22, traffic.run),
    Result("content", "content", 28, content.run),
    Result("link", "link", 32, link.run),
    Result("link-qos1", "link --qos 1", 32, link.run, {"qos": 1}),
    Result("single-whole", "single --quota none", 18, single.run, {"cores": None}),
    Result("mixed-limit", "mixed --limit", 6, mixed.run, {"limit": True}),
    Result("patterns", "patterns", 50, patterns.run),
    Result("patterns-shared", "patterns --quota-model shared", 50, patterns.run, {"model": "shared"}),
    Result(
        "patterns-overlays-load",
        "patterns --overlays --load 0.9",
        20,
        patterns.run,
        {**patterns.OF_OVERLAYS, "load": 0.9},
    ),
    Result("patterns-load", "patterns --load 0.9", 60, patterns.run, {"load": 0.9}),
    Result(
        "patterns-shared-load",
        "patterns --quota-model shared --load 0.9",
        60,
        patterns.run,
        {"model": "shared", "load": 0.9},
    ),
)
"""The shortest first, about."""
WORK = {result.command.split()[0]: result.work for result in SUITE}
"""What produces it, by command."""


class Outcome(BaseModel):
    """What has become of one result."""

    model_config = ConfigDict(extra="forbid")

    name: str
    state: str
    """``valid``, ``void``, or ``failed``: nothing was measured, or not all."""
    reason: str = ""
    minutes: float = 0.0


class Summary(BaseModel):
    """The file ``summary.json`` beside the results."""

    model_config = ConfigDict(extra="forbid")

    outcomes: list[Outcome]

    @property
    def valid(self) -> bool:
        return all(outcome.state == "valid" for outcome in self.outcomes)

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"{each.name:<18} {each.state:<7} {each.minutes:6.1f} min  {each.reason.splitlines()[0]}".rstrip()
            if each.reason
            else f"{each.name:<18} {each.state:<7} {each.minutes:6.1f} min"
            for each in self.outcomes
        ]


def produce(result: Result, bench: Bench, full: bool = False, again: bool = False) -> tuple[Comparison, Path]:
    """One result with its page, in ``bench.out``; what was found before is not measured again.

    Raises:
        IldmError: it could not be measured; of `QuietError` the same command goes on later.
    """
    if again and bench.out.exists():
        shutil.rmtree(bench.out)
    bench.out.mkdir(parents=True, exist_ok=True)
    command = f"ildm-bench results {result.command}{' --full' if full else ''}"
    done = bench.out / COMPARISON
    if done.exists():
        comparison = Comparison.model_validate_json(done.read_text())
        bench.console.print(f"found before: {done}")
    else:
        comparison = result.run(bench, command)
    return comparison, bench.publish(comparison)


def run_all(bench: Bench, chosen: Sequence[Result], full: bool, again: bool) -> Summary:
    """Each in a directory of its own below ``bench.out``. One that fails does not keep the others."""
    summary = Summary(outcomes=[])
    for result in chosen:
        bench.console.rule(f"{result.name}, about {result.minutes} minutes")
        began = time.monotonic()
        of_one = replace(bench, out=bench.out / result.name)
        state, reason = "valid", ""
        try:
            comparison, _ = produce(result, of_one, full, again)
        except (IldmError, OSError) as error:
            state, reason = "failed", str(error)
            bench.console.print(f"failed: {error}")
        else:
            if voids := voids_of(comparison):
                state, reason = "void", "; ".join(voids)
        minutes = (time.monotonic() - began) / 60
        summary.outcomes.append(Outcome(name=result.name, state=state, reason=reason, minutes=minutes))
        bench.out.mkdir(parents=True, exist_ok=True)
        (bench.out / SUMMARY).write_text(summary.model_dump_json(indent=1) + "\n")
    return summary


def fill_in(page: Path, results: Path, names: Sequence[str], void: bool = False) -> list[str]:
    """Put tables into a page, each between its ``<!-- table: NAME -->`` and the next ``<!-- end -->``.

    The files of a result that the page's directory has go beside it, too. Nothing is written unless all can.

    Returns:
        The names for which the page has no place.

    Raises:
        ReportError: a table is void, and ``void`` does not ask for that; a place has no end.
        OSError: a file cannot be read or written.
    """
    text = page.read_text()
    without = []
    for name in names:
        comparison = Comparison.model_validate_json((results / name / COMPARISON).read_text())
        table = markdown_table(comparison, void)
        begin = f"<!-- table: {name} -->\n"
        if begin not in text:
            without.append(name)
            continue
        before, _, rest = text.partition(begin)
        inside, end, after = rest.partition("<!-- end -->")
        if not end or "<!-- table:" in inside:
            raise ReportError(f"{page}: the place of table {name} has no <!-- end -->")
        text = f"{before}{begin}{table}{end}{after}"
    page.write_text(text)
    for name in names:
        beside = page.parent / name
        wanted = {COMPARISON, PAGE, *(path.name for path in beside.glob("*.png"))}
        beside.mkdir(exist_ok=True)
        for path in (results / name).iterdir():
            if path.name in wanted:
                shutil.copyfile(path, beside / path.name)
    return without


def chosen_of(names: Sequence[str]) -> list[Result]:
    """The results of these names, all without any, in the order of the suite.

    Raises:
        ReportError: there is none of that name.
    """
    known = {result.name for result in SUITE}
    if wrong := [name for name in names if name not in known]:
        raise ReportError(f"{', '.join(wrong)}: no such result; there are {', '.join(sorted(known))}")
    return [result for result in SUITE if not names or result.name in names]


def slug(options: str) -> str:
    """Options of a command as part of a directory's name."""
    return re.sub(r"\W+", "-", options).rstrip("-")
