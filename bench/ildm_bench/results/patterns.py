"""Result 2: what a node costs, and what five pairs bring (thesis 5.6.2, Fig. 5.13-5.15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ildm_bench.measure.figures import Comparison, Group, Limit
from ildm_bench.results.common import NODELAY, Bench, Sockets, comparison
from ildm_bench.results.loaded import AT_LOAD, at_load
from ildm_bench.results.tables import OF_LIMIT, Row
from ildm_bench.testbed.spec import Quota, QuotaModel, TestbedSpec

CORES: dict[QuotaModel, float] = {"per-process": 0.1, "shared": 0.15}
PAIRS = 5
START_MS = {"direct": 64.0, "A": 64.0, "none": 64.0, "low": 32.0, "high": 16.0, "sum": 12.0}
COST = 4
"""How much longer than with PF and SF the intervals of overlays are guessed to be."""
TREES = ("pf", "sf")
OVERLAYS = ("sg_tbps", "atm_tbps", "stla")
OF_OVERLAYS: dict[str, Any] = {"algorithms": OVERLAYS, "patterns": ["low"]}
"""Options of `run`: overlays alone, in the pattern of low locality."""
NAMES = {"pf": "PF", "sf": "SF", "sg_tbps": "SG-TBPS", "atm_tbps": "ATM-TBPS", "stla": "STLA"}


def run(
    bench: Bench,
    model: QuotaModel = "per-process",
    pairs: bool = True,
    algorithms: Sequence[str] = TREES,
    patterns: Sequence[str] = ("none", "low", "high"),
    sockets: Sockets | None = None,
    load: float = 1.0,
) -> Comparison:
    """Pattern A beside the broker alone and HAProxy, and ``none``, ``low``, ``high`` with five pairs.

    ``sum`` is one broker with the quota of five: what five pairs may bring at most, but for the nodes. A and
    ``sum`` are left out where no tree is among the algorithms. ``sockets`` holds for all; without it A and
    ``sum`` are measured with both, the pairs with ``set_tcp_nodelay true``, as they take the most time.
    ``load`` below 1 is a part of the limit, which is found first: each testbed is measured there, with
    ``set_tcp_nodelay true`` alone unless ``sockets`` says otherwise.
    """
    few: Sockets = sockets or ("both" if load == 1 else "nodelay")
    many: Sockets = sockets or "nodelay"
    cores = CORES[model]
    quota = Quota(cores, model)
    trees = [algorithm for algorithm in algorithms if algorithm in TREES]
    loaded: list[Row] = []

    def limits(
        name: str, label: str, pattern: str, spec: TestbedSpec, start: str, of: Sockets = few
    ) -> list[Limit]:
        guess = START_MS[start] * (COST if spec.algorithm in OVERLAYS else 1)
        scenario = bench.scenario(f"pattern-{pattern}")
        name = f"{model}-{name}"
        found = bench.limits(name, label, scenario, spec, of, start_ms=guess, first_ms=0.5)
        if load < 1:
            group = {"direct": "A"}.get(start, start)
            for nodelay, limit in zip(NODELAY[of], found, strict=True):
                place = name if nodelay else f"{name}-default-sockets"
                full = f"{group}: {limit.label}"
                run = at_load(bench, place, full, scenario, replace(spec, nodelay=nodelay), limit, load)
                interval = "" if run is None else f"{run.interval_ms:g} ms"
                loaded.append(Row(full, run, interval))
        return found

    alone = TestbedSpec(["mosquitto"], front="none", quota=quota)
    of_a = limits("direct", "broker alone", "a", alone, "direct")
    if trees:
        relay = TestbedSpec(["mosquitto"], front="haproxy", quota=quota)
        of_a += limits("haproxy", "HAProxy", "a", relay, "A")
    for algorithm in trees:
        spec = TestbedSpec(["mosquitto"], algorithm=algorithm, quota=quota)
        of_a += limits(f"A-{algorithm}", NAMES[algorithm], "a", spec, "A")
    groups = [Group(name="A", limits=of_a)]
    for pattern in patterns if pairs else ():
        found = []
        for algorithm in algorithms:
            spec = TestbedSpec(["mosquitto"] * PAIRS, algorithm=algorithm, quota=quota)
            found += limits(f"{pattern}-{algorithm}", NAMES[algorithm], pattern, spec, pattern, many)
        groups.append(Group(name=pattern, limits=found))
    if pairs and trees:
        big = TestbedSpec(["mosquitto"], front="none", quota=Quota(PAIRS * cores, model))
        total = limits("sum", f"broker with {PAIRS} quotas", "a", big, "sum")
        groups.append(Group(name="sum", limits=total))
    if load < 1:
        return comparison(
            f"Patterns at {load:.0%} of the limit, quota {model}",
            ["Each testbed at that part of its own limit; quotas and messages as at the limit."],
            AT_LOAD,
            loaded,
            sockets=few,
        )
    each, parts = (" each", "have") if model == "per-process" else ("", "share")
    return comparison(
        f"Patterns, quota {model}",
        [
            f"broker and node {parts} {cores:g} of a core{each} at every site; Mosquitto; 32 bytes, QoS 0. "
            "Ratios are to the broker alone with one such quota."
        ],
        OF_LIMIT,
        [Row.of_limit(limit, of_a[0], f"{group.name}: ") for group in groups for limit in group.limits],
        groups=groups,
        sockets=few,
    )
