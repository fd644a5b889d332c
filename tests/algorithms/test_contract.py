"""The contract of NodeApi, as far as the small world of these tests stands in for nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ildm.api import Algorithm, Unreachable
from ildm.testing.contract import Injected, NodeContract, Probe, Stage
from tests.algorithms.tbps.world import Node
from tests.algorithms.tbps.world import World as OverlayWorld

NO_LINKS = "over an overlay links are not the algorithm's affair"
NO_SESSIONS = "no algorithm here opens sessions"
NO_DIALS = "here data go without links, and without bounds"
NO_FILTERS = "no filters are asked there"
NOT_USED = "SG-TBPS does without"
PLAIN_STATE = "a dict that is gone with the node stands for its state"
NO_STOP = "a test calls the hook itself"


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
        "test_a_route_that_is_none_is_a_failure": NO_LINKS,
        "test_an_algorithm_may_decide_on_each_message": NO_LINKS,
        "test_what_an_algorithm_does_to_a_message_is_its_own_affair": NO_LINKS,
        "test_a_retained_message_is_decided_on_with_its_stamp": NO_LINKS,
        "test_an_algorithm_may_transfer_single_messages": NO_LINKS,
        "test_the_highest_priority_goes_first": NO_LINKS,
        "test_who_sends_data_without_end_is_refused_and_hears_of_room": NO_LINKS,
        "test_who_transfers_without_end_is_refused": NO_LINKS,
        "test_a_wrong_turn_priority_or_stamp_is_refused": NO_LINKS,
        "test_wrong_messages_are_refused": NO_LINKS,
        "test_a_link_on_demand_is_nobodys_introducer": NO_LINKS,
        "test_a_hook_that_sends_again_does_not_run_away": NO_DIALS,
        "test_endless_sends_come_to_an_end": NO_DIALS,
        "test_a_session_from_its_creation_to_its_end": NO_SESSIONS,
        "test_what_may_happen_to_a_session": NO_SESSIONS,
        "test_an_address_that_is_none_is_refused": NO_SESSIONS,
        "test_plugins_see_what_they_want": NO_LINKS,
        "test_a_filter_checks_and_changes_messages": NO_FILTERS,
        "test_a_filter_may_decide_later": NO_FILTERS,
        "test_a_filter_that_answers_nonsense_lets_pass": NO_FILTERS,
        "test_a_filter_admits_subscriptions": NO_FILTERS,
        "test_a_filter_admits_clients": NO_FILTERS,
        "test_gauges_hold_the_last_value": NOT_USED,
        "test_names_of_counters_and_gauges_are_bounded": NOT_USED,
        "test_the_log_is_bounded_and_takes_any_value": NOT_USED,
        "test_state_is_found_again_by_the_next_life": PLAIN_STATE,
        "test_state_is_bounded_and_of_bytes": PLAIN_STATE,
        "test_what_is_kept_is_found_by_the_next_life": NO_STOP,
        "test_a_message_of_one_identity_is_injected_once": NO_STOP,
        "test_work_beside_the_node_comes_back_as_a_call": NOT_USED,
        "test_a_filter_that_is_none_is_refused": "SG-TBPS asks for filters that were granted",
        "test_messages_are_generated": "SG-TBPS builds its messages itself",
    }

    def __init__(self, algorithm: type[Algorithm]) -> None:
        super().__init__(algorithm)
        self.world = OverlayWorld()
        self.world.spool = True

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

    def hold(self, here: str, far: str) -> None:
        raise NotImplementedError(NO_LINKS)

    def release(self, here: str, far: str) -> None:
        raise NotImplementedError(NO_LINKS)

    def kill(self, name: str) -> None:
        node = self.world.nodes.pop(name)
        node.alive = False
        for other in self.world.nodes.values():
            other.algorithm.on_unreachable(name, Unreachable.LOST)

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

    def gauges(self, name: str) -> Mapping[str, float]:
        return {}

    def logged(self, name: str) -> Sequence[tuple[str, Mapping[str, object]]]:
        return self.world.nodes[name].logged


class TestWorldOfSgTbps(NodeContract):
    stage = OverlayStage
