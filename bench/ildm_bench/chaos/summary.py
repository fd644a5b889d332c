"""An outcome in a few lines of text."""

from __future__ import annotations

from collections import defaultdict

from ildm_bench.chaos.excuses import CAUSES, OURS
from ildm_bench.chaos.outcome import Outcome
from ildm_bench.chaos.verdict import INVARIANTS
from ildm_bench.report import numbers

SHOWN = 5
"""Findings of each invariant and cause in the text."""
APART = tuple(cause for cause in CAUSES if cause != OURS)
"""Causes that do not count against what is promised."""


def summary(outcome: Outcome) -> str:
    """What ran, what was found, the first findings of each kind."""
    counted = outcome.counted
    lines = [
        f"{numbers.counted(outcome.runs, 'run')}, {numbers.count(sum(c.faults for c in counted))} faults, "
        f"{numbers.count(sum(c.published for c in counted))} messages published, "
        f"{numbers.count(sum(c.owed for c in counted))} deliveries owed"
    ]
    for target in sorted({each.setting.target for each in counted}, reverse=True):
        of_target = Outcome(found=[each for each in outcome.found if each.setting.target == target])
        found = ", ".join(f"{name} {of_target.total(name, target=target)}" for name in INVARIANTS)
        lines.append(f"{target}: {found}")
        apart = [
            f"{name} {amount} ({cause})"
            for name in INVARIANTS
            for cause in APART
            if (amount := of_target.total(name, cause, target))
        ]
        if apart:
            lines.append(f"{target}, said apart: {', '.join(apart)}")
    shown: dict[tuple[str, str], int] = defaultdict(int)
    names = list(INVARIANTS)
    for finding in sorted(outcome.findings, key=lambda each: names.index(each.invariant)):
        shown[finding.invariant, finding.cause] += 1
        if shown[finding.invariant, finding.cause] <= SHOWN:
            lines.append(f"  {finding} (seed {finding.seed})")
    lines.append("holds" if outcome.holds() else "does not hold")
    return "\n".join(lines)
