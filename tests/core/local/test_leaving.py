"""What a session wanted is withdrawn some at a time when it ends; who comes back meanwhile misses nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.config import LimitsConfig
from ildm.core.counters import Counters
from ildm.core.local.client_session import ClientSession
from ildm.core.local.clients import ClientRegistry
from ildm.core.local.leaving import PART
from ildm.core.local.rules import PublishRules
from ildm.core.tables import SESSIONS, SUBSCRIPTIONS
from ildm.mqtt import ConnAck, Connect, Publish, SubAck, Subscribe, Subscription
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from tests.support.site import row
from tests.support.work import Work

MANY = 20_000


def subscribe(world: World, client: MiniClient, filters: list[str]) -> None:
    for start in range(0, len(filters), 500):
        wanted = [Subscription(topic_filter=f, qos=1) for f in filters[start : start + 500]]
        client.send(Subscribe(packet_id=start // 500 + 1, subscriptions=wanted))
        world.run(0.1)


def test_a_client_with_many_filters_leaves_without_holding_up_the_node() -> None:
    """No event of any node is longer than what one packet of a thousand filters costs."""
    world = World()
    world.recording = False
    a, _, c = row(world, "abc", "sf")
    client = a.client("many")
    subscribe(world, client, [f"many/{i}" for i in range(MANY)])
    assert world.run_until(lambda: len(c.node.links.links["b"].interest) == MANY, 10)
    client.transport.close()
    with Work(world) as work:
        assert world.run_until(lambda: not c.node.links.links["b"].interest, 10)
    assert work.heaviest < 150_000
    assert not a.node.clients.interest.maximum
    assert a.node.clients.budget.bytes == 0


def test_a_client_that_is_back_before_all_is_withdrawn_misses_nothing() -> None:
    """Its SUBACK says that what is published anywhere from then on arrives."""
    world = World()
    a, b = row(world, "ab", "sf")
    filters = [f"many/{i}" for i in range(3 * PART)]
    client = a.client("many")
    subscribe(world, client, filters)
    publisher = b.client("p")
    world.run(1)
    client.transport.close()
    assert world.run_until(lambda: bool(a.node.clients.leaving), 1)
    back = MiniClient()
    world.connect(a.node.config.listen, back)
    wanted = [Subscription(topic_filter=f, qos=1) for f in [filters[0], filters[-1], "new"]]
    back.send(Connect(client_id="many"))
    back.send(Subscribe(packet_id=1, subscriptions=wanted))
    assert world.run_until(lambda: bool(back.got(SubAck)), 1)
    for one in wanted:
        publisher.send(Publish(topic=one.topic_filter, payload=b"x"))
    world.run(1)
    assert {topic for topic, _ in back.messages} == {one.topic_filter for one in wanted}
    assert set(b.node.links.links["a"].interest) == {one.topic_filter for one in wanted}


class Sessions:
    """A registry, and what a model of it knows."""

    def __init__(self, **limits: int) -> None:
        self.world = World()
        self.driver = WorldDriver(self.world, "node")
        self.store = MemoryStore()
        self.told: dict[str, int] = {}
        self.changes = 0
        self.connected: dict[str, tuple[Any, Any, Connect]] = {}
        self.registry = self.made(**limits)
        (site,) = row(World(), "a", "sf")
        self.node = site.node  # whose clients they would be

    def made(self, **limits: int) -> ClientRegistry:
        return ClientRegistry(
            self.driver, self.store, LimitsConfig(**limits), Counters(), self.interest_changed,  # type: ignore[arg-type]
            lambda message, turn, restored: None, PublishRules(()), True,
        )  # fmt: skip

    def interest_changed(self, changes: Any) -> None:
        for topic_filter, qos in changes.items():
            assert qos == self.registry.interest.maximum.get(topic_filter)
            if qos is None:
                del self.told[topic_filter]
            else:
                self.told[topic_filter] = qos

    def connect(self, client_id: str, clean: bool) -> None:
        self.disconnect(client_id)
        session = ClientSession(self.node.local)
        connect = Connect(client_id=client_id, clean_start=clean)
        record = self.registry.connected(session, connect, ConnAck())
        self.connected[client_id] = session, record, connect

    def subscribe(self, client_id: str, filters: dict[str, int]) -> None:
        if client_id in self.connected:
            self.registry.subscribed(self.connected[client_id][1], filters)

    def disconnect(self, client_id: str) -> None:
        if client_id in self.connected:
            self.registry.disconnected(*self.connected.pop(client_id), True)

    def holds(self) -> bool:
        """What is told, and what is saved, is what the sessions want that there are."""
        wanted: dict[str, int] = {}
        rows: dict[Any, Any] = {}
        for record in self.registry.records.values():
            for topic_filter, qos in record.filters.items():
                wanted[topic_filter] = max(qos, wanted.get(topic_filter, 0))
                if record.saved:
                    rows[record.key, topic_filter] = (qos,)
        assert self.told == self.registry.interest.maximum == wanted
        return self.store.rows(SUBSCRIPTIONS) == rows


CLIENTS = st.sampled_from(["one", "other"])
STEPS = st.one_of(
    st.tuples(st.just("connect"), CLIENTS, st.booleans()),
    st.tuples(
        st.just("subscribe"),
        CLIENTS,
        st.dictionaries(st.sampled_from(["a", "b", "c/#", "d/+", "e"]), st.integers(0, 2), max_size=5),
    ),
    st.tuples(st.just("disconnect"), CLIENTS, st.none()),
    st.tuples(st.just("turn"), CLIENTS, st.none()),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(STEPS, max_size=30), st.booleans())
def test_sessions_that_come_and_go_in_the_midst_of_it(steps: list[Any], stop: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ildm.core.local.leaving.PART", 1)
        sessions = Sessions()
        for what, client_id, value in steps:
            match what:
                case "connect":
                    sessions.connect(client_id, value)
                case "subscribe":
                    sessions.subscribe(client_id, value)
                case "disconnect":
                    sessions.disconnect(client_id)
                case "turn" if sessions.world._events:
                    sessions.world._step()
        if stop:
            sessions.registry.stop()
            rows = {(key, f) for (key, f) in sessions.store.rows(SUBSCRIPTIONS)}
            records = sessions.registry.records.values()
            assert rows == {(record.key, f) for record in records if record.saved for f in record.filters}
        sessions.world.run(1)
        assert sessions.holds()
        assert not sessions.registry.leaving
        assert sessions.registry.budget.bytes == sum(
            record.filter_bytes for record in sessions.registry.records.values()
        )


def test_room_that_is_about_to_be_free_is_given_to_who_asks() -> None:
    """The bound on all filters counts those that are not withdrawn yet."""
    sessions = Sessions(all_subscription_bytes=2 * PART * 800)
    filters = {f"{i:05d}": 1 for i in range(2 * PART)}
    sessions.connect("one", True)
    sessions.subscribe("one", filters)
    held = len(sessions.connected["one"][1].filters)
    assert held > PART
    sessions.connect("other", True)
    sessions.disconnect("one")
    assert sessions.registry.leaving
    sessions.subscribe("other", filters)
    assert len(sessions.connected["other"][1].filters) == held
    sessions.world.run(1)
    assert sessions.holds()
    assert not sessions.store.rows(SESSIONS)
