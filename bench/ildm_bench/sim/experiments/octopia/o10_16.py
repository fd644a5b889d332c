"""O10 to O16: subscriptions and publications over the number of subscribers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean
from typing import Any

from ildm_bench.report.svg import Picture
from ildm_bench.sim.brokers import Links
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables, table
from ildm_bench.sim.experiments.octopia.plugin import InWorld
from ildm_bench.sim.experiments.octopia.setting import (
    APART,
    ASSUMED,
    COSTS,
    NODES,
    OCTOPIA,
    PADRES,
    Delays,
    Quantity,
    fitted,
    line,
    measured,
    one,
    picture,
    sized,
    system,
    trend,
)
from ildm_bench.sim.experiments.octopia.setting import (
    summarise as summarise_rows,
)
from ildm_bench.sim.experiments.summary import collected
from ildm_bench.sim.octopia import Octopia
from ildm_bench.sim.padres import Padres
from ildm_bench.sim.workload import Publication, Publisher, publishers, subscribers

PUBLISHERS = 100
WIDTH = 10
REPEATS = 2
SPR, IDR, TID_S, TID_D = "SPR", "IDR", "TID-S", "TID-D"

SUB_DELAY = Quantity(
    "O10", "longest delay of a subscription", OCTOPIA, PADRES, "-34 %", "ms", below=True, stated=-34,
    why="a subscription of OctopiA always has to get to the far end of its cluster (4.3 hops), one of PADRES "
    "to the farther of two publishers; whose way is longer depends on how far from the shortest the "
    "advertisement's first way was. The paper's reason is matching against fewer advertisements, which takes "
    "0.4 us for each here",
)  # fmt: skip
PRT_ROWS = Quantity(
    "O11",
    "rows of the PRT",
    PADRES,
    OCTOPIA,
    "-33 %",
    "rows of a broker",
    below=True,
    stated=-33,
    why="unexplained",
)
SUB_MESSAGES = Quantity(
    "O12", "messages of subscriptions", OCTOPIA, PADRES, "+32.5 %", "messages", always=True, stated=32.5,
    why="the sign; how much depends on how far from the shortest the trees of PADRES are",
)  # fmt: skip
DELAY = Quantity(
    "O13", "delay of a publication", OCTOPIA, PADRES, "-25 %", "ms", below=True, stated=-25,
    why="PADRES's trees are as short as the shortest paths where brokers take as long as hops, and its PRT, "
    "of which each row costs, is smaller; where hops alone take time, and are drawn, its trees are longer by "
    "half",
)  # fmt: skip
DELAY_IDR = Quantity("O13", "delay of a publication", IDR, SPR, "+0.8 %", "ms", within=0.02)
DELAY_TID = Quantity(
    "O13", "delay of a publication", TID_D, TID_S, "+0.6 %", "ms", within=0.02,
    why="a search through the whole PRT costs as much for each row as matching does; the paper measures the "
    "search at 12 times IDR's (O16) and hardly any delay",
)  # fmt: skip
MATCHING = Quantity(
    "O14", "rows matched at a broker", OCTOPIA, PADRES, "+11 %", "rows", always=True, stated=11,
    why="the sign; a row takes the same time in both, so this is the difference of O11",
)  # fmt: skip
PUB_MESSAGES = Quantity(
    "O15", "messages of publications", OCTOPIA, PADRES, "-4.5 %", "messages", below=True, stated=-4.5,
    why="nearly the same: both send a copy for each broker with subscribers and for those between. One of "
    "PADRES's is a tree of shortest paths through all 56 brokers, OctopiA's enters each cluster once, so "
    "that "
    "more brokers merely hand on where subscribers are few",
)  # fmt: skip
SELECTION = Quantity(
    "O16", "path selection", TID_D, IDR, "+1230 %", "rows and queues", least=4.0, stated=1230
)  # fmt: skip
SELECTION_TID = Quantity("O16", "path selection", TID_D, TID_S, "+600 %", "rows and queues", stated=600)
SELECTION_IDR = Quantity(
    "O16", "path selection", IDR, SPR, "+7 %", "rows and queues", within=0.1, stated=7,
    why="up to three queues are looked at besides the rows that match; where these are few that is much",
)  # fmt: skip
SELECTION_STATIC = Quantity(
    "O16", "path selection", TID_S, IDR, "more (1330 : 700)", "rows and queues", stated=90,
    why="a subscription has a row for each of two trees where one of OctopiA has one, but lies on the way to "
    "its publishers alone, not in a whole cluster",
)  # fmt: skip
AT_HOSTS = Quantity("O14", "rows matched at hosts", OCTOPIA, PADRES, "+11 %", "rows")
TIME = Quantity("O14", "time of matching at a broker", OCTOPIA, PADRES, "+11 %", "us", stated=11)
QUANTITIES = (
    SUB_DELAY, PRT_ROWS, SUB_MESSAGES, DELAY, DELAY_IDR, DELAY_TID, MATCHING, PUB_MESSAGES,
    AT_HOSTS, TIME, SELECTION, SELECTION_TID, SELECTION_STATIC, SELECTION_IDR,
)  # fmt: skip


def sizes(scale: Scale) -> list[int]:
    return [1_000, 2_000, 4_000, 7_000, 10_000] if scale == "full" else [200, 1_000]


def each(scale: Scale) -> int:
    """Messages of each publisher."""
    return 4 if scale == "full" else 1


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each quantity, costs, repeat and number of subscribers."""
    rows: list[dict[str, Any]] = []
    for costs in COSTS:
        for repeat in range(REPEATS):
            runs = {
                name: Growing(name, costs, f"{seed}/{repeat}", sizes(scale)) for name in (OCTOPIA, PADRES)
            }
            for size in sizes(scale):
                say(f"{costs}, {repeat + 1} of {REPEATS}, {size:,} subscribers")
                values: dict[str, dict[str, float]] = {}
                for growing in runs.values():
                    for key, found in growing.at(size, each(scale)).items():
                        values.setdefault(key, {}).update(found)
                rows += [
                    {**measured(quantity, costs, repeat, size, values[quantity.measure])}
                    for quantity in QUANTITIES
                ]
    say("the plugin")
    return {"rows": table(rows), "plugin": table(by_plugin(scale, seed))}


def by_plugin(scale: Scale, seed: int) -> list[dict[str, Any]]:
    """A row for each publication: copies and brokers reached of the plugin and of the event model, and the
    mean delay without what the publisher's own broker takes (the world charges what arrives over links)"""
    costs = "constant"
    growing = Growing(OCTOPIA, costs, f"{seed}/plugin", [sizes(scale)[0]])
    growing.at(sizes(scale)[0], 0)
    live = InWorld(growing.costs, growing.publishers, growing.all, seed)
    rows = []
    for number, publisher in enumerate(growing.publishers[: 100 if scale == "full" else 10]):
        publishing = Publishing(growing.system, SPR, growing.costs, f"{seed}")
        publishing.run([publisher], 1)
        model, copies = publishing.reached, live.publish(publisher, number)
        plugin: dict[str, float] = {}
        for node_id, delay in live.got.pop(number, []):
            plugin.setdefault(node_id, delay)
        own = growing.costs.matching + growing.costs.prt_row * live.rows[publisher.node_id]
        for found in (model, plugin):
            found.pop(publisher.node_id, None)
        rows.append(
            {
                "publication": number,
                "copies": publishing.links.sent["PUB"],
                "copies_plugin": copies,
                "same": set(model) == set(plugin),
                "reached": len(model),
                "seconds": sum(model.values()) - own * len(model),
                "seconds_plugin": sum(plugin.values()),
            }
        )
    return rows


class Growing:
    """One system to which subscribers come, and which is measured in between."""

    def __init__(self, name: str, costs: str, seed: str, sizes: Sequence[int]) -> None:
        self.name = name
        self.costs = COSTS[costs]
        self.seed = seed
        self.system = system(name, costs, seed)
        self.publishers = publishers(Random(f"{seed}/publishers"), NODES, PUBLISHERS)
        self.all = subscribers(Random(f"{seed}/subscribers"), NODES, sizes[-1], WIDTH)
        self.there = 0
        self.sub_messages = 0
        self.delays = Delays()
        self._after(self.publishers, self.system.advertise)

    def at(self, size: int, messages: int) -> dict[str, dict[str, float]]:
        """What it has with so many subscribers: by quantity, then by system."""
        name = self.name
        before = self.system.links.sent["SUB"]
        self._after(self.all[self.there : size], self.system.subscribe)
        self.sub_messages += self.system.links.sent["SUB"] - before
        self.there = size
        self.system.tables_changed()
        brokers = self.system.brokers.values()
        found = {
            SUB_DELAY.measure: {name: self.delays.mean("Subscriber")},
            PRT_ROWS.measure: {name: sum(broker.rows for broker in brokers) / len(NODES)},
            SUB_MESSAGES.measure: {name: float(self.sub_messages)},
        }
        if not messages:
            return found
        static, dynamic = (SPR, IDR) if name == OCTOPIA else (TID_S, TID_D)
        for routing in (dynamic, static):
            publishing = Publishing(self.system, routing, self.costs, f"{self.seed}/{size}")
            publishing.run(self.publishers, messages)
            for key, value in publishing.values().items():
                found.setdefault(key, {})[routing] = value
                found[key][name] = value  # OctopiA and PADRES stand for their static routing
        return found

    def _after(self, clients: Sequence[Any], act: Callable[[Any, float], None]) -> None:
        links = self.system.links
        self.system.reached = self.delays.reached
        start = links.now + 1.0
        for number, client in enumerate(clients):
            self.delays.begin(client, start + number * APART)
            act(client, start + number * APART)
        links.run(self.system.receive)


class Publishing:
    """Messages of all publishers over tables that stay, by one routing; the dynamic ones do not turn."""

    def __init__(self, system: Octopia | Padres, routing: str, costs: Any, seed: str) -> None:
        self.system = system
        self.links = Links(costs, Random(f"{seed}/publications"))
        if isinstance(system, Octopia):
            system.anew(self.links, routing=routing.lower(), forced=routing == IDR)
        else:
            system.anew(self.links, dynamic=routing == TID_D, forced=True)
        system.selections = []
        system.reached = self._reached
        self.seconds = 0.0
        self.deliveries = 0
        self.reached: dict[str, float] = {}
        """By broker: the delay of the last publication."""

    def run(self, publishers: Sequence[Publisher], messages: int) -> None:
        for number in range(messages * len(publishers)):
            publisher = publishers[number % len(publishers)]
            publication = Publication(number, publisher.symbol, 1.0 + number * APART)
            publish(self.system, publisher, publication)
        self.links.run(self.system.receive)

    def values(self) -> dict[str, float]:
        selections = self.system.selections
        assert selections is not None
        looked = sum(selection.rows + selection.links for selection in selections) / len(selections)
        return {
            DELAY.measure: 1e3 * self.seconds / self.deliveries,
            MATCHING.measure: sum(selection.table for selection in selections) / len(selections),
            AT_HOSTS.measure: fmean(selection.table for selection in selections if selection.host),
            TIME.measure: 1e6
            * (
                self.links.costs.matching
                + self.links.costs.prt_row * fmean(each.table for each in selections)
            ),
            PUB_MESSAGES.measure: float(self.links.sent["PUB"]),
            SELECTION.measure: looked,
        }

    def _reached(self, node_id: str, what: Any, at: float) -> None:
        self.seconds += at - what.began
        self.deliveries += 1
        self.reached[node_id] = at - what.began


def publish(system: Octopia | Padres, publisher: Publisher, publication: Publication) -> None:
    """A publisher publishes."""
    if isinstance(system, Octopia):
        system.publish(publisher.node_id, publication)
    else:
        system.publish(publisher.node_id, publisher.uid, publication)


def summarise(frames: Frames) -> Summary:
    return {**summarise_rows(frames), "plugin": collected(frames["plugin"], "publication")}


def plugin_line(summary: Summary) -> Line:
    """Whether the plugin does what the event model does."""
    rows = summary["plugin"]
    model, plugin = (sum(row[key] for row in rows) for key in ("copies", "copies_plugin"))
    reached = sum(row["reached"] for row in rows) or 1
    mean, mean_plugin = (
        1e3 * sum(row[key] for row in rows) / reached for key in ("seconds", "seconds_plugin")
    )
    same = model == plugin and all(row["same"] for row in rows)
    return Line(
        quantity=f"O15: the plugin in the simulator, {len(rows)} publications, against the event model",
        paper="",
        ours=f"{plugin:,} copies against {model:,}, to the same brokers: {'yes' if same else 'NO'}; "
        f"{mean_plugin:.2f} ms on average against {mean:.2f}",
        band="equal",
        verdict="check" if same else "differs",
        why="" if same else "they ought to be the same",
    )


def searches(summary: Summary, costs: str) -> Line:
    """What a row that TID-D searches would have to cost, beside a row that matches, for each of the paper's
    values; delays and what is looked at depend on it in proportion."""
    rows = {
        quantity.key: one(summary["overall"], quantity=quantity.key, costs=costs)["mean"]
        for quantity in (DELAY_TID, SELECTION, SELECTION_TID, SELECTION_STATIC)
    }
    over_idr, over_static = 1 + rows[SELECTION.key], 1 + rows[SELECTION_TID.key]
    static = 1 + rows[SELECTION_STATIC.key]
    searched = over_idr - static  # of TID-D, in units of all that IDR looks at
    needed = {
        "O13 +0.6 %": 0.006 / rows[DELAY_TID.key] if rows[DELAY_TID.key] else math.nan,
        "O16 +1230 % over IDR": (13.3 - static) / searched,
        "O16 +600 % over TID-S": 6 / (over_static - 1),
    }
    apart = max(needed.values()) > 1.25 * min(needed.values())
    return Line(
        quantity=f"O16: cost of a row searched for other TIDs, over that of a row, {costs}",
        paper="not stated",
        ours="; ".join(f"{name}: {share:.2f}" for name, share in needed.items()),
        verdict="beyond",
        why="each needs another one: no one cost gives all three" if apart else "",
    )


def compare(summary: Summary, scale: Scale) -> list[Line]:
    shown = [quantity for quantity in QUANTITIES if quantity not in (AT_HOSTS, TIME)]
    lines = [line(quantity, summary) for quantity in shown]
    lines += [sized(quantity, summary) for quantity in shown if quantity.stated is not None]
    lines += [
        fitted(quantity, summary) for quantity in (SUB_DELAY, PRT_ROWS, SUB_MESSAGES, DELAY, PUB_MESSAGES)
    ]
    lines.append(fitted(MATCHING, summary, "rows, of tables in which a subscription is once: as O11"))
    lines.append(
        fitted(TIME, summary, "time instead of rows: the part that is the same for any table counts")
    )
    lines.append(searches(summary, ASSUMED[0]))
    grows = (
        "both tables grow with the subscribers, and PADRES's, which is smaller, by as much; the paper says "
        "it matches at the hosts of subscribers alone, its code does at every broker, and so do we"
    )
    few = "the shares at few subscribers are small already"
    lines.append(trend(MATCHING, "O14: the difference shrinks with the subscribers", summary, grows))
    hosts = "O14: the difference shrinks with the subscribers, at hosts alone"
    lines.append(trend(AT_HOSTS, hosts, summary, "as at every broker"))
    lines.append(trend(PUB_MESSAGES, "O15: the difference shrinks with the subscribers", summary, few))
    lines.append(plugin_line(summary))
    return sorted(lines, key=lambda each: int(each.quantity[1:3]))


def draw(summary: Summary) -> Sequence[Picture]:
    of = ("subscribers", 1_000)
    return [
        picture([SUB_DELAY], summary, of, "Longest delay of a subscription"),
        picture([PRT_ROWS], summary, of, "Rows of the PRT"),
        picture([SUB_MESSAGES], summary, of, "Messages for all subscriptions"),
        picture([DELAY], summary, of, "Delay of a publication"),
        picture([MATCHING], summary, of, "Rows matched for a publication at each broker"),
        picture([PUB_MESSAGES], summary, of, "Messages for all publications"),
        picture([SELECTION, SELECTION_TID, SELECTION_IDR], summary, of, "Path selection"),
    ]


EXPERIMENT = Experiment(
    name="O10-16",
    runs="event model; plugin octopia",
    title="Subscriptions and publications over the number of subscribers",
    parameters=lambda scale: (
        f"56 brokers, {PUBLISHERS} publishers; {sizes(scale)[0]:,} to {sizes(scale)[-1]:,} subscribers, "
        f"selectivity "
        f"2 %; {each(scale)} messages of each publisher; five costs, {REPEATS} seeds"
    ),
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=[
        "Clients act one after the other, so nothing queues but at a broker's own links.",
        "IDR and TID-D look for other ways, which takes time, and then go the static ones, as in the paper.",
        "Path selection: rows and queues that a broker looks at after matching. OctopiA's host asks a bit of "
        "each cluster besides; PADRES has a row for each tree of a subscription; TID-D goes through the "
        "whole "
        "PRT once for a message.",
        "A delivery is that to a broker with matching subscribers.",
    ],
)
