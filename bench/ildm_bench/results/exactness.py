"""Whether each client gets what its expressions ask for and nothing else, while expressions come and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from random import Random
from time import monotonic as clock
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


class Exchange:
    """A client at each site whose expressions come and go; all sites publish."""

    def __init__(
        self, plan: Plan, clients: Sequence[Client], publishers: Sequence[Client], ledger: Ledger
    ) -> None:
        self.plan = plan
        self.ledger = ledger
        self.changes = 0
        self._clients = clients
        self._publishers = publishers
        self._random = Random(plan.seed)
        self._current: list[list[Wish]] = [[] for _ in clients]

    async def begin(self) -> None:
        """As many expressions of each client as the plan says."""
        for index in range(len(self._clients)):
            for _ in range(self.plan.wishes):
                await self._come(index)

    async def _come(self, index: int) -> None:
        rules = random_rules(self._random)
        wish = Wish(_name(index), rules, self._random.choice(FILTERS), clock())
        if any(other.level == wish.level for other in self._current[index]):
            return  # the broker may send one copy for both or two
        self.ledger.wishes.append(wish)
        self._current[index].append(wish)
        await self._clients[index].subscribe(wish.subscription, qos=1)
        wish.granted = clock()

    async def _go(self, index: int) -> None:
        wish = self._current[index].pop(self._random.randrange(len(self._current[index])))
        wish.left = clock()
        await self._clients[index].unsubscribe(wish.subscription)
        wish.gone = clock()

    async def change(self) -> None:
        """Expressions come and go until this is cancelled."""
        while True:
            await asyncio.sleep(self._random.expovariate(self.plan.changes))
            index = self._random.randrange(len(self._clients))
            many = self._random.random() * 2 * self.plan.wishes < len(self._current[index])
            await (self._go(index) if many else self._come(index))
            self.changes += 1

    async def publish(self, say: Callable[[str], None], over: Callable[[], bool]) -> None:
        """All messages of the plan, or until it is over."""
        under_way: set[asyncio.Task[None]] = set()
        async for number in paced(self.plan.rate, self.plan.messages):
            if over():
                break
            under_way.add(asyncio.create_task(self._publish(number)))
            done = {task for task in under_way if task.done()}
            for task in done:
                task.result()
            under_way -= done
            if number % 5000 == 0:
                say(
                    f"{number} of {self.plan.messages} messages, {self.ledger.deliveries} deliveries, "
                    f"{self.changes} changes"
                )
        await asyncio.gather(*under_way)

    async def _publish(self, number: int) -> None:
        topic, attributes = self._random.choice(TOPICS), random_attributes(self._random)
        begun = clock()
        publisher = self._publishers[number % len(self._publishers)]
        await publisher.publish(topic, payload(number, attributes))
        self.ledger.sent.append(Sent(number, topic, attributes, begun, clock()))


async def exactness(addresses: Sequence[tuple[str, int]], plan: Plan, say: Callable[[str], None]) -> Outcome:
    """A client at each site, all publish at QoS 1 in turn; ``say`` is told how far it is.

    Raises:
        ProcessError, OSError: a client has lost its connection.
    """
    ledger = Ledger(GRACE)

    def arrived(name: str) -> Callable[[Publish], None]:
        return lambda message: ledger.received(name, message.topic, json.loads(message.payload)["n"])

    sites = list(enumerate(addresses))
    clients = [await Client.connect(at, f"exact-{_name(n)}", arrived(_name(n))) for n, at in sites]
    publishers = [await Client.connect(at, f"exact-publisher-{_name(n)}") for n, at in sites]
    exchange = Exchange(plan, clients, publishers, ledger)
    started = clock()
    await exchange.begin()
    await asyncio.sleep(GRACE)
    changing = asyncio.create_task(exchange.change())
    try:
        await exchange.publish(say, changing.done)
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
    return _outcome(ledger.verdict(), ledger.deliveries, exchange.changes, clock() - started)


def _name(index: int) -> str:
    return f"site-{index}"


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
