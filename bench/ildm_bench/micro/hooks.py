"""Plugins that do nothing but be called: what each kind of hook costs the data path.

Each counts its calls, and logs the number when the node stops: so a run shows that it was what it says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ildm.api import Filter, Link, NodeApi, Plugin, PluginConfig, Route, Session, Source, TreeAlgorithm
from ildm.core.plugin.loading import ALGORITHMS, FILTERS
from ildm.mqtt import Connect, PacketType, Publish, Subscribe, Subscription

FROM_CLIENTS = frozenset({(Source.CLIENT, PacketType.PUBLISH)})


class Counting(Plugin):
    """What all have in common."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.calls = 0

    def on_ildm_stop(self) -> None:
        self.api.log("hooks called", calls=self.calls)


class Listener(Counting, Filter):
    """Shown every PUBLISH of a client."""

    wants = FROM_CLIENTS

    def mqtt_message_arrived(self, session: Session, type: PacketType, message: bytes) -> None:
        self.calls += 1


class EachPublish(Counting, Filter):
    """Asked whether it may pass."""

    wants = FROM_CLIENTS

    def filter(self, session: Session, message: bytes) -> bytes:
        self.calls += 1
        return message


class Admission(Counting, Filter):
    """Asked about clients and subscriptions: nothing per message."""

    def admit_client(self, session: Session, packet: Connect) -> Connect:
        self.calls += 1
        return packet

    def admit_subscription(
        self, session: Session, subscription: Subscription, packet: Subscribe
    ) -> Subscription:
        self.calls += 1
        return subscription


class EachTopic(Counting, TreeAlgorithm):
    """Asked once for each topic."""

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        self.calls += 1
        return ()


class EachMessage(Counting, TreeAlgorithm):
    """Asked for each message."""

    def route_message(self, message: Publish, source: Link | None, turn: int) -> Route:
        self.calls += 1
        return ()


HOOKS: dict[str, tuple[type[Counting], ...]] = {
    "route": (EachTopic,),
    "message": (EachMessage,),
    "listener": (Listener,),
    "filter": (EachPublish,),
    "admit": (Admission,),
    "all": (EachMessage, Listener, EachPublish, Admission),
}
"""Way -> the plugins in use."""


def name_of(plugin: type[Plugin]) -> str:
    """As configurations say it."""
    return f"bench-{plugin.__name__.lower()}"


def choice(way: str) -> dict[str, Any]:
    """What a node's configuration says to use the plugins of a way."""
    plugins = HOOKS[way]
    algorithms = [name_of(plugin) for plugin in plugins if issubclass(plugin, TreeAlgorithm)]
    filters = [name_of(plugin) for plugin in plugins if issubclass(plugin, Filter)]
    return {"algorithm": algorithms[0] if algorithms else None, "filters": filters}


def install(directory: Path) -> None:
    """Make the plugins known to processes that have the directory on their path, and to no others."""
    place = directory / "ildm_bench_hooks-1.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: ildm-bench-hooks\nVersion: 1\n")
    lines = []
    plugins = HOOKS["all"] + HOOKS["route"]
    for group, base in ((ALGORITHMS, TreeAlgorithm), (FILTERS, Filter)):
        lines.append(f"[{group}]")
        lines += [f"{name_of(p)} = {p.__module__}:{p.__name__}" for p in plugins if issubclass(p, base)]
    (place / "entry_points.txt").write_text("\n".join(lines) + "\n")
