"""Readings, expressions that come and go, and a ledger of who ought to have got what.

The expressions are made from their parts and judged by these parts alone, so nothing of OctopiA judges
itself.
"""

from __future__ import annotations

import json
import operator
from collections import Counter, deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from ildm.mqtt import topic_matches

ROOT = "filter"
TOPICS = ("stock/nikkei/7203", "stock/nikkei/6758", "stock/nyse/ibm", "plant/osaka/press/7")
FILTERS = ("stock/#", "stock/+/7203", "stock/nyse/ibm", "plant/#", "#", "+/osaka/#")
WORDS = ("buy", "sell", "hold", "new york", "a.b", "x&y", "50%", "1.5")
"""Values that are texts; the last is one although it looks like a number."""
Attributes = Mapping[str, bool | float | str]
Delivery = tuple[str, str, int]
"""Client, topic and number of the message."""

_ESCAPED = frozenset("%&/+#=<>!^?'\".,*")
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Rule(NamedTuple):
    """One predicate; ``?`` and ``!`` (there, not there) have no value."""

    name: str
    op: str
    value: bool | float | str = ""

    def holds(self, attributes: Attributes) -> bool:
        """Plainly by its meaning: what is missing, or of another type, fulfils nothing but ``!``."""
        if self.op in "?!":
            return (self.name in attributes) == (self.op == "?")
        found = attributes.get(self.name)
        if found is None or _kind(found) is not _kind(self.value):
            return False
        match self.op:
            case "=":
                return found == self.value
            case "!=":
                return found != self.value
            case "^=":
                return str(found).startswith(str(self.value))
            case _:
                return _ORDER[self.op](found, self.value)

    def text(self) -> str:
        """As it is written in a topic filter for a broker of any make."""
        if self.op in "?!":
            return f"{'!!' if self.op == '?' else '!'}{self.name}"
        if isinstance(self.value, bool):
            return f"{self.name}{self.op}{str(self.value).lower()}"
        if isinstance(self.value, str):
            return f"{self.name}{self.op}'{_escaped(self.value)}'"
        return f"{self.name}{self.op}{_escaped(f'{self.value:g}')}"


def _escaped(text: str) -> str:
    return "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in text)


def _kind(value: bool | float | str) -> type:
    return bool if isinstance(value, bool) else str if isinstance(value, str) else float


def random_rules(random: Random) -> tuple[Rule, ...]:
    """One to three predicates, of all kinds; few contradict each other."""
    made: list[Rule] = []
    for name in random.sample(("price", "size", "side", "halted", "note"), random.randint(1, 3)):
        match name:
            case "price":
                low = random.randrange(90)
                made.append(Rule(name, random.choice((">", ">=")), low + 0.5))
                if random.random() < 0.7:
                    made.append(Rule(name, random.choice(("<", "<=")), low + random.randrange(2, 30)))
            case "size":
                made.append(Rule(name, random.choice(("=", "!=", "<", ">")), random.randrange(10)))
            case "side":
                value = random.choice(WORDS)
                rule = random.choice((("=", value), ("!=", value), ("^=", value[:1])))
                made.append(Rule(name, *rule))
            case "halted":
                made.append(Rule(name, "=", random.random() < 0.5))
            case _:
                made.append(Rule(name, random.choice("?!")))
    return tuple(made)


def random_attributes(random: Random) -> dict[str, bool | float | str]:
    """Of a reading. Now and then one is missing, or of another type than others expect."""
    found: dict[str, bool | float | str] = {
        "price": round(random.uniform(0, 100), 1),
        "size": random.randrange(10),
        "side": random.choice(WORDS),
        "halted": random.random() < 0.3,
    }
    if random.random() < 0.2:
        found["note"] = "checked"
    if random.random() < 0.1:
        del found[random.choice(list(found))]
    if random.random() < 0.1:
        found["size"] = str(found.get("size", 3))
    return found


def payload(number: int, attributes: Attributes) -> bytes:
    """A reading as it is published; its number is an attribute, too."""
    return json.dumps({"n": number, **attributes}).encode()


@dataclass(eq=False)
class Wish:
    """One subscription of one client, from when to when. Times are of one clock; None: not yet."""

    client: str
    rules: tuple[Rule, ...]
    topic_filter: str
    asked: float
    granted: float | None = None
    left: float | None = None
    """UNSUBSCRIBE was sent."""
    gone: float | None = None
    """It was answered."""

    @property
    def level(self) -> str:
        """The level of the topic that says what is wanted."""
        return "&".join(rule.text() for rule in self.rules)

    @property
    def subscription(self) -> str:
        return f"{ROOT}/{self.level}/{self.topic_filter}"

    def matches(self, topic: str, attributes: Attributes) -> bool:
        return topic_matches(self.topic_filter, topic) and all(rule.holds(attributes) for rule in self.rules)


class Verdict(NamedTuple):
    """How the deliveries differ from what was wanted."""

    due: int
    """Deliveries that had to be."""
    missing: list[str]
    wrong: list[str]
    """What came although nobody wanted it, or on a topic where it does not belong."""
    doubled: list[str]
    uncertain: int
    """Deliveries of messages that were published while a subscription came or went: right either way."""

    @property
    def exact(self) -> bool:
        return not (self.missing or self.wrong or self.doubled)


class Sent(NamedTuple):
    """A message: ``begun`` when it was given to the node, ``done`` when that was acknowledged."""

    number: int
    topic: str
    attributes: Attributes
    begun: float
    done: float


class Ledger:
    """Who has published, wanted and received what.

    ``grace`` are seconds that a subscription may take after its SUBACK until all sites know of it, and that a
    message may be under way.
    """

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.wishes: list[Wish] = []
        self.sent: list[Sent] = []
        self._got: Counter[Delivery] = Counter()

    def received(self, client: str, topic: str, number: int) -> None:
        self._got[client, topic, number] += 1

    @property
    def deliveries(self) -> int:
        """All that have come so far."""
        return self._got.total()

    def missing(self, due: Set[Delivery]) -> int:
        """How many of these have not come so far."""
        return len(due - self._got.keys())

    def verdict(self) -> Verdict:
        due, possible = self.expected()
        got = self._got.keys()
        return Verdict(
            due=len(due),
            missing=[_words(each) for each in sorted(due - got)],
            wrong=[_words(each) for each in sorted(got - possible)],
            doubled=[
                f"{_words(each)}, {times} times" for each, times in sorted(self._got.items()) if times > 1
            ],
            uncertain=len((possible - due) & got),
        )

    def expected(self) -> tuple[set[Delivery], set[Delivery]]:
        """What has to come, and what may come, both by what is known now."""
        due, possible = set[Delivery](), set[Delivery]()
        # the longest that a publication took: what a wish that has gone can still have to do with
        slack = max((each.done - each.begun for each in self.sent), default=0.0)
        coming = deque(sorted(self.wishes, key=lambda wish: wish.asked))
        open_wishes: list[Wish] = []
        for message in sorted(self.sent, key=lambda each: each.done):
            while coming and coming[0].asked <= message.done + self.grace:
                open_wishes.append(coming.popleft())
            over = message.done - slack
            open_wishes = [wish for wish in open_wishes if wish.gone is None or wish.gone >= over]
            for wish in open_wishes:
                if wish.matches(message.topic, message.attributes):
                    delivery = (wish.client, f"{ROOT}/{wish.level}/{message.topic}", message.number)
                    if wish.gone is None or message.begun <= wish.gone:
                        possible.add(delivery)
                    if self._sure(wish, message):
                        due.add(delivery)
        return due, possible

    def _sure(self, wish: Wish, message: Sent) -> bool:
        began = wish.granted is not None and wish.granted + self.grace <= message.begun
        return began and (wish.left is None or message.done + self.grace <= wish.left)


def _words(delivery: Delivery) -> str:
    client, topic, number = delivery
    return f"{client}: {number} on {topic}"
