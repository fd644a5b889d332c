"""The experiments of thesis chapters 3 and 4, and some beyond them; see `bench.sim.experiments.framework`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.sim.experiments.framework import Experiment


def experiments() -> dict[str, Experiment]:
    """All experiments by name, in the order of the thesis, those beyond it at the end."""
    from bench.sim.experiments import (  # noqa: PLC0415 - Spark and matplotlib are slow to import
        churn,
        side_by_side,
        t3_7,
        t3_8,
        t3_9,
        t3_10,
        t3_11,
        t3_12,
        t3_13,
        t3_14,
        t3_15,
        t4_5,
        t4_6,
        t4_9,
    )

    modules = (
        t3_7,
        t3_8,
        t3_9,
        t3_10,
        t3_11,
        t3_12,
        t3_13,
        t3_14,
        t3_15,
        t4_5,
        t4_6,
        t4_9,
        side_by_side,
        churn,
    )
    return {module.EXPERIMENT.name: module.EXPERIMENT for module in modules}
