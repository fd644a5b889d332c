"""What a plugin can make the node hold or do is bounded, counted, and leaves the others their turn."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from ildm.api import (
    Filter,
    NodeApi,
    NodeStatus,
    PluginConfig,
    PluginError,
    Role,
    Session,
    SessionStatus,
    TreeAlgorithm,
)
from ildm.config import Address
from ildm.core.node import Node
from ildm.core.plugin.dispatch import Loaded
from ildm.core.plugin.timers import TURN
from ildm.core.tables import PLUGIN_STATE
from ildm.mqtt import Connect, PingReq, Publish, Version
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World


class Quiet(TreeAlgorithm):
    """Uses what it is told to use."""


def prepare(
    world: World, plugin: type[TreeAlgorithm] = Quiet, store: MemoryStore | None = None, **limits: Any
) -> tuple[Node, Loaded, NodeApi]:
    """A node that has not started, its algorithm's account and interface."""
    world.listen(Address("a", 3), Broker().connection)
    node = make_node(world, "a", plugin_specs("plugin", plugin), store=store, limits=limits)
    (loaded,) = node.dispatch.loaded
    assert loaded.plugin is not None
    return node, loaded, loaded.plugin.api


def start(world: World, plugin: type[TreeAlgorithm] = Quiet, **limits: Any) -> tuple[Node, Loaded, NodeApi]:
    node, loaded, api = prepare(world, plugin, **limits)
    node.start({})
    world.run(0.1)
    return node, loaded, api


# timers -------------------------------------------------------------------------------------------


def test_timers_that_wait_are_bounded(world: World) -> None:
    """One that was called or cancelled makes room, once."""
    _, loaded, api = start(world, plugin_timers=3)
    fired: list[str] = []
    timers = [api.call_later(delay, fired.append, "x") for delay in (1, 2, 3)]
    with pytest.raises(PluginError, match=r"3 timers are waiting \(limits.plugin_timers\)"):
        api.call_later(0, fired.append, "no")
    timers[1].cancel()
    timers[1].cancel()
    api.call_later(4, fired.append, "y")
    with pytest.raises(PluginError):
        api.call_later(0, fired.append, "no")
    world.run(1.5)
    timers[0].cancel()
    api.call_later(0.1, fired.append, "z")
    with pytest.raises(PluginError):
        api.call_later(0, fired.append, "no")
    world.run(5)
    assert fired == ["x", "z", "x", "y"]
    assert loaded.refused == {"timers": 3}
    assert loaded.timers.waiting == 0


def test_a_callback_in_a_callback_may_cancel_one_that_is_due(world: World) -> None:
    _, loaded, api = start(world)
    fired: list[str] = []
    timers = [api.call_later(1, lambda: timers[1].cancel()), api.call_later(1, fired.append, "x")]
    world.run(2)
    assert fired == []
    assert loaded.timers.waiting == 0


def test_callbacks_that_are_due_leave_others_their_turn(world: World) -> None:
    """A thousand of 2 ms each: what else is due is never held up by more than a few."""
    _, loaded, api = start(world)
    took, others = 0.002, []

    def work() -> None:
        world.time += took

    def other() -> None:
        others.append(world.time)
        if len(others) < 100:
            world.call_at(world.time, other)

    began = world.time
    for _ in range(1000):
        api.call_later(1, work)
    world.call_at(began + 1, other)
    assert world.run_until(lambda: loaded.calls >= 1000, 60)
    gaps = [later - earlier for earlier, later in pairwise(others)]
    assert len(others) == 100
    assert max(gaps) < TURN + 2 * took
    assert loaded.seconds == pytest.approx(1000 * took)


def test_a_callback_without_delay_that_asks_for_itself_lets_time_pass(world: World) -> None:
    """Each takes a millisecond, and a client is served meanwhile."""
    _, loaded, api = start(world)

    def again() -> None:
        world.time += 0.001
        api.call_later(0, again)

    api.call_later(0, again)
    client = MiniClient(Version.V5)
    world.connect(Address("a", 1), client)
    client.send(Connect(client_id="c", version=Version.V5))
    world.run(1)
    client.send(PingReq())
    world.run(1)
    assert [type(packet).__name__ for packet in client.packets] == ["ConnAck", "PingResp"]
    assert loaded.timers.waiting == 1
    assert 1000 < loaded.calls < 3000
    assert loaded.seconds == pytest.approx(0.001 * loaded.calls)


def test_nothing_comes_before_the_start_or_after_the_end(world: World) -> None:
    heard: list[object] = []

    class Early(TreeAlgorithm):
        def __init__(self, api: NodeApi, config: PluginConfig) -> None:
            super().__init__(api, config)
            api.call_later(0, self.hear, "timer")
            api.offload(lambda: "work", self.hear)

        def hear(self, what: object) -> None:
            heard.append((what, self.api.status))

        def on_ildm_start(self) -> None:
            self.hear("start")

    node, loaded, api = prepare(world, Early)
    world.run(1)
    assert heard == []
    node.start({})
    world.run(1)
    running = NodeStatus.RUNNING
    assert heard == [("start", running), *[(what, running) for what in ("timer", "work")]]
    heard.clear()
    ended: list[bool] = []
    api.call_later(1, heard.append, "timer")
    world.run(0.1)
    node.drain(lambda: ended.append(True))
    api.offload(lambda: "work", heard.append)
    assert world.run_until(lambda: ended, 30)
    world.run(30)
    assert heard == ["work"][: len(heard)]  # the drain may take its time, or none
    assert loaded.timers.waiting == loaded.offloads == 0
    api.call_later(0, heard.append, "late")
    api.offload(lambda: 1, heard.append)
    heard.clear()
    world.run(1)
    assert heard == []


# work beside the node -----------------------------------------------------------------------------


def test_work_under_way_is_bounded_and_its_result_is_a_call_like_others(world: World) -> None:
    node, loaded, api = start(world, plugin_offloads=2)
    heard: list[object] = []

    def fail(result: object) -> None:
        raise ValueError(result)

    api.offload(lambda: 1, fail)
    api.offload(lambda: 2, heard.append)
    with pytest.raises(PluginError, match=r"2 pieces of work are under way \(limits.plugin_offloads\)"):
        api.offload(lambda: 3, heard.append)
    world.run(1)
    assert heard == [2]
    assert (loaded.errors, loaded.offloads, loaded.refused) == (1, 0, {"offloads": 1})
    assert node.counters["plugin_errors"] == 1
    api.offload(lambda: 4, heard.append)
    world.run(1)
    assert heard == [2, 4]


# sessions -----------------------------------------------------------------------------------------


def test_sessions_are_bounded_also_those_that_never_stand(world: World) -> None:
    node, loaded, api = start(world, plugin_sessions=3)
    silent = Address("silent", 9)
    world.unreachable.add(silent)
    sessions = [api.create_session(silent.host, silent.port) for _ in range(3)]
    api.close_session(sessions[0])
    with pytest.raises(PluginError, match=r"3 sessions are there \(limits.plugin_sessions\)"):
        api.create_session(silent.host, silent.port)
    world.run(node.config.link.connect_timeout + 1)
    assert loaded.sessions == set()
    ends: list[MiniClient] = []

    def accept() -> MiniClient:
        ends.append(MiniClient())
        return ends[-1]

    world.listen(Address("peer", 9), accept)
    for _ in range(3):
        api.create_session("peer", 9)
    world.run(1)
    with pytest.raises(PluginError):
        api.create_session("peer", 9)
    ends[0].transport.close()
    world.run(1)
    api.create_session("peer", 9)
    world.run(1)
    assert len(loaded.sessions) == 3
    assert loaded.refused == {"sessions": 2}
    ended: list[bool] = []
    node.drain(lambda: ended.append(True))
    world.run(30)
    assert ended
    assert all(end.closed for end in ends)


def test_a_plugin_cannot_spoil_what_is_relayed(world: World) -> None:
    """Neither with half a packet, nor in the middle of one, nor on the node's own sessions."""
    known: dict[Role, Session] = {}

    class Knowing(TreeAlgorithm):
        def on_session_established(self, session: Session) -> None:
            known[session.role] = session

    node, _, api = start(world, Knowing)
    far = make_node(world, "b", plugin_specs("plugin", Quiet))
    world.listen(Address("b", 3), Broker().connection)
    far.start({})
    node.links.add(Address("b", 2), False)
    client = MiniClient(Version.V5)
    world.connect(Address("a", 1), client)
    world.run(0.01)
    publish = Publish(topic="t", payload=b"x").encode(Version.V5)
    assert not api.send_message(known[Role.CLIENT], publish)  # before its CONNACK
    client.send(Connect(client_id="c", version=Version.V5))
    world.run(2)
    for role in (Role.CLIENT, Role.BROKER):
        for wrong, text in (
            (publish[:-1], "does not end with a packet"),
            (publish + publish[:3], "does not end with a packet"),
            (b"", "does not end with a packet"),
            (b"\x00\x00", "is no MQTT"),
            (b"\x32\x02\x00\x05", "is no MQTT"),
        ):
            with pytest.raises(PluginError, match=text):
                api.send_message(known[role], wrong)
    for role in (Role.LINK, Role.INJECTION):
        if role in known:
            with pytest.raises(PluginError, match="such a session is the node's own"):
                api.send_message(known[role], publish)
    assert Role.LINK in known
    assert api.send_message(known[Role.CLIENT], publish)
    large = Publish(topic="large", payload=bytes(100_000)).encode(Version.V5)
    client.transport.write(large[:50_000])
    world.run(1)
    assert not api.send_message(known[Role.BROKER], publish)
    client.transport.write(large[50_000:])
    world.run(1)
    assert api.send_message(known[Role.BROKER], publish)
    world.run(1)
    assert client.messages == [("t", b"x")]
    assert known[Role.CLIENT].status is SessionStatus.ESTABLISHED


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_flood_of_injected_messages_is_bounded_by_the_queue(world: World, qos: int) -> None:
    """The broker is away; what finds no room is counted, and the newest are kept."""
    node = make_node(world, "a", plugin_specs("plugin", Quiet), link={"queue_messages": 100})
    node.start({})
    plugin = node.dispatch.loaded[0].plugin
    assert plugin is not None
    for number in range(1000):
        plugin.api.inject(Publish(topic=f"t/{number}", qos=qos))
    assert node.injector.queued_messages == 100
    assert sum(n for name, n in node.counters.items() if name.startswith("injection_dropped_")) == 900
    broker = Broker()
    world.listen(Address("a", 3), broker.connection)
    world.run(60)
    assert broker.topics() == [f"t/{number}" for number in range(900, 1000)]


# state --------------------------------------------------------------------------------------------


def test_state_is_found_by_the_constructor_and_each_plugins_own(world: World) -> None:
    """Also where a filter stands in the chain twice; what is damaged is set aside."""
    store = MemoryStore()
    store.put(PLUGIN_STATE, ("algorithm/plugin", "k"), (b"of the algorithm",))
    store.put(PLUGIN_STATE, ("filter/plugin", "k"), (b"of the first",))
    store.put(PLUGIN_STATE, ("filter/plugin/2", "k"), (b"of the second",))
    store.put(PLUGIN_STATE, ("algorithm/plugin", "damaged"), ("text",))
    store.put(PLUGIN_STATE, ("algorithm/gone", "k"), (b"of one that is not used now",))
    found: list[Mapping[str, bytes]] = []

    class Remembering(Filter):
        def __init__(self, api: NodeApi, config: PluginConfig) -> None:
            super().__init__(api, config)
            found.append(dict(api.state))

    class Algorithm(Remembering, TreeAlgorithm):
        """The same."""

    specs = plugin_specs("plugin", Algorithm, [("plugin", Remembering)] * 2)
    node = make_node(world, "a", specs, store=store)
    assert found == [{"k": b"of the first"}, {"k": b"of the second"}, {"k": b"of the algorithm"}]
    assert [key for _, key, _ in store.damaged] == [("algorithm/plugin", "damaged")]
    loaded = node.dispatch.loaded[1]
    assert loaded.plugin is not None
    loaded.plugin.api.state["k"] = b"new"
    assert store.rows(PLUGIN_STATE)["filter/plugin/2", "k"] == (b"new",)
    assert store.rows(PLUGIN_STATE)["filter/plugin", "k"] == (b"of the first",)
    assert ("algorithm/gone", "k") in store.rows(PLUGIN_STATE)


def test_state_that_does_not_change_is_not_saved_again(world: World) -> None:
    store = MemoryStore()
    _, loaded, api = prepare(world, store=store, plugin_state_bytes=2000)
    puts: list[object] = []
    put = store.put
    store.put = lambda *row: puts.append(row) or put(*row)  # type: ignore[func-returns-value,method-assign]
    for _ in range(3):
        api.state["k"] = b"v"
    assert len(puts) == 1
    api.state["k"] = bytes(1000)
    with pytest.raises(PluginError, match=r"limits\.plugin_state_bytes: 2000"):
        api.state["k"] = bytes(1700)
    assert len(puts) == 2
    assert loaded.refused == {"state": 1}
    del api.state["k"]
    assert store.rows(PLUGIN_STATE) == {}


# whatever is raised -------------------------------------------------------------------------------


def test_a_plugin_cannot_end_the_process(world: World) -> None:
    """``sys.exit`` in a hook, a callback or work is a failure like others."""

    def leave(*_: object) -> Any:
        raise SystemExit(3)

    class Leaving(TreeAlgorithm):
        on_ildm_start = leave
        on_interest_changed = leave
        route = leave

    node, loaded, api = start(world, Leaving)
    api.call_later(0, leave)
    api.offload(leave, leave)
    world.run(1)
    assert node.dispatch.route("t", False, None) == ()
    assert loaded.errors == 4
    leaving = type("Made", (TreeAlgorithm,), {"__init__": leave})
    with pytest.raises(PluginError, match="cannot be made: SystemExit"):
        make_node(world, "b", plugin_specs("plugin", leaving))


def test_an_exception_that_cannot_be_shown_is_called_by_its_type(world: World) -> None:
    class Odd(Exception):  # noqa: N818 - odd as it is
        def __repr__(self) -> str:
            raise RuntimeError

    class Raising(TreeAlgorithm):
        def on_ildm_start(self) -> None:
            raise Odd

    class Unmade(TreeAlgorithm):
        def __init__(self, api: NodeApi, config: PluginConfig) -> None:
            raise Odd

    node, loaded, _ = start(world, Raising)
    assert loaded.errors == 1
    assert isinstance(node.driver, WorldDriver)
    (fields,) = (fields for _, event, fields in node.driver.logged if event == "plugin failed")
    assert fields["error"] == "Odd"
    with pytest.raises(PluginError, match=r"'plugin' cannot be made: Odd$"):
        make_node(world, "b", plugin_specs("plugin", Unmade))


def test_the_rate_of_the_log_is_of_each_plugin_and_recovers(world: World) -> None:
    node, loaded, api = start(world, plugin_log_rate=10)
    driver = node.driver
    assert isinstance(driver, WorldDriver)

    def lines() -> list[dict[str, object]]:
        return [fields for _, event, fields in driver.logged if event == "told"]

    for _ in range(25):
        api.log("told", plugin="x")
    assert len(lines()) == 10
    assert lines()[0] == {"plugin": "plugin", "plugin_": "x"}
    world.run(0.35)
    for _ in range(5):
        api.log("told")
    assert len(lines()) == 13
    assert [line.get("left_out") for line in lines()[10:]] == [15, None, None]
    assert loaded.refused == {"log": 17}
