"""Result 2: what a node costs, and what five pairs bring (thesis 5.6.2, Fig. 5.13-5.15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ildm_bench.measure.figures import Comparison, Group, Limit
from ildm_bench.micro.measure import machine
from ildm_bench.results.common import (
    HEADING,
    NODELAY,
    SHARED_CORES,
    Bench,
    Sockets,
    limit_row,
    socket_label,
    socket_words,
)
from ildm_bench.testbed.spec import Quota, QuotaModel, TestbedSpec

CORES: dict[QuotaModel, float] = {"per-process": 0.1, "shared": 0.15}
PAIRS = 5
START_MS = {"direct": 64.0, "A": 64.0, "none": 64.0, "low": 32.0, "high": 16.0, "sum": 12.0}


COST = 4
"""How much longer than with PF and SF the intervals of overlays are guessed to be."""
TREES = ("pf", "sf")
OVERLAYS = ("sg_tbps", "atm_tbps", "stla")
NAMES = {"pf": "PF", "sf": "SF", "sg_tbps": "SG-TBPS", "atm_tbps": "ATM-TBPS", "stla": "STLA"}


def run(
    bench: Bench,
    command: str,
    model: QuotaModel = "per-process",
    pairs: bool = True,
    algorithms: Sequence[str] = TREES,
    patterns: Sequence[str] = ("none", "low", "high"),
    sockets: Sockets | None = None,
) -> Comparison:
    """Pattern A beside the broker alone and HAProxy, and ``none``, ``low``, ``high`` with five pairs.

    ``sum`` is one broker with the quota of five: what five pairs may bring at most, but for the nodes. A and
    ``sum`` are left out where no tree is among the algorithms. ``sockets`` holds for all; without it A and
    ``sum`` are measured with both, the pairs with ``set_tcp_nodelay true``, as they take the most time.
    """
    few, many = NODELAY[sockets or "both"], NODELAY[sockets or "nodelay"]
    cores = CORES[model]
    quota = Quota(cores, model)
    one, big = TestbedSpec(["mosquitto"], front="none", quota=quota), Quota(PAIRS * cores, model)

    def each(
        name: str, label: str, scenario: str, spec: TestbedSpec, start: str, settings: Sequence[bool] = few
    ) -> list[Limit]:
        """The limit with each setting of the sockets."""
        loaded = bench.scenario(scenario)
        guess = START_MS[start] * (COST if spec.algorithm in OVERLAYS else 1)
        return [
            bench.limit(
                f"{model}-{name}{'' if nodelay else '-default-sockets'}",
                socket_label(label, nodelay),
                loaded,
                replace(spec, nodelay=nodelay),
                start_ms=guess,
                first_ms=0.5,
            )
            for nodelay in settings
        ]

    limits = each("direct", "broker alone", "pattern-a", one, "direct")
    direct = limits[0]
    trees = [algorithm for algorithm in algorithms if algorithm in TREES]
    if trees:
        relay = TestbedSpec(["mosquitto"], front="haproxy", quota=quota)
        limits += each("haproxy", "HAProxy", "pattern-a", relay, "A")
    for algorithm in trees:
        spec = TestbedSpec(["mosquitto"], algorithm=algorithm, quota=quota)
        limits += each(f"A-{algorithm}", NAMES[algorithm], "pattern-a", spec, "A")
    groups = [Group(name="A", limits=limits)]
    if pairs:
        for pattern in patterns:
            limits = []
            for algorithm in algorithms:
                spec = TestbedSpec(["mosquitto"] * PAIRS, algorithm=algorithm, quota=quota)
                name = f"{pattern}-{algorithm}"
                limits += each(name, NAMES[algorithm], f"pattern-{pattern}", spec, pattern, many)
            groups.append(Group(name=pattern, limits=limits))
        if trees:
            alone = TestbedSpec(["mosquitto"], front="none", quota=big)
            total = each("sum", f"broker with {PAIRS} quotas", "pattern-a", alone, "sum")
            groups.append(Group(name="sum", limits=total))
    rows = []
    for group in groups:
        for found in group.limits:
            label, *rest = limit_row(found, direct)
            rows.append([f"{group.name}: {label}", *rest])
    parts = "broker and node have" if model == "per-process" else "broker and node share"
    return Comparison(
        title=f"Patterns, quota {model}",
        text="\n".join(
            [
                f"{parts} {cores:g} of a core{' each' if model == 'per-process' else ''} at every site; "
                "Mosquitto; 32 bytes, QoS 0. Ratios are to the broker alone with one such quota.",
                socket_words(few),
                SHARED_CORES,
                machine(),
            ]
        ),
        command=command,
        groups=groups,
        table=[HEADING, *rows],
        reference=direct.label,
    )
