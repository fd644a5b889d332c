"""Fixtures for tests of plugins in real nodes before real brokers: ``pip install 'ildm[testing]'``.

They are there wherever ILDM and pytest are; nothing is imported or started until a test asks for one::

    def test_my_algorithm(ildm_node, ildm_client):
        a = ildm_node("my-algorithm")
        b = ildm_node("my-algorithm", neighbors=[a])
        publisher, subscriber = ildm_client(a), ildm_client(b, level=5)
        subscriber.subscribe(("t/#", 1))
        publisher.publish("t/x", b"hello", 1)
        assert subscriber.receive().payload == b"hello"

All processes end with the test, or with the session where that is said, and also when pytest is killed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ildm.testing.live.brokers import Broker
    from ildm.testing.live.client import PahoClient
    from ildm.testing.live.fleet import Fleet
    from ildm.testing.live.process import ManagedProcess
    from ildm.testing.live.site import NodeFactory


pytest.register_assert_rewrite("ildm.testing.contract")


@pytest.fixture(scope="session")
def ildm_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Brokers that live until the end of the session: ``ildm_fleet.shared("mosquitto")``.

    A test that asks for a make which is not installed is skipped, with what is missing; where ``CI`` or
    ``ILDM_REQUIRE_ALL`` is set, it fails.
    """
    from ildm.testing.live.fleet import Fleet

    fleet = Fleet(tmp_path_factory.mktemp("ildm-fleet"))
    yield fleet
    fleet.close()


@pytest.fixture
def ildm_broker(request: pytest.FixtureRequest, ildm_fleet: Fleet) -> Broker:
    """A broker shared by all tests of the session: the embedded one (amqtt), or that which the test names.

    ``@pytest.mark.parametrize("ildm_broker", ["mosquitto", "rabbitmq"], indirect=True)``; makes are
    ``mosquitto``, ``rabbitmq``, ``activemq``, ``moquette``, ``amqtt``.
    """
    return ildm_fleet.shared(getattr(request, "param", "amqtt"))


@pytest.fixture
def ildm_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeFactory]:
    """Starts nodes, each in a process of its own: see :class:`ildm.testing.live.site.NodeFactory`."""
    from ildm.testing.live.site import NodeFactory

    factory = NodeFactory(tmp_path_factory.mktemp("ildm-node"))
    yield factory
    factory.close()


@pytest.fixture
def ildm_client() -> Iterator[Callable[..., PahoClient]]:
    """``ildm_client(node)`` connects an MQTT client to a node, a broker, or a pair of host and port.

    Further arguments are those of :class:`ildm.testing.live.client.PahoClient`, such as ``level=5``. Clients
    are disconnected at the end of the test.
    """
    from contextlib import ExitStack

    from ildm.testing.live.client import PahoClient

    with ExitStack() as clients:

        def connect(to: ManagedProcess | tuple[str, int], client_id: str = "", **options: Any) -> PahoClient:
            address = to if isinstance(to, tuple) else to.address
            return clients.enter_context(PahoClient(address, client_id, **options))

        yield connect
