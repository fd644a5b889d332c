"""The processes of a live run: brokers, and nodes beside them or bridges between them, over harmed paths."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ildm.testing.live.brokers import Broker, new_broker
from ildm.testing.live.node import NodeProcess, merge
from ildm.testing.live.process import ManagedProcess, Placement, ProcessError
from ildm_bench.chaos.proxies import Address, Network, Proxy
from ildm_bench.chaos.schedule import Setting
from ildm_bench.testbed.bridging import wait_crossing
from ildm_bench.testbed.joining import GRID, LOCALITY, Kind, found_together

TOGETHER = 60.0
"""Seconds that the sites may take to find together."""
SMALL_DISK = 6 << 20
"""Bytes of a disk that is to become full."""
NODE: Mapping[str, Any] = {
    "broker": {"reconnect_min": 0.05, "reconnect_max": 0.5},
    "link": {"settle": 0.1, "keep_alive": 2, "reconnect_min": 0.05, "reconnect_max": 0.5},
    "limits": {"drain_timeout": 2.0},
    "log": {"level": "info"},
}
"""What differs from the defaults: what is down is looked for often."""
MOSQUITTO_LOG = tuple(f"log_type {kind}" for kind in ("error", "warning", "notice", "debug"))
"""All packets, for who looks at a run; not each time that it saves what it has."""
SPOOL: Mapping[str, Any] = {"bytes": 64 << 20, "segment_bytes": 1 << 20}


def make_of(kind: str) -> str:
    """The make of a broker, without the variant of its store that may follow (``mosquitto-default``)."""
    return kind.partition("-")[0]


class Sites(ABC):
    """All sites of a run on one address of this machine. Methods that take long are coroutines."""

    def __init__(self, setting: Setting, directory: Path, host: str) -> None:
        """Nothing is started. ``host`` is a loopback address that the run has for itself."""
        self.setting = setting
        self.directory = directory
        self.host = host
        self.network = Network()
        self.proxies: list[Proxy] = []
        self.brokers: dict[str, Broker] = {}
        for site, kind in zip(setting.sites, setting.brokers, strict=True):
            self.brokers[site] = self._broker(site, kind)
        self.nodes: dict[str, NodeProcess] = {}

    @abstractmethod
    def address(self, site: str) -> Address:
        """Where clients of a site connect."""

    def addresses(self, site: str) -> Sequence[Address]:
        """The same, where these are several: a client takes them in turn."""
        return [self.address(site)]

    @abstractmethod
    async def joined(self) -> None:
        """Return when the sites have found together.

        Raises:
            ProcessError: they have not.
        """

    def ends(self, target: str) -> tuple[str, str]:
        """The processes at the ends of ``link/SITE/SITE``; for `Network`."""
        _, one, other = target.split("/")
        return f"node/{one}", f"node/{other}"

    def process(self, name: str) -> ManagedProcess:
        """By ``node/SITE`` or ``broker/SITE``."""
        kind, _, site = name.partition("/")
        return self.nodes[site] if kind == "node" else self.brokers[site]

    @property
    def processes(self) -> dict[str, ManagedProcess]:
        """All, by name."""
        brokers = {f"broker/{site}": broker for site, broker in self.brokers.items()}
        return {**brokers, **{f"node/{site}": node for site, node in self.nodes.items()}}

    async def start(self) -> None:
        """Start all, and return when the sites have found together.

        Raises:
            ProcessError: something did not come up.
            OSError: a port is taken.
        """
        for proxy in self.proxies:
            await proxy.start()
        await asyncio.gather(*(asyncio.to_thread(broker.start) for broker in self.brokers.values()))
        await asyncio.gather(*(asyncio.to_thread(node.start) for node in self.nodes.values()))
        await self.joined()

    async def close(self) -> None:
        """Kill all."""
        for process in self.processes.values():
            await asyncio.to_thread(process.kill)
        for proxy in self.proxies:
            await proxy.close()

    def _broker(self, site: str, kind: str) -> Broker:
        make = make_of(kind)
        options: dict[str, Any] = {"place": Placement(host=self.host)}
        if make != "rabbitmq" and kind == make:
            options["persistence"] = True
        if make == "mosquitto":
            options["extra"] = MOSQUITTO_LOG
        return new_broker(make, self.directory / f"broker-{site}", **options)


class IldmSites(Sites):
    """A node beside each broker. What they say to each other goes through proxies."""

    node_class: type[NodeProcess] = NodeProcess

    def __init__(self, setting: Setting, directory: Path, host: str, small: Sequence[str] = ()) -> None:
        """``small``: sites whose spool gets a disk of its own of `SMALL_DISK` bytes, which needs root.

        Raises:
            OSError: such a disk cannot be made.
        """
        super().__init__(setting, directory, host)
        self.kind = Kind.of(setting.algorithm)
        self.disks: dict[str, Path] = {}
        place = Placement(host=host)
        for site in setting.sites:
            broker = self.brokers[site]
            node = self.node_class(
                directory / f"node-{site}", broker.address, self._algorithm(site), node_id=site, place=place
            )
            if site in small:
                self.disks[site] = _mount(directory / f"disk-{site}")
            self.nodes[site] = node
            assert node.link_address is not None
            host_, _, port = node.link_address.rpartition(":")
            proxy = Proxy(self.network, f"node/{site}", (host_, int(port)), None, host)
            self.proxies.append(proxy)
        gates = {
            site: f"{host}:{proxy.address[1]}"
            for site, proxy in zip(setting.sites, self.proxies, strict=True)
        }
        for site, node in self.nodes.items():
            spool: dict[str, Any] = {**SPOOL, "mode": setting.mode}
            if site in self.disks:
                spool |= {"directory": str(self.disks[site] / "spool"), "segment_bytes": 256 << 10}
            neighbors = [gates[other] for dialer, other in setting.links if dialer == site]
            merge(node.document, NODE)
            merge(node.document, {"link": {"advertise": gates[site], "neighbors": neighbors}, "spool": spool})
            merge(node.document, setting.options)

    def address(self, site: str) -> Address:
        return self.nodes[site].address

    def spool_of(self, site: str) -> Path:
        """Directory of the spool of a node."""
        disk = self.disks.get(site)
        return (disk if disk is not None else self.nodes[site].directory / "state") / "spool"

    async def joined(self) -> None:
        nodes = list(self.nodes.values())
        for site, node in self.nodes.items():
            degree = sum(site in link for link in self.setting.links)
            ready = partial(_has_links, node, degree)
            await asyncio.to_thread(node.wait_until, ready, "links are not joined")
        if self.kind.overlay:
            together = partial(found_together, nodes, self.kind)
            await asyncio.to_thread(nodes[0].wait_until, together, "not in one overlay")

    async def close(self) -> None:
        await super().close()
        await asyncio.to_thread(release_disks, self.directory)

    def _algorithm(self, site: str) -> Mapping[str, Any]:
        names = self.setting.sites
        document: dict[str, Any] = {"name": self.setting.algorithm}
        if self.kind.asks_grid:
            members = {name: f"r0/{name}" for name in names}
            document |= dict(zip(GRID, (["r0"], list(names), members), strict=True))
        elif self.kind.asks_locality:
            document[LOCALITY] = [site]
        return document


class BridgedSites(Sites):
    """Brokers alone, joined by Mosquitto's own bridges: each link is one, at the site that dials."""

    def __init__(self, setting: Setting, directory: Path, host: str) -> None:
        super().__init__(setting, directory, host)
        for near, far in setting.links:
            proxy = Proxy(self.network, f"broker/{far}", self.brokers[far].address, f"broker/{near}", host)
            self.proxies.append(proxy)
            broker = self.brokers[near]
            broker.extra = (*broker.extra, *bridge_lines(near, far, proxy.address))  # type: ignore[attr-defined]

    def address(self, site: str) -> Address:
        return self.brokers[site].address

    def ends(self, target: str) -> tuple[str, str]:
        _, one, other = target.split("/")
        return f"broker/{one}", f"broker/{other}"

    async def joined(self) -> None:
        for near, far in self.setting.links:
            ends = self.brokers[near].address, self.brokers[far].address
            for source, target in (ends, ends[::-1]):
                await asyncio.to_thread(wait_crossing, source, target, TOGETHER)


def bridge_lines(near: str, far: str, address: Address) -> tuple[str, ...]:
    """Of Mosquitto's configuration at ``near``: all topics both ways, with a session that is kept."""
    return (
        f"connection {near}-{far}",
        f"address {address[0]}:{address[1]}",
        f"remote_clientid bridge-{near}-{far}",
        f"local_clientid local-{near}-{far}",
        "topic # both 2",
        # The far broker then knows a bridge from a client, and sends nothing back to where it came from.
        "try_private true",
        "notifications false",
        "cleansession false",
        "keepalive_interval 5",
        "restart_timeout 1",
    )


def can_mount() -> bool:
    """Whether disks of their own can be made for spools."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


def _mount(directory: Path) -> Path:
    directory.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(directory)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise ProcessError(f"{directory}: {done.stderr.strip()}")
    return directory


def release_disks(directory: Path) -> None:
    """Unmount the disks that nodes of a run have had below its directory, with all that is on them."""
    for disk in directory.glob("disk-*"):
        if disk.is_mount():
            subprocess.run(["umount", "--lazy", str(disk)], check=False, capture_output=True)


def _has_links(node: NodeProcess, number: int) -> bool:
    """Whether all its links stand, those that are blocked because of a cycle as well."""
    status = node.status()
    return status is not None and status["links"]["active"] + status["links"]["blocked"] >= number
