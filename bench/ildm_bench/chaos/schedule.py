"""A schedule: who is there, what clients do and what befalls them; data, made beforehand.

As nothing in it depends on what happens, parts can be left out and the rest stays what it was. One file of
JSON holds one schedule. Times are seconds from when all sites have found together, sites are ``a`` to ``e``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from ildm.mqtt import IldmError

Kind = Literal[
    "kill",
    "power",
    "pause",
    "tear",
    "flip",
    "lose-state",
    "arrive",
    "deposed",
    "both",
    "disk-full",
    "io-error",
    "clock",
    "descriptors",
    "cut",
    "hold",
    "hold-one-way",
    "hold-session",
    "slow",
    "drift",
    "flap",
    "upgrade",
    "downgrade",
    "dns",
    "handover",
]
"""What befalls whom; ``value`` of the :class:`Fault` in brackets.

On processes, ``node/SITE`` and ``broker/SITE``:

kill: kill -9; started again after ``lasts``, several in the order of ``targets`` [seconds between two].
pause: SIGSTOP, and SIGCONT after ``lasts``.

On nodes alone:

power: as kill, but the machine goes: nobody hears of it, and what was not synced is lost.
tear: as kill, and of what was written last [bytes] are missing.
flip: as kill, and one bit of the spool is another [where, as a share of its bytes].
lose-state: as kill, and its state directory is empty when it comes back.
arrive: from 0 on the site has a broker alone, which its clients speak with. After ``lasts`` a node takes the
broker's place: the clients' connections end, and they come back to the node.
deposed: where sites are pairs, the member that owns the site stands still for ``lasts``; another one ends it
and follows. It is back after ``lasts`` [1: its machine is away for ``lasts``, and nobody hears of that].
both: all members of a pair end; they are back after ``lasts``, a before b [1: b before a].
disk-full, io-error: nothing more can be written for ``lasts`` [disk-full: bytes that still can].
clock: wall time jumps [seconds]; it stays so.
descriptors: for ``lasts`` no connection can be made or accepted.
handover: ``ildm upgrade``, live: a new process takes the node over, with its clients.
upgrade, downgrade: as kill, and what comes back has the ``variant`` of the :class:`Fault` [seconds in which
the node may drain before it is killed; 0: it is killed at once].
dns: for ``lasts`` name servers say to it [0: that there is no such name; 1: nothing; 2: other addresses;
3: each second another of these, or what is right]. It matters if the setting has ``discover``.

On links, ``link/SITE/SITE``, where the first is named by the second, or dials it, or neither:

cut: connections break, and new ones get no answer.
hold: nothing arrives; it does when that is over, as TCP sends it again.
hold-one-way: the same for what the first sends to the second.
hold-session: as hold, but one of the connections that there are alone [which, from 0 in the order they were
made]; new ones work.
slow: everything takes [seconds] longer.
drift: everything takes longer and longer, up to [seconds], and then less and less so.
flap: everything takes [seconds] longer, and does not, in turn.
"""
CHANGES = frozenset({"upgrade", "downgrade"})
PAIRED = frozenset({"deposed", "both"})
"""Those of pairs alone, to whose nodes only these happen, and kill."""
NODE_FAULTS = (
    CHANGES
    | PAIRED
    | {
        "power",
        "tear",
        "flip",
        "lose-state",
        "arrive",
        "disk-full",
        "io-error",
        "clock",
        "descriptors",
        "dns",
        "handover",
    }
)
LINK_FAULTS = frozenset({"cut", "hold", "hold-one-way", "hold-session", "slow", "drift", "flap"})
DEADLY = CHANGES | PAIRED | {"kill", "power", "tear", "flip", "lose-state", "arrive"}
"""Those that end a process."""
LONGER = 60
"""Bytes by which one message on several topics is longer than the one before it, four times in five."""


class ScheduleError(IldmError):
    """A file is no schedule."""


@dataclass(frozen=True, slots=True)
class Variant:
    """What a site's node has of links: as one of another release, or with other settings, in virtual time."""

    protocol: int = 0
    """The highest of the link protocol; 0: that of this code."""
    disabled: tuple[str, ...] = ()
    """Features that it does without; those that this code does not know count for nothing."""
    compression: str = ""
    """``link.compression``; empty: that of the setting."""
    without: tuple[str, ...] = ()
    """Keys of the setting's ``link`` that its configuration leaves out, such as ``classes``."""
    by_age: bool = False
    """It has ``link.tree: age``, and says nothing of delays."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is there before anything happens; many schedules share one.

    ``links``: who dials whom. ``brokers``: the make of each site's, a name in :mod:`ildm_bench.chaos.makes`.
    ``options``: the rest of the nodes' configuration, the same for all but for what the engine sets.
    ``latency``: seconds from one site to another, in virtual time.
    """

    algorithm: str
    sites: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    brokers: tuple[str, ...]
    mode: str = "process"
    options: dict[str, Any] = field(default_factory=dict)
    latency: float = 0.001
    seed: int = 0
    """Of what happens while the sites find together."""
    variants: dict[str, Variant] = field(default_factory=dict)
    """By site; a site that is not there has all that this code has."""
    secret: str = ""
    """The link secret of all nodes, in virtual time; empty: they have none."""
    line: int = 0
    """Bytes a second that go from one site to another on each connection, in virtual time; 0: any number."""
    discover: bool = False
    """Nodes are not told whom to dial, but find them by DNS, in virtual time."""
    pairs: bool = False
    """Each site has a pair of nodes with one state directory, in virtual time; ``node/SITE`` is its owner."""
    guests: bool = False
    """The members of these pairs all serve clients, who come back at another one each time."""

    @property
    def slowest(self) -> float:
        """Bytes a second that go from one site to another at least; 0: any number."""
        rate = self.options.get("link", {}).get("rate", {})
        return min((each for each in (self.line, rate.get("out"), rate.get("in")) if each), default=0)


@dataclass(frozen=True, slots=True)
class Client:
    """It connects at its first ``connect`` and comes back by itself when its connection breaks.

    All its messages of QoS 1 or 2 have one QoS, as nobody promises an order between two. It never has two
    filters that overlap (brokers may then send one message twice).
    """

    name: str
    site: str
    version: Literal[4, 5] = 4
    clean: bool = True
    inflight: int = 20
    """Messages of QoS 1 and 2 under way at most."""
    will: str = ""
    """Topic of its will; empty: none."""
    will_qos: Literal[0, 1, 2] = 1
    will_retain: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """What one client does.

    ``publish``: ``count`` messages of ``size`` bytes at least, in one chunk; ``delete``: one of no bytes.
    ``others``: they are on these topics and ``topic`` in turn, and differ in length.
    ``subscribe``, ``unsubscribe``: ``topic`` is a filter. ``drop``: its connection breaks without DISCONNECT;
    after it as after ``disconnect`` it stays away until the next ``connect``.
    """

    at: float
    client: str
    do: Literal["connect", "disconnect", "drop", "subscribe", "unsubscribe", "publish", "delete"]
    topic: str = ""
    qos: Literal[0, 1, 2] = 0
    retain: bool = False
    count: int = 1
    size: int = 0
    others: tuple[str, ...] = ()

    def messages(self) -> Iterator[tuple[str, int]]:
        """Topic and size of each."""
        topics = self.topic, *self.others
        for number in range(self.count):
            yield topics[number % len(topics)], self.size + (number % 5 * LONGER if self.others else 0)


@dataclass(frozen=True, slots=True)
class Fault:
    """See :data:`Kind`."""

    at: float
    kind: Kind
    targets: tuple[str, ...]
    lasts: float = 0.0
    value: float = 0.0
    variant: Variant = Variant()
    """What a node is after an ``upgrade`` or a ``downgrade``."""

    @property
    def over(self) -> float:
        """When all of it is healed."""
        last = self.value * (len(self.targets) - 1) if self.kind == "kill" else 0.0
        return self.at + self.lasts + last


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run, to be repeated at will."""

    setting: Setting
    clients: tuple[Client, ...]
    operations: tuple[Operation, ...]
    faults: tuple[Fault, ...]
    seed: int = 0
    """Of chance in the nodes, such as pauses between attempts to connect."""
    note: str = ""
    """What it has shown, for people."""
    chance: int = 0
    """Of chance in the clients, in virtual time."""
    pause: float = 0.0
    """Seconds between the two parts in which brokers deal with a chunk, in virtual time; 0: at once."""

    @property
    def size(self) -> int:
        """Of how many parts it is."""
        return len(self.clients) + len(self.operations) + len(self.faults)

    @property
    def seconds(self) -> float:
        """Until nothing more is done and all is healed."""
        done = [operation.at for operation in self.operations]
        return max([0.0, *done, *(fault.over for fault in self.faults)])

    def save(self, path: Path) -> None:
        """Write it as JSON.

        Raises:
            OSError: it cannot be written.
        """
        document = _ADAPTER.dump_python(self, mode="json", exclude_defaults=True)
        path.write_text(_lines(document), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Schedule:
        """Read what :meth:`save` has written.

        Raises:
            ScheduleError: it cannot be read, or makes no sense.
        """
        try:
            schedule = _ADAPTER.validate_json(path.read_bytes())
        except OSError as error:
            raise ScheduleError(f"{path}: {error.strerror}") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ScheduleError(f"{path}: {where}: {first['msg']}") from error
        problem = schedule.problem()
        if problem is not None:
            raise ScheduleError(f"{path}: {problem}")
        return schedule

    def problem(self) -> str | None:
        """What of it makes no sense, if anything."""
        sites = self.setting.sites
        if len(self.setting.brokers) != len(sites):
            return "setting.brokers: one for each site is needed"
        links = {site for link in self.setting.links for site in link}
        for unknown in sorted(links - set(sites)):
            return f"setting.links: there is no site {unknown!r}"
        names = {client.name for client in self.clients}
        for client in self.clients:
            if client.site not in sites:
                return f"client {client.name}: there is no site {client.site!r}"
        for operation in self.operations:
            if operation.client not in names:
                return f"operation at {operation.at}: there is no client {operation.client!r}"
        for fault in self.faults:
            if fault.kind == "arrive" and fault.at:
                return f"fault at {fault.at}: a node that arrives is away from 0 on"
            if fault.kind in CHANGES and fault.value > fault.lasts:
                return f"fault at {fault.at}: the node drains for longer than it is away"
            for target in fault.targets:
                what, *ends = target.split("/")
                alone = fault.kind in NODE_FAULTS - PAIRED or fault.kind == "pause"
                if fault.kind in PAIRED and not self.setting.pairs:
                    return f"fault at {fault.at}: {fault.kind} needs setting.pairs"
                if what == "node" and self.setting.pairs and alone:
                    return f"fault at {fault.at}: {fault.kind} does not happen to a pair"
                if not set(ends) <= set(sites) or len(ends) != (2 if what == "link" else 1):
                    return f"fault at {fault.at}: there is no {target!r}"
                wanted = (
                    {"link"}
                    if fault.kind in LINK_FAULTS
                    else {"node"}
                    if fault.kind in NODE_FAULTS
                    else {"node", "broker"}
                )
                if what not in wanted:
                    return f"fault at {fault.at}: {fault.kind} does not happen to {target!r}"
        for unknown in sorted(self.setting.variants.keys() - set(sites)):
            return f"setting.variants: there is no site {unknown!r}"
        return None


_ADAPTER = TypeAdapter(Schedule)


def _lines(document: dict[str, Any]) -> str:
    """JSON with one client, operation or fault a line."""
    parts = []
    for key, value in document.items():
        text = json.dumps(value)
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        parts.append(f' "{key}": {text}')
    return "{\n" + ",\n".join(parts) + "\n}\n"
