"""CPU time to find the expressions that match a message, among 1,000 to a million.

Each expression is about seven attributes, in one of three shapes; about 100 of them match a message, however
many there are.

``narrow``  OctopiA's own (section 9): a narrow range of ``sym``, and for the six others a range that all
            values are in.
``symbols`` one of so many texts, and open ranges of the six others that most values are in.
``wide``    ranges of all seven that are alike in width, none of which excludes much by itself.

Each shape and number runs in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from ildm.mqtt import topic_matches
from ildm_algorithms.octopia.content.content import ContentFilter, Expression, Predicate, Value
from ildm_algorithms.octopia.content.index import ContentIndex
from ildm_bench.micro.measure import apart, cpu_per_call, machine, options, resident_bytes

MATCHES = 100
TOPIC = "stock/nyse"
ATTRIBUTES = ("sym", "open", "high", "low", "close", "volume", "date")
MESSAGES = 200


class NaiveMatcher:
    """Looks at every filter; what is right by its simplicity."""

    def __init__(self, filters: Sequence[ContentFilter] = ()) -> None:
        self.filters = dict.fromkeys(filters)

    def match(self, topic: str, attributes: Mapping[str, Value]) -> list[ContentFilter]:
        """The filters that match, in the order in which they were given."""
        return [
            filter
            for filter in self.filters
            if topic_matches(filter.topic_filter, topic) and filter.expression.matches(attributes)
        ]


def between(name: str, low: float, width: float) -> tuple[Predicate, Predicate]:
    return Predicate(name, ">=", low), Predicate(name, "<", low + width)


def narrow(random: Random, share: float) -> Expression:
    first = between("sym", random.uniform(-share, 1) * 500, share * 500)
    rest = [predicate for name in ATTRIBUTES[1:] for predicate in between(name, 0.0, 1000.0)]
    return Expression((*first, *rest))


def symbols(random: Random, share: float) -> Expression:
    low = [Predicate(name, ">", random.uniform(0, 250)) for name in ATTRIBUTES[1:]]
    return Expression((Predicate("sym", "=", f"s{random.randrange(round(0.4 / share))}"), *low))


def wide(random: Random, share: float) -> Expression:
    held = share ** (1 / len(ATTRIBUTES))
    each = held / (1 - held)
    ranges = (between(name, random.uniform(-each, 1) * 1000, each * 1000) for name in ATTRIBUTES)
    return Expression(tuple(predicate for pair in ranges for predicate in pair))


SHAPES: dict[str, Callable[[Random, float], Expression]] = {
    "narrow": narrow,
    "symbols": symbols,
    "wide": wide,
}


def message(shape: str, random: Random, share: float) -> dict[str, Value]:
    attributes: dict[str, Value] = {name: random.uniform(0, 1000) for name in ATTRIBUTES}
    if shape == "narrow":
        attributes["sym"] = random.uniform(0, 500)
    if shape == "symbols":
        attributes["sym"] = f"s{random.randrange(round(0.4 / share))}"
    return attributes


def matched(index: ContentIndex[int], messages: Sequence[dict[str, Value]]) -> int:
    """How many owners are found for all messages together."""
    return sum(len(index.match(TOPIC, attributes.copy)) for attributes in messages)


def measured(shape: str, count: int, naive: bool, seed: int = 1) -> dict[str, Any]:
    """CPU seconds of one message and of one change."""
    random = Random(seed)
    share = MATCHES / count
    before = resident_bytes(os.getpid())
    filters = [ContentFilter("stock/#", SHAPES[shape](random, share)) for _ in range(count)]
    parsed = resident_bytes(os.getpid())
    index: ContentIndex[int] = ContentIndex()
    begin = time.process_time()
    for number, filter in enumerate(filters):
        index.add(filter, number)
    added = (time.process_time() - begin) / count
    built = resident_bytes(os.getpid())
    messages = [message(shape, random, share) for _ in range(MESSAGES)]
    counted = index.examined
    matches = matched(index, messages) / MESSAGES
    figures: dict[str, Any] = {
        "shape": shape,
        "expressions": count,
        "matches": matches,
        "examined": (index.examined - counted) / MESSAGES,
        "match us": 1e6 * cpu_per_call(lambda: matched(index, messages)) / MESSAGES,
        "add us": added * 1e6,
        "MB expressions": (parsed - before) / 1e6,
        "MB index": (built - parsed) / 1e6,
    }
    if naive:
        matcher = NaiveMatcher(filters)
        few = messages[:3]
        figures["naive us"] = cpu_per_call(lambda: [matcher.match(TOPIC, each) for each in few]) / 3 * 1e6
    return figures


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--expressions", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--shapes", choices=SHAPES, nargs="+", default=list(SHAPES))
    parser.add_argument("--naive", action="store_true", help="also by a look at each, for comparison")
    given = parser.parse_args()
    print(machine())
    for shape in given.shapes:
        for count in given.expressions:
            figures = apart(measured, shape, count, given.naive)
            print(json.dumps({k: round(v, 1) if isinstance(v, float) else v for k, v in figures.items()}))


if __name__ == "__main__":
    main()
