"""The chain of filters by itself: who is asked about what, what an answer means, what may be awaited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ildm.api import Deferred, Filter, NodeApi, PluginError, Reject, Role, Session, SessionStatus, Source
from ildm.core.plugin.filtering import Awaited, FilterChain, Rejected
from ildm.mqtt import (
    Connect,
    PacketType,
    Property,
    Publish,
    ReasonCode,
    Subscribe,
    Subscription,
    Version,
    Will,
    decode,
)
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.world import World

PUBLISH = frozenset({(source, PacketType.PUBLISH) for source in Source})
IMPLEMENTATION = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
TIMEOUT = 5.0


class Owner(NamedTuple):
    name: str


class Client:
    """What a filter is shown of a session."""

    id = 1
    role = Role.CLIENT
    status = SessionStatus.ESTABLISHED
    peer = "client:1"
    client_id = "c"

    def __init__(self, version: Version = Version.V5) -> None:
        self.version = version


class Bench:
    """A chain of functions, and what is counted of them."""

    def __init__(self, hook: str, *answers: Callable[..., Any], on_error: str = "pass") -> None:
        self.world = World()
        self.failed: list[tuple[str, str, str]] = []
        self.returned: list[str] = []
        driver = WorldDriver(self.world, "a")
        self.chain: FilterChain[Owner] = FilterChain(
            driver,
            lambda owner, where, error: self.failed.append((owner.name, where, str(error))),
            lambda owner, where, began: self.returned.append(owner.name),
            TIMEOUT,
        )
        for number, answer in enumerate(answers):
            members: dict[str, Any] = {"wants": PUBLISH, "on_error": on_error, hook: _method(answer)}
            kind = type("Made", (Filter,), members)
            api: Any = None
            self.chain.add(Owner(f"f{number}"), kind(api, kind.Config()))

    def message(self, frame: bytes, source: Source = Source.CLIENT, version: Version = Version.V5) -> Any:
        return self.chain.message(source, Client(version), frame)

    def subscribe(self, *entries: Subscription, version: Version = Version.V5) -> Any:
        packet = Subscribe(packet_id=1, subscriptions=list(entries))
        return self.chain.subscriptions(Client(version), packet)

    def connect(self, packet: Connect) -> Any:
        return self.chain.client(Client(packet.version), packet)

    def told(self, answer: Any) -> list[Any]:
        """What an awaited answer turns out to be, as soon as it does."""
        assert isinstance(answer, Awaited)
        found: list[Any] = []
        answer.then(found.append)
        return found


def _method(answer: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, session, given, *more: answer(given, *more)


def frame(payload: bytes = b"-", version: Version = Version.V5, **fields: Any) -> bytes:
    return Publish(topic="t", payload=payload, **fields).encode(version)


def raising(*given: object) -> Any:
    raise RuntimeError("broken")


def never_asked(*given: object) -> Any:
    raise AssertionError("asked")


# order and meaning --------------------------------------------------------------------------------


def test_each_filter_is_asked_about_what_the_one_before_has_let_pass() -> None:
    seen: list[bytes] = []

    def note(given: bytes) -> bytes:
        seen.append(given)
        return frame(b"2")

    bench = Bench("filter", lambda given: frame(b"1"), raising, note)
    assert bench.message(frame()) == frame(b"2")
    assert seen == [frame(b"1")]
    assert bench.returned == ["f0", "f1", "f2"]
    assert bench.failed == [("f1", "filter", "broken")]


def test_what_nothing_changes_stays_the_same_object() -> None:
    given = frame()
    assert Bench("filter", lambda g: g, raising).message(given) is given
    entry = Subscription(topic_filter="a", qos=1)
    (passed,) = Bench("admit_subscription", lambda g, p: g).subscribe(entry)
    assert passed is entry
    packet = Connect(client_id="c", version=Version.V5)
    assert Bench("admit_client", lambda g: g).connect(packet) is packet


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("answer", [None, Reject(), Reject(None, "no")])
def test_a_rejection_ends_the_chain(answer: Any, late: bool) -> None:
    deferred: Deferred[Any] = Deferred()
    bench = Bench("filter", lambda given: deferred if late else answer, never_asked)
    rejected = bench.message(frame())
    if late:
        told = bench.told(rejected)
        deferred.decide(answer)
        bench.world.run(1)
        (rejected,) = told
    assert rejected == Rejected(ReasonCode.PAYLOAD_FORMAT_INVALID, answer.text if answer else "", "f0")
    assert not bench.failed


def test_only_what_is_overridden_and_wanted_is_asked() -> None:
    bench = Bench("admit_client", never_asked)
    assert not any(bench.chain.filters(source) for source in Source)
    assert not bench.chain.admits_subscriptions
    assert bench.chain.admits_clients
    bench = Bench("filter", never_asked)
    assert all(bench.chain.filters(source) for source in Source)
    assert not bench.chain.admits_clients


@pytest.mark.parametrize(
    ("hook", "given", "possible", "impossible", "default"),
    [
        ("filter", frame(), 0x90, 0x8A, 0x99),
        ("filter", frame(), 0x00, 0x86, 0x99),
        ("admit_subscription", Subscription(topic_filter="a"), 0x97, 0x01, 0x87),
        ("admit_subscription", Subscription(topic_filter="a"), 0xA2, 0x99, 0x87),
        ("admit_client", Connect(client_id="c", version=Version.V5), 0x8A, 0x00, 0x87),
        ("admit_client", Connect(client_id="c", version=Version.V5), 0x9D, 0x8F, 0x87),
    ],
)
def test_a_reason_must_be_possible_in_the_answer_due(
    hook: str, given: Any, possible: int, impossible: int, default: int
) -> None:
    """Another becomes 0x83, and is a failure of the plugin (MQTT 5, 2.4)."""
    for reason, expected in ((possible, possible), (None, default), (impossible, 0x83), ("x", 0x83)):
        answer = Reject(reason if not isinstance(reason, int) else ReasonCode(reason), "why")
        bench = Bench(hook, lambda *given, answer=answer: answer)
        if hook == "filter":
            rejected = bench.message(given)
        elif hook == "admit_client":
            rejected = bench.connect(given)
        else:
            (rejected,) = bench.subscribe(given)
        assert rejected == (expected, "why", "f0")
        assert len(bench.failed) == (expected == 0x83)


@pytest.mark.parametrize("text", ["\0", "\ud800", 7, "x" * 65_536])
def test_a_text_that_cannot_be_sent_is_left_out(text: Any) -> None:
    bench = Bench("filter", lambda given: Reject(ReasonCode.QUOTA_EXCEEDED, text))
    assert bench.message(frame()) == (ReasonCode.QUOTA_EXCEEDED, "", "f0")
    assert len(bench.failed) == 1


@pytest.mark.parametrize("answer", [raising, lambda *given: 7, lambda *given: None])
@pytest.mark.parametrize("on_error", ["pass", "reject"])
def test_what_becomes_of_what_a_filter_fails_at(answer: Any, on_error: str) -> None:
    bench = Bench("admit_client", answer, on_error=on_error)
    packet = Connect(client_id="c", version=Version.V5)
    expected = packet if on_error == "pass" else Rejected(IMPLEMENTATION, "", "f0")
    assert bench.connect(packet) == expected
    bench = Bench("admit_subscription", answer, on_error=on_error)
    entry = Subscription(topic_filter="a")
    assert bench.subscribe(entry) == [entry if on_error == "pass" else Rejected(IMPLEMENTATION, "", "f0")]
    assert len(bench.failed) == 1


# changes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "properties", "allowed"),
    [
        (Source.CLIENT, {Property.TOPIC_ALIAS: 1}, False),
        (Source.BROKER, {Property.TOPIC_ALIAS: 1}, False),
        (Source.CLIENT, {Property.SUBSCRIPTION_IDENTIFIER: [1]}, False),
        (Source.LINK, {Property.SUBSCRIPTION_IDENTIFIER: [1]}, False),
        (Source.BROKER, {Property.SUBSCRIPTION_IDENTIFIER: [1]}, True),
        (Source.CLIENT, {Property.USER_PROPERTY: [("a", "b")]}, True),
    ],
)
def test_what_belongs_to_a_connection_is_not_set_by_a_filter(
    source: Source, properties: Any, allowed: bool
) -> None:
    changed = frame(properties=properties)
    bench = Bench("filter", lambda given: changed)
    assert bench.message(frame(), source) == (changed if allowed else frame())
    assert len(bench.failed) == (not allowed)


def test_a_filter_sees_copies_of_packets() -> None:
    """What it writes into them counts only if it returns them."""

    def scribble(given: Any, packet: Any = None) -> Any:
        if isinstance(given, Subscription):
            given.qos = 2
            packet.subscriptions.clear()
        else:
            given.client_id = "other"
            given.properties[Property.RECEIVE_MAXIMUM] = 1
            given.will.payload = b"other"
        raise RuntimeError("after that")

    entries = [Subscription(topic_filter="a"), Subscription(topic_filter="b")]
    assert Bench("admit_subscription", scribble, lambda g, p: g).subscribe(*entries) == [
        Subscription(topic_filter="a"),
        Subscription(topic_filter="b"),
    ]
    packet = Connect(client_id="c", version=Version.V5, will=Will(topic="w", payload=b"x"))
    before = packet.encode()
    assert Bench("admit_client", scribble, lambda g: g).connect(packet) is packet
    assert packet.encode() == before


def test_a_packet_that_was_returned_is_not_changed_any_more() -> None:
    kept: list[Connect] = []

    def keep(given: Connect) -> Connect:
        given.username = "u"
        kept.append(given)
        return given

    passed = Bench("admit_client", keep).connect(Connect(client_id="c", version=Version.V5))
    kept[0].username = "later"
    assert passed.username == "u"


@pytest.mark.parametrize(
    ("version", "changes", "allowed"),
    [
        (Version.V5, {"qos": 2, "no_local": True, "retain_handling": 2}, True),
        (Version.V311, {"qos": 0}, True),
        (Version.V311, {"no_local": True}, False),
        (Version.V5, {"qos": 3}, False),
        (Version.V5, {"qos": None}, False),
        (Version.V5, {"qos": 1.0}, False),
        (Version.V5, {"retain_handling": 3}, False),
        (Version.V5, {"topic_filter": "other"}, False),
    ],
)
def test_options_of_a_subscription_may_be_changed(
    version: Version, changes: dict[str, Any], allowed: bool
) -> None:
    given = Subscription(topic_filter="a", qos=1)
    wanted = Subscription(**{"topic_filter": "a", "qos": 1, **changes})
    bench = Bench("admit_subscription", lambda g, p: wanted)
    assert bench.subscribe(given, version=version) == [wanted if allowed else given]
    assert len(bench.failed) == (not allowed)


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({"username": "u", "password": b"p"}, True),
        ({"client_id": "d", "clean_start": False, "will": Will(topic="w")}, True),
        ({"version": Version.V311}, False),
        ({"version": 5.0}, False),
        ({"will": Will(topic="w/#")}, False),
        ({"password": "text"}, False),
        ({"keep_alive": -1}, False),
        ({"keep_alive": 1 << 16}, False),
        ({"properties": {Property.TOPIC_ALIAS: 1}}, False),
    ],
)
def test_a_connect_may_be_changed(changes: dict[str, Any], allowed: bool) -> None:
    packet = Connect(client_id="c", version=Version.V5)
    wanted = Connect(**{"client_id": "c", "version": Version.V5, **changes})
    bench = Bench("admit_client", lambda given: wanted)
    assert bench.connect(packet) == (wanted if allowed else packet)
    assert len(bench.failed) == (not allowed)
    assert not any("text" in error for _, _, error in bench.failed)  # a password is nobody's business


# decisions that are awaited -----------------------------------------------------------------------


def test_a_chain_may_defer_several_times() -> None:
    first: Deferred[bytes] = Deferred()
    second: Deferred[bytes] = Deferred()
    seen: list[bytes] = []

    def later(given: bytes) -> Any:
        seen.append(given)
        return second

    bench = Bench("filter", lambda given: first, lambda given: given, later, lambda given: given)
    told = bench.told(bench.message(frame()))
    first.decide(frame(b"1"))
    assert seen == []  # the deciding plugin's own call comes to its end first
    bench.world.run(1)
    assert seen == [frame(b"1")]
    second.decide(frame(b"2"))
    assert told == []
    bench.world.run(1)
    assert told == [frame(b"2")]
    assert bench.returned == ["f0", "f1", "f2", "f3"]
    bench.world.run(2 * TIMEOUT)
    assert not bench.failed


def test_what_is_decided_already_is_not_awaited() -> None:
    decided: Deferred[bytes] = Deferred()
    decided.decide(frame(b"1"))
    assert Bench("filter", lambda given: decided, lambda given: given).message(frame()) == frame(b"1")
    with pytest.raises(PluginError, match="decided before"):
        decided.decide(frame(b"2"))


@pytest.mark.parametrize("on_error", ["pass", "reject"])
def test_a_decision_that_does_not_come_is_a_failure(on_error: str) -> None:
    """The time runs anew for each; the next filter is asked nevertheless."""
    never: Deferred[bytes] = Deferred()
    bench = Bench("filter", lambda given: never, lambda given: frame(b"2"), on_error=on_error)
    told = bench.told(bench.message(frame()))
    bench.world.run(TIMEOUT - 0.1)
    assert told == []
    bench.world.run(0.2)
    assert told == [frame(b"2") if on_error == "pass" else Rejected(IMPLEMENTATION, "", "f0")]
    assert bench.failed == [("f0", "filter", "no decision within 5 s")]
    never.decide(frame(b"late"))
    bench.world.run(1)
    assert len(told) == 1


@pytest.mark.parametrize("decision", [7, None, Deferred()])
def test_nonsense_is_nonsense_when_it_comes_later(decision: Any) -> None:
    later: Deferred[Any] = Deferred()
    bench = Bench("admit_client", lambda given: later)
    packet = Connect(client_id="c", version=Version.V5)
    told = bench.told(bench.connect(packet))
    later.decide(decision)
    bench.world.run(1)
    assert told == [packet]
    assert len(bench.failed) == 1


def test_nobody_waits_for_a_decision_that_is_of_no_use() -> None:
    later: Deferred[bytes] = Deferred()
    bench = Bench("filter", lambda given: later, never_asked)
    answer = bench.message(frame())
    told = bench.told(answer)
    later.decide(frame(b"1"))
    answer.cancel()
    bench.world.run(2 * TIMEOUT)
    assert told == bench.failed == []


def test_a_decision_just_before_it_is_too_late_counts_once() -> None:
    later: Deferred[bytes] = Deferred()
    bench = Bench("filter", lambda given: later)
    told = bench.told(bench.message(frame()))
    bench.world.call_at(TIMEOUT, later.decide, frame(b"1"))
    bench.world.run(2 * TIMEOUT)
    assert len(told) == 1


@pytest.mark.parametrize("source", [Source.BROKER, Source.LINK])
def test_only_what_clients_send_is_awaited(source: Source) -> None:
    later: Deferred[bytes] = Deferred()
    bench = Bench("filter", lambda given: later, lambda given: frame(b"2"))
    assert bench.message(frame(), source) == frame(b"2")
    assert [(name, where) for name, where, _ in bench.failed] == [("f0", "filter")]
    later.decide(frame(b"late"))


def test_entries_of_a_subscribe_are_awaited_together() -> None:
    """All at once, so that the whole packet takes no longer than one of them."""
    deferred: dict[str, Deferred[Any]] = {}

    def answer(given: Subscription, packet: Subscribe) -> Any:
        assert [entry.topic_filter for entry in packet.subscriptions] == list("abcd")
        if given.topic_filter == "a":
            return Reject(ReasonCode.QUOTA_EXCEEDED)
        return deferred.setdefault(given.topic_filter, Deferred())

    bench = Bench("admit_subscription", answer)
    entries = [Subscription(topic_filter=topic_filter) for topic_filter in "abcd"]
    told = bench.told(bench.subscribe(*entries))
    assert list(deferred) == ["b", "c", "d"]
    deferred["c"].decide(Reject())
    deferred["b"].decide(Subscription(topic_filter="b", qos=2))
    bench.world.run(TIMEOUT - 0.1)
    assert told == []
    bench.world.run(0.2)
    assert told == [
        [
            Rejected(ReasonCode.QUOTA_EXCEEDED, "", "f0"),
            Subscription(topic_filter="b", qos=2),
            Rejected(ReasonCode.NOT_AUTHORIZED, "", "f0"),
            Subscription(topic_filter="d"),
        ]
    ]
    assert len(bench.failed) == 1


def test_one_deferred_returned_twice_is_decided_for_all_that_asked() -> None:
    same: Deferred[bytes] = Deferred()
    bench = Bench("filter", lambda given: same)
    told = [bench.told(bench.message(frame(payload))) for payload in (b"1", b"2")]
    same.decide(frame(b"!"))
    bench.world.run(2 * TIMEOUT)
    assert told == [[frame(b"!")], [frame(b"!")]]
    assert not bench.failed


def test_a_filter_is_shown_the_session() -> None:
    shown: list[Session] = []

    class Looking(Filter):
        wants = PUBLISH

        def filter(self, session: Session, message: bytes) -> bytes:
            shown.append(session)
            assert isinstance(decode(message, session.version), Publish)
            return message

    bench = Bench("filter")
    api: NodeApi = None  # type: ignore[assignment] # it is not used
    bench.chain.add(Owner("one"), Looking(api, Looking.Config()))
    assert bench.message(frame(version=Version.V311), version=Version.V311)
    assert [session.client_id for session in shown] == ["c"]
