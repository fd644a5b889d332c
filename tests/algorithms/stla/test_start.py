"""Which subscriber a message begins at, and for how long it is known."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.api import Peer
from ildm_algorithms.overlay.keys import Ref
from ildm_algorithms.stla.start import RETRY, Start, StartCommand, StartState, nearest, shared_layers
from ildm_algorithms.tbps.keys.encoding import Segment, parse_key

TOPIC = Segment.exact("t")
Place = tuple[str, ...]


def ref(key: bytes) -> Ref:
    name = parse_key(key).node_id
    return Ref(key, Peer(name, f"{name}:1"), 0)


def subscriber(path: str) -> bytes:
    """``A/a1``: node a1 in cluster A."""
    *place, name = path.split("/")
    return TOPIC.subscriber_key(name, place)


def around(keys: Sequence[bytes], key: bytes) -> tuple[Ref | None, Ref | None]:
    """What a lookup answers: the last key that is not greater, and its right neighbour."""
    at = bisect_right(keys, key)
    return (ref(keys[at - 1]) if at else None), (ref(keys[at]) if at < len(keys) else None)


def start_of(publisher: str, subscribers: Sequence[str]) -> str | None:
    """The node a message begins at; other topics and publishers have keys, too."""
    *place, name = publisher.split("/")
    others = [
        Segment.exact("s").subscriber_key("s0", place),
        Segment.exact("u").subscriber_key("u0", place),
        TOPIC.publisher_key(name, place),
        TOPIC.publisher_key("p0", ["A"]),
    ]
    keys = sorted([*others, *map(subscriber, subscribers)])
    found = nearest(TOPIC, place, around(keys, TOPIC.subscriber_key(name, place)))
    return None if found is None else parse_key(found.key).node_id


@pytest.mark.parametrize(
    ("publisher", "start"),
    [
        ("B/b0", "a2"),  # a2 and c1 are equally far: the one before
        ("C/c0", "c1"),  # its cluster has greater ids only
        ("0/x", "a1"),  # before all clusters: the key before is of another topic
        ("D/d0", "c1"),  # behind all: the key behind is a publisher's
        ("A/a2", "a2"),  # is its own
        ("A/a3", "a2"),
    ],
)
def test_the_closest_of_a1_a2_c1(publisher: str, start: str) -> None:
    assert start_of(publisher, ["A/a1", "A/a2", "C/c1"]) == start


def test_nobody_subscribes() -> None:
    assert start_of("A/a1", []) is None


def test_the_key_before_may_share_the_world_only() -> None:
    assert start_of("eu/7/p", ["asia/9/s1", "eu/8/s2"]) == "s2"
    assert start_of("eu/7/p", ["eu/6/s1", "us/7/s2"]) == "s1"


def test_a_key_that_cannot_be_read_is_no_candidate() -> None:
    broken = Ref(TOPIC.subscribers.low + b"no end", Peer("x", "x:1"), 0)
    good = ref(subscriber("A/a1"))
    assert nearest(TOPIC, ("A",), (broken, good)) == good
    assert nearest(TOPIC, ("A",), (broken, None)) is None


def test_order_of_keys() -> None:
    """Topic, type, clusters from the largest, node: a shorter path before what is inside."""
    places: list[Place] = [("eu",), ("eu", "a"), ("us",)]
    expected = [TOPIC.subscriber_key(node, place) for place in places for node in ("1", "2")]
    expected += [TOPIC.publisher_key(node, place) for place in places for node in ("1", "2")]
    expected += [Segment.exact("t2").subscriber_key("0", ("asia",))]
    assert sorted(expected) == expected


CLUSTER = st.sampled_from(["a", "b", "c", "\x00", "é"])
PLACE = st.lists(CLUSTER, min_size=1, max_size=4).map(tuple)


@given(st.lists(st.tuples(PLACE, st.integers(0, 99)), min_size=1, max_size=30, unique=True), PLACE)
def test_no_subscriber_is_closer_than_the_start(subscribers: list[tuple[Place, int]], place: Place) -> None:
    """Two candidates suffice, whatever the heights of the paths."""
    keys = sorted(TOPIC.subscriber_key(str(number), where) for where, number in subscribers)
    found = nearest(TOPIC, place, around(keys, TOPIC.subscriber_key("p", place)))
    assert found is not None
    most = max(shared_layers(place, where) for where, _ in subscribers)
    assert shared_layers(place, parse_key(found.key).locality) == most


# the machine ----------------------------------------------------------------------------------

A, B = ref(subscriber("A/a1")), ref(subscriber("B/b1"))
Event = Callable[[Start], object]


def machine(state: StartState) -> Start:
    """One in a state, at 100 s, with a start node that is good until 110 s."""
    start = Start()
    assert start.use(0.0, 1) is StartCommand.SEARCH
    if state is StartState.SEARCHING:
        return start
    start.found(None if state is StartState.UNKNOWN else A, 100.0, 10.0)
    if state is StartState.REFRESHING:
        assert start.use(110.0, 1) is StartCommand.SEARCH
    assert start.state is state
    return start


SEARCH = StartCommand.SEARCH
TABLE: dict[str, tuple[Event, dict[StartState, tuple[StartState, object, Ref | None]]]] = {
    "a message soon after": (
        lambda start: start.use(100.5, 1),
        {
            StartState.UNKNOWN: (StartState.UNKNOWN, None, None),
            StartState.SEARCHING: (StartState.SEARCHING, None, None),
            StartState.KNOWN: (StartState.KNOWN, None, A),
            StartState.REFRESHING: (StartState.REFRESHING, None, A),
        },
    ),
    "a message later": (
        lambda start: start.use(110.0, 1),
        {
            StartState.UNKNOWN: (StartState.SEARCHING, SEARCH, None),
            StartState.SEARCHING: (StartState.SEARCHING, None, None),
            StartState.KNOWN: (StartState.REFRESHING, SEARCH, A),
            StartState.REFRESHING: (StartState.REFRESHING, None, A),
        },
    ),
    "a message in a new epoch": (
        lambda start: start.use(100.1, 2),
        {
            StartState.UNKNOWN: (StartState.SEARCHING, SEARCH, None),
            StartState.SEARCHING: (StartState.SEARCHING, None, None),
            StartState.KNOWN: (StartState.SEARCHING, SEARCH, None),
            StartState.REFRESHING: (StartState.SEARCHING, None, None),
        },
    ),
    "found": (
        lambda start: start.found(B, 111.0, 10.0),
        dict.fromkeys(StartState, (StartState.KNOWN, None, B)),
    ),
    "found nobody": (
        lambda start: start.found(None, 111.0, 10.0),
        dict.fromkeys(StartState, (StartState.UNKNOWN, None, None)),
    ),
    "no answer": (
        lambda start: start.failed(111.0),
        {
            StartState.UNKNOWN: (StartState.UNKNOWN, None, None),
            StartState.SEARCHING: (StartState.UNKNOWN, None, None),
            StartState.KNOWN: (StartState.KNOWN, None, A),
            StartState.REFRESHING: (StartState.KNOWN, None, A),
        },
    ),
    "lost": (
        lambda start: start.lost(A, 111.0),
        {
            StartState.UNKNOWN: (StartState.UNKNOWN, None, None),
            StartState.SEARCHING: (StartState.SEARCHING, None, None),
            StartState.KNOWN: (StartState.UNKNOWN, None, None),
            StartState.REFRESHING: (StartState.SEARCHING, None, None),
        },
    ),
    "another lost": (
        lambda start: start.lost(B, 111.0),
        {
            StartState.UNKNOWN: (StartState.UNKNOWN, None, None),
            StartState.SEARCHING: (StartState.SEARCHING, None, None),
            StartState.KNOWN: (StartState.KNOWN, None, A),
            StartState.REFRESHING: (StartState.REFRESHING, None, A),
        },
    ),
}


@pytest.mark.parametrize("state", StartState)
@pytest.mark.parametrize("event", TABLE)
def test_table(state: StartState, event: str) -> None:
    happen, expected = TABLE[event]
    start = machine(state)
    order = happen(start)
    assert (start.state, order, start.ref) == expected[state]


def test_after_a_search_in_vain_the_next_one_waits() -> None:
    start = machine(StartState.UNKNOWN)
    assert start.use(100.0 + RETRY / 2, 1) is None
    assert start.use(100.0 + RETRY, 1) is StartCommand.SEARCH
    start.failed(200.0)
    assert start.use(200.0 + RETRY / 2, 1) is None
    assert start.use(200.0 + RETRY, 1) is StartCommand.SEARCH


def test_what_is_lost_is_looked_for_at_once() -> None:
    start = machine(StartState.KNOWN)
    start.lost(A, 101.0)
    assert start.use(101.0, 1) is StartCommand.SEARCH


@given(st.lists(st.sampled_from([*TABLE]), max_size=20))
def test_at_most_one_search_at_a_time(events: list[str]) -> None:
    start = Start()
    searching = False
    for event in events:
        if event.startswith("found") or event == "no answer":
            if not searching:
                continue
            searching = False
        if TABLE[event][0](start) is StartCommand.SEARCH:
            assert not searching
            searching = True
        assert start.state in (StartState.SEARCHING, StartState.REFRESHING) or not searching
