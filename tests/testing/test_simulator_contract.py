"""The contract of NodeApi, held by the nodes of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from ildm.api import Algorithm, Stamp
from ildm.mqtt import Property
from ildm.testing import PluginWorld, RecordingBroker, SimulationError
from ildm.testing.contract import Injected, NodeContract, Probe, Stage

NO_SESSIONS = "the simulator has links, but no TCP connections"
NO_FAILURES = "a plugin that fails ends the run, whatever else would become of it"


class SimStage(Stage):
    cannot: ClassVar[Mapping[str, str]] = {
        "test_a_session_from_its_creation_to_its_end": NO_SESSIONS,
        "test_what_may_happen_to_a_session": NO_SESSIONS,
        "test_an_address_that_is_none_is_refused": NO_SESSIONS,
        "test_a_filter_that_answers_nonsense_lets_pass": NO_FAILURES,
    }

    def __init__(self, algorithm: type[Algorithm]) -> None:
        super().__init__(algorithm)
        self.world = PluginWorld(algorithm, spool=True)
        self.failed = 0

    def add(self, name: str) -> Probe:
        node = self.world.add(name)
        node.broker = RecordingBroker()
        assert isinstance(node.algorithm, Probe)
        return node.algorithm

    def until(self, condition: Callable[[], object]) -> None:
        self.world.settle(lambda: bool(condition()), limit=600, step=0.01)

    def quiet(self) -> None:
        self.world.run(30)

    def link(self, here: str, far: str) -> None:
        self.world.link(here, far)

    def unlink(self, here: str, far: str) -> None:
        self.world.unlink(here, far)

    def hold(self, here: str, far: str) -> None:
        self.world.network.stall(self.world[here].by_id[far])

    def release(self, here: str, far: str) -> None:
        self.world.network.resume(self.world[here].by_id[far])

    def kill(self, name: str) -> None:
        self.world.kill(name)

    def stop(self, name: str) -> None:
        self.world.stop(name)

    def subscribe(self, name: str, topic_filter: str, qos: int = 0, client: str = "c") -> None:
        self.world[name].subscribe(topic_filter, qos, client)

    def unsubscribe(self, name: str, topic_filter: str, client: str = "c") -> None:
        self.world[name].unsubscribe(topic_filter, client)

    def publish(
        self,
        name: str,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        expiry: int | None = None,
    ) -> None:
        node = self.world[name]
        try:
            with self.world.guarded():  # a plugin that fails ends the run, or here the call
                node.publish(
                    topic,
                    payload,
                    qos,
                    retain,
                    None if expiry is None else {Property.MESSAGE_EXPIRY_INTERVAL: expiry},
                    publisher=0,
                )
        except SimulationError:
            self.failed += 1

    def injected(self, name: str) -> Sequence[Injected]:
        broker = self.world[name].broker
        assert isinstance(broker, RecordingBroker)
        assert not any(Stamp.of(message) for message in broker.injected)
        return [Injected(m.topic, m.payload, m.qos, m.retain) for m in broker.injected]

    def failures(self, name: str) -> int:
        return self.failed

    def counters(self, name: str) -> Mapping[str, int]:
        return self.world[name].counters

    def gauges(self, name: str) -> Mapping[str, float]:
        return self.world[name].gauges

    def logged(self, name: str) -> Sequence[tuple[str, Mapping[str, object]]]:
        return [(event, fields) for _, node_id, event, fields in self.world.logs if node_id == name]


class TestSimulator(NodeContract):
    stage = SimStage
