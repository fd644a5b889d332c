"""The contract of NodeApi, held by fake nodes; here the test is what carries messages between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ildm.api import Algorithm, Peer, PluginError, Unreachable
from ildm.mqtt import Property, encoded_size
from ildm.testing import FakeLink, FakeNode, Transferred
from ildm.testing.contract import Injected, NodeContract, Probe, Stage

NO_LINKS = "a test makes links, nobody tells a fake node to"
NO_SESSIONS = "a fake node has links, but no TCP connections"
NO_LIVES = "each fake node is a world of its own"
NO_FAILURES = "a plugin that fails raises in the test, whatever else would become of it"


class FakeStage(Stage):
    cannot: ClassVar[Mapping[str, str]] = {
        "test_adding_and_removing_neighbours_is_told_and_shown": NO_LINKS,
        "test_a_hook_that_sends_again_does_not_run_away": "the test says when a node cannot be reached",
        "test_a_session_from_its_creation_to_its_end": NO_SESSIONS,
        "test_what_may_happen_to_a_session": NO_SESSIONS,
        "test_an_address_that_is_none_is_refused": NO_SESSIONS,
        "test_state_is_found_again_by_the_next_life": NO_LIVES,
        "test_what_is_kept_is_found_by_the_next_life": NO_LIVES,
        "test_a_message_of_one_identity_is_injected_once": NO_LIVES,
        "test_a_filter_that_answers_nonsense_lets_pass": NO_FAILURES,
    }

    def __init__(self, algorithm: type[Algorithm]) -> None:
        super().__init__(algorithm)
        self.nodes: dict[str, FakeNode[Any]] = {}
        self.stopping: set[str] = set()
        self.held: dict[tuple[str, str], list[Transferred]] = {}
        self.failed = 0

    def add(self, name: str) -> Probe:
        node = self.nodes[name] = FakeNode(self.algorithm, node_id=name)
        assert isinstance(node.plugin, Probe)
        return node.plugin

    def until(self, condition: Callable[[], object]) -> None:
        for _ in range(1000):
            self._carry()
            if condition():
                return
            for node in self.nodes.values():
                node.advance(0.01)
        raise AssertionError("it never came")

    def quiet(self) -> None:
        for _ in range(10):
            self._carry()

    def _carry(self) -> None:
        """Hand over what has left the nodes."""
        for node in list(self.nodes.values()):
            for link in list(node.links):
                back = self._back(link)
                if dict(back.interest) != dict(link.announced):
                    gone = [f for f in back.interest if f not in link.announced]
                    new = {f: qos for f, qos in link.announced.items() if back.interest.get(f) != qos}
                    back.hear({**new, **dict.fromkeys(gone)})
            transferred, node.transferred[:] = list(node.transferred), []
            for each in transferred:
                held = self.held.get((node.node_id, each.link.node_id))
                if held is None:
                    self.nodes[each.link.node_id].arrive(self._back(each.link), each.message, each.turn)
                else:
                    held.append(each)
                    assert isinstance(each.link, FakeLink)
                    each.link.queue(len(held), sum(encoded_size(one.message) for one in held))
            sent, node.sent[:] = list(node.sent), []
            for to, data, turn in sent:
                far = self.nodes.get(to.node_id)
                if far is None:
                    node.unreachable(to.node_id, self._why(to))
                    continue
                if to.node_id not in {link.node_id for link in node.links}:
                    node.link(to.node_id)
                    far.link(node.node_id, dialed=False)
                far.message(node.peer, data, turn)
            if transferred or sent:
                for link in node.links:
                    assert isinstance(link, FakeLink)
                    link.queue(link.queued, link.queued_bytes)  # there is room
            if node.node_id in self.stopping and not (node.overlay and node.overlay.is_leaving()):
                node.life.stop()

    def _why(self, to: Peer) -> Unreachable:
        """Why nobody with that id is at that address."""
        if any(node.peer.address == to.address for node in self.nodes.values()):
            return Unreachable.OTHER_NODE
        return Unreachable.REFUSED if ":" in to.address else Unreachable.NO_ADDRESS

    def _back(self, link: Any) -> FakeLink:
        return self._link(self.nodes[link.node_id], link.here.node_id)

    def _link(self, node: FakeNode[Any], far: str) -> FakeLink:
        (link,) = (link for link in node.links if link.node_id == far)
        assert isinstance(link, FakeLink)
        return link

    def link(self, here: str, far: str) -> None:
        self.nodes[here].link(far, introducer=True)
        self.nodes[far].link(here, dialed=False)

    def unlink(self, here: str, far: str) -> None:
        for one, other in ((here, far), (far, here)):
            self._link(self.nodes[one], other).down(closed=True)

    def hold(self, here: str, far: str) -> None:
        self.held[here, far] = []

    def release(self, here: str, far: str) -> None:
        held = self.held.pop((here, far))
        self._link(self.nodes[here], far).queue(0)
        self.nodes[here].transferred[:0] = sorted(held, key=lambda each: -each.priority)

    def kill(self, name: str) -> None:
        dead = self.nodes.pop(name)
        for link in dead.links:
            self._link(self.nodes[link.node_id], name).down()

    def stop(self, name: str) -> None:
        self.nodes[name].stop()
        self.stopping.add(name)

    def subscribe(self, name: str, topic_filter: str, qos: int = 0, client: str = "c") -> None:
        self.nodes[name].subscribe(topic_filter, qos, client)

    def unsubscribe(self, name: str, topic_filter: str, client: str = "c") -> None:
        self.nodes[name].unsubscribe(topic_filter, client)

    def publish(
        self,
        name: str,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        expiry: int | None = None,
    ) -> None:
        properties: Any = None if expiry is None else {Property.MESSAGE_EXPIRY_INTERVAL: expiry}
        try:
            self.nodes[name].publish(topic, payload, qos, retain, properties, publisher=0)
        except PluginError:
            self.failed += 1

    def injected(self, name: str) -> Sequence[Injected]:
        return [Injected(m.topic, m.payload, m.qos, m.retain) for m in self.nodes[name].injected]

    def failures(self, name: str) -> int:
        return self.failed

    def counters(self, name: str) -> Mapping[str, int]:
        return self.nodes[name].counters

    def gauges(self, name: str) -> Mapping[str, float]:
        return self.nodes[name].gauges

    def logged(self, name: str) -> Sequence[tuple[str, Mapping[str, object]]]:
        return self.nodes[name].logged


class TestFakeNodes(NodeContract):
    stage = FakeStage
