"""Several experiments at once: processes simulate, this one has Spark and draws."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from multiprocessing.queues import SimpleQueue

from ildm_bench.analysis.session import spark_session
from ildm_bench.sim.experiments import experiments
from ildm_bench.sim.experiments.framework import (
    Experiment,
    Result,
    Setting,
    Simulated,
    carry_out,
    conclude,
    simulate,
)

LOOK = 0.5
"""Seconds between two looks at what the processes say."""

_told: SimpleQueue[tuple[str, str]]
"""In a process that simulates: where it says how far it is."""


def carry_out_all(
    chosen: Sequence[Experiment], setting: Setting, say: Callable[[str], None], at_once: int = 2
) -> Iterator[Result]:
    """The results as they come; with one experiment or ``at_once`` 1 all happens in this process."""
    spark = spark_session(quick=True)
    spark.range(1).count()  # so that the first experiment's seconds are its own
    if at_once == 1 or len(chosen) == 1:
        for experiment in chosen:
            yield carry_out(experiment, setting, spark, partial(_say, say, experiment.name))
        return
    # Spawned, so that none inherits Spark's threads.
    context = multiprocessing.get_context("spawn")
    told: SimpleQueue[tuple[str, str]] = context.SimpleQueue()
    pool = ProcessPoolExecutor(at_once, context, _listened, (told,))
    with pool:
        waiting: dict[Future[Simulated], Experiment] = {
            pool.submit(_simulated, experiment.name, setting): experiment for experiment in chosen
        }
        last: dict[str, str] = {}
        try:
            while waiting:
                done, _ = wait(waiting, LOOK, FIRST_COMPLETED)
                while not told.empty():
                    name, text = told.get()
                    last[name] = text
                for future in done:
                    experiment = waiting.pop(future)
                    last.pop(experiment.name, None)
                    # Of a process that failed the exception comes out here.
                    saying = partial(_say, say, experiment.name)
                    yield conclude(experiment, setting, future.result(), spark, saying)
                say("; ".join(f"{name}: {text}" for name, text in last.items()))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _listened(told: SimpleQueue[tuple[str, str]]) -> None:
    global _told  # noqa: PLW0603 - what a pool hands to its processes has no other place
    _told = told


def _simulated(name: str, setting: Setting) -> Simulated:
    return simulate(experiments()[name], setting, lambda text: _told.put((name, text)))


def _say(say: Callable[[str], None], name: str, text: str) -> None:
    say(f"{name}: {text}")
