"""The patterns of the evaluation (thesis 5.6.2, Table 5.3): number of sites and scenario of each.

The thesis and the paper that preceded it swap two names: C is low locality in the thesis and high locality in
the paper, D the other way round. So B, C and D go by what they are: ``none``, ``low`` and ``high``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ildm_bench.testbed.spec import SpecError

SCENARIOS = Path(__file__).parents[3] / "configs/bench"


@dataclass(frozen=True)
class Pattern:
    """``sites`` pairs of broker and node in a row, and the placement of the clients at them."""

    name: str
    sites: int
    scenario: Path
    description: str


PATTERNS = {
    pattern.name: pattern
    for pattern in (
        Pattern("A", 1, SCENARIOS / "pattern-a.yaml", "one broker with one node"),
        Pattern("none", 5, SCENARIOS / "pattern-none.yaml", "five pairs, clients without locality"),
        Pattern("low", 5, SCENARIOS / "pattern-low.yaml", "five pairs, low locality"),
        Pattern("high", 5, SCENARIOS / "pattern-high.yaml", "five pairs, high locality"),
    )
}


def find_pattern(name: str) -> Pattern:
    """A pattern by its name, in capital or small letters.

    Raises:
        SpecError: there is none of that name; B, C and D are told why.
    """
    for known, pattern in PATTERNS.items():
        if known.lower() == name.lower():
            return pattern
    hint = " (the papers swap C and D)" if name.upper() in {"B", "C", "D"} else ""
    raise SpecError(f"pattern: {name!r} is none of {', '.join(PATTERNS)}{hint}")


def site_makes(makes: list[str], sites: int) -> list[str]:
    """A make for each site: those given take turns.

    Raises:
        SpecError: more makes than sites, or none.
    """
    if not makes or len(makes) > sites:
        raise SpecError(f"brokers: {len(makes)} makes for {sites} sites")
    return [makes[site % len(makes)] for site in range(sites)]
