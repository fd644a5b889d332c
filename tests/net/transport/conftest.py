from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.process import ManagedProcess
from tests.net.transport.client import WAIT
from tests.net.transport.pki import Pki

StartNode = Callable[..., NodeProcess]
Process = TypeVar("Process", bound=ManagedProcess)


@contextmanager
def running(process: Process) -> Iterator[Process]:
    process.start()
    try:
        yield process
    finally:
        process.kill()


def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it did not come to it"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """One for all tests of a module; it serves by TCP."""
    if reason := Mosquitto.available():
        pytest.skip(reason)
    with running(Mosquitto(tmp_path_factory.mktemp("mosquitto"))) as broker:
        yield broker


@pytest.fixture
def start_node(tmp_path: Path, mosquitto: Mosquitto) -> Iterator[StartNode]:
    """Starts nodes before the broker, each further one with an algorithm before one of its own, as it may be
    linked with the first; all end with the test."""
    with ExitStack() as stack:
        linkable: list[str] = []

        def start(
            name: str = "node", algorithm: Any = None, reaches_broker: bool = True, **extra: Any
        ) -> NodeProcess:
            link = extra.pop("link", None)
            broker = mosquitto
            if algorithm is not None:
                linkable.append(name)
                if len(linkable) > 1:
                    directory = tmp_path / f"{len(linkable)}-broker"
                    broker = stack.enter_context(running(Mosquitto(directory)))
            node = NodeProcess(
                tmp_path / name, broker.address, algorithm, node_id=name, link=link, extra=extra
            )
            stack.callback(node.kill)
            if reaches_broker:
                node.start()
            else:
                node.launch()
                until(lambda: node.status() is not None)
            return node

        yield start


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """The authority that the tests trust."""
    if reason := Pki.missing():
        pytest.skip(reason)
    return Pki(tmp_path_factory.mktemp("pki"))
