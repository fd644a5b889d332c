"""A virtual network of nodes that all run one algorithm."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ildm.api import Algorithm, Filter, NodeStatus, OverlayAlgorithm, PluginConfig
from ildm.config import PluginChoice
from ildm.core.plugin.checking import check_plugin
from ildm.core.plugin.loading import checked_options
from ildm.testing.keeping import Disk
from ildm.testing.kernel import Kernel
from ildm.testing.looking import LookingNode
from ildm.testing.network import LinkModel, Network
from ildm.testing.node import SimNode
from ildm.testing.plugins import FilterSpec, looks
from ildm.testing.values import Delivery, SimulationError

LOGS = 10_000
"""Log lines that are kept."""
DRAIN = 5.0
"""Virtual seconds a stopping node has to take its leave (``limits.drain_timeout`` of the live node)."""


class PluginWorld:
    """Nodes by id, their links and what befalls them.

    An exception of a plugin ends the run: :class:`SimulationError` names the node and the time.

    Args:
        algorithm: the plugin's class, as the live node would load it.
        options: of the plugin, checked by its ``Config`` when a node starts; :meth:`add` may give a node
            others.
        seed: two worlds of one seed that are treated alike behave alike.
        model: of the links between any two nodes.
        filters: of every node, each with its options. What they count is in the node's counters as
            ``CLASS.NAME``.
        spool: nodes have one, so :meth:`NodeApi.keep` keeps through their incarnations, and so is known what
            was injected; both grow without bounds.

    Attributes:
        logs: what plugins logged: time, node id, event, fields; the newest ``LOGS``.
        disk: what nodes with a spool have on it.
        saved: by node id: what its plugin keeps in :attr:`NodeApi.state`, through all incarnations of the
            node.
        on_delivery: takes each delivery instead of the lists of the nodes.
    """

    def __init__(
        self,
        algorithm: type[Algorithm],
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        model: LinkModel | None = None,
        filters: Iterable[tuple[type[Filter], Mapping[str, Any] | None]] = (),
        spool: bool = False,
    ) -> None:
        check_plugin(algorithm.__name__, algorithm, Algorithm)
        self.algorithm = algorithm
        self.options = {} if options is None else dict(options)
        self._configs: dict[str, PluginConfig] = {}
        self._incarnations: Counter[str] = Counter()
        """Of ids whose nodes have started again: how many incarnations came before."""
        self.filters = [FilterSpec.of(plugin, chosen) for plugin, chosen in filters]
        self.session_ids = itertools.count(1)
        self._looks = bool(self.filters) or looks(algorithm)
        self.seed = seed
        self.kernel = Kernel(seed)
        self.network = Network(
            self.kernel, LinkModel() if model is None else model, issubclass(algorithm, OverlayAlgorithm)
        )
        self.logs: deque[tuple[float, str, str, Mapping[str, object]]] = deque(maxlen=LOGS)
        self.saved: dict[str, dict[str, bytes]] = {}
        self.disk = Disk() if spool else None
        self.on_delivery: Callable[[SimNode, Delivery], None] | None = None
        self._neighbors: dict[str, set[str]] = {}

    # nodes ------------------------------------------------------------------------------------

    @property
    def nodes(self) -> dict[str, SimNode]:
        """Every node that ever was, by id; of several incarnations of one id the last."""
        return self.network.nodes

    def alive(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.alive]

    def __getitem__(self, node_id: str) -> SimNode:
        try:
            return self.nodes[node_id]
        except KeyError:
            raise SimulationError(f"there is no node {node_id!r}") from None

    def add(
        self,
        node_id: str,
        introducer: str | None = None,
        options: Mapping[str, Any] | None = None,
        keep: bool = False,
    ) -> SimNode:
        """Start a node; again, if one of this id has died.

        Args:
            introducer: a node it is told to link with, as by its configuration.
            options: of the plugin on this node, beside those of the world or instead of them; None: none,
                or those it had in its last incarnation.
            keep: what its last incarnation has left is there: the local broker with the sessions of its
                clients, and the retained messages the node remembers.
        """
        old = self.nodes.get(node_id)
        if old is not None:
            if old.alive:
                raise SimulationError(f"node {node_id!r} is there already")
            for link in list(old.by_id.values()):  # whoever still holds a link learns now that it is void
                self.network.lose(link)
            self._incarnations[node_id] += 1
        if options is not None or node_id not in self._configs:
            self._configs[node_id] = self.configure(options)
        with self.guarded():
            node = self.nodes[node_id] = self.make_node(node_id)
            if keep and old is not None:
                node.inherit(old)
            node.start()
        if old is not None:
            node.configured.update(old.configured)
            self.network.redial(node)
            for other in self.nodes.values():
                if node_id in other.configured and other.alive:
                    self.network.redial(other)
        if introducer is not None:
            self.link(node_id, introducer)
        return node

    def configure(self, options: Mapping[str, Any] | None = None) -> PluginConfig:
        """The checked options of a node that is given these beside those of the world.

        Raises:
            PluginError: some are wrong; all of those are named, as by the live node.
        """
        choice = PluginChoice(name=self.algorithm.__name__, options={**self.options, **(options or {})})
        return checked_options(choice, self.algorithm, "algorithm")

    def make_node(self, node_id: str) -> SimNode:
        """The node that :meth:`add` starts; for those who want another class of it, or another broker."""
        config = self._configs[node_id]
        if self._looks:
            return LookingNode(self, node_id, self.algorithm, config, self.filters)
        return SimNode(self, node_id, self.algorithm, config)

    def seed_of(self, node_id: str) -> str:
        """Of the chances of a node: others in each of its incarnations, as with real nodes."""
        number = self._incarnations.get(node_id)
        return f"{self.seed}/{node_id}/{number}" if number else f"{self.seed}/{node_id}"

    def link(self, a: str, b: str) -> None:
        """Tell node ``a`` to link with ``b``; it does so at once, and again after an outage.

        Raises:
            SimulationError: the algorithm needs a tree, and the link would close a cycle (the live
                node would keep it blocked).
        """
        here, far = self[a], self[b]
        if here is far:
            raise SimulationError(f"node {a!r} cannot be its own neighbour")
        if not self.network.any_topology and self._joined(a, b):
            raise SimulationError(f"a link between {a!r} and {b!r} would close a cycle")
        here.configured[b] = None
        self._neighbors.setdefault(a, set()).add(b)
        self._neighbors.setdefault(b, set()).add(a)
        known = here.by_id.get(b)
        with self.guarded():
            here.change_begins("add", far.peer)
            if known is None:
                here.connect(far.peer)
            elif not known.introducer:
                known.introducer = True
                if known.up:
                    here.link_up(known)

    def _joined(self, a: str, b: str) -> bool:
        """Whether configured links lead from one node to the other."""
        known = self._neighbors.get(a, set()), self._neighbors.get(b, set())
        # from the end that has fewer: mostly a new node, which has none
        start, goal = (a, b) if len(known[0]) <= len(known[1]) else (b, a)
        seen = {start}
        waiting = [start]
        while waiting:
            new = self._neighbors.get(waiting.pop(), set()) - seen
            if goal in new:
                return True
            seen |= new
            waiting.extend(new)
        return False

    def unlink(self, a: str, b: str) -> None:
        """Both nodes forget the other as a neighbour; the link is closed."""
        here, far = self[a], self[b]
        told = [
            (node, other)
            for node, other in ((here, far), (far, here))
            if node.configured.pop(other.node_id, self) is None and node.alive
        ]
        self._neighbors.get(a, set()).discard(b)
        self._neighbors.get(b, set()).discard(a)
        link = here.by_id.get(b)
        with self.guarded():
            for node, other in told:
                node.change_begins("remove", other.peer)
            if link is not None:
                self.network.lose(link, None)
        for node, _ in told:
            node.life.done("remove")
            node.life.done("add")

    # ends -------------------------------------------------------------------------------------

    def kill(self, node_id: str, silent: bool = False) -> None:
        """End a node without a word.

        Args:
            silent: as by a power cut; otherwise as by a crash of the process, after which the system
                resets the links and refuses new ones.
        """
        self.network.kill(self._living(node_id), silent)

    def stop(self, node_id: str) -> None:
        """Let a node stop in an orderly way: its plugin is told, and has ``DRAIN`` seconds."""
        node = self._living(node_id)
        with self.guarded():
            node.tell("on_ildm_stop")
        self.kernel.post(DRAIN, self._stopped, node)

    def _stopped(self, node: SimNode) -> None:
        if node.alive:
            node.die(silent=False)
            for link in list(node.by_id.values()):
                self.network.lose(link)

    def _living(self, node_id: str) -> SimNode:
        node = self[node_id]
        if node.status is NodeStatus.STOPPED:
            raise SimulationError(f"node {node_id!r} is dead already")
        return node

    def partition(self, *groups: Iterable[str]) -> None:
        """Cut the network into these groups of node ids; all unnamed nodes together make one more."""
        self.network.part([set(group) for group in groups])

    def cut(self, a: str, b: str) -> None:
        """Nothing passes between two nodes any more, though all others reach both."""
        self.network.cut(a, b)

    def heal(self) -> None:
        """Undo every partition and cut."""
        self.network.heal()

    # time -------------------------------------------------------------------------------------

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Name node and time in what a plugin raises."""
        try:
            yield
        except SimulationError:
            raise
        except Exception as error:
            owner = getattr(self.kernel.current, "__self__", None)
            where = f" in {owner!r}" if isinstance(owner, SimNode) else ""
            raise SimulationError(f"at {self.kernel.now:.6f} s{where}: {error!r}") from error

    def run(self, seconds: float | None = None, max_events: int | None = None) -> None:
        """Let virtual time pass; without an argument, until nothing is left to happen.

        Raises:
            SimulationError: a plugin has raised an exception.
        """
        until = None if seconds is None else self.kernel.now + seconds
        with self.guarded():
            self.kernel.run(until, max_events)

    def settle(
        self, condition: Callable[[], bool] | None = None, limit: float = 600.0, step: float = 1.0
    ) -> float:
        """Run until a condition holds, or without one until nothing is left to happen.

        Args:
            condition: asked every ``step`` virtual seconds.
            limit: virtual seconds it may take.

        Returns:
            Virtual seconds it took.

        Raises:
            SimulationError: it did not happen within ``limit``, or a plugin has failed.
        """
        begin = self.kernel.now
        if condition is None:
            with self.guarded():
                if self.kernel.drain(begin + limit):
                    return self.kernel.now - begin
        else:
            while not condition():
                if self.kernel.now >= begin + limit:
                    break
                self.run(step)
            else:
                return self.kernel.now - begin
        what = "not at rest" if condition is None else "the condition does not hold"
        raise SimulationError(f"{what} after {limit} virtual seconds")

    # figures ----------------------------------------------------------------------------------

    def counters(self) -> Counter[str]:
        """What the plugins of all living nodes counted, together."""
        total: Counter[str] = Counter()
        for node in self.alive():
            total.update(node.counters)
        return total

    def deliveries(self) -> list[tuple[str, Delivery]]:
        """Node id and delivery of everything local clients got, in order of time."""
        return sorted(((n.node_id, d) for n in self.nodes.values() for d in n.deliveries), key=_when)


def _when(item: tuple[str, Delivery]) -> float:
    return item[1].time
