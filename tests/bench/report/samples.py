"""Figures as runs and limit searches might give them, made from a seed."""

from __future__ import annotations

import math
import random

from ildm_bench.measure.figures import (
    Comparison,
    Group,
    Histogram,
    Latency,
    Limit,
    Loss,
    Point,
    ProcessUse,
    RunFigures,
    Second,
)

MACHINE = "2 cores, 4 GiB, Linux 6.1, Python 3.11"
NOTE = "Publishers, nodes, brokers and subscribers share the 2 cores of this machine."


def bin_of(nanoseconds: int) -> int:
    """Lower end of the bin of a latency: 64 bins in each octave."""
    shift = max(nanoseconds.bit_length() - 7, 0)
    return nanoseconds >> shift << shift


def histogram(seed: int, median_us: float, count: int = 4000, spread: float = 0.5) -> Histogram:
    source = random.Random(seed)
    bins: dict[int, int] = {}
    for _ in range(count):
        value = source.lognormvariate(math.log(median_us * 1000), spread)
        value *= source.choice((1, 1, 1, 1, 1, 1, 1, 1, 1, 3)) if source.random() < 0.3 else 1
        lower = bin_of(int(value))
        bins[lower] = bins.get(lower, 0) + 1
    return Histogram(lower=sorted(bins), counts=[bins[key] for key in sorted(bins)])


def latency(of: Histogram) -> Latency:
    """Exact enough for a sample: values count as the lower ends of their bins."""
    values = [low / 1e3 for low, count in zip(of.lower, of.counts, strict=True) for _ in range(count)]
    total = len(values)
    at = [values[min(int(total * share), total - 1)] for share in (0.5, 0.95, 0.99, 0.999)]
    return Latency(
        count=total,
        mean=sum(values) / total,
        p50=at[0],
        p95=at[1],
        p99=at[2],
        p999=at[3],
        max=values[-1],
    )


def processes(pairs: int, ingress: float, *, proxy: bool = False) -> list[ProcessUse]:
    source = random.Random(pairs)
    egress = ingress * 10
    found: list[tuple[str, str, int | None, str, float | None, float, int]] = []
    kinds = [("broker", "mosquitto", 0.34, 0.5), ("node", "sf", 0.41, 0.5)]
    for site in range(pairs):
        for role, label, cores, quota in kinds:
            used = cores * source.uniform(0.85, 1.1)
            found.append((f"{role}-{site}", role, site, label, quota, used, source.randint(9, 70) << 20))
    if proxy:
        found.append(("haproxy", "proxy", None, "haproxy", 0.5, 0.47, 31 << 20))
    found += [(f"worker-{worker}", "generator", None, "", None, 0.62, 96 << 20) for worker in range(2)]
    return [
        ProcessUse(
            name=name,
            role=role,
            site=site,
            label=label,
            quota=quota,
            cores=used,
            cpu_us_per_delivery=used / egress * 1e6,
            rss_bytes=rss,
            voluntary_switches=source.randint(1000, 90_000),
            involuntary_switches=source.randint(10, 9_000),
        )
        for name, role, site, label, quota, used, rss in found
    ]


def run(label: str = "SF, 5 pairs", ingress: float = 3120.0, pairs: int = 5, **changes: object) -> RunFigures:
    """A run under the limit, with everything that a run can have; `changes` replace fields."""
    source = random.Random(label)
    egress = ingress * 9.97
    median = 900.0 + 700.0 * pairs
    histograms = {
        "latency.sent": histogram(1, median, 300),
        "latency.intended": histogram(2, median * 1.2, 300),
        "throughput.sent": histogram(3, median * 0.9, 3000),
        "throughput.intended": histogram(4, median * 1.1, 3000),
    }
    figures = RunFigures(
        run=f"20261121-{source.randint(1000, 9999)}",
        label=label,
        scenario="five-pairs-none",
        interval_ms=50_000 / ingress,
        seconds=60.0,
        sp_ratio=10.0,
        ingress=ingress,
        egress=egress,
        ratio=egress / ingress / 10,
        under_limit=True,
        verdict="ok",
        reason="",
        expected=int(ingress * 600),
        missing=0,
        loss_rate=0.0,
        losses=[],
        duplicates=0,
        order_violations=0,
        latency={key: latency(value) for key, value in histograms.items()},
        histograms=histograms,
        per_second=[
            Second(
                second=second,
                ingress=int(ingress * source.uniform(0.97, 1.03) * min(1, (second + 1) / 4)),
                egress=int(egress * source.uniform(0.93, 1.07) * min(1, (second + 1) / 5)),
            )
            for second in range(80)
        ],
        processes=processes(pairs, ingress),
        network={
            "host": {"RetransSegs": 12, "OutSegs": 812_345, "TCPTimeouts": 0},
            "site-0": {"RetransSegs": 0, "OutSegs": 402_111},
        },
        machine=MACHINE,
        notes=[NOTE],
    )
    return figures.model_copy(update=changes)


def losing() -> RunFigures:
    """A run over the limit that loses messages."""
    lost = [
        Loss(topic=f"topic{n % 5 + 1}", subscriber=f"sub-{n}", expected=37_440, missing=900 - 31 * n)
        for n in range(12)
    ]
    missing = sum(loss.missing for loss in lost)
    return run(
        "PF, 5 pairs",
        4020.0,
        ratio=0.91234,
        under_limit=False,
        missing=missing,
        expected=2_412_000,
        loss_rate=missing / 2_412_000,
        losses=lost,
        duplicates=17,
        order_violations=3,
    )


def limit(label: str, ingress: float, pairs: int = 5, scenario: str = "none", **changes: object) -> Limit:
    """A search that found `ingress`; with one void and one refused measurement."""
    interval = round(50_000 / ingress, 1)
    source = random.Random(label + scenario)

    def point(milliseconds: float, step: int) -> Point:
        sent = 50_000 / milliseconds
        ratio = 0.9985 - 0.004 * source.random()
        if milliseconds < interval:
            ratio = min(0.988, (milliseconds / interval) * 0.99)
        verdict = (
            "void" if milliseconds <= interval / 9 else "refused" if milliseconds < interval / 4 else "ok"
        )
        return Point.model_validate(
            {
                "interval_ms": milliseconds,
                "ingress": sent,
                "egress": sent * 10 * ratio,
                "ratio": ratio,
                "verdict": verdict,
                "under_limit": ratio >= 0.99,
                "run": "",
                "step": step,
            }
        )

    doubled = [float(2**n) for n in range(8) if 2**n < interval * 4]
    above = next(value for value in doubled if value >= interval)
    divided = [round(above / 2 + above / 40 * k, 6) for k in range(1, 20)]
    if interval not in (*doubled, *divided):
        interval = min((*divided, above), key=lambda value: abs(value - interval))
    points = [point(value, 1) for value in doubled] + [point(value, 4) for value in divided]
    found = Limit(
        label=label,
        scenario=scenario,
        interval_ms=interval,
        bounded_by="target",
        points=points,
        figures=run(label, 50_000 / interval, pairs),
    )
    return found.model_copy(update=changes)


def patterns() -> Comparison:
    """Five pairs by pattern and algorithm, beside one broker, as in Fig. 5.13 to 5.15."""
    groups = [
        Group(name="one pair", limits=[limit("PF", 1240, 1, "one"), limit("SF", 1210, 1, "one")]),
        Group(name="none", limits=[limit("PF", 2150, 5, "none"), limit("SF", 2080, 5, "none")]),
        Group(name="low", limits=[limit("PF", 2480, 5, "low"), limit("SF", 3890, 5, "low")]),
        Group(
            name="high",
            limits=[limit("PF", 2550, 5, "high"), limit("SF", 5710, 5, "high", bounded_by="generator")],
        ),
        Group(name="single broker", limits=[limit("mosquitto", 1380, 1, "single")]),
    ]
    return Comparison(
        title="Five pairs of broker and node against one broker",
        text="Limits by Definition 1 of the thesis, each process with half a core.\nDuration 80 s a run.",
        command="ildm-bench reproduce patterns --profile quick",
        groups=groups,
        reference="mosquitto",
    )


def singles() -> Comparison:
    """Single brokers, as in Fig. 5.10 to 5.12."""
    found = [
        limit("Mosquitto", 4180, 1, "single"),
        limit("RabbitMQ", 1620, 1, "single"),
        limit("ActiveMQ", 2230, 1, "single"),
        limit("Moquette", 1950, 1, "single", interval_ms=None, figures=None),
    ]
    return Comparison(
        title="Single brokers", text="", groups=[Group(name="1 core", limits=found)], reference=""
    )


def latencies() -> Comparison:
    """Single runs with the same load, without limits."""
    runs = [
        run("mosquitto alone", 500.0, 1),
        run("one pair", 500.0, 2),
        run("three pairs", 500.0, 3),
        run("five pairs", 500.0, 5, verdict="void", reason="lag of the generator: 99 % 8.2 ms"),
    ]
    return Comparison(
        title="Latency at the same load",
        text="500 messages/s on all of them.",
        runs=runs,
        reference="mosquitto alone",
    )
