"""Running a target: on its corpus, on mutations of it, and what is kept when it fails.

With atheris mutations follow the coverage of the code. Without it they follow what a target says of a run,
such as the counters that it has moved: an input that shows something new is mutated further.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import signal
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from tests.fuzz.mutator import LARGEST, Chance, Mutator, mutate_bytes

CORPUS = Path(__file__).parent / "corpus"
LONGEST = 20
"""Seconds of processor time that one input may take; it takes a few milliseconds at most."""
MOST_KEPT = 4000
"""Inputs that showed something new and are kept in memory."""


class Target:
    """Something that takes arbitrary bytes. Inputs may leave something behind, as a message that is retained,
    until :meth:`fresh`; so what failed may need some of the inputs before it."""

    name: ClassVar[str]
    corpus: ClassVar[str] = ""
    """The target whose corpus it shares; empty: it has one of its own."""
    mutate: Mutator = staticmethod(mutate_bytes)
    inputs_of_a_life: ClassVar[int] = 1
    """So many inputs are taken between one call of :meth:`fresh` and the next."""

    def fresh(self) -> None:
        """Forget all inputs up to now."""

    thorough = False
    """What is as right in one way of cutting or asking as in another is looked at in all of them, as with the
    corpus and with what fails; else in one of them, which the input itself decides."""

    def take(self, data: bytes) -> Iterable[Hashable]:
        """Take an input; answers what can be said of the way it took.

        Raises:
            Exception: any; that is a find.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Give back what the target has of the system."""


class Known:
    """Parts of inputs that were looked at and found right. What is said of a part depends on its bytes alone,
    so it need not be said again: of a mutated input only what has changed is looked at."""

    MOST = 1 << 16
    LARGEST = 1 << 10

    def __init__(self) -> None:
        self._found: dict[Hashable, Any] = {}

    def get(self, part: Hashable) -> Any:
        """What was said of a part; None: it is new."""
        return self._found.get(part)

    def put(self, part: Hashable, size: int, said: Any = True) -> None:
        """A part of so many bytes is right."""
        if size <= self.LARGEST:
            if len(self._found) >= self.MOST:
                self._found.clear()
            self._found[part] = said


class FindError(Exception):
    """An input, or a few in a row, with which a target fails."""

    def __init__(self, target: Target, inputs: list[bytes], error: BaseException, place: str) -> None:
        text = f"{type(error).__name__}: {error}"
        super().__init__(f"{target.name} fails after {len(inputs)} inputs at {place}: {text[:2000]}")
        self.inputs = inputs
        self.place = place
        """File and line; with others that fail there it counts as one find."""


class Runner:
    """Gives inputs to a target, and finds out which of them it takes to make it fail."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.runs = 0
        self.finds: dict[str, int] = {}
        """How often it has failed, by the place."""
        self._life: list[bytes] = []
        self._limited = limited()
        target.fresh()

    def take(self, data: bytes) -> Iterable[Hashable]:
        """Raises: FindError."""
        if len(self._life) >= self.target.inputs_of_a_life:
            self._life.clear()
            self.target.fresh()
        self._life.append(data)
        self.runs += 1
        try:
            with self._limited:
                return self.target.take(data)
        except Exception as error:
            place = place_of(error)
            self.finds[place] = self.finds.get(place, 0) + 1
            inputs = self._needed(place) if self.finds[place] == 1 else [data]
            self._life.clear()
            self.target.fresh()
            raise FindError(self.target, inputs, error, place) from error

    def _needed(self, place: str) -> list[bytes]:
        """Of the inputs of this life those without which it does not fail."""
        inputs = list(self._life)
        if fails(self.target, inputs[-1:], place):
            return inputs[-1:]
        if not fails(self.target, inputs, place):
            return inputs
        size = len(inputs) // 2
        while size:
            at = len(inputs) - 1
            while at > 0:
                begin = max(0, at - size)
                without = inputs[:begin] + inputs[at:]
                if fails(self.target, without, place):
                    inputs = without
                at = begin
            size //= 2
        return inputs


def place_of(error: BaseException) -> str:
    """Where an error was raised: file and line."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def fails(target: Target, inputs: Sequence[bytes], place: str) -> bool:
    """Whether these inputs, from the start, make a target fail at a place."""
    thorough = target.thorough
    target.thorough = True
    try:
        target.fresh()
        for data in inputs:
            with limited():
                target.take(data)
    except Exception as error:
        return place_of(error) == place
    finally:
        target.thorough = thorough
    return False


class limited:  # noqa: N801 - a function, but for the time that one of contextlib takes
    """Break off what takes longer than it may: an endless loop is a find, too."""

    def __init__(self) -> None:
        signal.signal(signal.SIGVTALRM, self._too_long)

    def __enter__(self) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    @staticmethod
    def _too_long(*_: object) -> None:
        raise TimeoutError(f"more than {LONGEST} s for one input")


def shrunk(target: Target, data: bytes, place: str) -> bytes:
    """A smaller input with which a target fails at the same place: parts are left out as long as it does."""
    size = len(data) // 2
    while size:
        at = 0
        while at < len(data):
            less = data[:at] + data[at + size :]
            if fails(target, [less], place):
                data = less
            else:
                at += size
        size //= 2
    return data


def corpus_of(target: Target) -> Path:
    """Where the corpus of a target is."""
    return CORPUS / (target.corpus or target.name)


def corpus(target: Target) -> list[bytes]:
    """The inputs that are kept with the project."""
    return [file.read_bytes() for file in sorted(corpus_of(target).iterdir())]


def fuzz(
    target: Target,
    seed: int,
    more: Callable[[Runner], bool],
    found: Callable[[FindError], None],
    inputs: Sequence[bytes] = (),
) -> int:
    """Run the corpus, then mutations of it, as long as ``more`` says so; answers the number of runs.

    The same seed and the same number of runs are the same inputs.
    """
    runner = Runner(target)
    random = Chance(seed)
    seen: set[Hashable] = set()
    kept: list[bytes] = []

    def run(data: bytes) -> None:
        try:
            features = runner.take(data)
        except FindError as find:
            found(find)
            return
        if len(kept) < MOST_KEPT and not seen.issuperset(features):
            seen.update(features)
            kept.append(data)

    first = [*corpus(target), *inputs]
    target.thorough = True
    for data in first:
        run(data)
    target.thorough = False
    while more(runner):
        pool = kept if kept and random.randrange(4) else first
        shorter = min(random.choice(pool), random.choice(pool), key=len)
        run(target.mutate(shorter, random, first))
    return runner.runs


def save(find: FindError, directory: Path) -> Path:
    """Write the inputs of a find into files, which ``--replay`` runs again in their order."""
    name = hashlib.sha1(b"".join(find.inputs), usedforsecurity=False).hexdigest()[:12]
    place = directory / name
    place.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(find.inputs):
        (place / f"{number:03d}").write_bytes(data)
    return place


def fuzz_with_atheris(
    target: Target,
    grown: Path,
    seed: int,
    more: Callable[[Runner], bool],
    found: Callable[[FindError], None],
    finish: Callable[[], int],
) -> NoReturn:
    """The same with atheris, which ends the process. What is new goes to the directory ``grown``."""
    atheris: Any = importlib.import_module("atheris")
    runner = Runner(target)
    others = corpus(target)

    def one_input(data: bytes) -> None:
        try:
            runner.take(data)
        except FindError as find:
            found(find)
        if not more(runner):
            os._exit(finish())

    def mutate(data: bytes, size: int, seed: int) -> bytes:
        random = Chance(seed)
        if not random.randrange(3):
            changed: bytes = atheris.Mutate(data, size)
            return changed
        return target.mutate(data, random, others)[:size]

    options = [f"-seed={seed & 0x7FFFFFFF}", f"-max_len={LARGEST}", "-verbosity=0", "-len_control=0"]
    folders = [str(grown), str(corpus_of(target))]
    atheris.Setup(["fuzz", *options, *folders], one_input, custom_mutator=mutate)
    atheris.Fuzz()
    raise AssertionError("atheris has come back")


def times(runs: int) -> Callable[[Runner], bool]:
    """For :func:`fuzz`: until there were so many runs."""
    return lambda runner: runner.runs < runs
