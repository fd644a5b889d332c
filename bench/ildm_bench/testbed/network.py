"""Network namespaces of a testbed: one for each site, with a network for clients and one between the sites.

Both networks are bridges. That of the clients is joined with this machine's own namespace, where the load
comes from; delay and loss are on the other alone, so they act between sites and nowhere else. Addresses are
from 198.18.0.0/15, which is set aside for benchmarks (RFC 2544).
"""

from __future__ import annotations

import ipaddress
import json
import os
import random
import shutil
import subprocess

from ildm.testing.live.reaper import base36, interface_prefix

BENCHMARK_NETWORKS = ipaddress.ip_network("198.18.0.0/15")
_PREFIX_LENGTH = 22
MAX_SITES = 1000
"""Addresses of a /22, and ports of a bridge."""
_QUEUE = 1_000_000
"""Packets that may wait for their delay; the kernel's default, 1000, would drop them at high rates."""


class NetworkError(OSError):
    """The kernel refused; the text says what."""


class Network:
    """Made as a whole, removed by name (`ildm.testing.live.reaper.remove_network`)."""

    def __init__(self, name: str, sites: int) -> None:
        self.name = name
        self.sites = sites
        self._interfaces = interface_prefix(name)
        self.clients, self.links = _free_networks()

    def open(self) -> None:
        """Make bridges, namespaces and what joins them.

        Raises:
            NetworkError: the kernel refused, or ``ip`` is missing. What was made so far is still there.
        """
        for kind, network in (("C", self.clients), ("L", self.links)):
            _ip("link", "add", self._bridge(kind), "type", "bridge")
            # An address in the links' network, too, tells other testbeds that it is taken.
            _ip("address", "add", f"{network[1]}/{_PREFIX_LENGTH}", "dev", self._bridge(kind))
            _ip("link", "set", self._bridge(kind), "up")
        for site in range(self.sites):
            namespace = self.namespace(site)
            _ip("netns", "add", namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
            for kind, inner, address in (
                ("C", "clients", self.client_host(site)),
                ("L", "links", self.link_host(site)),
            ):
                outer = f"{self._interfaces}{kind}{base36(site)}"
                _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", namespace)
                _ip("link", "set", outer, "master", self._bridge(kind), "up")
                _ip("-n", namespace, "address", "add", f"{address}/{_PREFIX_LENGTH}", "dev", inner)
                _ip("-n", namespace, "link", "set", inner, "up")

    def impair(self, delay_ms: float, loss: float) -> None:
        """Delay, one way, and a share of packets lost, between each two sites.

        Raises:
            NetworkError: the kernel has no netem.
        """
        wanted = ["delay", f"{delay_ms}ms"] if delay_ms else []
        wanted += ["loss", f"{loss * 100}%"] if loss else []
        for site in range(self.sites):
            _run(
                *self.enter_command(site), "tc", "qdisc", "add", "dev", "links", "root",
                "netem", "limit", str(_QUEUE), *wanted,
            )  # fmt: skip

    def namespace(self, site: int) -> str:
        return f"{self.name}-{site}"

    def client_host(self, site: int) -> str:
        """Address of a site in the clients' network."""
        return str(self.clients[site + 2])

    def link_host(self, site: int) -> str:
        """Address of a site in the network between the sites."""
        return str(self.links[site + 2])

    def enter_command(self, site: int) -> tuple[str, ...]:
        """Words before a command line that run it in the namespace of a site, as the same process."""
        return ("ip", "netns", "exec", self.namespace(site))

    def _bridge(self, kind: str) -> str:
        return f"{self._interfaces}{kind}"


def _free_networks() -> tuple[ipaddress.IPv4Network, ipaddress.IPv4Network]:
    """Two networks in which this machine has no address yet."""
    listed = json.loads(_ip("-json", "-4", "address", "show"))
    taken = [ipaddress.ip_address(row["local"]) for entry in listed for row in entry.get("addr_info", [])]
    free = [
        network
        for network in BENCHMARK_NETWORKS.subnets(new_prefix=_PREFIX_LENGTH)
        if not any(address in network for address in taken)
    ]
    if len(free) < 2:
        raise NetworkError(f"no free network in {BENCHMARK_NETWORKS}")
    # By chance: another testbed that starts at this moment looks at the same list.
    first, other = random.SystemRandom().sample(free, 2)
    assert isinstance(first, ipaddress.IPv4Network)
    assert isinstance(other, ipaddress.IPv4Network)
    return first, other


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*words: str) -> str:
    if shutil.which(words[0]) is None:
        raise NetworkError(f"{words[0]} is not installed: apt-get install iproute2")
    # Within a namespace, too, it is the program itself that refused.
    shown = words[4:] if words[:3] == ("ip", "netns", "exec") else words
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    if done.returncode != 0:
        raise NetworkError(f"{' '.join(shown)}: {done.stderr.strip() or f'status {done.returncode}'}")
    return done.stdout
