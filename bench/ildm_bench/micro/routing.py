"""Routing decisions of SF over 10 to 100,000 filters, cached and not, and the memory that the filters take.

``--filters 10000000`` shows how many a node can hold. Each number is measured in a process of its own. Topics
are spread over all filters, so that of many filters none is in the processor's cache.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Iterator

from ildm.mqtt import CoveringSet, FilterTable
from ildm_bench.micro.measure import (
    Column,
    apart,
    cpu_per_call,
    heading,
    line,
    machine,
    options,
    resident_bytes,
)

LINKS = 4
TOPICS = 10_000
AT_ONCE = 1000
"""Filters in one change of interest."""


def filters(count: int) -> Iterator[str]:
    """A mix: mostly exact topics, some with wildcards in the middle or at the end; all different."""
    for i in range(count):
        area, device = i % 100, i // 100
        if i % 10 == 0:
            yield f"site/{area}/+/{device}"
        elif i % 10 == 1:
            yield f"site/{area}/device{device}/#"
        else:
            yield f"site/{area}/device{device}/value{i % 7}"


def topics(count: int) -> list[str]:
    """Topics that most match a filter each, from the first to the last."""
    made = []
    for n in range(min(count, TOPICS)):
        i = n * count // min(count, TOPICS)
        made.append(f"site/{i % 100}/device{i // 100}/{i // 100 if i % 10 == 0 else f'value{i % 7}'}")
    return made


def table_figures(count: int) -> dict[str, float]:
    """Of what neighbours want: seconds of a decision, cached and not, and to enter a filter; bytes of one."""
    before = _resident()
    began = time.process_time()
    table: FilterTable[int] = FilterTable()
    for number, topic_filter in enumerate(filters(count)):
        table.add(topic_filter, number % LINKS, 1)
    entering = (time.process_time() - began) / count
    size = (_resident() - before) / count
    wanted = topics(count)
    cache: dict[bytes, tuple[object, ...]] = {
        topic.encode(): tuple(table.match(topic).items()) for topic in wanted
    }
    assert all(cache.values()), "each topic is wanted"
    keys = list(cache)
    return {
        "match": cpu_per_call(lambda: [table.match(topic) for topic in wanted]) / len(wanted),
        "cached": cpu_per_call(lambda: [cache.get(key) for key in keys]) / len(keys),
        "enter": entering,
        "bytes": size,
        "resident": _resident(),
    }


def covering_figures(count: int) -> dict[str, float]:
    """Of what is announced to a neighbour: seconds to enter a filter and to change one; bytes of one."""
    before = _resident()
    began = time.process_time()
    covering: CoveringSet[int] = CoveringSet()
    some: dict[str, int | None] = {}
    for topic_filter in filters(count):
        some[topic_filter] = 1
        if len(some) == AT_ONCE:
            covering.update(0, some)
            some = {}
    covering.update(0, some)
    entering = (time.process_time() - began) / count
    size = (_resident() - before) / count

    def change() -> None:
        covering.update(1, {"site/3/device3/other": 0})
        covering.update(1, {"site/3/device3/other": None})

    return {
        "subscribe_and_unsubscribe": cpu_per_call(change),
        "announce": entering,
        "announced_bytes": size,
        "announced_resident": _resident(),
    }


def _resident() -> int:
    gc.collect()
    return resident_bytes(os.getpid())


COLUMNS = (
    ("match", 1e9, "decision ns"),
    ("cached", 1e9, "cached ns"),
    ("enter", 1e6, "enter us"),
    ("bytes", 1, "B a filter"),
    ("resident", 1e-6, "RSS MB"),
    ("announce", 1e6, "announce us"),
    ("subscribe_and_unsubscribe", 1e6, "and back us"),
    ("announced_bytes", 1, "B a filter"),
    ("announced_resident", 1e-6, "RSS MB"),
)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--filters", type=int, nargs="+", default=[10, 1_000, 100_000])
    parser.add_argument("--no-covering", action="store_true", help="not what is announced to a neighbour")
    given = parser.parse_args()
    found: dict[int, dict[str, float]] = {}
    parts = [table_figures] if given.no_covering else [table_figures, covering_figures]
    for count in given.filters:
        found[count] = {}
        for part in parts:
            found[count] |= apart(part, count)
    print(machine())
    shown = [column for column in COLUMNS if column[0] in next(iter(found.values()))]
    columns = [Column(title, 12, ",.1f") for _, _, title in shown]
    print(heading("    filters", 11, columns))
    for count, figures in found.items():
        print(line(f"{count:11,}", 11, columns, [figures[name] * factor for name, factor, _ in shown]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
