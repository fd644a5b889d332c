"""What a testbed is to be: checked before anything starts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from ildm.mqtt import IldmError
from ildm.testing.live.brokers import KINDS
from ildm_bench.testbed.cgroups import MIN_CORES
from ildm_bench.testbed.network import MAX_SITES

if TYPE_CHECKING:
    from ildm_bench.testbed.distance import Distances

MAX_DELAY_MS = 60_000.0
QuotaModel = Literal["per-process", "shared"]
Front = Literal["node", "haproxy", "none"]
Topology = Literal["row", "star", "tree", "mesh"]


class SpecError(IldmError, ValueError):
    """A testbed that cannot be: names the field, what was found and what is allowed."""


@dataclass(frozen=True)
class Quota:
    """CPU time of each site, in cores: 0.15 is 15 % of one.

    ``per-process``: broker and front have one each, the front ``node_cores`` if given. ``shared``: the two
    share one.
    """

    cores: float
    model: QuotaModel = "per-process"
    node_cores: float | None = None

    def __post_init__(self) -> None:
        _one_of("quota model", self.model, get_args(QuotaModel))
        for name, cores in (("quota", self.cores), ("quota of the node", self.node_cores)):
            if cores is not None and not MIN_CORES <= cores < float("inf"):
                raise SpecError(f"{name}: {cores:g} cores (at least {MIN_CORES:g} are needed)")
        if self.model == "shared" and self.node_cores is not None:
            raise SpecError("quota of the node: there is none where broker and node share one")

    def of(self, part: str) -> float:
        """Cores that a process of a site may use; ``part`` is broker or front."""
        return self.node_cores if part == "front" and self.node_cores is not None else self.cores


@dataclass(frozen=True)
class TestbedSpec:
    """One site for each name in ``brokers``, joined by nodes with an algorithm or by Mosquitto's bridges."""

    __test__: ClassVar[bool] = False  # the name alone would make it a test class

    brokers: Sequence[str]
    """Makes, such as mosquitto; site 0 has the first."""
    algorithm: str | Mapping[str, Any] | None = None
    """Name of a plugin, or a mapping with its name and options, as in a node's file; None: only relay."""
    front: Front = "node"
    topology: Topology = "row"
    """Row: each site with the next one. Star: site 0 with all others. Tree: binary, site 0 is the root. Mesh:
    each site with each other; the nodes choose a tree of these links, and bridges cannot. In an overlay:
    whom a site joins by; the links are made by the overlay."""
    sessions: int = 1
    link_qos: int = 0
    quota: Quota | None = None
    delay_ms: float = 0.0
    """One way, between any two sites; not towards clients."""
    loss: float = 0.0
    """Share of the packets that are lost on their way between two sites."""
    distances: Distances | None = None
    """How far each site is from each other, by a proxy between the nodes. They are in the same order as the
    brokers; a plugin that asks for its ``locality`` is told the region, one that asks for the whole grid
    is told each region as a cluster."""
    shaped: bool = False
    """The proxy between the nodes has small buffers, so that a link may be made slow while it is used."""
    isolate: bool = False
    """A network namespace for each site also without delay and loss."""
    bridge: bool = False
    """Mosquitto's bridges instead of nodes."""
    node_extra: Mapping[str, Any] = field(default_factory=dict)
    """Merged into the configuration of each node, section by section."""
    nodelay: bool = True
    """``set_tcp_nodelay`` of Mosquitto; False as it comes: small messages may wait (Nagle's algorithm)."""
    tuned: bool = True
    """Brokers as fast as they can be; False for a quicker start of those in Java."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.brokers) <= MAX_SITES:
            raise SpecError(f"brokers: {len(self.brokers)} sites (1 to {MAX_SITES} are possible)")
        for make in self.brokers:
            _one_of("brokers", make, KINDS)
        _one_of("front", self.front, get_args(Front))
        _one_of("topology", self.topology, get_args(Topology))
        if not 0 <= self.delay_ms <= MAX_DELAY_MS:
            raise SpecError(f"delay: {self.delay_ms:g} ms (0 to {MAX_DELAY_MS:g} are possible)")
        if not 0 <= self.loss < 1:
            raise SpecError(f"loss: {self.loss:g} (a share of the packets, from 0 to less than 1)")
        if self.bridge and set(self.brokers) != {"mosquitto"}:
            raise SpecError("bridge: Mosquitto's bridges need Mosquitto at all sites")
        if self.bridge and self.topology == "mesh" and len(self.brokers) > 2:
            raise SpecError("topology: bridges send messages round a mesh without end")
        if self.algorithm is not None and (self.bridge or self.front != "node"):
            instead = "bridges" if self.bridge else self.front
            raise SpecError(f"algorithm: {self.algorithm_name} needs front node, not {instead}")
        self._check_distances()

    def _check_distances(self) -> None:
        if self.distances is None:
            if self.shaped:
                raise SpecError("shaped: it is the proxy of a delay matrix that is")
            return
        if (found := len(self.distances.names)) != len(self.brokers):
            raise SpecError(f"delay matrix: it has {found} sites, not {len(self.brokers)}")
        if self.algorithm is None:
            raise SpecError("delay matrix: it is for what nodes with an algorithm tell each other")
        if self.delay_ms or self.loss or self.isolate:
            raise SpecError("delay matrix: not together with delay, loss and network namespaces")

    @property
    def algorithm_name(self) -> str | None:
        if isinstance(self.algorithm, Mapping):
            return str(self.algorithm.get("name"))
        return self.algorithm

    @property
    def stands_before(self) -> Front:
        """What clients connect to: bridges are instead of nodes."""
        return "none" if self.bridge and self.front == "node" else self.front

    @property
    def edges(self) -> list[tuple[int, int]]:
        """The links; the second site connects to the first."""
        return edges_of(self.topology, len(self.brokers))


def edges_of(topology: Topology, count: int) -> list[tuple[int, int]]:
    """What joins that many, the smaller number first in each pair."""
    others = range(1, count)
    match topology:
        case "row":
            return [(other - 1, other) for other in others]
        case "star":
            return [(0, other) for other in others]
        case "tree":
            return [((other - 1) // 2, other) for other in others]
        case "mesh":
            return list(itertools.combinations(range(count), 2))


def _one_of(name: str, found: str, allowed: Sequence[str]) -> None:
    if found not in allowed:
        raise SpecError(f"{name}: {found!r} is none of {', '.join(allowed)}")
