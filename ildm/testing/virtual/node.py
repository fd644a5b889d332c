"""Nodes that stand in a world in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ildm.config import Address, Config
from ildm.core.counters import Counters
from ildm.core.link.session import LinkSession
from ildm.core.link.versions import PROTOCOLS, Range
from ildm.core.local.client_session import ClientSession
from ildm.core.node import Node
from ildm.core.plugin.loading import PluginSpec, PluginSpecs
from ildm.core.spool import Spool
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World


def plugin_specs(
    name: str | None, plugin: Any = None, filters: list[tuple[str, Any]] | None = None
) -> PluginSpecs:
    """Specs of classes with their default options."""
    algorithm = None if name is None else PluginSpec(name, plugin, plugin.Config())
    return PluginSpecs(algorithm, [PluginSpec(n, cls, cls.Config()) for n, cls in filters or []])


def make_node(
    world: World,
    name: str,
    specs: PluginSpecs,
    *,
    store: MemoryStore | None = None,
    spool: Spool | None = None,
    spooling: Mapping[str, Any] | None = None,
    counters: Counters | None = None,
    secret: str | None = None,
    node_id: str | None = None,
    protocols: Range = PROTOCOLS,
    epoch: int = 0,
    **settings: Any,
) -> Node:
    """A node that listens at ``name``:1 for clients and ``name``:2 for links; its broker is ``name``:3.

    ``settings`` are sections of its configuration, ``spooling`` the one named ``spool``. ``counters`` are
    those of its spool, if that has any: the node heeds what it has found damaged.
    """
    document: dict[str, Any] = {"listen": f"{name}:1", "broker": {"address": f"{name}:3"}}
    document["link"] = {"listen": None, **settings.pop("link", {})}
    document["algorithm"] = None if specs.algorithm is None else specs.algorithm.name
    document.update(settings)
    document["spool"] = dict(spooling or {})
    driver = WorldDriver(world, name)
    node = Node(
        Config.model_validate(document),
        specs,
        driver,
        store or MemoryStore(),
        node_id=node_id or name,
        link_secret=secret,
        counters=counters,
        spool=spool,
        protocols=protocols,
        epoch=epoch,
    )
    world.listen(Address(name, 1), lambda: ClientSession(node.local), driver)
    world.listen(Address(name, 2), lambda: LinkSession(node.links, None, 0), driver)
    return node
