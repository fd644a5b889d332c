"""Schedules in virtual time: what is right passes, what is lost is found, and made small."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Literal
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from ildm.config import Address, LookupConfig
from ildm.core.link.control import WEIGHT, send_control
from ildm.core.link.discovery import LEAVE_AFTER, Discovery
from ildm.core.link.interest import ReceivedInterest
from ildm.core.link.link import NeighborLink
from ildm.core.link.versions import PROTOCOLS
from ildm.core.link.weights import Weights
from ildm.testing.virtual.recount import parts_of, recount
from ildm_bench.chaos.cli import app
from ildm_bench.chaos.drawing import forgetful
from ildm_bench.chaos.evidence import BY_TOPIC, UNCERTAIN
from ildm_bench.chaos.excuses import OURS
from ildm_bench.chaos.history import History
from ildm_bench.chaos.schedule import LINK_FAULTS, Client, Fault, Operation, Schedule, Setting, Variant
from ildm_bench.chaos.shrink import shrink
from ildm_bench.chaos.verdict import INVARIANTS, judge
from ildm_bench.chaos.virtual import hunt as hunting
from ildm_bench.chaos.virtual.hunt import (
    TOGETHER,
    Batch,
    Tally,
    batches,
    carry_out,
    carry_out_all,
    hunt,
)
from ildm_bench.chaos.virtual.names import EACH, INTERVAL
from ildm_bench.chaos.virtual.run import Result, Warm

ROW = Setting("sf", ("a", "b", "c"), (("b", "a"), ("c", "b")), ("mosquitto",) * 3, mode="off")


def published(count: int, *faults: Fault, setting: Setting = ROW, qos: int = 2) -> Schedule:
    """From c to a, ``count`` messages one after the other."""
    operations = [
        Operation(0.1, "s", "connect"),
        Operation(0.2, "s", "subscribe", topic="t/#", qos=2),
        Operation(0.3, "p", "connect"),
    ]
    operations += [Operation(5.0 + n / 10, "p", "publish", topic="t/1", qos=qos) for n in range(count)]
    clients = Client("s", "a", clean=False), Client("p", "c", clean=False)
    return Schedule(setting, clients, tuple(operations), faults)


def test_without_faults_everything_arrives_once_and_in_order() -> None:
    result, history = carry_out(published(20))
    assert not result.failed
    assert result.verdict.owed == 20
    received = [event.seq for event in history.events if event.op == "receive"]
    assert received == list(range(20))


def test_a_node_without_a_spool_loses_what_waits_at_it_and_that_is_found() -> None:
    cut = Fault(4.9, "cut", ("link/a/b",), 8.0)
    kill = Fault(8.0, "kill", ("node/b",), 1.0)
    result, _ = carry_out(published(5, cut, kill))
    assert [(finding.invariant, finding.seq) for finding in result.failures] == [
        *(("lost", seq) for seq in range(5)),
        ("unadmitted", 5),
    ]


@pytest.mark.parametrize("value", range(4))
def test_wrong_names_end_no_link(value: int) -> None:
    """Not even where DNS has not named a neighbour for so long that it would not be dialed again."""
    fault = Fault(4.5, "dns", ("node/b", "node/c"), LEAVE_AFTER + 5, value)
    warm = Warm(replace(ROW, discover=True))
    ended = {name: site.driver.events["link down"] for name, site in warm.sites.items()}
    result, _ = warm.run(published(20, fault))
    assert not result.failed, result
    assert result.verdict.owed == 20
    assert ended == {name: site.driver.events["link down"] for name, site in warm.sites.items()}
    unanswered = warm.sites["b"].node.counters["discover_failed"]
    assert (unanswered > LEAVE_AFTER / INTERVAL / 5) is (value in {1, EACH})


def test_a_link_that_ends_because_of_names_is_found() -> None:
    look = Discovery._look

    def end(self: Discovery, named: list[Address], question: LookupConfig) -> None:
        look(self, named, question)
        for found in self.found.values():
            session = None if found.neighbor is None else found.neighbor.session
            if found.absent_since is not None and session is not None:
                session.abort()

    fault = Fault(4.5, "dns", ("node/b",), 3.0)
    with patch.object(Discovery, "_look", end):
        result, _ = carry_out(published(20, fault, setting=replace(ROW, discover=True)))
    assert "b has ended links because of DNS: ['a']" in result.trouble


def test_what_a_node_has_counted_wrong_is_found() -> None:
    take = ReceivedInterest._set

    def wrong(self: ReceivedInterest, topic_filter: str, qos: int) -> None:
        take(self, topic_filter, qos)
        self.bytes += 1

    with patch.object(ReceivedInterest, "_set", wrong):
        result, _ = carry_out(published(1))
    assert "AssertionError: filters of" in result.trouble


@pytest.mark.parametrize("mode", ["process", "power"])
def test_a_node_with_a_spool_does_not(mode: Literal["process", "power"]) -> None:
    cut = Fault(4.9, "cut", ("link/a/b",), 8.0)
    kill = Fault(8.0, "kill" if mode == "process" else "power", ("node/b",), 1.0)
    result, _ = carry_out(published(5, cut, kill, setting=replace(ROW, mode=mode)))
    assert not result.failed
    assert result.verdict.owed == 5


def test_a_schedule_is_made_as_small_as_it_can_be() -> None:
    cut = Fault(4.9, "cut", ("link/a/b",), 8.0)
    kill = Fault(8.0, "kill", ("node/b", "broker/a"), 1.0)
    pause = Fault(6.0, "pause", ("broker/c",), 1.0)
    schedule = published(12, cut, pause, kill)
    small = shrink(schedule, lambda each: any(f.invariant == "lost" for f in carry_out(each)[0].failures))
    assert [fault.kind for fault in small.faults] == ["cut", "kill"]
    assert small.faults[1].targets == ("node/b",)
    assert [operation.do for operation in small.operations].count("publish") == 1
    turns = iter([False])
    rest = shrink(schedule, lambda each: True, late=lambda: next(turns, True))
    assert rest.faults == ()
    assert rest.operations == schedule.operations, "what was found by the time it was late"
    with pytest.raises(ValueError, match="does not fail"):
        shrink(published(1), lambda each: carry_out(each)[0].failed)


@pytest.mark.parametrize(
    "kind",
    [
        *("kill", "pause", "hold", "hold-one-way", "hold-session", "slow", "drift", "flap"),
        *("descriptors", "clock"),
    ],
)
def test_a_fault_is_seen_and_survived(kind: str) -> None:
    target = "link/b/a" if kind in LINK_FAULTS else "node/b"
    fault = Fault(5.05, kind, (target,), 1.5, 0.3)  # type: ignore[arg-type]
    result, history = carry_out(published(10, fault, qos=1))
    assert [event.op for event in history.events if event.process == "nemesis"] == ["fault", "heal"]
    assert not [each for each in result.failures if each.invariant not in {"lost", "unadmitted"}]


FORGETFUL = Setting("sf", ("a", "b", "c"), (("a", "b"), ("b", "c")), ("mosquitto",) * 3)
ADOPTS, WAITS = {"adopt_sessions": 3600}, {"wait_at_start": 3600}
LOST = Fault(4.5, "lose-state", ("node/a",), 1.0)


@pytest.mark.parametrize(("broker", "fails"), [(ADOPTS, False), ({}, True)], ids=["adopts", "does not"])
def test_a_node_without_state_serves_sessions_whose_clients_are_away(
    broker: dict[str, float], fails: bool
) -> None:
    """They are entitled to what is published after it is back, and get it when they are."""
    setting = replace(FORGETFUL, options={"broker": broker})
    schedule = published(20, LOST, setting=setting, qos=1)
    away = Operation(4.0, "s", "disconnect"), Operation(9.0, "s", "connect")
    result, _ = carry_out(replace(schedule, operations=(*schedule.operations, *away)))
    assert result.failed is fails
    assert {finding.invariant for finding in result.failures} <= {"lost", "unadmitted"}


@pytest.mark.parametrize(("link", "fails"), [(WAITS, False), ({}, True)], ids=["waits", "does not"])
def test_a_node_without_state_takes_nothing_before_it_has_met_its_neighbours(
    link: dict[str, float], fails: bool
) -> None:
    """The network is so slow that clients are back before the interest is."""
    setting = replace(FORGETFUL, options={"link": link}, latency=0.1)
    schedule = published(20, LOST, setting=setting, qos=1)
    clients = Client("s", "c", clean=False), Client("p", "a", clean=False)
    result, _ = carry_out(replace(schedule, clients=clients))
    assert result.failed is fails
    assert {finding.invariant for finding in result.failures} <= {"lost", "unadmitted"}


@pytest.mark.parametrize("algorithm", sorted(BY_TOPIC))
@pytest.mark.parametrize("site", ["a", "b"])
def test_a_node_of_an_overlay_without_state_fetches_what_it_had_not_acknowledged(
    algorithm: str, site: str
) -> None:
    """And nothing that it had; ``a`` is the way in of all others."""
    links = ("b", "a"), ("c", "a")
    setting = forgetful(replace(FORGETFUL, algorithm=algorithm, links=links))
    schedule = published(90, Fault(11.05, "lose-state", (f"node/{site}",), 1.0), setting=setting)
    clients = Client("s", site, clean=False), Client("p", "c", clean=False)
    result, history = carry_out(replace(schedule, clients=clients))
    assert not result.trouble
    assert {finding.invariant for finding in result.verdict.findings} <= {"order"}
    got = Counter(event.seq for event in history.events if event.op == "receive" and event.process == "s")
    assert set(range(60, 90)) <= got.keys()
    assert max(got.values()) == 1


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("algorithm", ["sf", *sorted(BY_TOPIC)])
def test_a_node_that_arrives_serves_the_sessions_of_its_broker(algorithm: str, away: bool) -> None:
    """Clients have spoken with the broker itself before; some are away as the node comes."""
    setting = forgetful(replace(FORGETFUL, algorithm=algorithm, links=(("a", "b"), ("c", "b"))))
    schedule = published(120, Fault(0.0, "arrive", ("node/a",), 3.0), setting=setting)
    coming = Operation(2.0, "s", "disconnect"), Operation(15.0, "s", "connect")
    result, _ = carry_out(replace(schedule, operations=(*schedule.operations, *coming * away)))
    assert not result.failed
    assert result.verdict.owed > 50


def test_sessions_of_clients_that_are_away_as_a_node_arrives_get_nothing_by_default() -> None:
    schedule = published(20, Fault(0.0, "arrive", ("node/a",), 2.0), setting=FORGETFUL)
    coming = Operation(1.5, "s", "disconnect"), Operation(9.0, "s", "connect")
    result, _ = carry_out(replace(schedule, operations=(*schedule.operations, *coming)))
    assert {finding.invariant for finding in result.failures} == {"lost", "unadmitted"}


OLD = Variant(PROTOCOLS.low)


@pytest.mark.parametrize("drains", [0.0, 1.0], ids=["killed", "drained"])
@pytest.mark.parametrize("secret", ["", "a secret of all the sites"], ids=["none", "secret"])
def test_a_node_is_another_release_after_an_upgrade_and_again_after_a_downgrade(
    secret: str, drains: float
) -> None:
    setting = replace(ROW, variants={"b": OLD}, secret=secret, mode="process")
    up = Fault(5.25, "upgrade", ("node/b",), 1.5, drains)
    down = Fault(9.05, "downgrade", ("node/b",), 1.5, drains, OLD)
    schedule = published(60, up, down, setting=setting)
    spoken = []
    warm = Warm(setting)
    for at in (5.0, 8.9, 13.0):
        warm.world.call_at(
            warm.world.time + at,
            lambda: spoken.append([link.protocol for link in warm.sites["b"].node.links.links.values()]),
        )
    result, history = warm.run(schedule)
    assert not result.failed, (result.failures, result.trouble)
    assert result.verdict.owed == 60
    assert spoken == [[2, 2], [3, 3], [2, 2]]
    assert [event.op for event in history.events if event.process == "nemesis"] == ["fault", "heal"] * 2
    reached = result.reached
    assert (reached["upgrade"], reached["downgrade"]) == (1, 1)
    assert reached["change_drained"] == (2 if drains else 0)
    assert reached["links_older"] == 6, "those of b in its first life, and at both ends in the last"


def test_a_client_whose_node_drains_has_no_will() -> None:
    """Whether its node is there again before the client is gone for good, or not."""
    schedule = published(0, Fault(5.0, "upgrade", ("node/c",), 2.0, 1.0), setting=ROW)
    publisher = replace(schedule.clients[1], will="t/w", will_qos=2)
    result, history = carry_out(replace(schedule, clients=(schedule.clients[0], publisher)))
    assert not result.failed, (result.failures, result.trouble)
    assert "info" in [event.phase for event in history.events if event.op == "will" and event.seq == 1]
    assert not [event for event in history.events if (event.op, event.topic) == ("receive", "t/w")]


def test_what_the_other_release_does_not_know_is_found() -> None:
    def tell_anybody(self: Weights, link: NeighborLink) -> None:
        send_control(link, WEIGHT, b"[]")

    without = replace(ROW, variants={"a": Variant(disabled=("weights",))})
    for setting in (replace(ROW, variants={"a": OLD}), without):
        assert not carry_out(published(1, setting=setting))[0].failed
        with patch.object(Weights, "connected", tell_anybody):
            result, _ = carry_out(published(1, setting=setting))
        assert "a does not understand its neighbours: {'link_unknown_control': 1}" in result.trouble


def test_a_site_leaves_out_what_its_variant_is_without() -> None:
    link = {"sessions": 2, "inflight": 5}
    setting = replace(
        ROW, options={"link": link}, variants={"b": Variant(without=("sessions",)), "c": Variant(by_age=True)}
    )
    found = {name: site.node.config.link for name, site in Warm(setting).sites.items()}
    assert {name: each.sessions for name, each in found.items()} == {"a": 2, "b": 1, "c": 2}
    assert {name: each.tree for name, each in found.items()} == {"a": "delay", "b": "delay", "c": "age"}
    assert {each.inflight for each in found.values()} == {5}
    alone = replace(setting, options={"link": {"sessions": 2}})
    assert Warm(alone).sites["b"].node.config.link.sessions == 1


RING = Setting(
    "sf",
    ("a", "b", "c"),
    (("b", "a"), ("c", "b"), ("c", "a")),
    ("mosquitto",) * 3,
    options={"link": {"weight_hold": 10}},
)


@pytest.mark.parametrize("kind", ["drift", "flap"])
@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_lost_or_doubled_when_links_are_swapped_for_their_delays(
    kind: Literal["drift", "flap"], qos: int
) -> None:
    swapped = 0
    for link in ("link/a/b", "link/b/c", "link/a/c"):
        schedule = published(120, Fault(4.0, kind, (link,), 8.0, 0.3), setting=RING, qos=qos)
        result, _ = carry_out(schedule)
        assert not result.failed, (result.failures, result.trouble)
        assert result.verdict.owed == 120
        swapped += result.reached["tree_swaps"]
    assert bool(swapped) == (kind == "drift"), "what is slow for half a second is no reason"


def test_nodes_that_differ_about_the_tree_are_found() -> None:
    counting = Weights._counting
    troubles = []
    for slow in (("a", "b"), ("b", "c"), ("a", "c")):

        def wrong(self: Weights, slow: tuple[str, str] = slow) -> dict[tuple[str, str], int] | None:
            found = counting(self)
            return {**dict.fromkeys(found, 0), slow: 99} if self.node == "c" and found else found

        with patch.object(Weights, "_counting", wrong):
            troubles.append(carry_out(published(1, setting=RING))[0].trouble)
    assert sum("nodes differ about the tree" in trouble for trouble in troubles) == 2, "one is the spare"


def test_a_run_is_the_same_each_time() -> None:
    batch = Batch("sf", range(3, 4))
    histories = [carry_out(batch.schedule(3))[1].events for _ in range(2)]
    assert histories[0] == histories[1]


def test_a_schedule_goes_alone_as_in_its_batch(tmp_path: Path) -> None:
    """So that what has failed in a hunt fails again when its file is read; here clients come back."""
    batch = Batch("sf", range(3), fault="kill-all")
    warm = Warm(batch.schedule(0).setting)
    file = tmp_path / "schedule.json"
    batch.schedule(2).save(file)
    _, alone = carry_out(Schedule.load(file))
    _, there = warm.run(batch.schedule(2), "in its batch")
    assert [each.t for each in alone.events] == [each.t for each in there.events]


def test_the_outcome_of_a_hunt_has_what_its_verdicts_have() -> None:
    """Of nodes without a spool, which lose some."""
    tally = carry_out_all(Batch("sf", range(64, 80), fault="kill-all", mode="off", queries=True))
    (outcome,) = tally.outcomes
    failed = Counter(finding.invariant for failure in tally.failures for finding in failure.findings)
    assert {name: outcome.total(name) for name in INVARIANTS} == {name: failed[name] for name in INVARIANTS}
    assert failed["lost"]
    assert sum(each.owed for each in outcome.counted) == tally.owed


def test_batches_begin_at_the_same_seeds() -> None:
    work = list(batches(2 * TOGETHER, TOGETHER - 2, algorithm="sf"))
    first = range(TOGETHER - 2, TOGETHER)
    assert [batch.seeds for batch in work] == [
        first,
        range(TOGETHER, 2 * TOGETHER),
        range(2 * TOGETHER, 3 * TOGETHER - 2),
    ]
    tally = carry_out_all(Batch("sf", range(4), fault="none"))
    assert tally.schedules == 4
    assert not tally.failures
    assert tally.owed > 0


def test_a_schedule_that_ends_its_process_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(schedule: Schedule, run: str) -> tuple[Result, History]:
        if schedule.seed == 1:
            os._exit(3)
        while schedule.seed == 3:
            pass
        return carry_out(schedule, run)

    monkeypatch.setattr(hunting, "carry_out", odd)
    monkeypatch.setattr(hunting, "PATIENCE", 2)
    tally = carry_out_all(Batch("sf", range(5), fault="none"))
    assert tally.schedules == 5
    assert [(failure.schedule.seed, failure.trouble) for failure in tally.failures] == [
        (1, "ended by status 768"),
        (3, "took over 2 s"),
    ]
    assert tally.owed > 0


def test_what_was_carried_out_before_changes_nothing() -> None:
    batch = Batch("sf", range(16, 22))
    together = carry_out_all(batch)
    alone = Tally()
    for seed in batch.seeds:
        alone += carry_out_all(Batch("sf", range(seed, seed + 1)))
    together.spent = alone.spent
    assert together == alone


def test_processes_share_the_work() -> None:
    tally = hunt(list(batches(4, TOGETHER - 2, algorithm="sf", fault="none")), jobs=2)
    assert tally.schedules == 4
    assert not tally.failures


def test_what_is_found_says_what_it_is() -> None:
    cut = Fault(4.9, "cut", ("link/a/b",), 8.0)
    kill = Fault(8.0, "kill", ("node/b",), 1.0)
    result, _ = carry_out(published(1, cut, kill))
    finding, unadmitted = result.failures
    assert str(unadmitted) == "unadmitted"
    assert finding.cause == OURS
    assert str(finding) == "lost p/0 on t/1 at s/1 site a"


@pytest.mark.parametrize("killed", ["a", "c"])
def test_what_a_node_admits_to_have_let_go_unguarded_is_said_apart(killed: str) -> None:
    """Of QoS 2, beyond ``spool.failure_wait``; within it nothing comes twice."""
    fails = Fault(4.9, "io-error", (f"node/{killed}",), 4.0)
    kill = Fault(7.0, "kill", (f"node/{killed}",), 2.5)
    short = replace(ROW, mode="process", options={"spool": {"failure_wait": 0.5}})
    result, history = carry_out(published(1, fails, kill, setting=short))
    assert not result.failed
    assert [(finding.invariant, finding.cause) for finding in result.verdict.findings] == [("twice", "disk")]
    told = [event for event in history.events if event.op != "counters"]
    assert [finding.cause for finding in judge(told, result.about).findings] == [OURS]
    result, _ = carry_out(published(1, fails, kill, setting=replace(ROW, mode="process")))
    assert not result.verdict.findings


def test_what_a_node_admits_to_have_sent_again_is_said_apart() -> None:
    """Of QoS 2, to a broker that does not say that it has kept the session, and takes it for new."""
    setting = replace(ROW, mode="process", brokers=("activemq",) * 3)
    result, history = carry_out(published(1, Fault(5.006, "kill", ("node/a",), 1.0), setting=setting))
    events = [event._replace(dup=False) for event in history.events]  # what the broker sends again is apart
    told = [event for event in events if event.op == "counters"]
    assert [(event.process, event.topic, event.seq) for event in told] == [("node/a", UNCERTAIN, 1)]
    assert [(each.invariant, each.cause) for each in judge(events, result.about).findings] == [
        ("twice", "resent")
    ]
    untold = [event for event in events if event.op != "counters"]
    assert [each.cause for each in judge(untold, result.about).findings] == [OURS]


def test_given_schedules_are_carried_out(tmp_path: Path) -> None:
    """Each is said to hold or not; a node that keeps nothing on disk loses what it had when it was killed."""
    right, wrong = tmp_path / "right.json", tmp_path / "wrong.json"
    published(3).save(right)
    cut = Fault(5.05, "cut", ("link/b/a",), 3.0)
    published(40, cut, Fault(7.0, "kill", ("node/b",), 0.5)).save(wrong)
    files = ["--schedule", str(right), "--schedule", str(wrong)]
    done = CliRunner().invoke(app, ["run", "--virtual", *files])
    said = dict(line.split(": ", 1) for line in done.output.splitlines())
    assert done.exit_code == 1, done.output
    assert said[str(right)] == "everything holds"
    assert said[str(wrong)].startswith("lost ")
    assert CliRunner().invoke(app, ["run", "--virtual", "--schedule", str(right)]).exit_code == 0


@pytest.mark.parametrize("target", ["bridge", "pair"])
def test_in_virtual_time_there_are_nodes_alone(target: str) -> None:
    done = CliRunner().invoke(app, ["run", "--virtual", "--target", target])
    assert done.exit_code == 2
    assert "virtual time there are nodes alone" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("algorithm", "sums"),
    [
        ("sg_tbps", {"CastHistory": "bytes", "Gone": "_size", "Outbox": "waiting_bytes", "Streams": "bytes"}),
        ("atm_tbps", {"CastHistory": "bytes", "Remembered": "bytes", "Outbox": "waiting"}),
        ("octopia", {"Casting": "bytes", "ContentIndex": "_size", "Gone": "_size"}),
    ],
)
def test_what_an_algorithm_counts_wrong_is_found(algorithm: str, sums: dict[str, str]) -> None:
    node = Warm(Batch(algorithm, range(1)).schedule(0).setting).sites["a"].node
    assert node.dispatch.algorithm is not None
    recount(node)
    parts = {type(part).__name__: part for part in parts_of(node.dispatch.algorithm)}
    for part, name in sums.items():
        counted = getattr(parts[part], name)
        setattr(parts[part], name, counted + 1)
        with pytest.raises(AssertionError, match="count"):
            recount(node)
        setattr(parts[part], name, counted)
    recount(node)
