"""A testbed: brokers and what joins them as processes of this machine, each site a small server of its own.

Where the machine does not allow a quota, a namespace or a delay, the testbed runs without and says so in
``notes``. Nothing of it outlives this process, however that ends (see `ildm.testing.live.reaper`).
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from ildm.config import parse_config
from ildm.core.plugin.loading import load_plugins
from ildm.testing.live.brokers import Mosquitto, broker_class, new_broker
from ildm.testing.live.node import NodeProcess, write_private
from ildm.testing.live.ports import LOOPBACK
from ildm.testing.live.process import Placement, ProcessError, reaper
from ildm.testing.live.reaper import MARK, clear_up
from ildm_bench.measure.manifest import Process
from ildm_bench.testbed.bridging import bridge_lines, wait_crossing
from ildm_bench.testbed.cgroups import Cgroups, enter_command, find_cgroups
from ildm_bench.testbed.delay_proxy import DelayProxy
from ildm_bench.testbed.distance import Distances
from ildm_bench.testbed.front import HaproxyProcess
from ildm_bench.testbed.joining import Kind, algorithm_of, found_together
from ildm_bench.testbed.leftovers import give_up_name, new_name, remove_leftovers
from ildm_bench.testbed.network import Network, NetworkError
from ildm_bench.testbed.server import MonitoredProcess, Server, check_running, parts, start_all, wait
from ildm_bench.testbed.spec import SpecError, TestbedSpec

_LINK_TIMEOUT = 60.0
_STOP_GRACE = 5.0


class Testbed:
    """Up within a ``with`` block: all brokers answer, all nodes are ready, all links are joined.

    Raises:
        SpecError, ConfigError, PluginError: at construction.
        ProcessError: at entry: something did not come up; all is down again.
    """

    __test__: ClassVar[bool] = False  # the name alone would make it a test class

    def __init__(self, spec: TestbedSpec, directory: Path | None = None) -> None:
        """Configurations, data and logs go below ``directory``, which is made and stays.

        Without one they go into a temporary directory, which does not.
        """
        self.spec = spec
        self._kept = None if directory is None else directory.absolute()
        self.servers: list[Server] = []
        self.notes: list[str] = []
        self.name = ""
        self.distance: DelayProxy | None = None
        """What keeps the sites apart, where they are."""
        self._distances = spec.distances
        self._kind = Kind.of(spec.algorithm_name)
        self._cgroups: Cgroups | None = None
        self._network: Network | None = None
        self._runtime: Path | None = None
        self._registered: dict[str, list[str]] = {}
        self._check()

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    @property
    def processes(self) -> list[MonitoredProcess]:
        """Those that run, with their roles."""
        found = []
        for server in self.servers:
            for part, child in parts(server):
                if child.process is None:
                    continue
                role = "broker" if part == "broker" else "node" if child is server.node else "proxy"
                label = self.spec.algorithm_name or "" if role == "node" else child.name
                name = f"{child.name if role == 'proxy' else role}-{server.index}"
                record = Process.model_validate(
                    {
                        "name": name,
                        "role": role,
                        "site": server.index,
                        "label": label,
                        "quota": self.spec.quota.of(part) if self.spec.quota and self._cgroups else None,
                    }
                )
                found.append(MonitoredProcess(record, child.process.pid))
        if self.distance is not None and self.distance.process is not None:
            record = Process(name=self.distance.name, role="proxy", label="distance")
            found.append(MonitoredProcess(record, self.distance.process.pid))
        return found

    @property
    def is_overlay(self) -> bool:
        """Whether the nodes make their links themselves."""
        return self._kind.overlay

    @property
    def directory(self) -> Path:
        """Where configurations, data and logs are while the testbed is up."""
        directory = self._kept or self._runtime
        if directory is None:
            raise ProcessError("the testbed is not up")
        return directory

    def quota_text(self) -> str:
        """The quota that is in force, for people."""
        quota = self.spec.quota
        if quota is None or self._cgroups is None:
            return "none"
        if quota.model == "shared":
            return f"{quota.cores:g} shared"
        return f"{quota.cores:g}" if quota.node_cores is None else f"{quota.cores:g} + {quota.node_cores:g}"

    def check(self) -> None:
        """
        Raises:
            ProcessError: a process has ended.
        """
        for server in self.servers:
            for _, child in parts(server):
                check_running(server.name, child)
        if self.distance is not None:
            check_running("between the sites", self.distance)

    def throttling(self) -> dict[str, dict[str, int]]:
        """nr_periods and nr_throttled of each bounded cgroup: ``site-0``, or ``site-0/broker``."""
        if self._cgroups is None or self.spec.quota is None:
            return {}
        cgroups = self._cgroups
        return {
            str(path.relative_to(cgroups.directory)): cgroups.throttling(path)
            for path, _ in self._bounded(cgroups)
        }

    def up(self) -> None:
        """Start all of it. Where that fails, or is interrupted, all is taken down again."""
        if self.name:
            raise ProcessError("the testbed is up already")
        if self._kept is not None:
            self._kept.mkdir(parents=True, exist_ok=True)
        self.servers, self.notes, self._distances = [], [], self.spec.distances
        try:
            for name, failures in remove_leftovers().items():
                self.notes.append(f"removed what was left of {name}{', except ' if failures else ''}")
                self.notes[-1] += "; ".join(failures)
            self._open()
            self._make_servers()
            self._start()
            if self._cgroups is not None:
                for path, cores in self._bounded(self._cgroups):
                    self._cgroups.limit(path, cores)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """End and remove all of it. Nothing happens when it is down.

        Raises:
            ProcessError: something would not go.
        """
        if not self.name:
            return
        try:
            self._stop()
        finally:
            failures = clear_up(self._registered)
        if failures:
            raise ProcessError(f"the testbed is not gone: {'; '.join(failures)}")
        for kind, things in self._registered.items():
            for thing in things:
                reaper().discard(kind, thing)
        give_up_name(self.name)
        self.name, self._registered = "", {}
        self._cgroups = self._network = self._runtime = self.distance = None

    def _stop(self) -> None:
        """Nodes first, which say good-bye to their brokers."""
        if self._cgroups is not None and self.servers:
            for path, _ in self._bounded(self._cgroups):
                self._cgroups.limit(path, None)  # so that all can end quickly
        fronts = [server.front for server in self.servers if server.front is not None]
        for front in fronts:
            front.ask_to_end()
        for front in fronts:
            try:
                front.stop(_STOP_GRACE)
            except ProcessError as error:  # it had to be killed
                self.notes.append(str(error).splitlines()[0])
        if self.distance is not None:
            self.distance.kill()
        for server in self.servers:
            server.broker.kill()  # nobody needs what it would still write

    def _check(self) -> None:
        for make in sorted(set(self.spec.brokers)):
            if reason := broker_class(make).available():
                raise SpecError(reason)
        if self.spec.stands_before == "haproxy" and (reason := HaproxyProcess.available()):
            raise SpecError(reason)
        if self.spec.stands_before == "node":
            with tempfile.TemporaryDirectory() as name:
                node = self._node(Path(name), (LOOPBACK, 1), 0, Path(name) / "secret", [])
            load_plugins(parse_config(node.document, "node", Path.cwd()))

    def _open(self) -> None:
        """Get what the system gives: a directory for sockets, cgroups, namespaces."""
        self.name = new_name()
        self._register("testbed", self.name)
        self._runtime = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self._register("directory", str(self._runtime))
        spec = self.spec
        if spec.quota is not None:
            self._cgroups, why = find_cgroups(self.name)
            if self._cgroups is None:
                self.notes.append(f"no CPU quotas: {why}")
            else:
                self._register("cgroup", str(self._cgroups.directory))
                self._register("supervisor", str(self._cgroups.above))
        if not (spec.isolate or spec.delay_ms or spec.loss):
            return
        self._register("network", self.name)
        try:
            network = Network(self.name, len(spec.brokers))
            network.open()
        except NetworkError as error:
            self.notes.append(f"no network namespaces, and so neither delay nor loss: {error}")
            if failures := clear_up({"network": [self.name]}):
                raise ProcessError("; ".join(failures)) from error
            return
        self._network = network
        if spec.delay_ms or spec.loss:
            try:
                network.impair(spec.delay_ms, spec.loss)
            except NetworkError as error:
                self._without_netem(error)

    def _without_netem(self, error: NetworkError) -> None:
        """A proxy can delay what nodes tell each other, but it does not reach into namespaces."""
        spec = self.spec
        if spec.loss or spec.isolate or spec.algorithm is None:
            self.notes.append(f"no delay and loss between sites: {error}")
            return
        self.notes.append(f"a proxy delays between sites, as the kernel does not: {error}")
        if failures := clear_up({"network": [self.name]}):
            raise ProcessError("; ".join(failures)) from error
        self._network = None
        self._distances = Distances.uniform(len(spec.brokers), spec.delay_ms)

    def _register(self, kind: str, thing: str) -> None:
        self._registered.setdefault(kind, []).append(thing)
        reaper().add(kind, thing)

    def _make_servers(self) -> None:
        spec = self.spec
        secret = self.directory / "secret"
        write_private(secret, secrets.token_hex(32) + "\n")
        if self._distances is not None:
            place = Placement(environment={MARK: self.name})
            self.distance = DelayProxy(
                self.directory / "distance", self._distances, shaped=spec.shaped, place=place
            )
        for index, make in enumerate(spec.brokers):
            directory = self.directory / f"site-{index}"
            shutil.rmtree(directory, ignore_errors=True)  # what an earlier one has stored is not for this one
            broker = new_broker(
                make, directory / "broker", place=self._place(index, "broker"), tuned=spec.tuned
            )
            if isinstance(broker, Mosquitto) and not spec.nodelay:
                broker.extra = ("set_tcp_nodelay false",)
            server = Server(f"site-{index}", index, broker)
            if self._network is not None:
                server.namespace = self._network.namespace(index)
            self.servers.append(server)
            if spec.stands_before == "haproxy":
                place = self._place(index, "front")
                server.proxy = HaproxyProcess(directory / "haproxy", broker.address, place=place)
            elif spec.stands_before == "node":
                dialed = [self._link_address(first) for first, second in spec.edges if second == index]
                dialed = dialed if spec.algorithm is not None else []
                server.node = self._node(directory / "node", broker.address, index, secret, dialed)
        if self.distance is not None:
            self.distance.targets = [self._node_address(server) for server in self.servers]
        if spec.bridge:
            self._bridge()

    def _link_address(self, index: int) -> str:
        """Where the others reach the node of a site."""
        if self.distance is not None:
            return self.distance.address_of(index)
        return self._node_address(self.servers[index])

    def _node_address(self, server: Server) -> str:
        assert server.node is not None
        assert server.node.link_address is not None
        return server.node.link_address

    def _node(
        self, directory: Path, broker: tuple[str, int], index: int, secret: Path, dialed: Sequence[str]
    ) -> NodeProcess:
        link: dict[str, Any] = {
            "neighbors": list(dialed),
            "secret_file": str(secret),
            "sessions": self.spec.sessions,
            "qos": self.spec.link_qos,
        }
        if self.distance is not None:
            link["advertise"] = self.distance.address_of(index)
        extra = self.spec.node_extra
        return NodeProcess(
            directory,
            broker,
            algorithm_of(self.spec, index, self._kind),
            node_id=f"site-{index}",
            link_host=self._network.link_host(index) if self._network else None,
            link=link,
            admin_socket=self._runtime / f"node-{index}" if self._runtime else None,
            # generators make all their connections from one address
            extra={**extra, "limits": {"exempt": ["0.0.0.0/0", "::/0"], **extra.get("limits", {})}},
            place=self._place(index, "front") if self.name else Placement(),
        )

    def _place(self, index: int, part: str) -> Placement:
        prefix: tuple[str, ...] = ()
        if self._cgroups is not None:  # first, as a command in a namespace sees no cgroups
            prefix += enter_command(self._cgroups.make(f"site-{index}", part))
        if self._network is not None:
            prefix += self._network.enter_command(index)
        host = self._network.client_host(index) if self._network else LOOPBACK
        return Placement(host, prefix, {MARK: self.name})

    def _bridge(self) -> None:
        for server in self.servers:
            assert isinstance(server.broker, Mosquitto)
            hosts = [self._link_host(server)] if self._network is not None else []
            server.broker.extra += tuple(f"listener {server.broker.port} {host}" for host in hosts)
        for first, second in self.spec.edges:
            far, near = self.servers[first], self.servers[second]
            assert isinstance(near.broker, Mosquitto)
            address = f"{self._link_host(far)}:{far.broker.port}"
            near.broker.extra += bridge_lines(near.name, far.name, address, self.spec.link_qos)

    def _link_host(self, server: Server) -> str:
        return self._network.link_host(server.index) if self._network else server.broker.host

    def _start(self) -> None:
        start_all([server.broker for server in self.servers])
        if self.distance is not None:
            self.distance.start()
        start_all([server.front for server in self.servers if server.front is not None])
        if self.spec.bridge:
            for first, second in self.spec.edges:
                near, far = self.servers[second], self.servers[first]
                wait_crossing(near.broker.address, far.broker.address, _LINK_TIMEOUT)
            if self.spec.edges:
                ends = self.servers[0].broker.address, self.servers[-1].broker.address
                wait_crossing(*ends, _LINK_TIMEOUT)
        elif self.spec.algorithm is not None:
            mesh = self.spec.topology == "mesh" and not self._kind.overlay
            for server in self.servers:
                degree = sum(server.index in edge for edge in self.spec.edges)
                node = server.node
                assert node is not None
                joined = partial(node.links_up, 1 if mesh else degree)
                wait(node, joined, "links are not joined", _LINK_TIMEOUT)
            if self._kind.overlay:
                nodes = [server.node for server in self.servers if server.node is not None]
                together = partial(found_together, nodes, self._kind)
                wait(nodes[0], together, "not in one overlay", _LINK_TIMEOUT + len(nodes))

    def _bounded(self, cgroups: Cgroups) -> list[tuple[Path, float]]:
        """The cgroups that have a quota."""
        quota = self.spec.quota
        assert quota is not None
        found = []
        for server in self.servers:
            if quota.model == "shared":
                found.append((cgroups.directory / server.name, quota.cores))
            else:
                found += [
                    (cgroups.directory / server.name / part, quota.of(part)) for part, _ in parts(server)
                ]
        return found
