"""Sites of a world in virtual time: a node with its broker, and clients."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ildm.api import Algorithm
from ildm.config import Address
from ildm.core.link.link import NeighborLink
from ildm.core.link.session import LinkSession
from ildm.core.link.slices import Slices
from ildm.core.node import Node
from ildm.core.spool import Spool
from ildm.mqtt import Connect, SubAck, Subscribe, Subscription
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from ildm_algorithms.pf import PublicationFlooding
from ildm_algorithms.sf import SubscriptionFlooding

ALGORITHMS = {"pf": PublicationFlooding, "sf": SubscriptionFlooding}


class Site:
    """A node with its broker, and clients."""

    algorithm_name = "own"
    """Of one that is given as a class."""

    def __init__(
        self,
        world: World,
        name: str,
        algorithm: str | type[Algorithm] | None,
        filters: Sequence[tuple[str, Any]] = (),
        store: MemoryStore | None = None,
        spool: Spool | None = None,
        neighbors: tuple[str, ...] = (),
        new_state: bool = False,
        **settings: Any,
    ) -> None:
        self.world = world
        self.filters = list(filters)
        self.name = name
        self.algorithm = algorithm
        self.settings = settings
        self.broker: Broker
        self.use(Broker())
        self.store = store or MemoryStore()
        self.spool = spool
        self.node: Node
        self.start(neighbors, new_state=new_state)

    def start(self, neighbors: tuple[str, ...] = (), *, new_state: bool = False) -> None:
        name, plugin = self.algorithm_name, self.algorithm
        if isinstance(plugin, str):
            name, plugin = plugin, ALGORITHMS[plugin]
        specs = plugin_specs(name if plugin else None, plugin, self.filters)
        made = {"store": self.store, "spool": self.spool, **self.settings}
        self.node = make_node(self.world, self.name, specs, **made)
        self.node.start({Address(name, 2): False for name in neighbors}, new_state=new_state)

    @property
    def driver(self) -> WorldDriver:
        driver = self.node.driver
        assert isinstance(driver, WorldDriver)
        return driver

    def logged(self, event: str) -> list[dict[str, object]]:
        return [fields for _, found, fields in self.driver.logged if found == event]

    def client(self, client_id: str = "c", connect: Connect | None = None, **fields: Any) -> MiniClient:
        packet = connect or Connect(client_id=client_id, **fields)
        client = MiniClient(packet.version)
        self.world.connect(Address(self.name, 1), client)
        client.send(packet)
        self.world.run(0.1)
        return client

    def subscriber(
        self, topic_filter: str, client_id: str = "sub", qos: int = 0, **fields: Any
    ) -> MiniClient:
        client = self.client(client_id, **fields)
        wanted = [Subscription(topic_filter=topic_filter, qos=qos)]
        client.send(Subscribe(packet_id=1, subscriptions=wanted))
        self.world.run(0.1)
        if not client.got(SubAck):  # it waits for a neighbour
            self.world.run(self.node.config.link.subscribe_wait)
        assert client.got(SubAck)
        return client

    def links(self) -> dict[str, str]:
        return {
            link.node_id: "active" if link in self.node.links.cooperation.active and link.connected else "not"
            for link in self.node.links.links.values()
        }

    def kill(self, silent: bool = False) -> None:
        """The node's process ends at once; ``silent``: its machine, so that nobody hears of it."""
        self.world.kill(self.driver, silent)

    def use(self, broker: Broker) -> None:
        """From now on the node's broker is this one."""
        self.broker = broker
        self.world.listen(Address(self.name, 3), broker.connection)

    def broker_down(self) -> None:
        """The broker ends and nobody listens in its place."""
        self.world.listeners.pop(Address(self.name, 3), None)
        self.broker.crash()

    def broker_up(self, keeps: bool = True) -> None:
        """The broker is there again; ``keeps`` False: without sessions and retained messages."""
        self.broker.crash(keeps)
        self.use(self.broker)

    def crash(self) -> None:
        """The node ends without a good-bye; what is left of it keeps quiet."""
        self.world.listeners.pop(Address(self.name, 1))
        self.world.listeners.pop(Address(self.name, 2))
        self.node.links._stopped = True
        self.node.injector.stop()
        for session in list(self.node.sessions):
            session.abort()
        for link in list(self.node.links.links.values()):
            for one in list(link.open_sessions):
                one.abort()


def row(world: World, names: str, algorithm: str | type[Algorithm], **settings: Any) -> list[Site]:
    """Sites in a row, each joined to the one before."""
    sites = [Site(world, name, algorithm, **settings) for name in names]
    for before, site in itertools.pairwise(sites):
        site.node.links.add(Address(before.name, 2), False)
    world.run(2)
    return sites


def session_of(site: Site, far: str, index: int = 0) -> LinkSession:
    (found,) = [s for s in site.node.links.links[far].open_sessions if s.index == index]
    return found


def unacknowledged(site: Site) -> None:
    """From now on the site acknowledges no inter-subscription."""
    cooperation = site.node.links.cooperation
    take = cooperation.inter_subscribed

    def taken(link: NeighborLink, slices: Slices) -> bytes:
        take(link, slices)
        return b""

    cooperation.inter_subscribed = taken  # type: ignore[method-assign]


def plugin(site: Site) -> Any:
    return site.node.dispatch.algorithm
