"""CPU time of a routing decision of SF with 10, 1,000 and 100,000 filters, cached and not."""

from __future__ import annotations

import json

from ildm.mqtt import CoveringSet, FilterTable
from ildm_bench.micro.measure import cpu_per_call, machine

LINKS = 4


def filters(count: int) -> list[str]:
    """A mix: mostly exact topics, some with wildcards in the middle or at the end."""
    made = []
    for i in range(count):
        area, device = i % 100, i // 100
        if i % 10 == 0:
            made.append(f"site/{area}/+/{device}")
        elif i % 10 == 1:
            made.append(f"site/{area}/device{device}/#")
        else:
            made.append(f"site/{area}/device{device}/value{i % 7}")
    return list(dict.fromkeys(made))


def main() -> None:
    figures: dict[str, float] = {}
    for count in (10, 1_000, 100_000):
        table: FilterTable[int] = FilterTable()
        wanted = filters(count)
        for number, topic_filter in enumerate(wanted):
            table.add(topic_filter, number % LINKS, 1)
        topics = [f"site/{i % 100}/device{i % max(1, count // 100)}/value{i % 7}" for i in range(1000)]
        cache: dict[bytes, tuple[object, ...]] = {
            topic.encode(): tuple(table.match(topic).items()) for topic in topics
        }
        keys = list(cache)

        def match(t: FilterTable[int] = table, n: list[str] = topics) -> list[object]:
            return [t.match(topic) for topic in n]

        def look_up(c: dict[bytes, tuple[object, ...]] = cache, k: list[bytes] = keys) -> list[object]:
            return [c.get(key) for key in k]

        figures[f"match_{count}"] = cpu_per_call(match) / len(topics)
        figures[f"cached_{count}"] = cpu_per_call(look_up) / len(keys)
        covering: CoveringSet[int] = CoveringSet()
        covering.update(0, dict.fromkeys(wanted, 1))

        def change(c: CoveringSet[int] = covering) -> None:
            c.update(1, {"site/3/device3/other": 0})
            c.update(1, {"site/3/device3/other": None})

        figures[f"subscribe_and_unsubscribe_{count}"] = cpu_per_call(change)
    print(machine())
    print(f"{'decision':34} {'ns':>9}")
    for name, seconds in figures.items():
        print(f"{name:34} {seconds * 1e9:9.0f}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
