"""How soon a site of an overlay that was killed and started again gets what others publish, in virtual time.

Sites as those of :mod:`ildm_bench.chaos`, all subscribed; two of them publish at QoS 1, ten messages a second
together. Site ``b`` is killed, ``kill`` (its connections are reset) or ``power`` (nobody hears of it until it
is back), and is started again; its client, whose session is kept, connects within a second. In seconds from
the start of the node:

============= ================================================================
``direct``    until the last message is published that comes later than `LATE`
``caught up`` until it has come, and all others
============= ================================================================
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from random import Random
from typing import NamedTuple

from ildm_bench.chaos.drawing import SITES
from ildm_bench.chaos.schedule import Client, Fault, Operation, Schedule, Setting
from ildm_bench.chaos.virtual.run import Warm

VICTIM = "b"
FIRST = 7.0
"""Seconds until all subscriptions are known; publications begin."""
STEP = 0.2
"""Seconds between two messages of one publisher."""
AFTER = 14.0
"""Seconds for which they go on when the site is back."""
LATE = 0.35
"""Seconds from which on a message counts as late."""


class Case(NamedTuple):
    """What is measured once for each seed."""

    algorithm: str
    sites: int
    fault: str
    away: float


class Return(NamedTuple):
    direct: float
    caught_up: float


def schedule_of(case: Case, seed: int) -> Schedule:
    """The victim is killed at some time between 14 and 16 s."""
    names = tuple(SITES[: case.sites])
    others = [name for name in names if name != VICTIM]
    down = 14 + 2 * Random(f"{case} {seed}").random()
    publishers = {f"p{name}": name for name in (others[0], others[-1])}
    clients = [Client("s", VICTIM, clean=False)]
    clients += [Client(f"o{name}", name) for name in others]
    clients += [Client(name, site) for name, site in publishers.items()]
    operations = [Operation(0.2, client.name, "connect") for client in clients]
    operations.append(Operation(0.7, "s", "subscribe", topic="#", qos=2))
    operations += [Operation(0.8, f"o{name}", "subscribe", topic="t/#", qos=1) for name in others]
    for number, name in enumerate(publishers):
        begin = FIRST + STEP * number / len(publishers)
        for count in range(int((down + case.away + AFTER - begin) / STEP)):
            operations.append(Operation(begin + STEP * count, name, "publish", topic=f"t/{number}", qos=1))
    return Schedule(
        Setting(
            case.algorithm,
            names,
            tuple((name, names[0]) for name in names[1:]),
            ("mosquitto",) * case.sites,
            "power" if case.fault == "power" else "process",
            seed=seed,
        ),
        tuple(clients),
        tuple(sorted(operations, key=lambda operation: operation.at)),
        (Fault(down, case.fault, (f"node/{VICTIM}",), case.away),),  # type: ignore[arg-type]
        seed,
        chance=seed,
    )


def measured(case: Case, seed: int) -> Return:
    """One run.

    Raises:
        AssertionError: something promised did not hold.
    """
    schedule = schedule_of(case, seed)
    back = schedule.faults[0].over
    result, history = Warm(schedule.setting).run(schedule)
    assert not result.failed, (case, seed, result.failures, result.trouble)
    sent: dict[tuple[str, int], float] = {}
    got: dict[tuple[str, int], float] = {}
    for event in history.events:
        message = event.publisher, event.seq
        if event.op == "publish" and event.phase == "invoke":
            sent[message] = event.t
        elif event.op == "receive" and event.phase == "ok" and event.process == "s":
            got.setdefault(message, event.t)
    late = [message for message, at in sent.items() if got[message] > max(back, at + LATE)]
    direct = max((sent[message] for message in late), default=back)
    return Return(max(direct - back, 0.0), max((got[message] for message in late), default=back) - back)


def _words(values: Iterable[float]) -> str:
    """Median, 95 %, the most."""
    ordered = sorted(values)
    places = (int(part * (len(ordered) - 1)) for part in (0.5, 0.95, 1))
    return ", ".join(f"{ordered[place]:.1f}" for place in places)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algorithms", nargs="+", default=["sg_tbps", "atm_tbps", "stla"])
    parser.add_argument("--sites", nargs="+", type=int, default=[3, 5])
    parser.add_argument("--faults", nargs="+", choices=["kill", "power"], default=["kill", "power"])
    parser.add_argument("--away", nargs="+", type=float, default=[0.2, 0.5, 2.0, 8.0], help="s")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    print("median, 95 %, the most; s", flush=True)
    with ProcessPoolExecutor(options.jobs) as pool:
        for found in product(options.algorithms, options.sites, options.faults, options.away):
            case = Case(*found)
            seeds = range(1_000, 1_000 + options.seeds)
            returns = list(pool.map(measured, [case] * len(seeds), seeds))
            print(
                f"{case.algorithm:9} {case.sites} sites, {case.fault:5} for {case.away:3.1f}:"
                f" direct {_words(each.direct for each in returns)},"
                f" caught up {_words(each.caught_up for each in returns)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
