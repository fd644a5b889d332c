"""What an experiment is made of, and how one is carried out.

To add an experiment put a module that defines ``EXPERIMENT = Experiment(...)`` into the folder of its paper:

* ``run(scale, seed, say)`` simulates, and returns its raw rows as tables: ``{"rows": table([{...}, ...])}``.
  ``say("N = 10,000")`` tells whoever waits how far it is. The same scale and seed give the same rows.
* ``summarise(frames)`` gets the same tables as Spark DataFrames, read back from Parquet, and aggregates them
  with the functions of `ildm_bench.sim.experiments.summary`: ``{"means": collected(frame)}``, a few rows
  each.
* ``compare(summary, scale)`` puts the paper's values beside ours, a `Line` for each, with the verdicts of
  `ildm_bench.sim.experiments.verdicts`.
* ``draw(summary)`` makes the pictures with `ildm_bench.sim.experiments.drawing`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, model_validator

from ildm_bench.report.style import drawing
from ildm_bench.report.svg import Picture, write_png

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Scale = Literal["small", "full"]
"""``full``: the paper's parameters. ``small``: the same relations in a few seconds."""
Verdict = Literal["agree", "agrees under", "differs", "open", "check", "beyond"]
"""``agree``, ``differs``: a finding beside the paper's. ``agrees under``: under a reading that the paper does
not state, one of several that were tried. ``open``: it depends on the seed, and ``why`` says how. ``check``:
a definition or closed form, which holds by construction where the code is right and is no finding.
``beyond``: the paper states no value, ours stands alone."""
Say = Callable[[str], None]
Tables = Mapping[str, pa.Table]
Frames = Mapping[str, "DataFrame"]
Summary = Mapping[str, Sequence[Mapping[str, Any]]]

RESULT = "result.json"
FIGURES = "figures"
SMALL_SCALE = "no verdict: the paper's parameters are those of the full scale"


def in_all(holds: Sequence[bool]) -> Verdict:
    """``agree`` where a relation holds in all graphs, ``differs`` where it holds in none, else ``open``."""
    return "agree" if all(holds) else "open" if any(holds) else "differs"


class Line(BaseModel):
    """One value of the paper beside ours."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    quantity: str
    paper: str
    ours: str
    verdict: Verdict
    why: str = ""
    band: str = ""
    """Limits or relation that the verdict was held against; a verdict has one."""
    reading: str = ""
    """How the paper was read. The reading was fixed before it was run on fresh seeds."""
    tried: int = 0
    """Readings that were tried, this one included."""
    any_scale: bool = False
    """The paper's parameters are met at small scale as well."""
    value: float | None = None
    limits: tuple[float | None, float | None] | None = None
    """Our value and its limits in numbers, to be judged over several seeds."""
    theirs: float | None = None
    sample: tuple[float, ...] = ()
    """The paper's value of one run, and graphs of ours beside it."""

    @model_validator(mode="after")
    def _judged_by_something(self) -> Line:
        if self.verdict != "beyond" and not self.band:
            raise ValueError(f"{self.quantity}: a verdict without a band or a relation")
        if bool(self.reading) != (self.tried > 0):
            raise ValueError(f"{self.quantity}: a reading goes with the number of readings tried")
        if self.verdict == "agrees under" and not self.reading:
            raise ValueError(f"{self.quantity}: agrees under no reading")
        return self


class Figure(BaseModel):
    """A picture that was written: ``name``.png in the directory of figures."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    description: str
    caption: str


class Result(BaseModel):
    """What came of one experiment."""

    model_config = ConfigDict(extra="forbid")

    name: str
    section: str
    introduction: str
    title: str
    parameters: str
    scale: Scale
    seed: int
    command: str
    machine: str
    date: str
    commit: str = "unknown"
    runs: str = "unknown"
    """What was run: tables, an event model, or a plugin."""
    rows: int
    seconds: float
    """Simulation, Parquet, Spark and figures together."""
    cpu: float
    """Seconds of CPU of that in Python, without Spark."""
    began: float
    ended: float
    """Unix times; experiments run beside each other."""
    lines: list[Line]
    """Each with its verdict, at small scale as well; pages show `compared`."""
    figures: list[Figure]
    notes: list[str]

    @property
    def compared(self) -> list[Line]:
        """The lines, at small scale without verdicts where the paper's parameters are those of full scale."""
        if self.scale == "full":
            return self.lines
        return [
            line
            if line.any_scale or line.verdict in {"check", "beyond"}
            else line.model_copy(update={"verdict": "beyond", "why": SMALL_SCALE})
            for line in self.lines
        ]

    @classmethod
    def read(cls, directory: Path) -> Result:
        """The result in the directory of an experiment.

        Raises:
            FileNotFoundError: there is none.
            pydantic.ValidationError: it is not one.
        """
        return cls.model_validate_json((directory / RESULT).read_text())


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper, or one beyond it."""

    name: str
    """``T3.7``: figure or table of the thesis; beyond it, a word."""
    title: str
    parameters: Callable[[Scale], str]
    run: Callable[[Scale, int, Say], Tables]
    summarise: Callable[[Frames], Summary]
    compare: Callable[[Summary, Scale], list[Line]]
    draw: Callable[[Summary], Sequence[Picture]]
    runs: str = "tables"
    """What it runs: ``tables`` (converged ones), an event model, a formula, or plugins by name."""
    notes: Sequence[str] = ()
    """Decisions and limits that a reader of the figures has to know."""
    section: str = ""
    """Title and introduction of the folder it was found in, given by `ildm_bench.sim.experiments`."""
    introduction: str = ""


@dataclass(frozen=True)
class Setting:
    """How a run of experiments is asked for, and where it goes."""

    scale: Scale
    seed: int
    out: Path
    command: str
    machine: str
    date: str
    commit: str = "unknown"
    pictures: bool = True
    """Without: no figures, as for the seeds after the first."""


def table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table; all of them have the columns of the first.

    Raises:
        ValueError: there are no rows.
    """
    if not rows:
        raise ValueError("an experiment without rows")
    return pa.Table.from_pylist([dict(row) for row in rows])


def rows_file(out: Path, name: str, kind: str) -> Path:
    """Where the rows of a table of an experiment are."""
    return out / name / f"{kind}.parquet"


def write_rows(tables: Tables, out: Path, name: str) -> int:
    """Write the tables as Parquet; how many rows they have."""
    for kind, rows in tables.items():
        path = rows_file(out, name, kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path, compression="zstd")
    return sum(rows.num_rows for rows in tables.values())


def read_frames(spark: SparkSession, kinds: Sequence[str], out: Path, name: str) -> Frames:
    """The tables as Spark sees them."""
    return {kind: spark.read.parquet(str(rows_file(out, name, kind))) for kind in kinds}


@dataclass(frozen=True)
class Simulated:
    """Rows of an experiment that are on disk: of which kinds, how many, and since when (Unix time)."""

    kinds: Sequence[str]
    rows: int
    began: float
    seconds: float
    cpu: float


def simulate(experiment: Experiment, setting: Setting, say: Say) -> Simulated:
    """The first half, which needs no Spark: the rows are in ``out/NAME/KIND.parquet``."""
    began, clock, cpu = time.time(), time.monotonic(), time.process_time()
    say("simulates")
    tables = experiment.run(setting.scale, setting.seed, say)
    count = write_rows(tables, setting.out, experiment.name)
    seconds, cpu = time.monotonic() - clock, time.process_time() - cpu
    return Simulated(list(tables), count, began, seconds, cpu)


def conclude(
    experiment: Experiment, setting: Setting, simulated: Simulated, spark: SparkSession, say: Say
) -> Result:
    """The second half: summarise, compare and draw; the result is also in ``out/NAME/result.json``."""
    clock, cpu = time.monotonic(), time.process_time()
    name = experiment.name
    say(f"summarises {simulated.rows:,} rows")
    summary = experiment.summarise(read_frames(spark, simulated.kinds, setting.out, name))
    lines = experiment.compare(summary, setting.scale)
    figures: list[Figure] = []
    if setting.pictures:
        say("draws")
        with drawing():
            figures = [_written(picture, setting.out / FIGURES) for picture in experiment.draw(summary)]
    result = Result(
        name=name,
        section=experiment.section,
        introduction=experiment.introduction,
        title=experiment.title,
        parameters=experiment.parameters(setting.scale),
        scale=setting.scale,
        seed=setting.seed,
        command=setting.command,
        machine=setting.machine,
        date=setting.date,
        commit=setting.commit,
        runs=experiment.runs,
        rows=simulated.rows,
        seconds=simulated.seconds + time.monotonic() - clock,
        cpu=simulated.cpu + time.process_time() - cpu,
        began=simulated.began,
        ended=time.time(),
        lines=lines,
        figures=figures,
        notes=list(experiment.notes),
    )
    (setting.out / name / RESULT).write_text(result.model_dump_json(indent=1) + "\n")
    (setting.out / name / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return result


def carry_out(experiment: Experiment, setting: Setting, spark: SparkSession, say: Say) -> Result:
    """Both halves, one after the other."""
    return conclude(experiment, setting, simulate(experiment, setting, say), spark, say)


def _written(picture: Picture, directory: Path) -> Figure:
    directory.mkdir(parents=True, exist_ok=True)
    write_png(picture, directory)
    return Figure(
        name=picture.name, title=picture.title, description=picture.description, caption=picture.caption
    )
