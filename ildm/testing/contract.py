"""What :class:`ildm.api.NodeApi` promises, and in which order a plugin's hooks are called.

One suite for everything that stands in for a node: :class:`NodeContract` holds the tests, a :class:`Stage`
puts one implementation on. What an implementation cannot do stands in its :attr:`Stage.cannot` with the
reason, and is expected to fail: a reason that no longer holds is found.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, NamedTuple, TypeVar

import pytest

from ildm.api import (
    STAMP_PROPERTY,
    Algorithm,
    Deferred,
    Filter,
    Link,
    NodeApi,
    NodeStatus,
    OverlayAlgorithm,
    Peer,
    PluginConfig,
    PluginError,
    Reject,
    Role,
    SendResult,
    Session,
    SessionStatus,
    Source,
    Stamp,
    TreeAlgorithm,
    Unreachable,
    Via,
)
from ildm.config import LinkConfig
from ildm.mqtt import (
    Connect,
    PacketType,
    PingReq,
    PingResp,
    Property,
    Publish,
    ReasonCode,
    Subscribe,
    Subscription,
    Version,
    decode,
)

SOON = 0.05
"""Seconds; what a timer of a test waits for."""
_Test = TypeVar("_Test", bound=Callable[..., None])


def states(*names: str) -> Callable[[_Test], _Test]:
    """Marks a test with the members of the interface it is about."""

    def mark(test: _Test) -> _Test:
        test.states = names  # type: ignore[attr-defined]
        return test

    return mark


class Injected(NamedTuple):
    """What the node has published in its local broker."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


class Stage(ABC):
    """Nodes of one implementation, which all run one algorithm."""

    cannot: ClassVar[Mapping[str, str]] = {}
    """Test -> why the implementation fails it."""

    def __init__(self, algorithm: type[Algorithm]) -> None:
        self.algorithm = algorithm

    @abstractmethod
    def add(self, name: str) -> Probe:
        """Start a node, with a broker of its own; answers its algorithm."""

    @abstractmethod
    def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until a condition holds; an assertion fails if it never does."""

    @abstractmethod
    def quiet(self) -> None:
        """Let everything happen that is under way."""

    @abstractmethod
    def link(self, here: str, far: str) -> None:
        """Node ``here`` is told that ``far`` is its neighbour."""

    @abstractmethod
    def unlink(self, here: str, far: str) -> None:
        """Node ``here`` is told that ``far`` is its neighbour no longer."""

    @abstractmethod
    def hold(self, here: str, far: str) -> None:
        """Let what node ``here`` sends to its neighbour ``far`` wait."""

    @abstractmethod
    def release(self, here: str, far: str) -> None:
        """Let it pass again."""

    @abstractmethod
    def kill(self, name: str) -> None:
        """End a node without a word."""

    @abstractmethod
    def stop(self, name: str) -> None:
        """Begin to stop a node."""

    @abstractmethod
    def subscribe(self, name: str, topic_filter: str, qos: int = 0, client: str = "c") -> None: ...

    @abstractmethod
    def unsubscribe(self, name: str, topic_filter: str, client: str = "c") -> None: ...

    @abstractmethod
    def publish(
        self, name: str, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False,
        expiry: int | None = None,
    ) -> None:  # fmt: skip
        """A local client publishes; always the same one."""

    @abstractmethod
    def injected(self, name: str) -> Sequence[Injected]: ...

    @abstractmethod
    def failures(self, name: str) -> int:
        """How often the node's algorithm has failed, as the implementation counts or reports it."""

    @abstractmethod
    def counters(self, name: str) -> Mapping[str, int]:
        """What the algorithm has counted."""

    @abstractmethod
    def gauges(self, name: str) -> Mapping[str, float]:
        """What the algorithm has measured."""

    @abstractmethod
    def logged(self, name: str) -> Sequence[tuple[str, Mapping[str, object]]]:
        """What the algorithm has logged: events and fields."""

    def listener(self) -> tuple[Peer, Callable[[], Sequence[object]], Callable[[bytes], None]]:
        """A program that speaks MQTT: its address, what it has received, and how to let it send."""
        raise NotImplementedError


class Probe(Algorithm):
    """Notes every hook, and answers what a test wants."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.made_in = api.status
        self.heard: list[tuple[Any, ...]] = []
        self.routes: Callable[[str, Link | None], Any] = lambda topic, source: ()
        self.then: Callable[[str], object] = lambda node_id: None
        """What is done when a node cannot be reached."""
        self.leaving = False
        self.published: list[tuple[Publish, int]] = []
        self.kept: dict[str, bytes] = {}

    def of(self, *kinds: str) -> list[tuple[Any, ...]]:
        """What was heard of some kinds."""
        return [event for event in self.heard if event[0] in kinds]

    def topics_asked(self) -> list[str]:
        return [event[1] for event in self.of("route")]

    def link(self, node_id: str) -> Link:
        return next(link for link in self.api.links if link.node_id == node_id)

    def linked(self, *node_ids: str) -> bool:
        return {link.node_id for link in self.api.links} >= set(node_ids)

    def on_ildm_start(self) -> None:
        state = self.api.status, dict(self.api.local_interest), list(self.api.links)
        self.heard.append(("start", *state))
        self.kept = dict(self.api.state)

    def on_ildm_stop(self) -> None:
        self.heard.append(("stop", self.api.status))

    def on_ildm_add(self, host: str, port: int) -> None:
        self.heard.append(("add", self.api.status))

    def on_ildm_remove(self, host: str, port: int) -> None:
        self.heard.append(("remove", self.api.status))

    def on_session_established(self, session: Session) -> None:
        if session.role is Role.PEER:
            self.heard.append(("established", session, session.status))

    def on_session_closed(self, session: Session) -> None:
        if session.role is Role.PEER:
            self.heard.append(("closed", session, session.status))

    def on_tcp_down(self, session: Session) -> None:
        if session.role is Role.PEER:
            self.heard.append(("tcp down", session, session.status))

    def on_recv_failure(self, session: Session, exception: Exception) -> None:
        self.heard.append(("recv failure", session))

    def on_link_up(self, link: Link) -> None:
        self.heard.append(("up", link.node_id, link in self.api.links))

    def on_link_down(self, link: Link) -> None:
        self.heard.append(("down", link.node_id, link in self.api.links))

    def on_writable(self, link: Link) -> None:
        self.heard.append(("writable", link.node_id))

    def on_interest_changed(self, source: Link | None, changes: Mapping[str, int | None]) -> None:
        now = self.api.local_interest if source is None else source.interest
        agrees = all(now.get(topic_filter) == qos for topic_filter, qos in changes.items())
        self.heard.append(("interest", source and source.node_id, dict(changes), agrees))


class TreeProbe(Probe, TreeAlgorithm):
    """Notes what it is asked, too."""

    def route(self, topic: str, retain: bool, source: Link | None) -> Any:
        self.heard.append(("route", topic, retain, source and source.node_id))
        return self.routes(topic, source)


class MessageProbe(TreeProbe):
    """Decides on each message."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.decide: Callable[[Publish, Link | None], Any] = lambda message, source: ()
        self.shown: list[tuple[Publish, str | None, int]] = []

    def route_message(self, message: Publish, source: Link | None, turn: int) -> Any:
        self.shown.append((message.copy(), None if source is None else source.node_id, turn))
        return self.decide(message, source)


class OverlayProbe(Probe, OverlayAlgorithm):
    """The same where messages are the algorithm's affair."""

    def is_leaving(self) -> bool:
        return self.leaving

    def on_publish(self, message: Publish, turn: int) -> None:
        self.published.append((message, turn))

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        self.heard.append(("message", sender, data, turn))

    def on_unreachable(self, node_id: str, reason: Unreachable) -> None:
        self.heard.append(("unreachable", node_id, reason))
        self.then(node_id)


class DecidingProbe(TreeProbe, Filter):
    """Decides about what clients send and neighbours transfer, as a test wants it."""

    wants = frozenset({(Source.CLIENT, PacketType.PUBLISH), (Source.LINK, PacketType.PUBLISH)})

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.routes = _everywhere(api)
        self.about_message: Callable[[Publish], Any] = lambda message: message
        self.about_subscription: Callable[[Subscription], Any] = lambda subscription: subscription
        self.about_client: Callable[[Connect], Any] = lambda packet: packet

    def filter(self, session: Session, message: bytes) -> Any:
        packet = decode(message, session.version)
        assert isinstance(packet, Publish)
        self.heard.append(("filter", session.role, packet.payload))
        answer = self.about_message(packet)
        return answer.encode(session.version) if isinstance(answer, Publish) else answer

    def admit_subscription(self, session: Session, subscription: Subscription, packet: Subscribe) -> Any:
        assert subscription in packet.subscriptions
        return self.about_subscription(subscription)

    def admit_client(self, session: Session, packet: Connect) -> Any:
        assert session.client_id == packet.client_id
        return self.about_client(packet)


class LookingProbe(TreeProbe):
    """Notes messages of clients and neighbours."""

    wants = frozenset({(Source.CLIENT, PacketType.PUBLISH), (Source.LINK, PacketType.PUBLISH)})

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.routes = _everywhere(api)

    def mqtt_message_arrived(self, session: Session, type: PacketType, message: bytes) -> None:
        packet = decode(message, session.version)
        assert isinstance(packet, Publish)
        assert bool(session.client_id) or session.role is Role.LINK
        self.heard.append(("seen", session.role, type, packet.payload))


B = Peer("b", "b:2")
Make = Callable[[type[Algorithm]], Stage]


def _everywhere(api: NodeApi) -> Callable[[str, Link | None], Any]:
    """Routes to all links, at QoS 1."""
    return lambda topic, source: [(link, 1) for link in api.links]


def stamped(topic: str, payload: bytes, time: int, node: str = "far", again: bool = False) -> Publish:
    """A retained message from another node."""
    value = Stamp(time, node).text(repeated=again)
    properties: dict[Property, Any] = {Property.USER_PROPERTY: [(STAMP_PROPERTY, value)]}
    return Publish(topic=topic, payload=payload, retain=True, properties=properties)


class NodeContract:
    """The tests. A subclass names the implementation."""

    stage: ClassVar[type[Stage]]

    @pytest.fixture
    def make(self, request: pytest.FixtureRequest) -> Make | Iterator[Make]:
        self.excuse(request)
        return self.stage

    def excuse(self, request: pytest.FixtureRequest) -> None:
        """Expect the test to fail where the implementation has a reason."""
        reason = self.stage.cannot.get(request.function.__name__)
        if reason is not None:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    # start, end, identity -------------------------------------------------------------------------

    @states("status", "on_ildm_start")
    def test_the_start_is_the_first_hook(self, make: Make) -> None:
        one = make(TreeProbe).add("a")
        assert one.made_in is NodeStatus.STOPPED
        assert one.heard[0] == ("start", NodeStatus.RUNNING, {}, [])
        assert len(one.of("start")) == 1
        assert one.api.status is NodeStatus.RUNNING

    @states("on_ildm_stop", "is_leaving", "status")
    def test_a_node_that_stops_waits_for_its_algorithm(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        one.leaving = True
        stage.stop("a")
        assert one.of("stop") == [("stop", NodeStatus.RUNNING)]
        assert one.api.send(two.api.peer, b"good-bye")
        stage.until(lambda: [event[2] for event in two.of("message")] == [b"good-bye"])
        one.leaving = False
        stage.until(lambda: one.api.status is NodeStatus.STOPPED)

    @states("node_id", "peer")
    def test_a_node_has_a_name_and_an_address(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        assert one.api.node_id == one.api.peer.node_id == "a"
        assert one.api.peer.address
        assert one.api.peer.address != two.api.peer.address

    @states("random")
    def test_chance_is_the_nodes_own(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        assert isinstance(one.api.random, Random)
        drawn = [one.api.random.random() for _ in range(4)]
        assert drawn != [two.api.random.random() for _ in range(4)]
        assert one.api.random is one.api.random

    @states("random")
    def test_chance_can_be_repeated(self, make: Make) -> None:
        first, second = (make(OverlayProbe).add("a").api.random.random() for _ in range(2))
        assert first == second

    # time -----------------------------------------------------------------------------------------

    @states("now", "call_later")
    def test_timers_fire_in_order_and_not_at_once(self, make: Make) -> None:
        stage = make(OverlayProbe)
        api = stage.add("a").api
        fired: list[tuple[str, bool]] = []
        began = api.now()

        def fire(name: str, delay: float) -> None:
            fired.append((name, api.now() >= began + delay - 0.001))

        for name, delay in (("late", 2 * SOON), ("one", SOON), ("two", SOON), ("zero", 0.0)):
            api.call_later(delay, fire, name, delay)
        assert fired == []
        stage.until(lambda: len(fired) == 4)
        assert fired == [("zero", True), ("one", True), ("two", True), ("late", True)]

    @states("call_later", "Timer.cancel")
    def test_a_cancelled_timer_never_fires(self, make: Make) -> None:
        """Cancelling is allowed at any time, also twice, by another timer, and when it has fired."""
        stage = make(OverlayProbe)
        api = stage.add("a").api
        fired: list[str] = []
        doomed = api.call_later(SOON, fired.append, "cancelled")
        doomed.cancel()
        doomed.cancel()
        later = api.call_later(SOON, fired.append, "cancelled by another")
        api.call_later(0.0, later.cancel)
        kept = api.call_later(0.0, fired.append, "kept")
        api.call_later(3 * SOON, fired.append, "last")
        stage.until(lambda: "last" in fired)
        kept.cancel()
        assert fired == ["kept", "last"]

    @pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), "1"])
    @states("call_later")
    def test_a_delay_that_is_none_is_refused(self, make: Make, delay: Any) -> None:
        api = make(OverlayProbe).add("a").api
        with pytest.raises(PluginError, match="a delay of"):
            api.call_later(delay, print)
        with pytest.raises(PluginError, match="cannot be called"):
            api.call_later(0, None)  # type: ignore[arg-type]

    # links ----------------------------------------------------------------------------------------

    @states("links", "on_link_up", "on_link_down", "Link.node_id", "Link.peer", "Link.dialed",
            "Link.introducer", "Link.sessions", "Link.__hash__")  # fmt: skip
    def test_links_come_and_go(self, make: Make) -> None:
        """A link is among the links from the call of on_link_up to that of on_link_down."""
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        assert list(one.api.links) == []
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        for here, far in ((one, two), (two, one)):
            (link,) = here.api.links
            name = far.api.node_id
            assert here.of("up") == [("up", name, True)]
            assert link.node_id == link.peer.node_id == name
            assert {link: 1}[link] == 1
            assert link.dialed is (here is one)
            assert link.introducer is (here is one)
            assert all(session.role is Role.LINK for session in link.sessions)
        stage.unlink("a", "b")
        stage.until(lambda: one.of("down") and two.of("down"))
        assert one.of("down") == [("down", "b", False)]
        assert two.of("down") == [("down", "a", False)]
        assert list(one.api.links) == list(two.api.links) == []

    @states("on_ildm_add", "on_ildm_remove", "status")
    def test_adding_and_removing_neighbours_is_told_and_shown(self, make: Make) -> None:
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        stage.until(lambda: one.api.status is NodeStatus.RUNNING)
        stage.unlink("a", "b")
        stage.until(lambda: one.of("down"))
        assert one.of("add", "remove") == [
            ("add", NodeStatus.ILDM_ADDING),
            ("remove", NodeStatus.ILDM_REMOVING),
        ]
        assert one.api.status is NodeStatus.RUNNING

    # interest -------------------------------------------------------------------------------------

    @states("local_interest", "on_interest_changed")
    def test_interest_of_local_clients(self, make: Make) -> None:
        """The highest QoS of all clients counts; nothing is told where nothing changes."""
        stage = make(TreeProbe)
        one = stage.add("a")
        stage.subscribe("a", "t/#", 1, "c1")
        stage.subscribe("a", "t/#", 0, "c2")
        stage.subscribe("a", "u", 2, "c2")
        stage.until(lambda: dict(one.api.local_interest) == {"t/#": 1, "u": 2})
        stage.unsubscribe("a", "t/#", "c1")
        stage.unsubscribe("a", "u", "c2")
        stage.until(lambda: dict(one.api.local_interest) == {"t/#": 0})
        told = [event[1:] for event in one.of("interest")]
        assert [(source, agrees) for source, _, agrees in told] == [(None, True)] * 4
        assert [changes for _, changes, _ in told] == [{"t/#": 1}, {"u": 2}, {"t/#": 0}, {"u": None}]

    @states("Link.inter_subscribe", "Link.inter_unsubscribe", "Link.interest", "Link.announced",
            "on_interest_changed")  # fmt: skip
    def test_interest_of_neighbours(self, make: Make) -> None:
        """What is said already is not said again; the end of a link ends the interest."""
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        link, back = one.link("b"), two.link("a")
        link.inter_subscribe({"x": 0, "y/+": 1})
        assert dict(link.announced) == {"x": 0, "y/+": 1}
        link.inter_subscribe({"x": 0})
        stage.until(lambda: dict(back.interest) == {"x": 0, "y/+": 1})
        link.inter_subscribe({"x": 2})
        stage.until(lambda: back.interest["x"] == 2)
        link.inter_unsubscribe(["y/+", "unknown"])
        stage.until(lambda: dict(back.interest) == {"x": 2})
        assert dict(link.announced) == {"x": 2}
        assert dict(link.interest) == dict(back.announced) == {}
        told = [event[1:] for event in two.of("interest")]
        assert [(source, agrees) for source, _, agrees in told] == [("a", True)] * len(told)
        merged = [item for _, changes, _ in told for item in changes.items()]
        assert merged == [("x", 0), ("y/+", 1), ("x", 2), ("y/+", None)]
        stage.unlink("a", "b")
        stage.until(lambda: one.of("down") and two.of("down"))
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        stage.quiet()
        assert dict(two.link("a").interest) == dict(one.link("b").announced) == {}

    @pytest.mark.parametrize("filters", [{"a/#/b": 1}, {"a": 9}, {"": 0}, {"$SYS/#": 0}, {b"a": 0}])
    @states("Link.inter_subscribe")
    def test_wrong_filters_are_refused(self, make: Make, filters: Any) -> None:
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        with pytest.raises(PluginError):
            one.link("b").inter_subscribe({"good": 0, **filters})
        assert dict(one.link("b").announced) == {}
        one.link("b").inter_subscribe({"good": 1})
        stage.until(lambda: two.of("interest"))
        assert dict(two.link("a").interest) == {"good": 1}

    # messages over a tree -------------------------------------------------------------------------

    @states("route")
    def test_messages_go_where_the_algorithm_says(self, make: Make) -> None:
        """With the smaller QoS; not back over the link they came by; ``$`` topics not at all."""
        stage = make(TreeProbe)
        names = "abc"
        probes = [stage.add(name) for name in names]
        for probe in probes:
            probe.routes = _everywhere(probe.api)
        stage.link("a", "b")
        stage.link("b", "c")
        stage.until(lambda: probes[0].linked("b") and probes[1].linked("a", "c") and probes[2].linked("b"))
        stage.publish("a", "$private", b"0")
        stage.publish("a", "t", b"1", qos=1)
        stage.publish("a", "u", b"2", qos=0)
        stage.until(lambda: len(stage.injected("c")) == 2)
        for name in "bc":
            # of different QoS: in no order (4.6)
            assert sorted(stage.injected(name)) == [
                Injected("t", b"1", 1, False),
                Injected("u", b"2", 0, False),
            ]
        assert stage.injected("a") == []
        asked = {name: sorted(probe.of("route")) for name, probe in zip(names, probes, strict=True)}
        for name, source in (("a", None), ("b", "a"), ("c", "b")):
            assert asked[name] == [("route", topic, False, source) for topic in "tu"]

    @states("route", "routes_changed")
    def test_an_answer_may_be_remembered_until_routes_change(self, make: Make) -> None:
        """At least the first message of a topic is asked about, and each after a change."""
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        stage.publish("a", "t", b"nobody wants it")
        stage.until(lambda: one.topics_asked() == ["t"])
        one.routes = lambda topic, source: [(one.link("b"), 0)]
        one.api.routes_changed()
        stage.publish("a", "t", b"1")
        stage.until(lambda: stage.injected("b"))
        one.routes = lambda topic, source: ()
        one.api.routes_changed()
        stage.publish("a", "t", b"2")
        stage.until(lambda: len(one.topics_asked()) >= 3)
        stage.quiet()
        assert stage.injected("b") == [Injected("t", b"1", 0, False)]

    @states("route")
    def test_retained_messages_keep_their_qos_and_are_asked_about_each_time(self, make: Make) -> None:
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        one.routes = lambda topic, source: [(link, 0) for link in one.api.links]
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        stage.publish("a", "t", b"1", qos=1, retain=True)
        stage.publish("a", "t", b"2", qos=1, retain=True)
        stage.until(lambda: len(stage.injected("b")) == 2)
        assert stage.injected("b") == [Injected("t", b"1", 1, True), Injected("t", b"2", 1, True)]
        assert one.of("route") == [("route", "t", True, None)] * 2

    @pytest.mark.parametrize("way", [(9,), (-1,), (None,), ("1",), (), (1, 8), (1, -9), (1, "1"), (1, 0, 0)])
    @states("route")
    def test_a_route_that_is_none_is_a_failure(self, make: Make, way: tuple[Any, ...]) -> None:
        """The message stays local, and the failure is not hidden."""
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        one.routes = lambda topic, source: [(one.link("b"), *way)] if way else [one.link("b")]
        stage.publish("a", "t", b"1")
        stage.until(lambda: stage.failures("a") == 1)
        one.routes = lambda topic, source: [(one.link("b"), 0)]
        one.api.routes_changed()
        stage.publish("a", "t", b"2")
        stage.until(lambda: stage.injected("b"))
        assert stage.injected("b") == [Injected("t", b"2", 0, False)]

    @states("route_message")
    def test_an_algorithm_may_decide_on_each_message(self, make: Make) -> None:
        """Its own clients' and those from neighbours; what goes nowhere stays local; ``$`` topics do."""
        stage = make(MessageProbe)
        probes = [stage.add(name) for name in "abc"]
        for probe in probes:
            assert isinstance(probe, MessageProbe)
            probe.decide = lambda message, source, api=probe.api: [  # type: ignore[misc]
                Via(link, 1) for link in api.links if message.payload.isdigit()
            ]
        stage.link("a", "b")
        stage.link("b", "c")
        stage.until(lambda: probes[0].linked("b") and probes[1].linked("a", "c") and probes[2].linked("b"))
        stage.publish("a", "$private", b"0")
        for payload in (b"no", b"1", b"no", b"2"):
            stage.publish("a", "t", payload, qos=1)
        stage.until(lambda: len(stage.injected("c")) == 2)
        stage.quiet()
        for name in "bc":
            assert stage.injected(name) == [Injected("t", b"1", 1, False), Injected("t", b"2", 1, False)]
        sources = (None, "a", "b")
        for probe, source in zip(probes, sources, strict=True):
            assert isinstance(probe, MessageProbe)
            shown = [(message.payload, message.qos, near) for message, near, _ in probe.shown]
            passed = [(b"1", 1, source), (b"2", 1, source)]
            refused = (b"no", 1, source)
            assert shown == ([refused, passed[0], refused, passed[1]] if source is None else passed)
            assert len({turn for _, _, turn in probe.shown}) == 1
            assert not probe.of("route")

    @states("route_message")
    def test_what_an_algorithm_does_to_a_message_is_its_own_affair(self, make: Make) -> None:
        stage = make(MessageProbe)
        one, two = stage.add("a"), stage.add("b")
        assert isinstance(one, MessageProbe)

        def meddle(message: Publish, source: Link | None) -> Any:
            message.topic, message.payload, message.qos, message.retain = "other", b"2", 0, True
            message.properties[Property.CONTENT_TYPE] = 7
            return [(link, 2) for link in one.api.links]

        one.decide = meddle
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        stage.publish("a", "t", b"1", qos=1)
        stage.until(lambda: stage.injected("b"))
        assert stage.injected("b") == [Injected("t", b"1", 1, False)]
        assert not stage.failures("a")

    @states("route_message")
    def test_a_retained_message_is_decided_on_with_its_stamp(self, make: Make) -> None:
        """It may be kept, and transferred later."""
        stage = make(MessageProbe)
        one, two = stage.add("a"), stage.add("b")
        assert isinstance(one, MessageProbe)
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        stage.publish("a", "t", b"1", retain=True)
        stage.until(lambda: one.shown)
        ((message, source, turn),) = one.shown
        stamp = Stamp.of(message)
        assert stamp is not None
        assert (message.retain, stamp.node, source) == (True, "a", None)
        assert one.api.transfer(one.link("b"), message, turn)
        stage.until(lambda: stage.injected("b"))
        assert stage.injected("b") == [Injected("t", b"1", 0, True)]

    @states("transfer")
    def test_an_algorithm_may_transfer_single_messages(self, make: Make) -> None:
        """With their own QoS, whatever packet identifier they have; over a link that has left, nowhere."""
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        link = one.link("b")
        one.api.transfer(link, Publish(topic="t", payload=b"0"))
        one.api.transfer(link, Publish(topic="t", payload=b"1", qos=1))
        one.api.transfer(link, Publish(topic="t", payload=b"2", qos=1, packet_id=7))
        stage.until(lambda: len(stage.injected("b")) == 3)
        assert sorted(stage.injected("b")) == [Injected("t", b"%d" % n, min(n, 1), False) for n in range(3)]
        assert two.of("route") == [("route", "t", False, "a")] * len(two.of("route"))
        assert two.of("route")
        stage.unlink("a", "b")
        stage.until(lambda: one.of("down") and two.of("down"))
        assert not one.api.transfer(link, Publish(topic="t", payload=b"late"))
        stage.quiet()
        assert len(stage.injected("b")) == 3

    @states("transfer", "Link.queued", "Link.queued_bytes")
    def test_the_highest_priority_goes_first(self, make: Make) -> None:
        """Of what waits, which is shown; within one priority the order is kept."""
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        link = one.link("b")
        assert (link.queued, link.queued_bytes) == (0, 0)
        stage.hold("a", "b")
        bulk = [b"%d" % number for number in range(1500)]
        for payload in bulk:  # more than may be under way without an acknowledgement
            assert one.api.transfer(link, Publish(topic="bulk", payload=payload, qos=1), 3)
        assert one.api.transfer(link, Publish(topic="less", qos=1), 3, -8)
        assert one.api.transfer(link, Publish(topic="alarm", qos=1), 3, 7)
        stage.until(lambda: link.queued > 400)
        assert link.queued_bytes > link.queued
        stage.release("a", "b")
        stage.until(lambda: len(stage.injected("b")) == len(bulk) + 2)
        stage.until(lambda: (link.queued, link.queued_bytes) == (0, 0))
        topics = [message.topic for message in stage.injected("b")]
        assert topics.index("alarm") < 1200
        assert topics.index("less") == len(bulk) + 1
        assert [message.payload for message in stage.injected("b") if message.topic == "bulk"] == bulk

    @states("transfer", "on_writable")
    def test_who_transfers_without_end_is_refused(self, make: Make) -> None:
        """And hears of it when there is room again: once, and not within the call."""
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        link = one.link("b")
        message = Publish(topic="t", payload=b"x")
        taken = next(number for number in range(100_000) if not one.api.transfer(link, message, 1))
        assert not one.api.transfer(link, message, 1)
        assert taken > 100
        assert not one.of("writable")
        stage.until(lambda: one.of("writable"))
        assert one.api.transfer(link, message, 1)
        stage.until(lambda: len(stage.injected("b")) == taken + 1)
        stage.quiet()
        assert one.of("writable") == [("writable", "b")]

    @pytest.mark.parametrize("arguments", [(0, 8), (0, -9), (0, "1"), ("1", 0), (0, 0, True)])
    @states("transfer")
    def test_a_wrong_turn_priority_or_stamp_is_refused(self, make: Make, arguments: tuple[Any, ...]) -> None:
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        turn, priority, *retain = arguments
        with pytest.raises(PluginError):
            one.api.transfer(one.link("b"), Publish(topic="t", retain=bool(retain)), turn, priority)
        assert one.api.transfer(one.link("b"), Publish(topic="t"))
        stage.until(lambda: stage.injected("b"))
        assert len(stage.injected("b")) == 1

    # messages of an overlay -----------------------------------------------------------------------

    @states("send", "on_message", "on_link_up")
    def test_data_reach_the_algorithm_of_any_node_in_order(self, make: Make) -> None:
        """Over a link that is made for it; what has one turn stays in order."""
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        for number in range(20):
            assert one.api.send(two.api.peer, b"%d" % number, 3)
        stage.until(lambda: len(two.of("message")) == 20)
        turn = two.of("message")[0][3]
        here, there = one.api.peer, two.api.peer
        assert two.of("message") == [("message", here, b"%d" % number, turn) for number in range(20)]
        assert isinstance(turn, int)
        assert two.api.send(two.of("message")[0][1], b"back") is SendResult.OK
        stage.until(lambda: one.of("message"))
        assert [event[:3] for event in one.of("message")] == [("message", there, b"back")]
        assert not one.of("unreachable")

    @states("send", "on_writable")
    def test_who_sends_data_without_end_is_refused_and_hears_of_room(self, make: Make) -> None:
        """Also while the link is being made."""
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        for _ in range(2):
            taken = next(n for n in range(100_000) if not one.api.send(two.api.peer, b"x", 1))
            assert taken > 100
            assert one.api.send(two.api.peer, b"x", 1) is SendResult.FULL
            assert not one.of("writable")
            stage.until(lambda: one.of("writable"))
            stage.until(lambda: len(two.of("message")) == taken)  # noqa: B023 - within this round
            stage.quiet()
            assert one.of("writable") == [("writable", "b")]
            assert one.of("up") == [("up", "b", True)]
            assert len(two.of("message")) == taken
            for probe in (one, two):
                probe.heard[:] = probe.of("up")

    @states("send", "links", "Link.introducer")
    def test_a_link_on_demand_is_nobodys_introducer(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        assert one.api.send(two.api.peer, b"x")
        stage.until(lambda: two.of("message"))
        assert [event[:3] for event in two.heard[-2:]] == [
            ("up", "a", True),
            ("message", one.api.peer, b"x"),
        ]
        assert one.of("up") == [("up", "b", True)]
        assert not one.link("b").introducer
        assert not two.link("a").introducer

    @states("send")
    def test_data_for_the_node_itself_are_not_sent(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        assert one.api.send(one.api.peer, b"x") is SendResult.SELF
        assert not SendResult.SELF
        stage.quiet()
        assert not one.of("message", "unreachable")

    @states("send")
    def test_data_larger_than_a_packet_are_not_sent(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        largest = LinkConfig().packet_size
        assert one.api.send(two.api.peer, bytes(largest)) is SendResult.TOO_LARGE
        assert one.api.send(one.api.peer, bytes(largest)) is SendResult.SELF
        assert one.api.send(two.api.peer, bytes(largest - 100)) is SendResult.OK
        stage.until(lambda: two.of("message"))
        assert [len(event[2]) for event in two.of("message")] == [largest - 100]
        assert not one.of("unreachable")

    @states("send", "on_unreachable")
    def test_a_node_that_is_gone_is_reported(self, make: Make) -> None:
        """After sending, not within the call; also when the link with it is lost."""
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        peer = two.api.peer
        assert one.api.send(peer, b"x")
        stage.until(lambda: two.of("message"))
        stage.kill("b")
        stage.until(lambda: one.of("unreachable"))
        assert one.of("unreachable") == [("unreachable", "b", Unreachable.LOST)]
        one.heard.clear()
        assert one.api.send(peer, b"y")
        assert not one.heard
        stage.until(lambda: one.of("unreachable"))
        assert one.of("unreachable") == [("unreachable", "b", Unreachable.REFUSED)]

    @states("send", "on_unreachable")
    def test_a_node_that_is_not_where_it_is_said_to_be_is_reported(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        assert one.api.send(Peer("c", two.api.peer.address), b"x")
        assert one.api.send(Peer("d", "nonsense"), b"x")
        assert one.api.send(Peer("e", ""), b"x")
        assert not one.heard[1:]
        stage.until(lambda: len(one.of("unreachable")) == 3)
        assert sorted(one.of("unreachable")) == [
            ("unreachable", "c", Unreachable.OTHER_NODE),
            ("unreachable", "d", Unreachable.NO_ADDRESS),
            ("unreachable", "e", Unreachable.NO_ADDRESS),
        ]
        stage.quiet()
        assert not two.of("message")

    @states("send", "on_unreachable")
    def test_a_hook_that_sends_again_does_not_run_away(self, make: Make) -> None:
        """After each failure there is a pause, and the hook is never called within itself."""
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        peer = two.api.peer
        stage.kill("b")
        depth: list[str] = []

        def again(node_id: str) -> None:
            assert not depth
            depth.append(node_id)
            assert one.api.send(peer, b"again")
            depth.pop()

        one.then = again
        began = one.api.now()
        assert one.api.send(peer, b"first")
        stage.until(lambda: len(one.of("unreachable")) == 4)
        assert one.api.now() - began >= SOON
        one.then = lambda node_id: None

    @states("send")
    def test_endless_sends_come_to_an_end(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        answers = [one.api.send(two.api.peer, b"%d" % number) for number in range(10_001)]
        assert set(answers) == {SendResult.OK, SendResult.FULL}
        taken = answers.index(SendResult.FULL)
        assert answers == [SendResult.OK] * taken + [SendResult.FULL] * (10_001 - taken)
        stage.until(lambda: len(two.of("message")) == taken)
        assert [int(event[2]) for event in two.of("message")] == list(range(taken))
        assert one.api.send(two.api.peer, b"again")

    @states("send")
    def test_nodes_of_a_tree_send_nothing(self, make: Make) -> None:
        one = make(TreeProbe).add("a")
        with pytest.raises(PluginError, match="OverlayAlgorithm"):
            one.api.send(Peer("b", "b:2"), b"x")

    @pytest.mark.parametrize("arguments", [("b", b"x"), (tuple(B), b"x"), (B, "x"), (B, b"x", "1")])
    @states("send")
    def test_wrong_data_are_refused(self, make: Make, arguments: tuple[Any, ...]) -> None:
        one = make(OverlayProbe).add("a")
        with pytest.raises(PluginError):
            one.api.send(*arguments)

    @states("on_publish", "route")
    def test_messages_of_local_clients_are_the_overlays(self, make: Make) -> None:
        """A retained one has its stamp; nobody is asked for a route; ``$`` topics are not shown."""
        stage = make(OverlayProbe)
        one = stage.add("a")
        stage.publish("a", "$private", b"0")
        stage.publish("a", "t", b"1", qos=1)
        stage.publish("a", "kept", b"2", retain=True)
        stage.until(lambda: len(one.published) == 2)
        (second, same), (first, turn) = sorted(one.published, key=lambda shown: shown[0].topic)
        assert (first.topic, first.payload, first.qos, first.retain) == ("t", b"1", 1, False)
        assert (second.topic, second.payload, second.retain) == ("kept", b"2", True)
        assert Stamp.of(first) is None
        stamp = Stamp.of(second)
        assert stamp is not None
        assert stamp.node == "a"
        assert turn == same
        assert not one.of("route")
        assert stage.injected("a") == []

    # the local broker -----------------------------------------------------------------------------

    @states("inject")
    def test_injected_messages_go_to_the_local_broker_only(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        one.api.inject(Publish(topic="t", payload=b"0"))
        one.api.inject(Publish(topic="t", payload=b"1", qos=1, packet_id=9))
        stage.until(lambda: len(stage.injected("a")) == 2)
        assert sorted(stage.injected("a")) == [Injected("t", b"%d" % n, n, False) for n in range(2)]
        assert not one.published
        assert not one.of("route")

    @pytest.mark.parametrize(
        "wrong",
        [
            {"payload": "text"}, {"topic": b"t"}, {"topic": "a/+"}, {"topic": ""}, {"topic": "$SYS/x"},
            {"qos": 9}, {"properties": {Property.MESSAGE_EXPIRY_INTERVAL: -1}},
            {"properties": {Property.TOPIC_ALIAS: 1}},
        ],
    )  # fmt: skip
    @states("inject", "transfer")
    def test_wrong_messages_are_refused(self, make: Make, wrong: dict[str, Any]) -> None:
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        message = Publish(**{"topic": "t", **wrong})
        with pytest.raises(PluginError):
            one.api.inject(message)
        with pytest.raises(PluginError):
            one.api.transfer(one.link("b"), message)
        one.api.inject(Publish(topic="t"))
        one.api.transfer(one.link("b"), Publish(topic="t"))
        stage.until(lambda: stage.injected("a") and stage.injected("b"))
        assert stage.injected("a") == stage.injected("b") == [Injected("t", b"", 0, False)]

    @states("inject", "retained")
    def test_the_newest_retained_message_wins(self, make: Make) -> None:
        """An older one is for live subscribers, its repetition for nobody; the very same is not again."""
        stage = make(OverlayProbe)
        one = stage.add("a")
        one.api.inject(stamped("t", b"new", 20))
        one.api.inject(stamped("t", b"old", 10))
        one.api.inject(stamped("t", b"old again", 9, again=True))
        one.api.inject(stamped("t", b"new", 20))
        one.api.inject(stamped("t", b"new", 20, again=True))
        one.api.inject(stamped("t", b"newer", 21, again=True))
        stage.until(lambda: len(stage.injected("a")) == 3)
        stage.quiet()
        assert sorted(stage.injected("a")) == [
            Injected("t", b"new", 0, True),
            Injected("t", b"newer", 0, True),
            Injected("t", b"old", 0, False),
        ]
        (known,) = one.api.retained("t")
        assert (known.payload, Stamp.of(known)) == (b"newer", Stamp(21, "far"))

    @states("inject", "retained")
    def test_the_stamp_is_between_nodes(self, make: Make) -> None:
        """Another user property of the message stays."""
        stage = make(OverlayProbe)
        one = stage.add("a")
        message = stamped("t", b"x", 20)
        message.properties[Property.USER_PROPERTY].append(("mine", "1"))
        given = list(message.properties[Property.USER_PROPERTY])
        one.api.inject(message)
        (known,) = one.api.retained("t")
        assert ("mine", "1") in known.properties[Property.USER_PROPERTY]
        assert message.properties[Property.USER_PROPERTY] == given  # the caller's is not touched

    @states("inject", "retained")
    def test_an_unstamped_retained_message_ends_what_is_known(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        one.api.inject(stamped("t", b"x", 20))
        one.api.inject(Publish(topic="t", payload=b"from elsewhere", retain=True))
        stage.until(lambda: len(stage.injected("a")) == 2)
        assert stage.injected("a")[-1] == Injected("t", b"from elsewhere", 0, True)
        assert list(one.api.retained("#")) == []

    @states("retained")
    def test_a_filter_that_is_none_is_refused(self, make: Make) -> None:
        one = make(OverlayProbe).add("a")
        for wrong in ("a/#/b", "", b"a"):
            with pytest.raises(PluginError):
                one.api.retained(wrong)  # type: ignore[arg-type]

    @states("retained")
    def test_what_is_retained_is_told_as_a_repetition(self, make: Make) -> None:
        """The oldest first, deletions among it, whole seconds of expiry rounded up; a client cannot stamp."""
        stage = make(OverlayProbe)
        one = stage.add("a")
        assert list(one.api.retained("#")) == []
        stage.publish("a", "x/1", b"1", retain=True, expiry=100)
        stage.publish("a", "x/2", b"2", retain=True)
        stage.publish("a", "y", b"3", retain=True)
        stage.publish("a", "x/2", b"", retain=True)
        stage.publish("a", "live", b"4")
        stage.until(lambda: len(one.published) == 5)
        found = one.api.retained("x/+")
        assert [(m.topic, m.payload, m.retain) for m in found] == [("x/1", b"1", True), ("x/2", b"", True)]
        assert [m.topic for m in one.api.retained("#")] == ["x/1", "y", "x/2"]
        assert [m.topic for m in one.api.retained("y")] == ["y"]
        for message in one.api.retained("#"):
            (pair,) = message.properties[Property.USER_PROPERTY]
            stamp, repeated = Stamp.parse(pair[1])
            assert stamp is not None
            assert (pair[0], stamp.node, repeated) == (STAMP_PROPERTY, "a", True)
        left = found[0].properties[Property.MESSAGE_EXPIRY_INTERVAL]
        assert left == 100 or 0 < left < 100  # the ceiling of what is left

    # sessions of the plugin's own -----------------------------------------------------------------

    @states("create_session", "send_message", "close_session", "get_paired_session", "on_session_established",
            "on_session_closed", "Session.role", "Session.status", "Session.peer", "Session.id")  # fmt: skip
    def test_a_session_from_its_creation_to_its_end(self, make: Make) -> None:
        stage = make(TreeProbe)
        one = stage.add("a")
        peer, received, _ = stage.listener()
        host, _, port = peer.address.rpartition(":")
        session, other = (one.api.create_session(host, int(port)) for _ in range(2))
        assert (session.role, session.status) == (Role.PEER, SessionStatus.CLOSED)
        assert session.id != other.id
        assert not one.api.send_message(session, b"\xc0\x00")
        stage.until(lambda: len(one.of("established")) == 2)
        assert ("established", session, SessionStatus.ESTABLISHED) in one.heard
        assert session.peer == peer.address
        assert one.api.get_paired_session(session) is None
        assert one.api.send_message(session, one.api.create_mqtt_message(PacketType.PINGREQ))
        one.api.close_session(session)
        assert not one.api.send_message(session, b"\xc0\x00")
        stage.until(lambda: one.of("closed"))
        assert one.of("closed") == [("closed", session, SessionStatus.CLOSED)]
        assert not one.of("tcp down")
        stage.until(received)
        assert received() == [PingReq()]

    @states("create_session", "on_tcp_down", "on_session_closed", "on_recv_failure")
    def test_what_may_happen_to_a_session(self, make: Make) -> None:
        """It cannot be made, or what comes cannot be understood."""
        stage = make(TreeProbe)
        one = stage.add("a")
        peer, _, send = stage.listener()
        host, _, port = peer.address.rpartition(":")
        session = one.api.create_session(host, int(port))
        stage.until(lambda: one.of("established"))
        send(b"\x00\x00")
        stage.until(lambda: one.of("closed"))
        assert one.of("recv failure") == [("recv failure", session)]
        nobody = one.api.create_session(host, 1)
        stage.until(lambda: one.of("tcp down"))
        assert one.of("tcp down") == [("tcp down", nobody, SessionStatus.CLOSED)]
        assert len(one.of("established")) == 1

    @pytest.mark.parametrize("address", [("", 1), ("host", 0), ("host", 65_536), ("host", "1"), (None, 1)])
    @states("create_session")
    def test_an_address_that_is_none_is_refused(self, make: Make, address: Any) -> None:
        one = make(TreeProbe).add("a")
        with pytest.raises(PluginError):
            one.api.create_session(*address)

    # packets --------------------------------------------------------------------------------------

    @states("mqtt_message_arrived", "Session.role", "Session.version", "Session.client_id")
    def test_plugins_see_what_they_want(self, make: Make) -> None:
        stage = make(LookingProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        stage.publish("a", "t", b"1", qos=1)
        stage.publish("a", "t", b"2", qos=1)
        stage.until(lambda: len(two.of("seen")) == 2)
        assert one.of("seen") == [("seen", Role.CLIENT, PacketType.PUBLISH, b"%d" % n) for n in (1, 2)]
        assert two.of("seen") == [("seen", Role.LINK, PacketType.PUBLISH, b"%d" % n) for n in (1, 2)]

    # filters --------------------------------------------------------------------------------------

    def deciding(self, make: Make) -> tuple[Stage, DecidingProbe, DecidingProbe]:
        """Two nodes that are neighbours."""
        stage = make(DecidingProbe)
        one, two = stage.add("a"), stage.add("b")
        assert isinstance(one, DecidingProbe)
        assert isinstance(two, DecidingProbe)
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        return stage, one, two

    @states("filter")
    def test_a_filter_checks_and_changes_messages(self, make: Make) -> None:
        """Those of clients and those from neighbours; what is rejected goes nowhere."""
        stage, one, two = self.deciding(make)

        def about_message(message: Publish) -> Any:
            if message.payload in (b"none", b"reject"):
                return None if message.payload == b"none" else Reject(ReasonCode.QUOTA_EXCEEDED, "enough")
            message.payload += b"!"
            return message

        one.about_message = two.about_message = about_message
        for payload in (b"none", b"reject", b"pass"):
            stage.publish("a", "t", payload, qos=1)
        stage.until(lambda: stage.injected("b"))
        stage.quiet()
        assert stage.injected("b") == [Injected("t", b"pass!!", 1, False)]
        assert [payload for _, _, payload in one.of("filter")] == [b"none", b"reject", b"pass"]
        assert two.of("filter") == [("filter", Role.LINK, b"pass!")]

    @states("filter")
    def test_a_filter_may_decide_later(self, make: Make) -> None:
        """What the client sends after the message waits behind it."""
        stage, one, _ = self.deciding(make)
        deferred: list[Deferred[Any]] = []

        def about_message(message: Publish) -> Any:
            if not message.payload.startswith(b"later"):
                return message
            deferred.append(Deferred())
            return deferred[-1]

        one.about_message = about_message
        for payload in (b"1", b"later", b"2", b"later", b"3"):
            stage.publish("a", "t", payload)
        stage.until(lambda: len(deferred) == 1 and stage.injected("b"))
        one.api.call_later(SOON, deferred[0].decide, Reject())
        stage.until(lambda: len(deferred) == 2)
        with pytest.raises(PluginError):
            deferred[0].decide(None)
        one.api.call_later(SOON, deferred[1].decide, None)
        stage.until(lambda: len(stage.injected("b")) == 3)
        assert [message.payload for message in stage.injected("b")] == [b"1", b"2", b"3"]
        assert stage.failures("a") == 0

    @states("filter")
    def test_a_filter_that_answers_nonsense_lets_pass(self, make: Make) -> None:
        """Only what clients send may be deferred."""
        stage, one, two = self.deciding(make)
        one.about_message = lambda message: "text"
        two.about_message = lambda message: Deferred()
        stage.publish("a", "t", b"1")
        stage.until(lambda: stage.injected("b"))
        assert stage.injected("b") == [Injected("t", b"1", 0, False)]
        assert (stage.failures("a"), stage.failures("b")) == (1, 1)

    @states("admit_subscription")
    def test_a_filter_admits_subscriptions(self, make: Make) -> None:
        """Only what is admitted is wanted, as it was admitted."""
        stage = make(DecidingProbe)
        one = stage.add("a")
        assert isinstance(one, DecidingProbe)

        def about_subscription(subscription: Subscription) -> Any:
            if subscription.topic_filter.startswith("no"):
                return Reject(ReasonCode.NOT_AUTHORIZED)
            subscription.qos = min(subscription.qos, 1)
            return subscription

        one.about_subscription = about_subscription
        stage.subscribe("a", "no/#", 1)
        stage.subscribe("a", "yes", 2)
        stage.subscribe("a", "$share/group/yes/too", 0)
        stage.until(lambda: len(one.api.local_interest) == 2)
        stage.quiet()
        assert dict(one.api.local_interest) == {"yes": 1, "yes/too": 0}
        stage.unsubscribe("a", "no/#")
        assert dict(one.api.local_interest) == {"yes": 1, "yes/too": 0}

    @states("admit_client")
    def test_a_filter_admits_clients(self, make: Make) -> None:
        stage, one, _ = self.deciding(make)
        asked: list[str] = []

        def about_client(packet: Connect) -> Any:
            asked.append(packet.client_id)
            return Reject(ReasonCode.BANNED, "not here")

        one.about_client = about_client
        stage.publish("a", "t", b"rejected")
        stage.publish("b", "t", b"admitted")
        stage.until(lambda: stage.injected("a"))
        stage.quiet()
        assert stage.injected("a") == [Injected("t", b"admitted", 0, False)]
        assert stage.injected("b") == []
        assert len(asked) == 1

    # the rest -------------------------------------------------------------------------------------

    @states("create_mqtt_message")
    def test_messages_are_generated(self, make: Make) -> None:
        build = make(OverlayProbe).add("a").api.create_mqtt_message
        for version in Version:
            message = build(PacketType.PUBLISH, version, topic="t", payload=b"x", qos=1, packet_id=3)
            assert decode(message, version) == Publish(topic="t", payload=b"x", qos=1, packet_id=3)
        assert decode(build(PacketType.PINGRESP), Version.V5) == PingResp()

    @states("count", "log")
    def test_counters_and_log_are_the_algorithms_own(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        one.api.count("things")
        one.api.count("things", 2)
        one.api.log("told", size=1)
        assert stage.counters("a")["things"] == 3
        event, fields = stage.logged("a")[-1]
        assert event == "told"
        assert fields["size"] == 1

    @states("gauge")
    def test_gauges_hold_the_last_value(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        for value in (3, 0.5, -1.25):
            one.api.gauge("load", value)
        assert dict(stage.gauges("a")) == {"load": -1.25}
        for wrong in (float("nan"), float("inf"), "1", None, 10**400):
            with pytest.raises(PluginError, match="a finite number is due"):
                one.api.gauge("load", wrong)  # type: ignore[arg-type]
        assert dict(stage.gauges("a")) == {"load": -1.25}

    @states("count", "gauge")
    def test_names_of_counters_and_gauges_are_bounded(self, make: Make) -> None:
        """What is known goes on being counted by its name."""
        stage = make(OverlayProbe)
        one = stage.add("a")
        before = len(stage.counters("a"))
        for number in range(2000):
            one.api.count(f"c{number}")
        one.api.gauge("g", 7)
        assert len(stage.counters("a")) == 1001
        assert stage.counters("a")["other"] == 1000 + before
        assert dict(stage.gauges("a")) == {"other": 7}
        one.api.count("c0")
        assert stage.counters("a")["c0"] == 2
        for name, by in (("", 1), ("x" * 101, 1), (1, 1), ("c0", 1.5), ("c0", "1")):
            with pytest.raises(PluginError):
                one.api.count(name, by)  # type: ignore[arg-type]

    @states("log")
    def test_the_log_is_bounded_and_takes_any_value(self, make: Make) -> None:
        """100 lines at once; the first one after a pause says how many are missing."""
        stage = make(OverlayProbe)
        one = stage.add("a")

        class Nameless:
            def __str__(self) -> str:
                raise ValueError

        loop: list[Any] = []
        loop.append(loop)
        odd = {"level": 1, "plugin": 2, "exc_info": 3, "long": "x" * 5000, "loop": loop}
        before = len(stage.logged("a"))
        one.api.log("odd", **odd, nameless=Nameless(), big=10**5000)
        _, fields = stage.logged("a")[-1]
        assert (fields["level_"], fields["plugin_"], fields["exc_info_"]) == (1, 2, 3)
        assert (len(str(fields["long"])), fields["nameless"]) == (1000, "<Nameless>")
        for number in range(1000):
            one.api.log("flood", number=number)
        assert 99 <= len(stage.logged("a")) - before <= 150
        one.api.call_later(4 * SOON, one.api.log, "after")
        stage.until(lambda: any(event == "after" for event, _ in stage.logged("a")))
        (fields,) = (fields for event, fields in stage.logged("a") if event == "after")
        assert 850 <= int(str(fields["left_out"])) <= 901
        with pytest.raises(PluginError, match="the event is"):
            one.api.log(7)  # type: ignore[arg-type]

    # what goes beyond the moment ------------------------------------------------------------------

    @states("wall", "now")
    def test_both_clocks_go(self, make: Make) -> None:
        stage = make(OverlayProbe)
        api = stage.add("a").api
        clocks: list[tuple[float, float]] = [(api.now(), api.wall())]
        api.call_later(SOON, lambda: clocks.append((api.now(), api.wall())))
        stage.until(lambda: len(clocks) == 2)
        (now, wall), (later, wall_later) = clocks
        assert later - now >= SOON - 0.001
        assert wall_later > wall

    @states("state")
    def test_state_is_found_again_by_the_next_life(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        assert dict(one.api.state) == {}
        one.api.state["kept"] = b"1"
        one.api.state["changed"] = b"1"
        one.api.state["changed"] = b"2"
        one.api.state["gone"] = b"1"
        del one.api.state["gone"]
        assert dict(one.api.state) == {"kept": b"1", "changed": b"2"}
        other = stage.add("b")
        assert dict(other.api.state) == {}
        stage.stop("a")
        stage.until(lambda: one.api.status is NodeStatus.STOPPED)
        again = stage.add("a")
        assert again is not one
        assert again.kept == {"kept": b"1", "changed": b"2"}
        assert dict(again.api.state) == again.kept

    @states("state")
    def test_state_is_bounded_and_of_bytes(self, make: Make) -> None:
        """What would go beyond the bound changes nothing; taking away is always possible."""
        state = make(OverlayProbe).add("a").api.state
        half = bytes(1 << 19)
        state["half"] = half
        for key, value in (("rest", half), ("half", half + half), ("\ud800", b""), (1, b""), ("k", "text")):
            with pytest.raises(PluginError):
                state[key] = value  # type: ignore[index, assignment]
        assert dict(state) == {"half": half}
        with pytest.raises(PluginError, match=r"limits\.plugin_state_bytes: 1048576"):
            state.update({f"{number}": b"" for number in range(2000)})
        kept = len(state)
        assert 1000 < kept < 2000  # keys have a price of their own
        state["half"] = b""
        state["rest"] = half[: len(half) // 2]
        assert len(state) == kept + 1
        with pytest.raises(KeyError):
            del state["nothing"]

    @states("offload")
    def test_work_beside_the_node_comes_back_as_a_call(self, make: Make) -> None:
        """With its result, or what it has raised; not within the call."""
        stage = make(OverlayProbe)
        api = stage.add("a").api
        results: list[object] = []
        api.offload(lambda: 7, results.append)
        api.offload(lambda: int("x"), results.append)
        api.offload(lambda: sys.exit(3), results.append)
        assert results == []
        stage.until(lambda: len(results) == 3)
        assert 7 in results
        errors = {type(result) for result in results if isinstance(result, Exception)}
        assert errors == {ValueError, PluginError}
        with pytest.raises(PluginError, match="cannot be called"):
            api.offload("x", results.append)  # type: ignore[arg-type]


ELSEWHERE = {
    "on_config_changed": "tests/core/test_plugin_options.py: asked by the administrator only",
    "overlay": "tests/admin, tests/net: asked by the administrator only",
    "trace": "tests/admin, tests/net: asked by the administrator only",
}
"""Members of the interface which the suite leaves to other tests, and why."""
