"""OctopiA and PADRES in the event model, and their experiments."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ildm_algorithms.octopia.grid.scot import View
from ildm_bench.sim.brokers import Costs, Links, neighbors, whole_grid
from ildm_bench.sim.experiments import experiments
from ildm_bench.sim.experiments.framework import Setting, carry_out
from ildm_bench.sim.experiments.octopia import o10_16, o17_20
from ildm_bench.sim.experiments.octopia.o10_16 import IDR, SPR, TID_D, TID_S, publish
from ildm_bench.sim.experiments.octopia.setting import GRID, NEIGHBORS, NODES, OCTOPIA, PADRES
from ildm_bench.sim.octopia import Octopia
from ildm_bench.sim.padres import Padres
from ildm_bench.sim.workload import SYMBOLS, Publication, Publisher, Subscriber, publishers, subscribers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALWAYS = -1.0
"""A bound that each queue is above."""


def distances(near: Mapping[str, Sequence[str]], start: str) -> dict[str, int]:
    found = {start: 0}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        for neighbor in near[here]:
            if neighbor not in found:
                found[neighbor] = found[here] + 1
                waiting.append(neighbor)
    return found


def test_the_overlay_is_that_of_the_paper() -> None:
    assert len(NODES) == 56
    assert sum(map(len, NEIGHBORS.values())) == 2 * (52 + 84)
    found = [distances(NEIGHBORS, node_id) for node_id in NODES]
    assert sum(sum(each.values()) for each in found) / 56**2 == pytest.approx(3.39, abs=0.005)
    assert sum(max(each.values()) for each in found) / 56 == pytest.approx(5.29, abs=0.005)


class Clients:
    """One system with publishers and subscribers, and who gets what."""

    def __init__(self, routing: str, tau: float = 10.0, costs: Costs | None = None) -> None:
        costs = Costs() if costs is None else costs
        self.links = Links(costs, Random(5))
        self.system: Octopia | Padres
        if routing in (SPR, IDR):
            self.system = Octopia(GRID, self.links, routing.lower(), tau=tau)
        else:
            self.system = Padres(NEIGHBORS, self.links, dynamic=routing == TID_D, tau=tau)
        self.publishers = publishers(Random(1), NODES, 25)
        self.subscribers = subscribers(Random(2), NODES, 300, 60)
        for number, publisher in enumerate(self.publishers):
            self.system.advertise(publisher, number * 0.1)
        self.links.run(self.system.receive)
        for number, subscriber in enumerate(self.subscribers):
            self.system.subscribe(subscriber, self.links.now + 1 + number * 0.1)
        self.links.run(self.system.receive)

    def matching(self, publisher: Publisher) -> set[str]:
        return {each.node_id for each in self.subscribers if each.wants(publisher.symbol)}

    def publish(self, publisher: Publisher, times: int = 1) -> tuple[Counter[str], int]:
        """How often each broker delivers, and how many copies there are."""
        got: Counter[str] = Counter()
        self.system.reached = lambda node_id, what, at: got.update([node_id])
        before = self.links.sent["PUB"]
        for number in range(times):
            at = self.links.now + 1.0
            publish(self.system, publisher, Publication(1000 * publisher.uid + number, publisher.symbol, at))
        self.links.run(self.system.receive)
        return got, self.links.sent["PUB"] - before


@pytest.mark.parametrize("tau", [10.0, ALWAYS])
@pytest.mark.parametrize("routing", [SPR, IDR, TID_S, TID_D])
def test_every_broker_with_subscribers_gets_each_publication_once(routing: str, tau: float) -> None:
    clients = Clients(routing, tau)
    for publisher in clients.publishers:
        got, copies = clients.publish(publisher, times=3)
        assert got == dict.fromkeys(clients.matching(publisher), 3)
        assert copies >= 3 * len(set(got) - {publisher.node_id})


def test_spr_sends_a_copy_for_each_bit_and_each_edge_spanned() -> None:
    clients = Clients(SPR)
    for publisher in clients.publishers:
        region = GRID.members[publisher.node_id].region
        homes = clients.matching(publisher)
        expected = 0
        for cluster in range(4):
            there = [home for home in homes if GRID.cluster(home) == cluster]
            start = GRID.at(region, cluster)
            assert start is not None
            expected += (
                bool(there) and start != publisher.node_id and cluster != GRID.cluster(publisher.node_id)
            )
            edges = set()
            for home in there:
                here: str | None = start
                while here is not None and here != home:
                    ahead = View(GRID, here).next_hop(home)
                    edges.add((here, ahead))
                    here = ahead
            expected += len(edges)
        assert clients.publish(publisher)[1] == expected


def test_idr_enters_each_cluster_as_often_as_spr() -> None:
    for publisher in Clients(SPR).publishers[:5]:
        crossing = []
        for routing, tau in ((SPR, 10.0), (IDR, ALWAYS)):
            clients = Clients(routing, tau)
            found: list[tuple[str, str]] = []
            send = clients.links.send

            def noted(
                sender: str, to: str, at: float, message: Any, found: Any = found, send: Any = send
            ) -> None:
                found.append((sender, to))
                send(sender, to, at, message)

            clients.links.send = noted  # type: ignore[method-assign]
            clients.publish(publisher)
            crossing.append(
                sorted(GRID.cluster(to) for sender, to in found if GRID.cluster(sender) != GRID.cluster(to))
            )
        assert crossing[0] == crossing[1]


class TestPadres:
    def test_an_advertisement_floods_and_leaves_a_tree(self) -> None:
        padres = Padres(NEIGHBORS, Links(Costs(), Random(1)))
        padres.advertise(Publisher(7, "A0", 3), 0.0)
        padres.links.run(padres.receive)
        # each of 136 links both ways, but for the 55 ways back to whom it came from first
        assert padres.links.sent == {"ADV": 2 * 136 - 55}
        parents = {node_id: broker.srt[7][1] for node_id, broker in padres.brokers.items()}
        assert parents.pop("A0") == ""
        for node_id in parents:
            here, steps = node_id, 0
            while here != "A0":
                assert parents[here] in NEIGHBORS[here]
                here, steps = parents[here], steps + 1
            assert steps >= distances(NEIGHBORS, "A0")[node_id]

    def test_with_equal_times_trees_are_of_shortest_paths_and_rows_lie_along_them(self) -> None:
        padres = Padres(NEIGHBORS, Links(Costs(exponential=False, shared=False), Random(1)))
        for uid, node_id in enumerate(("A0", "N3")):
            padres.advertise(Publisher(uid, node_id, 10), uid * 1.0)
        padres.subscribe(Subscriber(1, "D2", 5, 15), 5.0)
        padres.subscribe(Subscriber(2, "A0", 5, 15), 6.0)
        padres.subscribe(Subscriber(3, "A0", 50, 60), 7.0)
        padres.links.run(padres.receive)
        far = (
            distances(NEIGHBORS, "D2")["A0"]
            + distances(NEIGHBORS, "D2")["N3"]
            + distances(NEIGHBORS, "A0")["N3"]
        )
        assert padres.links.sent["SUB"] == far
        assert sum(broker.rows for broker in padres.brokers.values()) == far + 3

    def test_a_subscription_is_stored_for_each_tree_or_once(self) -> None:
        rows = []
        for once in (False, True):
            padres = Padres(NEIGHBORS, Links(Costs(exponential=False), Random(1)), stored_once=once)
            for uid in range(3):
                padres.advertise(Publisher(uid, "A0", 10), uid * 1.0)
            padres.subscribe(Subscriber(1, "D2", 5, 15), 5.0)
            padres.links.run(padres.receive)
            away = {node_id for node_id, broker in padres.brokers.items() if broker.trees}
            rows.append(sum(broker.rows for broker in padres.brokers.values()))
            assert all(len(padres.brokers[node_id].trees[1]) <= 3 for node_id in away)
            assert padres.links.sent["SUB"] == sum(len(padres.brokers[node_id].trees[1]) for node_id in away)
        assert rows == [1 + padres.links.sent["SUB"], 1 + len(away)]

    def test_copies_of_publications_take_longer_for_what_they_carry(self) -> None:
        times = []
        for payload in (1.0, 2.0):
            costs = Costs(hop=0.1, exponential=False, matching=0.0, prt_row=0.0, srt_row=0.0, sending=0.01)
            padres = Padres(neighbors(whole_grid(("a-b",), 1)), Links(costs, Random(1)), payload=payload)
            padres.advertise(Publisher(0, "a0", 10), 0.0)
            padres.subscribe(Subscriber(1, "b0", 5, 15), 5.0)
            padres.reached = lambda node_id, what, at: times.append(round(at, 6))
            publish(padres, Publisher(0, "a0", 10), Publication(1, 10, 9.0))
            padres.links.run(padres.receive)
        assert [at for at in times if at > 9] == [9.11, 9.12]

    def test_an_advertisement_is_discarded_wherever_it_comes_again(self) -> None:
        for answers, messages in ((False, 217), (True, 272)):
            padres = Padres(NEIGHBORS, Links(Costs(exponential=False), Random(1)), answers=answers)
            again: list[str] = []
            padres.discarded = lambda node_id, what, at, again=again: again.append(node_id)  # type: ignore[misc]
            padres.advertise(Publisher(0, "A0", 10), 0.0)
            padres.links.run(padres.receive)
            assert padres.links.sent["ADV"] == messages
            assert len(again) == messages - (len(NODES) - 1)

    def test_a_later_advertisement_draws_subscriptions_to_it(self) -> None:
        padres = Padres(NEIGHBORS, Links(Costs(exponential=False), Random(1)))
        padres.subscribe(Subscriber(1, "D2", 5, 15), 0.0)
        padres.advertise(Publisher(0, "A0", 10), 1.0)
        padres.links.run(padres.receive)
        got = []
        padres.reached = lambda node_id, what, at: got.append(node_id)
        publish(padres, Publisher(0, "A0", 10), Publication(1, 10, 5.0))
        padres.links.run(padres.receive)
        assert got == ["D2"]

    @pytest.mark.parametrize("dynamic", [False, True])
    def test_a_congested_way_is_left_for_another_tree_s(self, dynamic: bool) -> None:
        square = neighbors(whole_grid(("a-b",), 2))
        costs = Costs(hop=0.1, sending=0.01, serial=False)
        padres = Padres(square, Links(costs, Random(3)), dynamic=dynamic, tau=1.0)
        everybody = [Publisher(uid, "a0", 10) for uid in range(10)]
        for publisher in everybody:
            padres.advertise(publisher, publisher.uid * 10.0)
        padres.subscribe(Subscriber(1, "b1", 5, 15), 200.0)
        padres.links.run(padres.receive)
        ways = {publisher.uid: padres.brokers["b1"].srt[publisher.uid][1] for publisher in everybody}
        assert set(ways.values()) == {"a1", "b0"}
        got: Counter[int] = Counter()
        padres.reached = lambda node_id, what, at: got.update([what.number])
        for number in range(100):
            publish(padres, everybody[0], Publication(number, 10, 300.0 + number * 0.001))
        padres.links.run(padres.receive)
        assert (padres.turned > 20) == dynamic
        assert got == dict.fromkeys(range(100), 1)


class TestLinks:
    def times(self, costs: Costs) -> dict[str, list[float]]:
        links = Links(replace(costs, exponential=False), Random(1))
        found: dict[str, list[float]] = {"b": [], "c": []}
        for to in ("b", "b", "c"):
            links.send("a", to, 0.0, ("X",))
        assert (links.queued("a", "b", 0.0), links.queued("a", "c", 0.0)) == (2, 1)
        assert links.queued("a", "b", 0.02) == 0
        links.run(lambda to, sender, message, at: found[to].append(round(links.processed(to, at, 1000), 6)))
        return found

    def test_the_links_of_a_broker_send_in_turn_or_each_by_itself(self) -> None:
        costs = Costs(hop=0.1, matching=0.0, prt_row=0.0, sending=0.01)
        assert self.times(costs) == {"b": [0.11, 0.12], "c": [0.13]}
        assert self.times(replace(costs, shared=False)) == {"b": [0.11, 0.12], "c": [0.11]}

    def test_a_broker_matches_one_after_the_other_or_all_at_once(self) -> None:
        costs = Costs(hop=0.1, matching=0.03, prt_row=0.00002, sending=0.01)
        assert self.times(costs) == {"b": [0.16, 0.21], "c": [0.18]}
        assert self.times(replace(costs, serial=False)) == {"b": [0.16, 0.17], "c": [0.18]}

    def test_messages_of_a_link_keep_their_order(self) -> None:
        links = Links(Costs(hop=1.0, sending=0.0), Random(3))
        for number in range(100):
            links.send("a", "b", number * 0.01, ("X", number))
        got: list[int] = []
        links.run(lambda to, sender, message, at: got.append(message[1]))
        assert got == [*range(100)]


def test_a_grid_may_have_another_shape() -> None:
    grid = whole_grid(("a-b", "b-c"), 3)
    assert [*grid.members][:4] == ["a0", "a1", "a2", "b0"]
    assert neighbors(grid)["b1"] == ["a1", "c1", "b0", "b2"]


def setting(out: Path) -> Setting:
    return Setting("small", 1, out, "ildm-bench sim run", "a machine", "2026-01-01")


def verdicts(name: str, spark: SparkSession, out: Path) -> dict[str, str]:
    result = carry_out(experiments()[name], setting(out), spark, lambda text: None)
    assert all(line.why for line in result.lines if line.verdict in ("differs", "open"))
    assert all((out / "figures" / f"{each.name}.png").stat().st_size > 5_000 for each in result.figures)
    found = {line.quantity: line.verdict for line in result.lines}
    assert len(found) == len(result.lines)
    return found


def test_advertisements(spark: SparkSession, tmp_path: Path) -> None:
    found = verdicts("O7-9", spark, tmp_path)
    assert found["O8: rows of SRT or CLT, OctopiA against PADRES"] == "check"
    assert found["O9: messages, times as many"] == "differs"
    assert found["O9: messages, times as many, where brokers answer the sender"] == "agrees under"


def test_subscriptions_and_publications(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(o10_16, "sizes", lambda scale: [100, 300])
    found = verdicts("O10-16", spark, tmp_path)
    assert {key: verdict for key, verdict in found.items() if key[:3] in ("O11", "O12")} == {
        "O11: rows of the PRT, PADRES against OctopiA: sign": "agree",
        "O11: rows of the PRT, PADRES against OctopiA: by how much": "open",
        "O11: rows of the PRT, PADRES against OctopiA, fitted": "agrees under",
        "O12: messages of subscriptions, OctopiA against PADRES: sign": "agree",
        "O12: messages of subscriptions, OctopiA against PADRES: by how much": "open",
        "O12: messages of subscriptions, OctopiA against PADRES, fitted": "agrees under",
    }
    assert found["O15: the plugin in the simulator, 10 publications, against the event model"] == "check"
    assert found["O16: path selection, TID-D against TID-S: sign"] == "agree"
    assert found["O16: path selection, TID-D against TID-S: by how much"] == "differs"


def test_bursts(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(o17_20, "SUBSCRIBERS", 500)
    found = verdicts("O17-20", spark, tmp_path)
    assert found["messages, IDR against SPR"] == "check"
    assert found["mean delay, IDR against SPR: sign"] == "agree"


def test_subscribers_of_the_burst_are_in_all_clusters_and_not_at_its_broker() -> None:
    found = o17_20.interested(Random(4), "A0")
    assert [each.uid for each in found] == [*range(o17_20.SUBSCRIBERS)]
    wanting = [each for each in found if each.wants(o17_20.SYMBOL)]
    assert len(wanting) == o17_20.INTERESTED
    assert {GRID.cluster(each.node_id) for each in wanting} == {0, 1, 2, 3}
    assert "A0" not in {each.node_id for each in wanting}
    assert all(0 - 1 <= each.low < each.high <= SYMBOLS for each in found)


def test_all_are_stable_from_the_end_of_the_last_point_of_a_second() -> None:
    assert o17_20.stable([(1.0, 0.5), (2.0, 1.0), (3.0, 0.1), (4.0, 3.0), (5.0, 0.99)]) == 4.0
    assert o17_20.stable([(1.0, 0.5)]) == 0.0


def test_the_experiments_are_there() -> None:
    assert [name for name, each in experiments().items() if each.section == "OctopiA"] == [
        "O7-9",
        "O10-16",
        "O17-20",
    ]
    assert {OCTOPIA, PADRES} == set(o17_20.SYSTEMS)
