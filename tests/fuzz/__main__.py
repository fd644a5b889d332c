"""``python -m tests.fuzz [--time 60] [TARGET...]``: arbitrary bytes into targets, without a name into all.

``python -m tests.fuzz TARGET --replay FILE...`` runs inputs again, in that order; ``--shrink`` makes the one
that fails smaller. What fails is written to .cache/fuzz/TARGET; then the status is 1.

With atheris mutations follow the coverage of the code, which has to run interpreted, and counting takes most
of the time. ``--compiled`` takes the own mutator and the compiled form: several times as many executions of a
core, from the corpus and from what atheris has found before. Both count; ``--tally`` adds them to the ledger.

Executions a core second, while other work kept both cores busy, and hours of a core that 10^8 take:

============== ======== ======== ======
target         atheris  compiled hours
============== ======== ======== ======
codec             1,500    9,500      3
admin             3,000    4,000      7
frames              590    2,900     10
config            1,100    1,900     15
handshake           740    1,300     21
chunks              360      850     33
client              160      680     41
broker              150      410     67
durable-client      100      380     72
link                100      310     91
spool               110      310     91
durable-broker       80      280     98
durable-link         65      220    126
============== ======== ======== ======

So 10^8 of one target take its hours on one core, and half as many on two with a process on each, whose seeds
differ. 10^8 over all targets take 15 hours of a core if each has the same time (``--time 4500``), of
which the codec has 43 million and ``durable-link`` one; 54 hours if each is to have the same number.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ildm_bench.commit import commit_of
from tests.fuzz import tally

if TYPE_CHECKING:  # what atheris instruments must not be imported before
    from tests.fuzz.engine import FindError, Target

CACHE = Path(".cache/fuzz")
EVERY = 5.0
"""Seconds between two lines of progress."""
GARBAGE = 50_000, 20, 20
"""Objects until the collector of cycles looks for some, and so on: it costs a tenth of the time."""
MOST_FINDS = 10
"""Different ones of a target, after which it is enough."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--time", type=float, default=60.0, help="seconds for each target")
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFFFFFF)
    parser.add_argument("--own", action="store_true", help="the own mutator, even if atheris is there")
    parser.add_argument("--compiled", action="store_true", help="the own mutator, on what is compiled")
    parser.add_argument("--tally", action="store_true", help="add what was run to executions.csv")
    parser.add_argument("--replay", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--shrink", action="store_true")
    asked = parser.parse_args()
    if asked.tally:
        print(tally.tally(tally.LEDGER, tally.RUNS))
        return 0
    own = asked.own or asked.compiled or asked.replay
    with_atheris = not own and importlib.util.find_spec("atheris") is not None
    if asked.compiled or with_atheris:  # before anything of the node is imported
        os.environ["ILDM_COMPILED"] = "1" if asked.compiled else "0"
    if len(asked.targets) != 1:
        return each_alone(asked.targets, sys.argv[1:])
    (name,) = asked.targets
    target = load(name, with_atheris)
    if asked.replay:
        return replay(target, asked.replay, asked.shrink)
    return fuzz(target, asked.time, asked.seed, with_atheris)


def each_alone(names: list[str], arguments: list[str]) -> int:
    """Every target in a process of its own: atheris ends the one it runs in."""
    from tests.fuzz.targets import TARGETS

    options = [one for one in arguments if one not in names]
    command = [sys.executable, "-m", "tests.fuzz"]
    runs = [subprocess.run([*command, name, *options], check=False) for name in names or TARGETS]
    return max(run.returncode for run in runs)


def load(name: str, instrumented: bool) -> Target:
    """Import and make a target."""
    atheris: Any = importlib.import_module("atheris") if instrumented else None
    with atheris.instrument_imports(include=["ildm", "ildm_algorithms"]) if atheris else nullcontext():
        targets = importlib.import_module("tests.fuzz.targets")
        if name not in targets.TARGETS:
            raise SystemExit(f"{name}: no target; there are {', '.join(targets.TARGETS)}")
        target: Target = targets.make(name)
    return target


def fuzz(target: Target, seconds: float, seed: int, with_atheris: bool) -> int:
    """Run a target for a while; the status of the process."""
    from ildm import compiled
    from tests.fuzz import engine

    directory = CACHE / target.name
    how = "atheris" if with_atheris else "compiled" if compiled.form() == "compiled" else "own"
    progress = Progress(target.name, how, tally.RUNS)
    gc.collect()
    gc.freeze()  # what is there now stays
    gc.set_threshold(*GARBAGE)
    grown = directory / "corpus"
    grown.mkdir(parents=True, exist_ok=True)

    def found(find: FindError) -> None:
        if progress.found(find.place):
            print(f"{find}\n  saved in {engine.save(find, directory)}", flush=True)
            if len(progress.finds) >= MOST_FINDS:
                progress.finish()
                os._exit(1)

    end = time.monotonic() + seconds

    def more(runner: engine.Runner) -> bool:
        progress.show(runner.runs)
        return time.monotonic() < end

    if with_atheris:
        engine.fuzz_with_atheris(target, grown, seed, more, found, progress.finish)
    inputs = [file.read_bytes() for file in sorted(grown.iterdir())]
    engine.fuzz(target, seed, more, found, inputs)
    return progress.finish()


class Progress:
    """Says now and then how far a target is, and at the end what came of it."""

    def __init__(self, name: str, how: str, runs: Path) -> None:
        self.name, self.how = name, how
        self._run = tally.Run(runs, name, how, commit_of(Path(__file__).parent))
        self.finds: dict[str, int] = {}
        """Where a target has failed, and how often."""
        self.runs = 0
        self._last = time.monotonic()
        self._cpu = time.process_time()

    def show(self, runs: int) -> None:
        self.runs = runs
        now = time.monotonic()
        if now - self._last >= EVERY:
            self._last = now
            self._run.write(runs, time.process_time(), len(self.finds))
            print(f"{self.name}: {self._so_far()}", flush=True)

    def _so_far(self) -> str:
        rate = self.runs / max(time.process_time() - self._cpu, 1e-9)
        return f"{self.runs:,} inputs, {rate:,.0f} a core second, {len(self.finds)} finds ({self.how})"

    def found(self, place: str) -> bool:
        """Whether it has not failed there before."""
        self.finds[place] = self.finds.get(place, 0) + 1
        return self.finds[place] == 1

    def finish(self) -> int:
        """The status of the process."""
        self._run.write(self.runs, time.process_time(), len(self.finds), ended=True)
        cpu = time.process_time() - self._cpu
        hours = cpu / max(self.runs, 1) * 1e8 / 3600
        print(
            f"{self.name}: {self._so_far()}, {cpu:.0f} s of a core; 10^8 take {hours:.1f} h of one",
            flush=True,
        )
        return 1 if self.finds else 0


def replay(target: Target, files: list[Path], shrink: bool) -> int:
    """Run inputs again; with ``shrink`` the last is replaced by a smaller one that fails as well."""
    from tests.fuzz import engine

    target.fresh()
    for file in files:
        data = file.read_bytes()
        try:
            target.take(data)
        except Exception as error:
            if not shrink:
                raise
            less = engine.shrunk(target, data, engine.place_of(error))
            file.write_bytes(less)
            print(f"{file}: {len(data)} bytes, now {len(less)}: {less[:200]!r}")
            return 1
    print(f"{len(files)} inputs taken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
