"""A site in virtual time: a node and a broker, each through all its lives, and what outlives them."""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial
from random import Random
from typing import Any, NamedTuple

from ildm.api import SessionStatus
from ildm.config import Address, Config, LookupConfig
from ildm.core.counters import Counters
from ildm.core.link.features import FEATURES
from ildm.core.link.session import LinkSession
from ildm.core.link.tree import TreeMembership
from ildm.core.link.versions import PROTOCOLS
from ildm.core.local.client_session import ClientSession
from ildm.core.node import Node
from ildm.core.plugin.loading import PluginSpecs, load_plugins
from ildm.state.spool import FileSpool
from ildm.state.spool.records import HEADERS, Kind, decode_free, decode_header, decode_record, salt_of
from ildm.state.spool.segments import MARK, number_of
from ildm.state.spool.walk import walk
from ildm.testing.virtual.broker_process import BrokerProcess
from ildm.testing.virtual.disk import SimDisk
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.makes import MAKES
from ildm.testing.virtual.store import StateFile, VirtualStore
from ildm.testing.virtual.world import World
from ildm_algorithms.exchange.log import Log
from ildm_bench.chaos.drawing import SECRET, TREE
from ildm_bench.chaos.recording import TREE_CHANGES
from ildm_bench.chaos.schedule import Setting, Variant
from ildm_bench.chaos.virtual.names import INTERVAL, LINKS, LOOKUPS

CLIENTS, BROKER = 1, 3
"""Further ports of a site."""
REGION = "r"
WRITING = ("create", "write", "truncate", "sync", "rename")
"""Operations of a disk that fail when nothing can be written."""


class Mixed(NamedTuple):
    """Mixed batches in a spool, by LSN: messages of several topics in one record.

    ``parts``: of these a consumer has freed some messages alone.
    """

    written: set[int]
    parts: set[int]


class NodeDriver(WorldDriver):
    """The driver of one life of a node; what it logs is counted."""

    def __init__(self, world: World, name: str, tree_changed: Callable[[], None]) -> None:
        super().__init__(world, name)
        self.events: Counter[str] = Counter()
        self._tree_changed = tree_changed
        self.linked: Callable[[], set[str]] = set
        """Neighbours whose links are up."""

    def log(self, level: str, event: str, **fields: object) -> None:
        self.events[event] += 1
        if event in TREE_CHANGES:
            self._tree_changed()

    def resolve(self, question: LookupConfig, done: Callable[[list[Address] | BaseException], None]) -> None:
        """Whatever the answer is, no link that is up ends because of it."""

        def answered(answer: list[Address] | BaseException) -> None:
            before = self.linked()
            done(answer)
            ended = before - self.linked()
            assert not ended, f"{self.name} has ended links because of DNS: {sorted(ended)}"

        super().resolve(question, answered)


class Site:
    """``tree_changed``: told when the node uses other links for messages."""

    paired = False
    """Whether several members may be its node."""

    def __init__(self, world: World, name: str, setting: Setting, tree_changed: Callable[[], None]) -> None:
        self.world = world
        self.name = name
        self.setting = setting
        self.tree_changed = tree_changed
        make = MAKES[setting.brokers[setting.sites.index(name)]]
        self.broker = BrokerProcess(world, Address(name, BROKER), make)
        self.file = StateFile()
        self.disk = SimDisk(
            Random(f"disk {name} {setting.seed}"),
            (lambda delay, work: world.call_at(world.time + delay, work))
            if setting.mode == "power"
            else None,
        )
        self.spool: FileSpool | None
        self.clock = 0.0
        """Seconds the machine's wall clock is ahead."""
        self.variant = setting.variants.get(name, Variant())
        self.lives = 0
        self.new_state = False
        """Nothing is left of what former lives of the node have saved."""
        self.counters: Counter[str] = Counter()
        """Of the node's former lives."""
        self.mixed = Mixed(set(), set())
        """Of all its lives."""
        self.node: Node
        self.driver: NodeDriver
        self.store: VirtualStore
        self.start()

    def start(self) -> None:
        """Begin a life of the node."""
        self.lives += 1
        world, name = self.world, self.name
        if self.lives > 1:
            self.back()
            self.counters["mixed_cut"] += len(self._before - mixed_in(self.disk).written)
        self.driver = driver = NodeDriver(world, name, self.tree_changed)
        driver.clock = self.clock
        config, specs = configured(
            self.setting.algorithm, self.setting.mode, _key(self.setting, self.variant), name
        )
        self.spool = None
        counters = Counters()
        if config.spool.mode != "off":
            self.spool = FileSpool(
                self.disk,
                config.spool,
                wall=driver.wall,
                call_later=driver.call_later,
                log=driver.log,
                expiry=config.link.expiry,
                counters=counters,  # the node heeds what its spool has found damaged
            )
        self.store = store = VirtualStore(self.file, driver.call_later, self.spool)
        self.node = node = Node(
            config,
            specs,
            driver,
            store,
            node_id=name,
            link_secret=self.setting.secret or None,
            counters=counters,
            spool=self.spool,
            protocols=PROTOCOLS._replace(high=self.variant.protocol or PROTOCOLS.high),
            epoch=self.spool.epoch if self.paired and self.spool is not None else 0,
        )
        driver.linked = partial(linked, node)
        world.listen(Address(name, CLIENTS), lambda: ClientSession(node.local), driver)
        world.listen(Address(name, LINKS), lambda: LinkSession(node.links, None, 0), driver)
        dialed = [far for near, far in self.setting.links if near == name and not self.setting.discover]
        node.start(
            {Address(far, LINKS): False for far in dialed}, new_state=self.new_state, resume=self.resume(node)
        )
        self.new_state = False

    def resume(self, node: Node) -> Callable[[], None] | None:
        """What brings clients that others serve, before links tell what they want."""
        return None

    @property
    def clients_at(self) -> list[Address]:
        """Where clients connect, one after the other."""
        return [Address(self.name, CLIENTS)]

    def back(self) -> None:
        """The machine of its former life is there again."""
        self.world.notice(self.driver)

    def drain(self, seconds: float, drained: Callable[[], None]) -> None:
        """The node stops in order, within so many seconds; ``drained`` is told before its process ends."""
        self.counters["change_drained"] += 1
        driver, store, spool = self.driver, self.store, self.spool
        clients = Address(self.name, CLIENTS)
        del self.world.listeners[clients], self.world.owners[clients]

        def ended() -> None:
            if driver.dead:
                return
            store.end()
            if spool is not None:
                spool.close()
            drained()

        self.node.drain(ended)
        self.node.drain_deadline = driver.now() + seconds

    def kill(self, *, power: bool = False, silent: bool = False) -> None:
        """kill -9; ``silent``: the machine goes with it, ``power``: and what its disk has not synced."""
        self._look()
        self.counters = self.totals()
        if power:
            self.disk.cut_power()
        else:
            self.disk.kill()
        self.world.kill(self.driver, silent=power or silent)

    # what befalls the disk; the node is down where bytes are damaged -----------------------------

    def fill_disk(self, left: int) -> None:
        """So many bytes more find room."""
        self.disk.capacity += left - self.disk.free

    def break_disk(self) -> None:
        """Nothing can be written."""
        self.disk.fails |= dict.fromkeys(WRITING, errno.EIO)

    def mend_disk(self) -> None:
        """There is room, and all that was written since works."""
        self.disk.fails.clear()
        self.disk.capacity = 1 << 40

    def tear(self, size: int) -> None:
        """Of what was written to the spool last, bytes are missing."""
        written = self._written()
        if written:
            name, end = written[-1]
            self.disk.cut(name, max(0, end - size))

    def flip(self, where: float) -> None:
        """One bit of the spool is another, at a share of its bytes."""
        written = self._written()
        place = int(where * sum(end for _, end in written))
        for name, end in written:
            if place < end:
                self.disk.flip(name, place)
                return
            place -= end

    def lose_state(self) -> list[bytes]:
        """Its state directory is empty. Returns what it was still to give somebody, as frames or what an
        algorithm has made of them."""
        left = self._left()
        self.file = StateFile()
        for name in self.disk.names():
            self.disk.remove(name)
        self.new_state = True
        return left

    def under_way(self) -> list[bytes]:
        """Messages of its clients that the nodes of an overlay have not all acknowledged, as it logs them."""
        log = getattr(self.node.dispatch.algorithm, "log", None)
        return [entry.payload for entry in log.under_way()] if isinstance(log, Log) else []

    def _left(self) -> list[bytes]:
        """What the next life would take up from the spool."""
        node = self.node
        if self.spool is None:
            return []
        spool = FileSpool(
            self.disk,
            node.config.spool,
            wall=self.driver.wall,
            call_later=lambda *_: None,
            log=lambda *_, **__: None,
            expiry=node.config.link.expiry,
            counters=Counters(),
        )
        left: list[bytes] = []
        for name in spool.consumers():
            consumer = spool.consumer(name)
            while stored := consumer.read(1 << 20):
                left += [one.record.frames for one in stored]
        return left

    def _written(self) -> list[tuple[str, int]]:
        """Files of the spool and where what was written to each ends, in their order."""
        files = sorted(self.disk.files.items())
        ends = ((name, len(file.content.rstrip(b"\0"))) for name, file in files if name != MARK)
        return [(name, end) for name, end in ends if end]

    def jump(self, seconds: float) -> None:
        """The wall clock does."""
        self.clock += seconds
        self.driver.clock = self.clock

    def undisturbed(self) -> object:
        """Which lives of node and broker go on here; never equal to another answer while one stands still, or
        the node reads nothing more of clients, having no room."""
        processes = self.driver, self.broker.process
        still = any(process.paused or process.dead for process in processes)
        custody = self.node.custody
        return object() if still or (custody is not None and custody.full) else processes

    def drains(self) -> bool:
        """The node stops in order."""
        return not self.node.accepting

    def forest(self) -> list[tuple[str, str, bool]]:
        """All links as the node sees them, and whether each is in the tree."""
        membership = self.node.links.membership
        assert isinstance(membership, TreeMembership)
        return membership.topology.graph()

    def _look(self) -> None:
        """See which mixed batches are in the spool now."""
        found = mixed_in(self.disk)
        self._before = found.written
        self.mixed.written.update(found.written)
        self.mixed.parts.update(found.parts)

    def reached(self) -> Counter[str]:
        """:meth:`totals`, and what has become of mixed batches."""
        self._look()
        mixed = {"mixed": len(self.mixed.written), "mixed_parts": len(self.mixed.parts)}
        return self.totals() + Counter(mixed)

    def totals(self) -> Counter[str]:
        """Counters of all lives of the node, and links at the end of each that are of unequal ends."""
        totals = Counter(self.counters)
        if not self.driver.dead:
            for link in self.node.links.links.values():
                if link.connected and link.hello is not None:
                    totals["links_older"] += link.protocol < PROTOCOLS.high
                    totals["links_fewer"] += link.features != link.hello.features
            totals.update(self.node.counters)
            totals.update({f"log: {event}": count for event, count in self.driver.events.items()})
        return totals


def linked(node: Node) -> set[str]:
    """Neighbours with a link that is up, and is not being closed."""
    closing = SessionStatus.TERMINATING
    ends = {name: link.control for name, link in node.links.links.items()}
    return {name for name, end in ends.items() if isinstance(end, LinkSession) and end.status is not closing}


def mixed_in(disk: SimDisk) -> Mixed:
    """The mixed batches in a spool."""
    written: dict[int, int] = {}
    freed: list[tuple[int, int]] = []
    for name, file in disk.files.items():
        content = bytes(file.content)
        header = decode_header(content[:HEADERS])
        if name == MARK or header is None:
            continue

        def read(offset: int, size: int, content: bytes = content) -> bytes:
            return content[offset : offset + size]

        salt = salt_of(header.key, header.number or number_of(name) or 0)
        for _, _, kind, entry in walk(read, HEADERS, len(content), salt):
            if kind == Kind.RECORD:
                head = decode_record(entry)[0]
                if head.mixed:
                    written[head.lsn] = head.messages
            elif kind == Kind.FREE:
                freed += [(lsn, count) for lsn, _, count in decode_free(entry).ranges]
    parts = {lsn for lsn, count in freed if count < written.get(lsn, 0)}
    return Mixed(set(written), parts)


def _key(setting: Setting, variant: Variant) -> str:
    options = setting.options
    link = {key: value for key, value in options.get("link", {}).items() if key not in variant.without}
    more: dict[str, Any] = {"compression": variant.compression} if variant.compression else {}
    if variant.by_age:
        more["tree"] = "age"
    known = [each.name for each in FEATURES]
    if setting.discover:
        more |= {"discover": LOOKUPS, "discover_interval": INTERVAL, "secret": SECRET}
    if link.get("wait_at_start"):
        more["wait_for"] = setting.links
    if disabled := [name for name in variant.disabled if name in known]:
        more["features"] = {"disabled": disabled}
    if more or "link" in options:
        options = {**options, "link": {**link, **more}}
    return json.dumps([options, setting.sites], sort_keys=True)


@lru_cache(maxsize=256)
def configured(algorithm: str, mode: str, key: str, name: str) -> tuple[Config, PluginSpecs]:
    """Configuration and plugins of a node; ``key``: the rest of the configuration, and the sites, as JSON.

    Pauses between attempts are short, so that little time has to pass until all is well again.
    """
    options, sites = json.loads(key)
    document: dict[str, Any] = {
        "listen": f"{name}:{CLIENTS}",
        "algorithm": {"name": algorithm, **_plugin_options(algorithm, sites, name)},
        "broker": {
            "address": f"{name}:{BROKER}",
            "connect_timeout": 1.0,
            "reconnect_min": 0.1,
            "reconnect_max": 0.5,
        },
        "link": {
            "listen": None,
            "allow_without_secret": True,
            "connect_timeout": 1.0,
            "reconnect_min": 0.1,
            "reconnect_max": 1.0,
            "keep_alive": 3,
            "sync_interval": 5.0,
        },
        "limits": {"will_grace": 1.0},
        "spool": {"mode": mode, "segment_bytes": 1 << 16, "bytes": 1 << 20},
    }
    if algorithm not in TREE:
        document["link"]["advertise"] = f"{name}:{LINKS}"
    for section, values in options.items():
        document[section] = {**document.get(section, {}), **values}
    if "wait_for" in document["link"]:
        links = document["link"]["wait_for"]
        document["link"]["wait_for"] = [near for near, far in links if far == name]
    config = Config.model_validate(document)
    return config, load_plugins(config)


def _plugin_options(algorithm: str, sites: list[str], name: str) -> dict[str, Any]:
    """What an algorithm has to be told of where sites are: each is a place of its own."""
    if algorithm == "stla":
        return {"locality": [name]}
    if algorithm == "octopia":
        return {
            "regions": [REGION],
            "clusters": sites,
            "members": {site: f"{REGION}/{site}" for site in sites},
        }
    return {}
