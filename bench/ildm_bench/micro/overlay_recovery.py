"""How soon the overlay of SG-TBPS is whole again when one of its nodes is killed in the middle of traffic.

Nodes, each a process before a Mosquitto of its own, form one overlay. All of them subscribe, one publishes
numbered messages of QoS 0 and QoS 1 at a steady rate. Then another one is killed (SIGKILL: its connections
are reset) or stopped (SIGSTOP: it hangs, and only its silence tells). What the rest have got is compared
with what was sent:

================ ===========================================================================
``last_missing`` seconds from the failure to the publication of the last QoS 0 message that
                 somebody has missed
``caught_up``    seconds from the failure to the arrival of the last QoS 1 message that was late
``lost``         messages, summed over subscribers, that did not come
``twice``        messages that came more than once
``repairs``      links of the lists mended by the nodes that live
``before``       messages between nodes from those that live, in the time measured before the failure
``after``        the same in as long a time after it
``delay_before`` longest delay of a QoS 1 message before the failure: what the machine adds to all times
================ ===========================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import os
import signal
import time
from collections.abc import Sequence
from typing import Any, Literal

from ildm.mqtt import Publish
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.process import ProcessError
from ildm_bench.clients import Arrived, Client, paced
from ildm_bench.micro.measure import in_turn, machine, median, options, pid_of
from ildm_bench.micro.overlay_sites import connected, figures, sites, until, whole

TOPIC = "recovery"
LATE = 0.25
"""Seconds from which on a message counts as late."""

Failure = Literal["kill", "hang"]


class Numbered(Client):
    """Publishes numbers, and notes when which has come: (QoS, number) -> arrivals."""

    def __init__(self, client_id: str, arrived: Arrived | None = None) -> None:
        super().__init__(client_id, arrived)
        self.got: dict[tuple[int, int], list[float]] = {}

    def arrived(self, message: Publish) -> None:
        key = message.payload[0], int(message.payload[1:])
        self.got.setdefault(key, []).append(time.monotonic())

    def number(self, qos: int, number: int) -> None:
        """Publish one number; its acknowledgement is not waited for."""
        self.send(TOPIC, bytes((qos,)) + b"%d" % number, qos)


async def run(
    nodes: Sequence[NodeProcess], victim: int, failure: Failure, rate: float, seconds: float
) -> dict[str, float]:
    """Load, failure, evaluation; the nodes run."""
    clients = [await connected(Numbered, node, f"c{index}", [TOPIC]) for index, node in enumerate(nodes)]
    await until(lambda: whole(nodes), "one overlay")
    living = [node for index, node in enumerate(nodes) if index != victim]
    publisher = await connected(Numbered, nodes[0], "publisher")
    sent: dict[tuple[int, int], float] = {}

    async def load(duration: float) -> None:
        async for _ in paced(rate, math.ceil(rate * duration)):
            number = len(sent) // 2
            for qos in (0, 1):
                publisher.number(qos, number)
                sent[qos, number] = time.monotonic()

    await load(1.0)  # the publisher's keys join
    start = await asyncio.to_thread(figures, living)
    await load(seconds)
    before = await asyncio.to_thread(figures, living)
    os.kill(pid_of(nodes[victim]), signal.SIGKILL if failure == "kill" else signal.SIGSTOP)
    failed = time.monotonic()
    await load(seconds)
    after = await asyncio.to_thread(figures, living)
    listeners = [client for index, client in enumerate(clients) if index != victim]
    expected = {key for key in sent if key[0] == 1}
    with contextlib.suppress(ProcessError):  # what does not come counts as lost
        await until(lambda: not any(expected - client.got.keys() for client in listeners), "the last ones")
    return evaluate(sent, listeners, failed) | {
        "repairs": after["sg_tbps.repairs"] - before["sg_tbps.repairs"],
        "before": before["algorithm_out"] - start["algorithm_out"],
        "after": after["algorithm_out"] - before["algorithm_out"],
    }


def evaluate(
    sent: dict[tuple[int, int], float], listeners: Sequence[Numbered], failed: float
) -> dict[str, float]:
    """The figures of the table above that come from what was received."""
    result: dict[str, float] = {"last_missing": 0.0, "caught_up": 0.0}
    for qos in (0, 1):
        missing = [key for client in listeners for key in sent if key[0] == qos and key not in client.got]
        result[f"lost_qos{qos}"] = len(missing)
        result[f"twice_qos{qos}"] = sum(
            len(times) > 1 for client in listeners for key, times in client.got.items() if key[0] == qos
        )
        if qos == 0 and missing:
            result["last_missing"] = max(0.0, max(sent[key] for key in missing) - failed)
    delays = [
        times[0] - sent[key]
        for client in listeners
        for key, times in client.got.items()
        if key[0] == 1 and times[0] <= failed
    ]
    result["delay_before"] = max(delays, default=0.0)
    late = [
        times[0] - failed
        for client in listeners
        for key, times in client.got.items()
        if key[0] == 1 and times[0] > failed and times[0] - sent[key] > LATE
    ]
    result["caught_up"] = max(late, default=0.0)
    return result


def measure(
    count: int, victim: int, failure: Failure, rate: float, seconds: float, options: dict[str, Any]
) -> dict[str, float]:
    """One run with fresh processes."""
    with sites([{"name": "sg_tbps", **options}] * count) as nodes:
        return asyncio.run(run(nodes, victim, failure, rate, seconds))


def main() -> None:
    parser = options(__doc__, rounds=3, seconds=10.0)
    parser.add_argument("--nodes", type=int, default=9)
    parser.add_argument("--rate", type=float, default=50, help="messages of each QoS per second")
    parser.add_argument("--failures", nargs="+", choices=["kill", "hang"], default=["kill", "hang"])
    parser.add_argument("--ping-interval", type=float, default=2.0, help="of the overlay, s")
    given = parser.parse_args()
    plugin = {"overlay": {"ping_interval": given.ping_interval}}
    victims = {failure: itertools.count(0, 3) for failure in given.failures}

    def measured(failure: Failure) -> dict[str, float]:
        victim = 1 + next(victims[failure]) % (given.nodes - 1)
        return measure(given.nodes, victim, failure, given.rate, given.seconds, plugin)

    results = in_turn(given.rounds, given.failures, measured, lambda found: f"lost {found['lost_qos1']:g}")
    print(machine())
    for failure, found in results.items():
        print(f"{failure}: " + ", ".join(f"{key} {median(f[key] for f in found):.4g}" for key in found[0]))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
