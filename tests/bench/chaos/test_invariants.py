"""Each invariant: what is to be found is found, and nothing else."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ildm_bench.chaos.check import check_histories
from ildm_bench.chaos.evidence import UNSURE
from ildm_bench.chaos.history import Event
from ildm_bench.chaos.outcome import Outcome
from ildm_bench.chaos.verdict import CARRIED
from tests.bench.chaos import making as m
from tests.bench.chaos.making import BASE, connected, ended, fault, got, history, published, read, subscribed

Rows = list[Event | list[Event]]


def outcome(rows: Rows, **about: object) -> Outcome:
    return check_histories([history(rows, **about)])


def found(rows: Rows, **about: object) -> Counter[tuple[str, str]]:
    """(invariant, cause) -> how often."""
    result = outcome(rows, **about)
    counts = Counter({(one.invariant, one.cause): one.found for one in result.found})
    assert counts == Counter((one.invariant, one.cause) for one in result.findings)
    return counts


LOST = {("lost", "ours"): 1, ("unadmitted", "ours"): 1}
OTHER = [connected(0.0, "o/0"), subscribed(0.1, session="o/0")]
"""A second subscriber at site b."""
WITNESS = [connected(0.0, "witness.b/0"), subscribed(0.1, "#", session="witness.b/0")]


@pytest.mark.parametrize("qos", [1, 2])
def test_all_is_well(qos: int) -> None:
    result = outcome([*BASE, published(2.0, qos=qos), got(2.1, qos=qos)])
    assert result.holds()
    assert result.found == []
    (counted,) = result.counted
    assert (counted.runs, counted.published, counted.acknowledged, counted.owed, counted.received) == (1,) * 5


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("at all", [*BASE, published(2.0)]),
        ("at one of two subscribers", [*BASE, *OTHER, published(2.0), got(2.1)]),
        ("while another comes", [*BASE, published(2.0), published(3.0, 1), got(3.1, 1)]),
        ("by a wildcard", [connected(0.0), subscribed(0.1, "t/#"), published(2.0, topic="t/x/y")]),
        ("to a session that was away meanwhile", [*BASE, ended(1.5), published(2.0), connected(5.0)]),
        ("to a clean session that lives", [connected(0.0, kind="clean"), subscribed(0.1), published(2.0)]),
        ("the node was killed", [*BASE, published(2.0), fault(2.5, 3.0)]),
        (
            "the broker of another site was killed",
            [*BASE, published(2.0), fault(2.5, 3.0, target="broker/a")],
        ),
        ("the broker was only paused", [*BASE, published(2.0), fault(2.5, 3.0, "pause", "broker/b")]),
        ("the broker was killed, and keeps all", [*BASE, published(2.0), fault(2.5, 3.0, target="broker/b")]),
        ("the broker was killed before", [*BASE, fault(1.5, 1.7, target="broker/b"), published(2.0)]),
        ("during a fault", [*BASE, fault(1.5, 9.0), published(2.0)]),
        ("subscribed twice", [*BASE, subscribed(1.9), published(2.0)]),
        (
            "unsubscribed before, subscribed again",
            [*BASE, m.unsubscribed(1.0), subscribed(1.5), published(3.0)],
        ),
    ],
)
def test_lost(name: str, rows: Rows) -> None:
    assert found(rows) == LOST


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("not acknowledged", [*BASE, published(2.0, ok=False)]),
        ("QoS 0", [*BASE, published(2.0, qos=0)]),
        ("subscribed at QoS 0", [connected(0.0), subscribed(0.1, qos=0), published(2.0)]),
        ("another topic", [*BASE, published(2.0, topic="u")]),
        ("published before SUBACK and T", [*BASE, published(1.05)]),
        ("T was disturbed", [*BASE, fault(0.9, 3.0), published(3.9)]),
        ("T was disturbed twice", [*BASE, fault(0.9, 3.0), fault(3.5, 4.0, name="1"), published(4.9)]),
        ("never healed before T", [*BASE, fault(0.5, None), published(9.0)]),
        (
            "SUBACK came when it had been withdrawn already",
            [
                connected(0.0),
                subscribed(0.5)[0],
                m.unsubscribed(0.7),
                subscribed(0.5)[1]._replace(t=0.9),
                published(3.0),
            ],
        ),
        ("unsubscribed", [*BASE, published(2.0), m.unsubscribed(3.0)]),
        (
            "a clean session that ended",
            [connected(0.0, kind="clean"), subscribed(0.1), published(2.0), ended(3.0)],
        ),
        ("away when the history ends", [*BASE, published(2.0), ended(3.0)]),
        ("ended by a clean start", [*BASE, published(2.0), ended(3.0), connected(4.0, "s/1", "new")]),
        ("came as retained only", [*BASE, published(2.0), got(2.1, retain=True)]),
        (
            "refused",
            [*BASE, published(2.0, ok=False), Event(2.1, "p", "publish", "fail", publisher="p", seq=0)],
        ),
        ("by the witness, whose filter the node does not know", [*WITNESS, published(2.0)]),
    ],
)
def test_not_lost(name: str, rows: Rows) -> None:
    assert found(rows) == {}


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        (
            "the broker says so",
            [*BASE, published(2.0), Event(3, "broker/b", "receive", "fail", "b", publisher="p", seq=0)],
        ),
        ("the session is gone", [*BASE, published(2.0), ended(3.0), connected(4.0, "s/1")]),
        (
            "another there got it before the broker was killed",
            [*BASE, *OTHER, published(2.0), got(2.1, session="o/0"), fault(2.5, 3.0, target="broker/b")],
        ),
        (
            "what it had sent before it was killed is read after that",
            [*BASE, *OTHER, published(2.0), fault(2.5, 3.0, target="broker/b"), got(2.502, session="o/0")],
        ),
        (
            "the witness got it before",
            [
                *BASE,
                *WITNESS,
                published(2.0),
                got(2.1, session="witness.b/0"),
                fault(2.5, 3.0, target="broker/b"),
            ],
        ),
    ],
)
@pytest.mark.parametrize("store", ["kept", "lossy"])
def test_lost_by_the_broker(name: str, store: str, rows: Rows) -> None:
    assert found(rows, store=store) == {("lost", "store"): 1}
    assert outcome(rows, store=store).holds()


def test_what_another_got_after_the_broker_was_killed_excuses_nothing() -> None:
    rows: Rows = [*BASE, *OTHER, published(2.0), fault(2.5, 3.0, target="broker/b")]
    assert found([*rows, got(4.0, session="o/0", incarnation=1)]) == LOST


def test_a_lossy_broker_that_was_killed_leaves_it_unclear() -> None:
    rows: Rows = [*BASE, published(2.0), fault(2.5, 3.0, target="broker/b")]
    assert found(rows, store="lossy") == {("lost", "unclear"): 1}
    assert found([*BASE, published(2.0), fault(2.5, 3.0)], store="lossy") == LOST


@pytest.mark.parametrize(
    ("kind", "mode", "cause"),
    [
        ("flip", "power", "disk"),
        ("tear", "process", "disk"),
        ("power", "process", "disk"),
        ("power", "power", "ours"),
    ],
)
def test_what_the_disk_has_lost_is_said_apart(kind: str, mode: str, cause: str) -> None:
    rows: Rows = [*BASE, published(2.0), fault(2.5, 3.0, kind)]
    assert found(rows, mode=mode)["lost", cause] == 1
    assert found([*BASE, fault(1.2, 1.3, kind), published(2.0)], mode=mode) == LOST


GONE = Event(2.5, "node/a", "receive", "fail", "a", publisher="p", seq=0)


@pytest.mark.parametrize(("rows", "cause"), [([], "ours"), ([GONE], "state")])
def test_only_what_a_node_alone_had_goes_with_its_state(rows: Rows, cause: str) -> None:
    told: Rows = [*BASE, published(2.0), published(2.1, 1), got(2.3, 1), fault(2.5, 3.0, "lose-state"), *rows]
    assert found(told)["lost", cause] == 1


UNDER_WAY = Event(2.5, "node/a", "receive", "info", "a", publisher="p", seq=0)


@pytest.mark.parametrize(
    ("rows", "target", "cause"),
    [([], "node/b", "ours"), ([UNDER_WAY], "node/b", "state"), ([UNDER_WAY], "node/a", "ours")],
)
def test_twice_as_not_all_sites_had_acknowledged_it(rows: Rows, target: str, cause: str) -> None:
    lost = fault(2.5, 3.0, "lose-state", target)
    told: Rows = [*BASE, published(2.0, qos=2), got(2.1, qos=2), lost, *rows, got(5.0, qos=2)]
    assert found(told) == {("twice", cause): 1}


@pytest.mark.parametrize(
    ("t", "target", "cause"),
    [(None, "node/b", "ours"), (5.5, "node/b", "rerouted"), (2.2, "node/b", "ours"), (5.5, "node/a", "ours")],
)
def test_twice_as_it_was_rerouted_to_a_node_without_state(t: float | None, target: str, cause: str) -> None:
    told = [] if t is None else [Event(t, "node/b", "counters", "ok", topic=UNSURE, seq=1)]
    lost = fault(2.5, 3.0, "lose-state", target)
    rows: Rows = [*BASE, published(2.0, qos=2), got(2.1, qos=2), lost, got(5.0, qos=2), *told]
    assert found(rows) == {("twice", cause): 1}


@pytest.mark.parametrize(
    ("retain", "again", "target", "cause"),
    [
        (False, None, "node/b", "ours"),
        (True, None, "node/b", "state"),
        (True, None, "node/a", "ours"),
        (False, 4.0, "node/a", "state"),
        (False, 2.05, "node/a", "ours"),
    ],
)
def test_twice_as_a_node_has_forgotten_it(retain: bool, again: float | None, target: str, cause: str) -> None:
    rows = [event._replace(retain=retain) for event in published(2.0, qos=2)]
    if again is not None:
        rows.append(rows[0]._replace(t=again, phase="info", dup=True))
    told: Rows = [*BASE, rows, got(2.1, qos=2), fault(2.5, 3.0, "lose-state", target), got(5.0, qos=2)]
    assert found(told) == {("twice", cause): 1}


def test_losses_that_a_counter_admits() -> None:
    admitted = Event(5.0, "node/b", "counters", "ok", topic="link_dropped_full_qos1", seq=1)
    rows: Rows = [*BASE, published(2.0), published(3.0, 1), admitted]
    result = outcome(rows)
    assert {(one.invariant, one.found) for one in result.found} == {("lost", 2), ("unadmitted", 1)}
    (finding,) = [one for one in result.findings if one.invariant == "unadmitted"]
    assert finding.seq == 1
    assert result.counters == {"link_dropped_full_qos1": 1}


def test_counters_of_all_lives_of_a_node_count() -> None:
    lives = [
        Event(t, "node/b", "counters", "ok", topic="link_dropped_full_qos1", seq=seq, incarnation=life)
        for t, seq, life in ((3.0, 1, 0), (4.0, 1, 0), (6.0, 1, 1))
    ]
    assert found([*BASE, published(2.0), published(2.1, 1), *lives]) == {("lost", "ours"): 2}


@pytest.mark.parametrize(
    ("name", "rows", "expected"),
    [
        ("from one life of the broker", [got(2.1, qos=2), got(2.2, qos=2)], 1),
        ("three times", [got(2.1, qos=2), got(2.2, qos=2), got(2.3, qos=2)], 1),
        ("from two lives", [got(2.1, qos=2), got(2.2, qos=2, incarnation=1)], 0),
        ("at QoS 1", [got(2.1, qos=1), got(2.2, qos=1)], 0),
        ("once as retained", [got(2.1, qos=2), got(2.2, qos=2, retain=True)], 0),
    ],
)
def test_twice(name: str, rows: Rows, expected: int) -> None:
    assert found([*BASE, published(2.0, qos=2), *rows])["twice", "ours"] == expected


@pytest.mark.parametrize(("published_at", "expected"), [(0, 1), (1, 0), (2, 1)])
def test_twice_at_qos_0(published_at: int, expected: int) -> None:
    """Unless its client may have sent it again."""
    rows: Rows = [*BASE, published(2.0, qos=published_at), got(2.1, qos=0)]
    assert found(rows)["twice", "ours"] == 0
    assert found([*rows, got(2.2, qos=0, incarnation=1)])["twice", "ours"] == 0
    assert found([*rows, got(2.2, qos=0)])["twice", "ours"] == expected


RESENT = published(2.0, qos=2, site="b")[0]._replace(phase="info", dup=True)
RESENT_BY_NODE = Event(2.5, "node/b", "counters", "ok", topic="injection_uncertain_resent", seq=1)


@pytest.mark.parametrize(
    ("name", "broker", "rows", "cause"),
    [
        ("by its client", "activemq", [RESENT._replace(t=2.15)], "resent"),
        ("by its client, of one of the makes", "mosquitto+activemq", [RESENT._replace(t=2.15)], "resent"),
        ("by its client at a broker that knows it", "mosquitto", [RESENT._replace(t=2.15)], "ours"),
        ("by its client at another site", "activemq", [RESENT._replace(t=2.15, site="a")], "ours"),
        ("by its client before", "activemq", [RESENT._replace(t=2.05)], "ours"),
        ("by its client afterwards", "activemq", [RESENT._replace(t=2.25)], "ours"),
        ("not", "activemq", [], "ours"),
        ("by the node", "activemq", [RESENT_BY_NODE], "resent"),
        ("by the node, at a broker that knows it", "moquette", [RESENT_BY_NODE], "ours"),
        ("by another node", "activemq", [RESENT_BY_NODE._replace(process="node/a")], "ours"),
        ("by the node before", "activemq", [RESENT_BY_NODE._replace(t=2.05)], "ours"),
        ("by the node long afterwards", "activemq", [RESENT_BY_NODE._replace(t=5.0)], "ours"),
    ],
)
def test_twice_where_it_was_sent_again(name: str, broker: str, rows: Rows, cause: str) -> None:
    """Received at 2.1 and 2.2."""
    receipts: Rows = [got(2.1, qos=2), got(2.2, qos=2)]
    assert found([*BASE, published(2.0, qos=2), *receipts, *rows], broker=broker) == {("twice", cause): 1}


@pytest.mark.parametrize(("broker", "cause"), [("activemq", "resent"), ("mosquitto", "ours")])
def test_twice_as_the_broker_gave_it_once_more(broker: str, cause: str) -> None:
    rows: Rows = [*BASE, published(2.0, qos=2), got(2.1, qos=2), got(2.2, qos=2)._replace(dup=True)]
    assert found(rows, broker=broker) == {("twice", cause): 1}


def test_each_receipt_but_the_first_is_of_its_being_sent_again() -> None:
    receipts = [got(t, qos=2) for t in (2.1, 2.2, 2.3)]
    again = [RESENT._replace(t=t) for t in (2.15, 2.25)]
    rows: Rows = [*BASE, published(2.0, qos=2), *receipts]
    assert found([*rows, again[0]], broker="activemq") == {("twice", "ours"): 1}
    assert found([*rows, *again], broker="activemq") == {("twice", "resent"): 1}


def test_a_message_twice_at_two_subscribers_is_once_each() -> None:
    rows: Rows = [*BASE, *OTHER, published(2.0, qos=2), got(2.1, qos=2), got(2.1, qos=2, session="o/0")]
    assert found(rows) == {}


@pytest.mark.parametrize(
    ("name", "receipt"),
    [
        ("nobody has sent it", got(2.1, seq=7)),
        ("of another run", got(2.1, publisher="2/p")),
        ("another topic", got(2.1, topic="u")),
        ("another content", got(2.1, content="00")),
        ("no payload of ours", got(2.1, publisher="", seq=-1, content="00")),
        ("not subscribed", got(2.1, session="x/0")),
    ],
)
def test_unexpected(name: str, receipt: Event) -> None:
    rows: Rows = [*BASE, published(2.0), got(2.05), receipt]
    assert found(rows)["unexpected", "ours"] == 1


@pytest.mark.parametrize(
    ("broker", "topic", "cause"),
    [
        ("rabbitmq", "$ildm/probe/b/0a", "probe"),
        ("moquette", "$ildm/probe/b/0a", "probe"),
        ("mosquitto", "$ildm/probe/b/0a", "ours"),
        ("rabbitmq", "$else", "ours"),
    ],
)
def test_what_a_node_says_to_itself_is_for_nobody(broker: str, topic: str, cause: str) -> None:
    receipt = got(2.1, publisher="", seq=-1, content="00", topic=topic)
    assert found([*BASE, subscribed(0.1, "#"), receipt], broker=broker) == {("unexpected", cause): 1}


def test_what_was_refused_or_never_acknowledged_may_come_and_an_empty_payload_has_no_sender() -> None:
    refused = Event(2.1, "p", "publish", "fail", publisher="p", seq=0)
    rows: Rows = [
        *BASE,
        published(2.0, ok=False),
        refused,
        got(2.2),
        got(2.3, publisher="", seq=-1, content=""),
    ]
    assert found(rows) == {}


def will(t: float, phase: str) -> Event:
    return Event(
        t, "c", "will", phase, "a", topic="t", qos=1, publisher="c.will", seq=0, value=m.value("c.will", 0)
    )


@pytest.mark.parametrize(
    ("due", "came", "expected"),
    [
        (True, True, {}),
        (True, False, LOST),
        (False, False, {}),
        (False, True, {("unexpected", "ours"): 1}),
    ],
)
def test_wills(due: bool, came: bool, expected: dict[tuple[str, str], int]) -> None:
    rows: Rows = [*BASE, will(0.5, "invoke"), will(5.0, "ok" if due else "fail")]
    assert found([*rows, *([got(5.1, publisher="c.will")] if came else [])]) == expected


OVERTAKEN: Rows = [published(2.0), published(2.1, 1), got(3.0, 1), got(3.1, 0)]


@pytest.mark.parametrize(
    ("name", "rows", "expected"),
    [
        ("overtaken", OVERTAKEN, 1),
        (
            "three late",
            [*(published(2.0, seq) for seq in range(4)), got(3.0, 3), *(got(3.1, seq) for seq in range(3))],
            3,
        ),
        ("a repetition is late", [published(2.0), published(2.1, 1), got(3.0), got(3.1, 1), got(3.2)], 0),
        (
            "two publishers",
            [published(2.0), published(2.1, 1, publisher="q"), got(3.0, 1, publisher="q"), got(3.1)],
            0,
        ),
        ("two QoS", [published(2.0, qos=2), published(2.1, 1), got(3.0, 1), got(3.1, 0, qos=2)], 0),
        (
            "what is retained comes first, and then once more",
            [published(2.0), published(2.1, 1), got(3.0, 1, retain=True), got(3.1, 0), got(3.2, 1)],
            0,
        ),
        ("as retained", [published(2.0), published(2.1, 1), got(3.0, 1), got(3.1, 0, retain=True)], 0),
    ],
)
def test_order(name: str, rows: Rows, expected: int) -> None:
    assert found([*BASE, *rows]) == ({("order", "ours"): expected} if expected else {})


OVERTAKEN_ACROSS: Rows = [
    connected(0.0),
    subscribed(0.1, "#"),
    published(2.0, topic="t/0"),
    published(2.1, 1, topic="t/1"),
    got(3.0, 1, topic="t/1"),
    got(3.1, 0, topic="t/0"),
]


@pytest.mark.parametrize(("algorithm", "expected"), [("sf", 1), ("stla", 0)])
def test_order_across_topics_is_promised_by_trees(algorithm: str, expected: int) -> None:
    assert found(OVERTAKEN_ACROSS, algorithm=algorithm)["order", "ours"] == expected


def test_order_across_topics_is_promised_where_all_is_wanted_with_one_qos() -> None:
    rows: Rows = [
        *OVERTAKEN_ACROSS,
        connected(0.0, "o/0"),
        subscribed(0.1, "t/1", qos=1, session="o/0"),
        got(3.0, 1, topic="t/1", session="o/0"),
    ]
    assert found(OVERTAKEN_ACROSS) == {("order", "ours"): 1}
    assert found(rows) == {}
    witness = [connected(0.0, "witness.b/0"), subscribed(0.1, "t/#", qos=1, session="witness.b/0")]
    assert found([*OVERTAKEN_ACROSS, *witness]) == {("order", "ours"): 1}


def test_order_between_retained_and_other_messages_is_not_promised() -> None:
    """Where all want QoS 1, one of QoS 2 crosses with 1 and a retained one with 2."""
    retained = [event._replace(retain=True) for event in published(2.1, 1, topic="t/1")]
    rows: Rows = [*OVERTAKEN_ACROSS[:3], retained, *OVERTAKEN_ACROSS[4:]]
    assert found(OVERTAKEN_ACROSS) == {("order", "ours"): 1}
    assert found(rows) == {}


@pytest.mark.parametrize(("t", "cause"), [(1.5, "tree"), (2.5, "tree"), (0.9, "ours"), (3.2, "ours")])
def test_order_while_the_tree_changes_is_the_stated_exception(t: float, cause: str) -> None:
    changed = Event(t, "node/c", "tree", "info", "c")
    assert found([*BASE, *OVERTAKEN, changed]) == {("order", cause): 1}


@pytest.mark.parametrize(
    ("name", "broker", "back", "topic", "cause"),
    [
        ("it waited", "activemq", 2.5, "u", "backlog"),
        ("with another make", "mosquitto", 2.5, "u", "ours"),
        ("behind a later one of its topic", "activemq", 2.5, "t", "ours"),
        ("its session was not away since", "activemq", 1.5, "u", "ours"),
        ("its session was away afterwards", "activemq", 4.5, "u", "ours"),
    ],
)
def test_order_of_what_waited_for_a_session(
    name: str, broker: str, back: float, topic: str, cause: str
) -> None:
    rows: Rows = [
        *BASE,
        subscribed(0.1, "u"),
        published(2.0),
        published(2.1, 1, topic=topic),
        connected(back),
        got(3.0, 1, topic=topic),
        got(3.1),
    ]
    assert found(rows, broker=broker, algorithm="sf") == {("order", cause): 1}


@pytest.mark.parametrize(
    ("name", "broker", "back", "dup", "cause"),
    [
        ("it was under way", "moquette", 2.5, True, "retry"),
        ("with another make", "mosquitto", 2.5, True, "ours"),
        ("sent for the first time", "moquette", 2.5, False, "ours"),
        ("its session was not away since", "moquette", 1.5, True, "ours"),
    ],
)
def test_order_of_what_was_under_way_when_a_session_left(
    name: str, broker: str, back: float, dup: bool, cause: str
) -> None:
    late = got(3.1)._replace(dup=dup)
    rows: Rows = [*BASE, published(2.0), published(2.1, 1), connected(back), got(3.0, 1), late]
    assert found(rows, broker=broker, algorithm="sf") == {("order", cause): 1}


@pytest.mark.parametrize(
    ("name", "broker", "retain", "subscribes", "cause"),
    [
        ("handed over before SUBSCRIBE", "moquette", True, 2.5, "replay"),
        ("of a make that says what it has retained", "mosquitto", True, 2.5, "ours"),
        ("nothing that a broker retains", "moquette", False, 2.5, "ours"),
        ("handed over after SUBSCRIBE", "moquette", True, 1.9, "ours"),
        ("come before SUBSCRIBE", "moquette", True, 3.5, "ours"),
    ],
)
def test_order_of_what_a_broker_has_retained_and_gives_without_the_flag(
    name: str, broker: str, retain: bool, subscribes: float, cause: str
) -> None:
    messages = [published(2.0, topic="u"), published(2.1, 1)]
    rows: Rows = [
        *BASE,
        *([event._replace(retain=retain) for event in rows] for rows in messages),
        subscribed(subscribes, "#", session="s/0"),
        got(3.0, 1),
        got(3.1, topic="u"),
    ]
    assert found(rows, broker=broker, algorithm="sf")[("order", cause)] == 1


@pytest.mark.parametrize(("t", "cause"), [(0.06, "ours"), (1.0, "again"), (4.0, "ours")])
def test_order_where_a_session_subscribed_before_a_message_came_again(t: float, cause: str) -> None:
    """It was sent at 0.05, before SUBACK, and came at 3.0, behind a later one."""
    again = published(0.05, topic="t")[0]._replace(t=t, phase="info")
    rows: Rows = [*BASE, published(0.05), published(2.0, 1), got(2.1, 1), got(3.0), again]
    assert found(rows) == {("order", cause): 1}


def test_order_where_all_was_sent_before_a_session_subscribed_and_one_came_again() -> None:
    again = published(0.05, topic="t")[0]._replace(t=0.07, phase="info")
    rows: Rows = [*BASE, published(0.05), published(0.06, 1), got(2.1, 1), got(3.0), again]
    assert found(rows) == {("order", "again"): 1}


@pytest.mark.parametrize(
    ("target", "killed", "qos", "cause"),
    [
        ("node/b", 1.0, 1, "again"),
        ("node/b", 1.0, 2, "ours"),
        ("node/b", 3.5, 1, "ours"),
        ("node/a", 1.0, 1, "ours"),
        ("broker/b", 1.0, 1, "ours"),
    ],
)
def test_order_where_a_node_was_killed_that_had_given_a_message_to_its_broker(
    target: str, killed: float, qos: int, cause: str
) -> None:
    """It was sent before SUBACK, and came behind a later one."""
    messages = [published(0.05, qos=qos), published(2.0, 1, qos=qos)]
    received = [got(2.1, 1, qos=qos), got(3.0, qos=qos)]
    rows: Rows = [*BASE, *messages, *received, fault(killed, killed + 0.1, target=target)]
    assert found(rows) == {("order", cause): 1}


def repaired(killed: float, target: str) -> Rows:
    """Two retained messages, and a fault between them."""
    return [*BASE, late(0), late(1), fault(killed, killed + 0.1, target=target)]


@pytest.mark.parametrize(
    ("killed", "target", "broker", "cause"),
    [
        (2.5, "broker/b", "rabbitmq", "repaired"),
        (2.5, "broker/b", "mosquitto-default", "repaired"),
        (2.5, "broker/b", "mosquitto", "ours"),
        (2.5, "broker/a", "rabbitmq", "ours"),
        (1.5, "broker/b", "rabbitmq", "ours"),
        (2.5, "node/a", "mosquitto", "met"),
        (4.5, "node/a", "mosquitto", "ours"),
    ],
)
def test_order_of_a_retained_message_that_is_given_again(
    killed: float, target: str, broker: str, cause: str
) -> None:
    rows = [*repaired(killed, target), got(3.1, 1), got(4.0)]
    assert found(rows, broker=broker, algorithm="sf") == {("order", cause): 1}


@pytest.mark.parametrize(
    ("kind", "begins", "cause"),
    [("hold-session", 2.5, "met"), ("hold-session", 4.5, "ours"), ("hold", 2.5, "ours")],
)
def test_order_of_a_retained_message_that_is_told_past_a_session_held_up(
    kind: str, begins: float, cause: str
) -> None:
    rows = [*BASE, late(0), late(1), fault(begins, 6.0, kind=kind, target="link/a/b"), got(3.1, 1), got(4.0)]
    assert found(rows, algorithm="sf") == {("order", cause): 1}


@pytest.mark.parametrize(
    ("site", "begins", "taken", "cause"),
    [
        ("b", 1.9, 2.3, "repaired"),
        ("b", 2.1, 2.3, "ours"),
        ("b", 1.8, 1.9, "ours"),
        ("a", 1.9, 2.3, "ours"),
    ],
)
def test_a_retained_message_that_an_older_one_has_replaced(
    site: str, begins: float, taken: float, cause: str
) -> None:
    """The broker there has taken that later, which was published before."""
    older = published(begins, 0, 2, publisher="o", site=site)
    older[1] = older[1]._replace(t=taken)
    rows: Rows = [*BASE, *(event._replace(retain=True) for event in older), *late(0)]
    assert found([*rows, got(2.1, qos=2), got(4.0, qos=2)], algorithm="sf")["twice", cause] == 1


@pytest.mark.parametrize(("lost", "cause"), [("b", "repaired"), ("a", "ours")])
def test_order_of_a_retained_message_that_its_broker_has_lost_with_its_store(lost: str, cause: str) -> None:
    fails = Event(2.5, f"broker/{lost}", "receive", "fail", lost, publisher="p", seq=0)
    rows = [*BASE, late(0), late(1), fails, got(3.1, 1), got(4.0)]
    assert found(rows, algorithm="sf") == {("order", cause): 1}


@pytest.mark.parametrize(
    ("kind", "until", "qos", "cause"),
    [
        ("cut", 9.0, 0, "ring"),
        ("cut", 3.9, 0, "ours"),
        ("cut", 9.0, 2, "ours"),
        ("drift", 9.0, 0, "ours"),
    ],
)
def test_a_message_of_qos_0_crosses_two_ways_as_links_come_up(
    kind: str, until: float, qos: int, cause: str
) -> None:
    cut = fault(2.0, until, kind, "link/a/b")
    rows: Rows = [*BASE, cut, published(10.0, qos=qos), got(10.1, qos=qos), got(10.2, qos=qos)]
    assert found(rows) == {("twice", cause): 1}


@pytest.mark.parametrize(("told", "cause"), [(1.9, "ours"), (2.05, "disk"), (3.0, "disk"), (4.5, "ours")])
def test_a_message_that_its_node_says_to_have_let_go_unguarded(told: float, cause: str) -> None:
    """Since it was published, not since its first receipt: that may be of a client that was away."""
    admits = Event(told, "node/b", "counters", "ok", "b", topic="injection_unguarded", seq=1)
    rows = [*BASE, published(2.0, qos=2), admits, got(2.1, qos=2), got(4.0, qos=2)]
    assert found(rows)["twice", cause] == 1


@pytest.mark.parametrize(("broker", "cause"), [("activemq", "repaired"), ("mosquitto", "ours")])
def test_a_retained_message_of_qos_2_that_is_given_again(broker: str, cause: str) -> None:
    rows = [*repaired(2.5, "broker/b"), got(2.1, qos=2), got(4.0, qos=2), got(4.1, 1)]
    assert found(rows, broker=broker, algorithm="sf")["twice", cause] == 1


@pytest.mark.parametrize(
    ("qos", "killed", "broker", "answer", "cause"),
    [
        (1, 2.01, "mosquitto", None, "unknown"),
        (2, 2.01, "mosquitto", None, "ours"),
        (2, 2.01, "moquette", None, "unknown"),
        (1, 1.9, "mosquitto", None, "ours"),
        (1, 2.01, "mosquitto", "again", "ours"),
        (2, 2.01, "moquette", "PUBREC", "ours"),
        (1, 2.01, "mosquitto", "ok", "ours"),
    ],
)
def test_a_retained_message_that_its_node_never_knew(
    qos: int, killed: float, broker: str, answer: str | None, cause: str
) -> None:
    invoked = kept(0, ok=False, qos=qos)
    rows: Rows = [invoked, fault(invoked[0].t + killed - 2, invoked[0].t + 1, target="node/a")]
    if answer is not None:
        later = invoked[0]._replace(t=invoked[0].t + 2, phase="ok" if answer == "ok" else "info")
        rows.append(later._replace(detail='{"packet": "PUBREC"}' if answer == "PUBREC" else ""))
    found_here = found([*rows, read("a", {"r": V0}), read("b", {})], broker=broker)
    assert found_here["retained", cause] == 1


@pytest.mark.parametrize(
    ("killed", "target", "cause"),
    [(2.5, "broker/b", "store"), (4.5, "broker/b", "ours"), (2.5, "broker/a", "ours")],
)
def test_lost_by_an_identifier_that_a_killed_broker_has_used_again(
    killed: float, target: str, cause: str
) -> None:
    mistaken = got(4.0, qos=2)._replace(phase="info")
    rows: Rows = [*BASE, fault(killed, killed + 0.5, target=target), published(3.5, qos=2), mistaken]
    assert {one: n for one, n in found(rows).items() if one[0] == "lost"} == {("lost", cause): 1}


@pytest.mark.parametrize(
    ("killed", "site", "cause"),
    [(2.5, "b", "store"), (1.5, "b", "ours"), (2.5, "a", "ours")],
)
def test_a_will_whose_broker_was_killed_before_it_was_due(killed: float, site: str, cause: str) -> None:
    """Its broker has it from 2.0 on, it is due at 3.0, and the subscriber is at b."""
    begun = published(2.0, site=site)[0]._replace(op="will")
    rows: Rows = [*BASE, fault(killed, killed + 0.2, target=f"broker/{site}"), begun]
    rows.append(begun._replace(t=3.0, phase="ok"))
    assert {one: n for one, n in found(rows).items() if one[0] == "lost"} == {("lost", cause): 1}


@pytest.mark.parametrize(("killed", "cause"), [(2.0, "store"), (1.8, "ours")])
def test_a_will_whose_broker_was_killed_before_its_connack_came(killed: float, cause: str) -> None:
    """Its CONNECT was sent at 1.9, and answered at 2.1, as the broker was gone."""
    begun = published(2.1, site="b")[0]._replace(op="will")
    rows: Rows = [*BASE, fault(killed, killed + 0.2, target="broker/b")]
    rows += [begun._replace(t=1.9, phase="info"), begun, begun._replace(t=3.0, phase="ok")]
    assert {one: n for one, n in found(rows).items() if one[0] == "lost"} == {("lost", cause): 1}


@pytest.mark.parametrize(
    ("kind", "target", "until", "cause"),
    [
        ("pause", "node/b", 4.0, "store"),
        ("pause", "broker/b", 4.0, "store"),
        ("power", "node/b", 4.0, "store"),
        ("pause", "node/b", 3.2, "ours"),
        ("pause", "broker/b", 3.2, "ours"),
        ("pause", "broker/a", 4.0, "ours"),
        ("hold", "link/a/b", 4.0, "ours"),
    ],
)
def test_a_will_whose_broker_could_not_know_that_it_was_due(
    kind: str, target: str, until: float, cause: str
) -> None:
    """It is due at 3.0, while its node or broker stands still or is off, and the broker is killed at 3.5."""
    begun = published(2.0, site="b")[0]._replace(op="will")
    silence = fault(2.9, until, kind=kind, target=target, name="1")
    rows: Rows = [*BASE, silence, fault(3.5, 3.7, target="broker/b"), begun]
    rows.append(begun._replace(t=3.0, phase="ok"))
    assert found(rows, mode="power").get(("lost", cause)) == 1


@pytest.mark.parametrize(
    ("torn", "site", "cause"),
    [(2.5, "a", "disk"), (1.5, "a", "ours"), (2.5, "b", "ours"), (3.5, "b", "disk")],
)
def test_a_will_whose_row_was_in_a_torn_end(torn: float, site: str, cause: str) -> None:
    """The broker of a has it from 2.0 on, and it is due at 3.0."""
    begun = published(2.0, site="a")[0]._replace(op="will")
    rows: Rows = [*BASE, fault(torn, torn + 0.5, kind="tear", target=f"node/{site}"), begun]
    rows.append(begun._replace(t=3.0, phase="ok"))
    assert {one: n for one, n in found(rows).items() if one[0] == "lost"} == {("lost", cause): 1}


def test_what_the_last_of_several_damages_may_have_lost_is_said_apart() -> None:
    flips = [
        Event(t, "nemesis", "fault", "info", topic="flip", session="node/a", value=str(t))
        for t in (1.0, 30.5)
    ]
    flips += [flip._replace(op="heal", t=flip.t + 0.1) for flip in flips]
    rows: Rows = [connected(0.0), subscribed(0.1, "t/#"), *flips, published(30.0, topic="t/0")]
    assert found(rows) == {("lost", "disk"): 1}


def overtaken(*before: int) -> Rows:
    """On one topic, over an overlay: what has come ``before``, then message 3, then 2."""
    rows: Rows = [connected(-20.0), subscribed(-19.9, "t/#")]
    for seq in (*before, 2, 3):
        rows.append(published(2.0 + seq / 10, seq, topic="t/0"))
    for n, seq in enumerate((*before, 3, 2)):
        rows.append(got(3.0 + n / 10, seq, topic="t/0"))
    return rows


@pytest.mark.parametrize(
    ("algorithm", "order", "cause"),
    [("stla", [3, 1, 2], "first"), ("sf", [3, 1, 2], "ours"), ("stla", [0, 3, 1, 2], "ours")],
)
def test_what_is_older_than_the_first_that_has_come(algorithm: str, order: list[int], cause: str) -> None:
    rows: Rows = [connected(-20.0), subscribed(-19.9, "t/#")]
    rows += [published(2.0 + seq / 10, seq, topic="t/0") for seq in sorted(order)]
    rows += [got(3.0 + n / 10, seq, topic="t/0") for n, seq in enumerate(order)]
    assert found(rows, algorithm=algorithm) == {("order", cause): 2}


@pytest.mark.parametrize(
    ("algorithm", "before", "change", "cause"),
    [
        ("sf", [], None, "ours"),
        ("stla", [], None, "first"),
        ("stla", [1], None, "ours"),
        ("stla", [1], 2.5, "tree"),
        ("stla", [1], -3.7, "tree"),
        ("stla", [1], -3.9, "ours"),
        ("stla", [1], 3.3, "ours"),
        ("sf", [1], 1.1, "ours"),
    ],
)
def test_order_over_an_overlay_has_three_exceptions(
    algorithm: str, before: list[int], change: float | None, cause: str
) -> None:
    """While it changes or something is down, or shortly after, and where the first message has nothing to
    wait for."""
    held = fault(-6.0, -3.9, kind="hold", target="link/a/b")
    changed = [] if change is None else [Event(change, "node/c", "tree", "info", "c")]
    assert found([*overtaken(*before), *held, *changed], algorithm=algorithm) == {("order", cause): 1}
    down = fault(1.0, 2.25, kind="hold", target="link/a/b")
    if algorithm == "stla" and cause != "tree":
        cause = "down"
    assert found([*overtaken(*before), *down, *changed], algorithm=algorithm) == {("order", cause): 1}


@pytest.mark.parametrize(
    ("algorithm", "asked", "cause"), [("stla", 2.05, "early"), ("stla", -19.9, "ours"), ("sf", 2.05, "ours")]
)
def test_what_an_overlay_fetches_for_a_new_subscription_comes_late(
    algorithm: str, asked: float, cause: str
) -> None:
    rows: Rows = [connected(-20.0), subscribed(asked, "t/#"), *overtaken(1)[2:]]
    assert found(rows, algorithm=algorithm) == {("order", cause): 1}


def kept(
    seq: int, qos: int = 1, ok: bool = True, publisher: str = "p", content: str | None = None
) -> list[Event]:
    rows = published(2.0 + seq, seq, qos, publisher=publisher, topic="r", ok=ok)
    first = rows[0]._replace(retain=True)
    return [first if content is None else first._replace(value=content), *rows[1:]]


V0, V1 = m.value("p", 0), m.value("p", 1)


@pytest.mark.parametrize(
    ("name", "rows", "expected"),
    [
        ("equal", [kept(0), read("a", {"r": V0}), read("b", {"r": V0})], {}),
        (
            "other",
            [kept(0, ok=False), kept(1, ok=False), read("a", {"r": V0}), read("b", {"r": V1})],
            {("retained", "ours"): 1},
        ),
        ("none at one", [kept(0, ok=False), read("a", {"r": V0}), read("b", {})], {("retained", "ours"): 1}),
        (
            "older at all",
            [kept(0), kept(1), read("a", {"r": V0}), read("b", {"r": V0})],
            {("stale", "ours"): 2},
        ),
        ("gone at all", [kept(0), read("a", {}), read("b", {})], {("stale", "ours"): 2}),
        (
            "the later was not acknowledged",
            [kept(0), kept(1, ok=False), read("a", {"r": V0}), read("b", {"r": V0})],
            {},
        ),
        (
            "the later came all the same",
            [kept(0), kept(1, ok=False), read("a", {"r": V1}), read("b", {"r": V1})],
            {},
        ),
        ("deleted", [kept(0), kept(1, content=""), read("a", {}), read("b", {})], {}),
        (
            "back",
            [kept(0), kept(1, content=""), read("a", {"r": V0}), read("b", {"r": V0})],
            {("stale", "ours"): 2},
        ),
        ("two publishers", [kept(0), kept(1, publisher="q"), read("a", {"r": V0}), read("b", {"r": V0})], {}),
        ("QoS 0", [kept(0, qos=0), kept(1, qos=0), read("a", {"r": V0}), read("b", {"r": V0})], {}),
    ],
)
def test_retained(name: str, rows: Rows, expected: dict[tuple[str, str], int]) -> None:
    assert found(rows) == expected


def late(seq: int, publisher: str = "p", site: str = "a", content: str | None = None) -> list[Event]:
    """Retained, on the topic that site b has subscribed to."""
    rows = published(2.0 + seq, seq, publisher=publisher, site=site)
    first = rows[0]._replace(retain=True)
    return [first if content is None else first._replace(value=content), *rows[1:]]


@pytest.mark.parametrize(
    "rows",
    [
        [late(0), late(1), got(3.1, 1)],
        [late(0), late(1, "q", "b"), got(3.1, 1, publisher="q")],
        [late(0), late(1, content="")],
    ],
    ids=["received there", "from there", "a deletion"],
)
def test_a_retained_message_of_which_a_newer_one_is_known_is_owed_all_the_same(rows: Rows) -> None:
    for algorithm in ("stla", "sf"):
        assert found([*BASE, *rows], algorithm=algorithm)["lost", "ours"] == 1


def test_retained_of_a_run_that_was_cut_short_is_not_judged() -> None:
    rows: Rows = [kept(0, ok=False), read("a", {"r": V0}), read("b", {})]
    assert found(rows, complete=False) == {}


@pytest.mark.parametrize(("readings", "expected"), [([7, 10], 0), ([7, 11, 8], 1)])
def test_bounds(readings: list[int], expected: int) -> None:
    bound = Event(0.0, "node/b", "counters", "info", topic="spool_bytes", seq=10)
    rows: Rows = [
        Event(t, "node/b", "counters", "ok", topic="spool_bytes", seq=each) for t, each in enumerate(readings)
    ]
    other = Event(0.0, "node/a", "counters", "ok", topic="spool_bytes", seq=99)
    assert found([bound, *rows, other])["unbounded", "ours"] == expected


def test_a_link_beyond_its_rate() -> None:
    bound = Event(0.0, "link/a/b", "counters", "info", topic=CARRIED, seq=100)
    assert found([bound, Event(1.0, "link/a/b", "counters", "ok", topic=CARRIED, seq=100)]) == {}
    assert found([bound, Event(1.0, "link/a/b", "counters", "ok", topic=CARRIED, seq=101)]) == {
        ("budget", "ours"): 1
    }


def test_qos_0_is_counted_as_a_share() -> None:
    (counted,) = outcome([*BASE, published(2.0, qos=0), published(3.0, 1, qos=0), got(3.1, 1, qos=0)]).counted
    assert (counted.owed, counted.owed_qos0, counted.missing_qos0) == (0, 2, 1)


def test_runs_do_not_mix() -> None:
    rows: Rows = [*BASE, published(2.0)]
    whole, broken = history([*rows, got(2.1)], "1"), history(rows, "2")
    result = check_histories([whole, broken])
    assert {(one.invariant, one.run) for one in result.findings} == {("lost", "2"), ("unadmitted", "2")}
    (counted,) = result.counted
    assert (counted.runs, counted.owed, counted.received) == (2, 2, 1)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32))
def test_random_histories_hold_and_every_mutation_is_found(seed: int) -> None:
    rows = m.random_history(seed)
    made = [history(rows, "whole")]
    for name, mutate in m.MUTATIONS.items():
        altered = mutate(rows, random.Random(seed))
        if altered is not None:
            made.append(history(altered, name))
    result = check_histories(made)
    assert {one.run for one in result.findings} == {each.run for each in made} - {"whole"}
    for each in made[1:]:
        assert (each.run, each.run, "ours") in {
            (one.run, one.invariant, one.cause) for one in result.findings
        }


@pytest.mark.parametrize(
    ("killed", "at", "broker", "cause"),
    [
        ("broker/a", 2.03, "mosquitto", "store"),
        ("broker/a", 2.03, "activemq", "ours"),
        ("broker/a", 2.01, "mosquitto", "ours"),
        ("broker/a", 2.2, "mosquitto", "ours"),
        ("broker/b", 2.03, "mosquitto", "ours"),
        ("node/a", 2.03, "mosquitto", "ours"),
    ],
)
def test_what_a_broker_had_answered_with_pubrec_alone_is_its_own_loss(
    killed: str, at: float, broker: str, cause: str
) -> None:
    """At the site of the publisher alone, whose broker it was."""
    sent = published(2.0, qos=2)
    recorded = sent[0]._replace(t=2.02, phase="info", detail='{"packet": "PUBREC"}')
    rows: Rows = [
        connected(0.0, site="a"),
        subscribed(0.1, site="a"),
        [sent[0], recorded, sent[-1]._replace(t=2.1)],
        fault(at, at + 1, target=killed),
    ]
    counts = found(rows, broker=broker)
    del counts["unadmitted", "ours"]  # what no counter admits
    assert counts == {("lost", cause): 1}
