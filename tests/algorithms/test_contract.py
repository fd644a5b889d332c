"""The contract of NodeApi, as far as the small worlds of these tests stand in for nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ildm.api import Algorithm, PluginError
from ildm.testing.contract import Injected, NodeContract, Probe, Stage
from ildm.testing.fake_node import FakeNetwork, FakeNode
from tests.algorithms.sg_tbps.world import Node
from tests.algorithms.sg_tbps.world import World as OverlayWorld

NO_LINKS = "over an overlay links are not the algorithm's affair"
NO_SESSIONS = "no algorithm here opens sessions"
NO_STOP = "a test calls the hook itself"
NO_TIME = "algorithms of a tree do at once what they do"
NO_DATA = "algorithms of a tree send no data and take no messages themselves"
NO_BROKER = "algorithms of a tree neither inject nor transfer, and the node remembers nothing for them"


class OverlayStage(Stage):
    """The world of SG-TBPS."""

    cannot: ClassVar[Mapping[str, str]] = {
        "test_a_node_that_stops_waits_for_its_algorithm": NO_STOP,
        "test_links_come_and_go": NO_LINKS,
        "test_adding_and_removing_neighbours_is_told_and_shown": NO_LINKS,
        "test_interest_of_neighbours": NO_LINKS,
        "test_wrong_filters_are_refused": NO_LINKS,
        "test_messages_go_where_the_algorithm_says": NO_LINKS,
        "test_an_answer_may_be_remembered_until_routes_change": NO_LINKS,
        "test_retained_messages_keep_their_qos_and_are_asked_about_each_time": NO_LINKS,
        "test_a_route_with_a_qos_that_is_none_is_a_failure": NO_LINKS,
        "test_an_algorithm_may_transfer_single_messages": NO_LINKS,
        "test_wrong_messages_are_refused": NO_LINKS,
        "test_a_link_on_demand_is_nobodys_introducer": NO_LINKS,
        "test_nodes_of_a_tree_send_nothing": NO_LINKS,
        "test_a_session_from_its_creation_to_its_end": NO_SESSIONS,
        "test_what_may_happen_to_a_session": NO_SESSIONS,
        "test_an_address_that_is_none_is_refused": NO_SESSIONS,
        "test_messages_are_generated": "SG-TBPS builds its messages itself",
    }

    def __init__(self, algorithm: type[Algorithm]) -> None:
        super().__init__(algorithm)
        self.world = OverlayWorld()

    def add(self, name: str) -> Probe:
        made: Any = self.algorithm
        node = self.world.nodes[name] = Node(self.world, name, made, {})
        found: Any = node.algorithm
        assert isinstance(found, Probe)
        return found

    def until(self, condition: Callable[[], object]) -> None:
        for _ in range(1000):
            if condition():
                return
            self.world.run(0.01)
        raise AssertionError("it never came")

    def quiet(self) -> None:
        self.world.run(10)

    def link(self, here: str, far: str) -> None:
        raise NotImplementedError(NO_LINKS)

    def unlink(self, here: str, far: str) -> None:
        raise NotImplementedError(NO_LINKS)

    def kill(self, name: str) -> None:
        node = self.world.nodes.pop(name)
        node.alive = False
        for other in self.world.nodes.values():
            other.algorithm.on_unreachable(name)

    def stop(self, name: str) -> None:
        raise NotImplementedError(NO_STOP)

    def subscribe(self, name: str, topic_filter: str, qos: int = 0, client: str = "c") -> None:
        self.world.nodes[name].subscribe(topic_filter, qos=qos, client=client)

    def unsubscribe(self, name: str, topic_filter: str, client: str = "c") -> None:
        self.world.nodes[name].unsubscribe(topic_filter, client=client)

    def publish(
        self,
        name: str,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        expiry: int | None = None,
    ) -> None:
        self.world.nodes[name].publish(topic, payload.decode(), qos, retain, expiry)

    def injected(self, name: str) -> Sequence[Injected]:
        return [Injected(m.topic, m.payload, m.qos, m.retain) for m in self.world.nodes[name].injected]

    def failures(self, name: str) -> int:
        return 0

    def counters(self, name: str) -> Mapping[str, int]:
        return self.world.nodes[name].counters

    def logged(self, name: str) -> Sequence[tuple[str, Mapping[str, object]]]:
        return self.world.nodes[name].logged


class TreeStage(Stage):
    """The fake nodes of PF and SF."""

    cannot: ClassVar[Mapping[str, str]] = {
        "test_a_node_that_stops_waits_for_its_algorithm": NO_DATA,
        "test_timers_fire_in_order_and_not_at_once": NO_TIME,
        "test_a_cancelled_timer_never_fires": NO_TIME,
        "test_a_delay_that_is_none_is_refused": NO_TIME,
        "test_adding_and_removing_neighbours_is_told_and_shown": "a test joins and parts nodes itself",
        "test_an_algorithm_may_transfer_single_messages": NO_BROKER,
        "test_data_reach_the_algorithm_of_any_node_in_order": NO_DATA,
        "test_a_link_on_demand_is_nobodys_introducer": NO_DATA,
        "test_data_for_the_node_itself_are_not_sent": NO_DATA,
        "test_a_node_that_is_gone_is_reported": NO_DATA,
        "test_nodes_of_a_tree_send_nothing": NO_DATA,
        "test_wrong_data_are_refused": NO_DATA,
        "test_messages_of_local_clients_are_the_overlays": NO_DATA,
        "test_injected_messages_go_to_the_local_broker_only": NO_BROKER,
        "test_wrong_messages_are_refused": NO_BROKER,
        "test_the_newest_retained_message_wins": NO_BROKER,
        "test_the_stamp_is_between_nodes": NO_BROKER,
        "test_an_unstamped_retained_message_ends_what_is_known": NO_BROKER,
        "test_what_is_retained_is_told_as_a_repetition": NO_BROKER,
        "test_a_session_from_its_creation_to_its_end": NO_SESSIONS,
        "test_what_may_happen_to_a_session": NO_SESSIONS,
        "test_an_address_that_is_none_is_refused": NO_SESSIONS,
        "test_messages_are_generated": "algorithms of a tree build no messages",
    }

    def __init__(self, algorithm: type[Algorithm]) -> None:
        super().__init__(algorithm)
        self.network = FakeNetwork(algorithm)
        self.failed = 0

    def node(self, name: str) -> FakeNode:
        return self.network.nodes[name]

    def add(self, name: str) -> Probe:
        (node,) = self.network.add(name)
        assert isinstance(node.algorithm, Probe)
        return node.algorithm

    def until(self, condition: Callable[[], object]) -> None:
        self.network.settle()
        assert condition()

    def quiet(self) -> None:
        self.network.settle()

    def link(self, here: str, far: str) -> None:
        self.network.join(here, far)

    def unlink(self, here: str, far: str) -> None:
        self.network.part(here, far)

    def kill(self, name: str) -> None:
        raise NotImplementedError("no node of a tree is killed")

    def stop(self, name: str) -> None:
        raise NotImplementedError(NO_STOP)

    def subscribe(self, name: str, topic_filter: str, qos: int = 0, client: str = "c") -> None:
        self.node(name).subscribe(topic_filter, qos, client)

    def unsubscribe(self, name: str, topic_filter: str, client: str = "c") -> None:
        self.node(name).unsubscribe(topic_filter, client)

    def publish(
        self,
        name: str,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        expiry: int | None = None,
    ) -> None:
        try:
            self.node(name).publish(topic, retain, payload, qos)
        except PluginError:
            self.failed += 1

    def injected(self, name: str) -> Sequence[Injected]:
        return [Injected(m.topic, m.payload, m.qos, m.retain) for m in self.node(name).injected]

    def failures(self, name: str) -> int:
        return self.failed

    def counters(self, name: str) -> Mapping[str, int]:
        return self.node(name).counters

    def logged(self, name: str) -> Sequence[tuple[str, Mapping[str, object]]]:
        return self.node(name).logged


class TestWorldOfSgTbps(NodeContract):
    stage = OverlayStage


class TestFakeNodes(NodeContract):
    stage = TreeStage
