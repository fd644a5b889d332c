"""Whether each client gets what its expressions ask for and nothing else, while expressions come and go."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from ildm.mqtt import Publish
from ildm_bench.clients import Client, came_true, paced
from ildm_bench.results.wishes import (
    FILTERS,
    TOPICS,
    Ledger,
    Sent,
    Verdict,
    Wish,
    payload,
    random_attributes,
    random_rules,
)

GRACE = 2.0
"""Seconds around coming, going and publishing within which either is right."""
EXAMPLES = 5
REST = 30.0
"""Seconds that the last deliveries may take."""


class Plan(NamedTuple):
    """A run; rates are per second, over all sites."""

    messages: int
    rate: float
    changes: float
    """Expressions that come or go."""
    wishes: int
    """Expressions of a client at a time, on average."""
    seed: int


class Outcome(NamedTuple):
    """What a run has shown: counts of deliveries as in :class:`Verdict`, all of them, and some examples of
    what was not right."""

    due: int
    missing: int
    wrong: int
    doubled: int
    uncertain: int
    deliveries: int
    changes: int
    seconds: float
    examples: list[str]

    def words(self, messages: int) -> str:
        """The outcome as a sentence."""
        return (
            f"Exactness: {messages:,} messages at QoS 1 from all sites, while {self.changes:,} expressions "
            f"came or went: {self.deliveries:,} deliveries; of {self.due:,} that had to be {self.missing} "
            f"missing, {self.wrong} that nobody had asked for, {self.doubled} doubled. {self.uncertain:,} "
            f"were of messages published within {GRACE:g} s of a subscription's coming or going, where "
            "either is right."
        )


async def exactness(addresses: Sequence[tuple[str, int]], plan: Plan, say: Callable[[str], None]) -> Outcome:
    """A client at each site, all publish at QoS 1 in turn; ``say`` is told how far it is.

    Raises:
        ProcessError, OSError: a client has lost its connection.
    """
    random, clock = Random(plan.seed), time.monotonic
    ledger = Ledger(GRACE)
    names = [f"site-{index}" for index in range(len(addresses))]

    def arrived(name: str) -> Callable[[Publish], None]:
        return lambda message: ledger.received(name, message.topic, json.loads(message.payload)["n"])

    clients = [
        await Client.connect(address, f"exact-{name}", arrived(name))
        for name, address in zip(names, addresses, strict=True)
    ]
    publishers = [
        await Client.connect(address, f"exact-publisher-{name}")
        for name, address in zip(names, addresses, strict=True)
    ]
    current: list[list[Wish]] = [[] for _ in clients]
    changes = 0

    async def come(index: int) -> None:
        rules = random_rules(random)
        wish = Wish(names[index], rules, random.choice(FILTERS), clock())
        if any(other.level == wish.level for other in current[index]):
            return  # the broker may send one copy for both or two
        ledger.wishes.append(wish)
        current[index].append(wish)
        await clients[index].subscribe(wish.subscription, qos=1)
        wish.granted = clock()

    async def go(index: int) -> None:
        wish = current[index].pop(random.randrange(len(current[index])))
        wish.left = clock()
        await clients[index].unsubscribe(wish.subscription)
        wish.gone = clock()

    async def change() -> None:
        nonlocal changes
        while True:
            await asyncio.sleep(random.expovariate(plan.changes))
            index = random.randrange(len(clients))
            many = random.random() * 2 * plan.wishes < len(current[index])
            await (go(index) if many else come(index))
            changes += 1

    async def publish(number: int) -> None:
        topic, attributes = random.choice(TOPICS), random_attributes(random)
        begun = clock()
        await publishers[number % len(publishers)].publish(topic, payload(number, attributes))
        ledger.sent.append(Sent(number, topic, attributes, begun, clock()))

    started = clock()
    for index in range(len(clients)):
        for _ in range(plan.wishes):
            await come(index)
    await asyncio.sleep(GRACE)
    changing = asyncio.create_task(change())
    try:
        under_way: set[asyncio.Task[None]] = set()
        async for number in paced(plan.rate, plan.messages):
            if changing.done():
                break
            under_way.add(asyncio.create_task(publish(number)))
            over = {task for task in under_way if task.done()}
            for task in over:
                task.result()
            under_way -= over
            if number % 5000 == 0:
                say(
                    f"{number} of {plan.messages} messages, {ledger.deliveries} deliveries, {changes} changes"
                )
        await asyncio.gather(*under_way)
    finally:
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)
    if not changing.cancelled():
        changing.result()
    due, _ = ledger.expected()
    await came_true(lambda: not ledger.missing(due), REST)
    await asyncio.sleep(GRACE)  # for what ought not to come
    for client in (*clients, *publishers):
        client.close()
    return _outcome(ledger.verdict(), ledger.deliveries, changes, clock() - started)


def _outcome(verdict: Verdict, deliveries: int, changes: int, seconds: float) -> Outcome:
    parts = {"missing": verdict.missing, "nobody asked": verdict.wrong, "doubled": verdict.doubled}
    examples = [f"{what}: {each}" for what, found in parts.items() for each in found[:EXAMPLES]]
    return Outcome(
        due=verdict.due,
        missing=len(verdict.missing),
        wrong=len(verdict.wrong),
        doubled=len(verdict.doubled),
        uncertain=verdict.uncertain,
        deliveries=deliveries,
        changes=changes,
        seconds=seconds,
        examples=examples,
    )
