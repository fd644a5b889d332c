"""A site: a node before a real broker, on free loopback ports, in the event loop of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ildm.admin.client import AdminClient
from ildm.admin.commands import split_name
from ildm.api import Algorithm, Filter
from ildm.config import Address, Config
from ildm.core.link.link import NeighborLink
from ildm.core.node import Node
from ildm.core.plugin.loading import PluginSpec, PluginSpecs, load_plugins
from ildm.net.run import NodeServer
from ildm.testing.live.client import UNKNOWN_FILTER
from ildm_algorithms.tbps.keys.encoding import segment_of_filter
from tests.sites.client import PATIENCE, Client, until
from tests.sites.overlay import OVERLAYS, list_fault, overlay_fault, placed, rows_of, status_fault
from tests.support.brokers import Broker
from tests.support.ports import LOOPBACK, free_port

LINK = {"settle": 0.02, "keep_alive": 1, "reconnect_min": 0.02, "reconnect_max": 0.1}
BROKER = {"reconnect_min": 0.02, "reconnect_max": 0.1}
LIMITS = {"drain_timeout": 0.5}

Choice = str | Mapping[str, Any] | None
"""An algorithm, with its options or without."""


def settings(
    broker: tuple[str, int], directory: Path, algorithm: Choice, name: str, /, **changes: Any
) -> dict[str, Any]:
    """A configuration document; `changes` replace keys, within sections key by key."""
    document: dict[str, Any] = {
        "node_id": name,
        "state_dir": str(directory),
        "listen": f"{LOOPBACK}:{free_port()}",
        "broker": {**BROKER, "address": f"{broker[0]}:{broker[1]}"},
        "algorithm": placed(algorithm, name),
        "link": {**LINK, "listen": f"{LOOPBACK}:{free_port()}"},
        "limits": dict(LIMITS),
        "log": {"level": "error"},
    }
    for key, value in changes.items():
        document[key] = {**document[key], **value} if isinstance(document.get(key), dict) else value
    if document["broker"].get("addresses"):
        del document["broker"]["address"]
    return document


class Site:
    """A node (`node`) and its broker. `start` may be called again after `stop`: ports and state stay."""

    def __init__(
        self,
        broker: Broker,
        directory: Path,
        algorithm: Choice,
        name: str,
        /,
        *,
        broker_address: tuple[str, int] | None = None,
        filters: Sequence[type[Filter]] = (),
        plugin: type[Algorithm] | None = None,
        **changes: Any,
    ) -> None:
        self.filters = filters
        self.plugin = plugin
        """A test's own class, in the place of the algorithm named."""
        self.broker = broker
        self.name = name
        document = settings(broker_address or broker.address, directory, algorithm, name, **changes)
        self.config = Config.model_validate(document)
        self.address: tuple[str, int] = self.config.listen[:2]
        assert self.config.link.listen is not None
        self.link_address: Address = self.config.link.listen
        self.server: NodeServer
        self.running = False
        self.has_overlay = self.config.algorithm is not None and self.config.algorithm.name in OVERLAYS

    @property
    def node(self) -> Node:
        return self.server.node

    async def start(self) -> None:
        specs = load_plugins(self.config)
        filters = [PluginSpec(each.__name__, each, each.Config()) for each in self.filters]
        algorithm = specs.algorithm
        if self.plugin is not None and algorithm is not None:
            algorithm = algorithm._replace(plugin=self.plugin, config=self.plugin.Config())
        self.server = NodeServer(self.config, PluginSpecs(algorithm, filters))
        await self.server.start()
        self.running = True
        if self.has_overlay:
            _overlaid.add(self)
        if self.node.router.active:
            await until(
                lambda: all(sender.open for sender in self.node.injector.senders), "injection sessions"
            )

    async def stop(self) -> None:
        self.running = False
        _overlaid.discard(self)
        await self.server.stop()

    def overlay(self) -> Mapping[str, Any]:
        """What ``ildm overlay`` would show."""
        algorithm = self.node.dispatch.algorithm
        assert algorithm is not None
        view = algorithm.overlay()
        return {} if view is None else view.model_dump(mode="json")

    async def shell(self, line: str) -> Any:
        """What a command answers, as ``--json`` would show it."""
        command, rest = split_name(line.split())
        node = AdminClient(self.config.admin_socket)
        answer = await asyncio.to_thread(command.call, node, **command.bind(rest))
        return json.loads(json.dumps(answer))

    def counter(self, name: str) -> int:
        """One counter of the algorithm."""
        loaded = next(p for p in self.node.dispatch.loaded if p.plugin is self.node.dispatch.algorithm)
        return loaded.counters[name]

    async def connect(self, client_id: str | None = None, **options: Any) -> Client:
        """A local client; see `Client.connect`."""
        client = await Client.connect(self.address, client_id, **options)
        if self.broker.name == "moquette" and client.connack.reason_code == 0:
            await client.unsubscribe(UNKNOWN_FILTER)
        return client

    def link(self, neighbor: Site) -> NeighborLink:
        return self.node.links.links[neighbor.name]

    def is_connected(self, neighbor: Site) -> bool:
        link = self.node.links.links.get(neighbor.name)
        return link is not None and link.connected

    def is_joined(self, neighbor: Site) -> bool:
        """Whether the link is up, part of the cooperation and with all its sessions."""
        link = self.node.links.links.get(neighbor.name)
        return (
            link is not None
            and link.connected
            and link.in_cooperation
            and link.ready_here
            and link.ready_there
            and len(link.open_sessions) == len(link.senders)
        )

    def add(self, neighbor: Site, address: tuple[str, int] | None = None) -> None:
        """Add a neighbour, by default at its own address."""
        self.node.links.add(Address(*(address or neighbor.link_address)), False)

    def transferred_to(self, neighbor: Site) -> int:
        """Messages this node has sent over the link."""
        return self.link(neighbor).transferred_out


class Elsewhere(Protocol):
    """A node that is not in this process."""

    name: str

    async def overlay(self) -> Mapping[str, Any]: ...

    async def neighbors(self) -> list[dict[str, Any]]: ...


CALM = 10
"""So many looks in a row must find processes at rest."""
_overlaid: set[Site] = set()
"""Running sites with an overlay."""


def crossing(site: Site | Elsewhere, rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], int]:
    """Messages that have left for, or come from, each neighbour."""
    found = {}
    for row in rows:
        if row["state"] == "active":
            found[site.name, row["node_id"], "sent"] = row["transferred_out"]
            found[row["node_id"], site.name, "got"] = row["transferred_in"]
    return found


async def rested(*elsewhere: Elsewhere, one: Iterable[str] = (), whole: bool = False) -> None:
    """Wait until the overlays of all running sites, and of others in processes of their own, are at rest.

    Each key which a client's filters ask for is in the lists, these are whole, nodes with a link between
    them are in one overlay (and so are those named by ``one``), publishers are suspended or not as they
    ought to be, and no message is under way. ``whole``: all levels of the lists are as they ought to be.
    """
    fault: str | None = ""

    async def look() -> str | None:
        sites = sorted(_overlaid, key=lambda site: site.name)
        crossed: dict[tuple[str, str, str], int] = {}
        for site in sites:
            if not (site.node.links.idle and site.node.injector.idle):
                return f"{site.name} has messages to send"
            crossed |= crossing(site, site.server.admin.view.neighbors())
        here_alone = {site.name for site in sites}
        for (here, there, way), count in crossed.items():
            back = crossed.get((here, there, "got" if way == "sent" else "sent"))
            if {here, there} <= here_alone and back != count:
                return f"{here} to {there}: {count} messages {way}, at the other end {back}"
        overlays = [site.overlay() for site in sites]
        for node in elsewhere:
            overlays.append(await node.overlay())
            crossed |= crossing(node, await node.neighbors())
        if not all(overlays):
            return "a node has not begun to join"
        known = here_alone | {node.name for node in elsewhere}
        rows = rows_of(overlays)
        for site in sites:
            for topic_filter in site.node.site_rules.advertised:
                key = f"{segment_of_filter(topic_filter).text} subscriber {site.name}"
                if not topic_filter.startswith("$") and key not in rows:
                    return f"{key} is not there"
        groups = [set(one), *({here, there} & known for here, there, _ in crossed)]
        return list_fault(rows, None if whole else 0) or overlay_fault(rows, groups) or status_fault(rows)

    async def poll() -> None:
        nonlocal fault
        # what processes tell is of different moments, and something may be under way between them
        calm, wanted = 0, CALM if elsewhere else 1
        clock = asyncio.get_running_loop().time
        while calm < wanted:
            began = clock()
            fault = await look()
            calm = calm + 1 if fault is None else 0
            if calm < wanted:
                # the loop is that of the nodes: whoever looks without a pause keeps them from their rest
                await asyncio.sleep(max(0.01, 2 * (clock() - began)))

    try:
        async with asyncio.timeout(PATIENCE):
            await poll()
    except TimeoutError:
        raise AssertionError(f"overlay not at rest: {fault}") from None


async def joined(one: Site, other: Site) -> None:
    """Wait until both ends of a link take part in the cooperation."""
    await until(lambda: one.is_joined(other) and other.is_joined(one), f"link {one.name}-{other.name}")
    if one.has_overlay:
        await rested(one=(one.name, other.name))


async def join(one: Site, other: Site) -> None:
    one.add(other)
    await joined(one, other)


def agreed(sites: Iterable[Site]) -> bool:
    """Whether each node knows of its neighbours what they announce: inter-subscribing has come to rest."""
    by_name = {site.name: site for site in sites if site.running}

    def known(there: Site, site: Site) -> dict[str, int] | None:
        link = there.node.links.links.get(site.name)  # None: it has not heard yet that there is one
        return dict(link.interest) if link is not None else None

    return all(
        dict(link.announced) == known(by_name[link.node_id], site)
        for site in by_name.values()
        for link in site.node.links.cooperation.active
        if link.node_id in by_name
    )


async def settled(*sites: Site) -> None:
    """Wait until the sites know of each other's interest, and all transferred between them is acknowledged.

    Towards other sites something may be under way: one without its broker acknowledges nothing.
    """
    if any(site.has_overlay for site in sites):
        await rested()
        return

    names = {site.name for site in sites}

    def at_rest() -> bool:
        running = [site for site in sites if site.running]
        links = [link for site in running for link in site.node.links.links.values() if link.node_id in names]
        idle = all(link.idle for link in links) and all(site.node.injector.idle for site in running)
        return idle and agreed(sites)

    await until(at_rest, "all sites at rest")


async def stop_all(sites: Iterable[Site]) -> None:
    await asyncio.gather(*(site.stop() for site in sites if site.running))


async def exchange(sites: Sequence[Site], topic: str, round_: str) -> None:
    """New clients at each site publish to and hear from all, each message once (an end marker proves it)."""
    clients = [await site.connect() for site in sites]
    for client in clients:
        await client.subscribe((f"{topic}/{round_}/+", 1))
    await settled(*sites)
    sent = [f"{site.name} {n}".encode() for site in sites for n in range(5)]
    for site, client in zip(sites, clients, strict=True):
        for n in range(5):
            await client.publish(f"{topic}/{round_}/{site.name}", f"{site.name} {n}".encode(), 1)
    for client in clients:
        assert sorted(m.payload for m in await client.receive_all(len(sent))) == sorted(sent)
    for client in clients:
        await client.publish(f"{topic}/{round_}/end", b"end", 1)
    await settled(*sites)
    for client in clients:
        assert [m.payload for m in await client.receive_all(len(sites))] == [b"end"] * len(sites)
        assert client.waiting == 0
        await client.disconnect()
