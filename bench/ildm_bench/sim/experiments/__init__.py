"""The experiments of the papers, a folder for each, and some beyond; see
`ildm_bench.sim.experiments.framework`.

A folder's docstring is its title and introduction in RESULTS.md, ``PLACE`` where it stands there. Each module
in it that defines ``EXPERIMENT`` is an experiment; the others are what these share.
"""

from __future__ import annotations

import pkgutil
import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from ildm_bench.sim.experiments.framework import Experiment


def experiments() -> dict[str, Experiment]:
    """All experiments by name, folder by folder, in the order of their modules' names.

    Raises:
        ValueError: two have the same name.
    """
    found: dict[str, Experiment] = {}
    for folder in sorted(_modules(__name__, packages=True), key=lambda module: int(module.PLACE)):
        title, _, text = (folder.__doc__ or "").partition("\n")
        for module in sorted(_modules(folder.__name__), key=_natural):
            if experiment := getattr(module, "EXPERIMENT", None):
                if experiment.name in found:
                    raise ValueError(f"{module.__name__}: there is another experiment {experiment.name}")
                found[experiment.name] = replace(
                    experiment, section=title.removesuffix("."), introduction=text.strip()
                )
    return found


def _modules(package: str, *, packages: bool = False) -> list[ModuleType]:
    return [
        pkgutil.resolve_name(f"{package}.{module.name}")
        for module in pkgutil.iter_modules(pkgutil.resolve_name(package).__path__)
        if module.ispkg == packages
    ]


def _natural(module: ModuleType) -> list[tuple[int, str]]:
    """``t3_9`` before ``t3_10``."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", module.__name__)]
