"""Schedules drawn from seeds.

Seeds that differ by little share a setting (:data:`SHARED`), so that the configuration of its nodes is read
once for all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

from ildm.core.link.discovery import LEAVE_AFTER
from ildm.core.link.features import FEATURES
from ildm.core.link.versions import PROTOCOLS
from ildm_bench.chaos import classed
from ildm_bench.chaos.schedule import PAIRED, Client, Fault, Kind, Operation, Schedule, Setting, Variant

SHARED = 16
"""Seeds with one setting."""
SITES = "abcde"
TREE = frozenset({"pf", "sf"})
"""Algorithms whose links are those of the configuration, and carry all."""
FIRST, OVERLAY_FIRST = 4.0, 7.0
"""Seconds after which all first subscriptions are known everywhere; publications and faults begin then."""
TOPICS = ("t/0", "t/1", "t/2", "u/0")
FILTERS: tuple[tuple[str, ...], ...] = (
    ("t/#",),
    ("t/+", "u/0"),
    ("t/0", "t/1"),
    ("#",),
    ("t/1", "r/#"),
    ("+/0",),
)
"""What one client subscribes to; those of one do not overlap."""

MIXED: dict[Kind, int] = {
    "kill": 10,
    "pause": 3,
    "cut": 4,
    "hold": 2,
    "hold-one-way": 2,
    "slow": 1,
    "clock": 1,
    "descriptors": 1,
    "disk-full": 1,
    "io-error": 1,
    "tear": 1,
}
"""How often each is drawn where any may be; ``hold-session`` where links have several. Those that lose what
nothing can keep have to be asked for: ``power`` but for the mode of that name, ``flip``, ``lose-state``,
``arrive``."""
HANDED_OVER: dict[Kind, int] = {"handover": 4, "kill": 2, "cut": 2, "hold": 1, "pause": 1}
"""The same beside a ``handover``, where that is asked for."""
PAIR: dict[Kind, int] = {"deposed": 5, "kill": 4, "both": 3, "cut": 2, "hold": 1}
"""The same for ``pair``, where each site has a pair of nodes."""
APART = 0.25
"""How often not one link is cut or held but all those of a site, or all there are."""
HOARDS = 1 / 12
"""How often nodes have to keep little among much that is done with, where interest tells the two apart."""
COMPRESSED = 0.2
"""How often links are compressed."""
UNEQUAL = 0.4
"""How often sites have different releases or settings of links."""
FORMER = 0.3
"""How often one of these has the former protocol, which has no features."""
CHANGED = 0.4
"""How often a node among them is upgraded or downgraded, beside all else."""
SPARED = 0.3
"""How often one of these leaves out a key of :data:`UNLIKE` that the setting has."""
UNLIKE = ("classes", "rate", "sessions", "inflight", "weight_hold")
"""Keys of ``link`` that sites need not have alike."""
AGED = 0.2
"""How often one of these chooses the tree by age alone."""
SECRET = "a secret of all the sites"
CLASSED = 0.25
"""How often links of a tree have classes."""
RATED = 0.2
"""How often links have a rate; half as often the lines below them have one."""
RATES = (8_000, 16_000, 64_000)
OVERLAY_RATES = (64_000, 128_000)
"""Bytes a second, of links and of lines. What an overlay repeats until it is answered needs more."""
LINES = (16_000, 64_000, 128_000)
"""Bytes a second of each connection. Links over these need not have a rate."""
DISCOVERED = 0.2
"""How often nodes find each other by DNS."""
FORGOTTEN = 0.1
"""How often DNS is wrong for so long that what it does not name is not dialed any more."""
MOVED = 0.5
"""How often the delay of a link of a ring changes, beside all else."""
DELAYS = frozenset({"drift", "flap"})
"""Faults that do so."""
STREAM = 2.5
"""Seconds in which a client of each site publishes at QoS 0 meanwhile, from a second on after it begins:"""
STREAMED = 0.04
"""Seconds from one message of these to the next. What crosses two ways comes twice, without an identity."""
STREAMS = ("t/0", "t/1")
"""Their topics, which most filters match."""
RINGED = 5
"""Sites where such a fault is asked for."""
SPREAD = 0.6
"""How often several messages of one chunk are on several topics."""
FLOODS = 1 / 16
"""How often a client publishes up to so many messages in a chunk:"""
FLOOD = 400
PAUSES = (0.0, 0.0, 0.01, 0.2)
"""Seconds between the parts in which brokers deal with a chunk: so they acknowledge some of a batch first."""
MACHINES = 0.5
"""How often a kill ends node and broker of a site at once, if brokers do so."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much happens in a schedule."""

    seconds: float = 10.0
    """In which clients publish and faults begin."""
    publications: int = 10
    """Operations; each is of one or more messages, mostly few."""
    burst: int = 64
    """Messages of one, at most."""
    faults: int = 2
    """At most."""
    publishers: int = 3
    subscribers: int = 4
    pause: float = 6.0
    """Seconds a process is down, or a link cut, at most."""


SMALL = Scale()
TINY = Scale(seconds=3.0, publications=5, burst=8, publishers=2, subscribers=3, pause=3.0)


def usual(seed: int) -> Scale:
    """Of schedules in great number: most bugs need little to show, and some show only where much happens."""
    return TINY if seed % 4 else SMALL


def draw_setting(
    seed: int,
    algorithm: str,
    *,
    sites: int | None = None,
    brokers: Sequence[str] = (),
    mode: str = "process",
    rings: bool = True,
) -> Setting:
    """``brokers``: the makes to draw from; Mosquitto with persistence if there are none. ``rings``: links may
    close one, as nodes can do with."""
    random = Random(f"setting {algorithm} {seed}")
    count = sites or random.choice((2, 3, 3, 3, 4, 5))
    names = tuple(SITES[:count])
    makes = tuple(random.choice(list(brokers)) for _ in names) if brokers else ("mosquitto",) * count
    link: dict[str, Any] = {}
    if random.random() < 0.3:
        link["sessions"] = 2
    if random.random() < 0.2:
        link["inflight"] = random.choice((1, 5, 20))
    if random.random() < 0.1:
        link["overflow"] = "block"
    options: dict[str, Any] = {"link": link} if link else {}
    if random.random() < 0.3:
        options["spool"] = {"page_bytes": 4096}
    if Random(f"patience {algorithm} {seed}").random() < 0.2:  # faults of disks often last longer
        options["spool"] = {**options.get("spool", {}), "failure_wait": 0.5}
    if Random(f"compression {algorithm} {seed}").random() < COMPRESSED:
        options["link"] = {**options.get("link", {}), "compression": "deflate"}
    rated = Random(f"rate {algorithm} {seed}")
    rates = RATES if algorithm in TREE else OVERLAY_RATES
    if rated.random() < RATED:
        rate = {
            rated.choice(("out", "out", "in")): rated.choice(rates),
            "burst": rated.choice((0.05, 0.25, 1.0)),
        }
        options["link"] = {**options.get("link", {}), "rate": rate}
    waiting = Random(f"classes {algorithm} {seed}")
    if algorithm in TREE and waiting.random() < CLASSED:
        # so that messages wait, where nothing is cut either
        link = {"inflight": waiting.choice((1, 5, 1000))} | options.get("link", {})
        options["link"] = {**link, "classes": classed.drawn(waiting)}
    line = rated.choice(LINES if algorithm in TREE else OVERLAY_RATES) if rated.random() < RATED / 2 else 0
    latency = random.choice((0.001, 0.001, 0.02, 0.1))
    links = _links(random, names, algorithm, rings)
    if _ring(names, links) and Random(f"weights {algorithm} {seed}").random() < 0.6:
        # so that the tree follows delays while a schedule lasts
        options["link"] = {**options.get("link", {}), "weight_hold": 10}
    unequal = Random(f"variants {algorithm} {seed}")
    variants: dict[str, Variant] = {}
    secret = ""
    if unequal.random() < UNEQUAL:
        has = options.get("link", {})
        variants = {name: variant(unequal, [key for key in UNLIKE if key in has]) for name in names}
        secret = unequal.choice(("", SECRET))
    discover = Random(f"discover {algorithm} {seed}").random() < DISCOVERED
    return Setting(
        algorithm, names, links, makes, mode, options, latency, seed, variants, secret, line, discover
    )


def forgetful(setting: Setting) -> Setting:
    """The same, where any site may lose its state. Clients and messages wait for the interest of its
    neighbours. The site gets all topics for sessions whose clients are away."""
    options = dict(setting.options)
    options["broker"] = {**options.get("broker", {}), "adopt_sessions": 3600}
    if setting.algorithm in TREE:
        options["link"] = {**options.get("link", {}), "wait_at_start": 3600}
    return replace(setting, options=options)


def ringed(setting: Setting) -> Setting:
    """The same with links that close a ring, whose tree follows delays while a schedule lasts."""
    names = setting.sites
    if setting.algorithm not in TREE or len(names) < 3:
        return setting
    link = {**setting.options.get("link", {}), "weight_hold": 10}
    links = (*itertools.pairwise(names), (names[-1], names[0]))
    return replace(setting, links=links, options={**setting.options, "link": link})


def variant(random: Random, keys: Sequence[str] = ()) -> Variant:
    """Of a node that is not to have all; ``keys``: those of ``link`` that it may leave out."""
    protocol = PROTOCOLS.low if random.random() < FORMER else 0
    few = random.choice((0.0, 0.3, 1.0))
    disabled = tuple(each.name for each in FEATURES if random.random() < few)
    compression = random.choice(("", "off", "deflate", "auto"))
    without = tuple(key for key in keys if random.random() < SPARED)
    return Variant(protocol, disabled, compression, without, by_age=random.random() < AGED)


def _ring(names: Sequence[str], links: Sequence[tuple[str, str]]) -> bool:
    return len(links) >= len(names)


def _links(
    random: Random, names: tuple[str, ...], algorithm: str, rings: bool
) -> tuple[tuple[str, str], ...]:
    if algorithm not in TREE:  # a way in is all they need
        return tuple((name, names[0]) for name in names[1:])
    shape = random.choice(("row", "star", "tree", "ring", "ring"))
    if shape == "star":
        pairs = [(name, names[0]) for name in names[1:]]
    elif shape == "tree":
        pairs = [(name, random.choice(names[:place])) for place, name in enumerate(names) if place]
    else:
        pairs = list(itertools.pairwise(names))
        if shape == "ring" and rings and len(names) > 2:
            pairs.append((names[-1], names[0]))
    return tuple(pair if random.random() < 0.5 else (pair[1], pair[0]) for pair in pairs)


def draw(
    seed: int,
    algorithm: str,
    *,
    fault: str = "mixed",
    scale: Scale | None = None,
    sites: int | None = None,
    brokers: Sequence[str] = (),
    mode: str = "process",
    setting: Setting | None = None,
) -> Schedule:
    """The schedule of a seed; ``scale``: if it is not to be the :func:`usual` one.

    ``fault``: a :data:`Kind`, ``kill-all`` (every node at once), ``mixed``, ``pair``, ``guests`` or ``none``.
    ``setting``: as :func:`draw_setting` has made it, if it is at hand.
    """
    setting = setting or draw_setting(seed // SHARED, algorithm, sites=sites, brokers=brokers, mode=mode)
    if fault == "dns":
        setting = replace(setting, discover=True)
    if fault in {"lose-state", "arrive"}:
        setting = forgetful(setting)
    if fault in {"pair", "guests"} or fault in PAIRED:
        setting = replace(setting, pairs=True, guests=fault == "guests")
        fault = "pair" if fault == "guests" else fault
    random = Random(f"schedule {algorithm} {seed}")
    pause = Random(f"pause {algorithm} {seed}").choice(PAUSES)
    drawing = _Drawing(random, setting, scale or usual(seed), pause)
    drawing.subscribers()
    drawing.publishers()
    drawing.spread(Random(f"spread {algorithm} {seed}"))
    drawing.flood(Random(f"flood {algorithm} {seed}"))
    delays = Random(f"delays {algorithm} {seed}")
    if fault in DELAYS and _ring(setting.sites, setting.links):
        faults = drawing.moved((), delays, fault)
    else:
        faults = drawing.faults(fault)
    if fault == "mixed":
        if _ring(setting.sites, setting.links) and delays.random() < MOVED:
            faults = drawing.moved(faults, delays, delays.choice(("drift", "drift", "flap")))
        faults = drawing.changed(faults, Random(f"changes {algorithm} {seed}"))
    drawing.after(faults)
    if fault == "arrive":
        drawing.silent(faults)
    operations = sorted(drawing.operations, key=lambda operation: operation.at)
    return Schedule(
        setting, tuple(drawing.clients), tuple(operations), faults, seed, chance=seed, pause=pause
    )


class _Drawing:
    def __init__(self, random: Random, setting: Setting, scale: Scale, pause: float) -> None:
        self.random = random
        self.setting = setting
        self.scale = scale
        self.pause = pause
        self.sessions: int = setting.options.get("link", {}).get("sessions", 1)
        """Of each link."""
        self.clients: list[Client] = []
        self.operations: list[Operation] = []
        self.publishing: list[tuple[Client, Literal[1, 2], bool]] = []
        """Who publishes, at which QoS, and whether retained messages, too."""

    def client(self, prefix: str, **given: Any) -> Client:
        client = Client(
            f"{prefix}{len(self.clients)}",
            given.pop("site", None) or self.random.choice(self.setting.sites),
            self.random.choice((4, 5)),
            **given,
        )
        self.clients.append(client)
        return client

    def do(self, at: float, client: Client, what: Any, **more: Any) -> None:
        self.operations.append(Operation(round(at, 3), client.name, what, **more))

    def moment(self) -> float:
        first = FIRST if self.setting.algorithm in TREE else OVERLAY_FIRST
        return first + self.random.random() * self.scale.seconds

    def subscribers(self) -> None:
        random = self.random
        alike = random.choice((1, 2, 2)) if random.random() < 0.5 else None
        for number in range(self.scale.subscribers):
            site = self.setting.sites[number % len(self.setting.sites)]
            subscriber = self.client("s", site=site, clean=random.random() < 0.4)
            qos = alike or random.choice((1, 2, 2, 2, 0))
            self.do(random.random() * 0.3, subscriber, "connect")
            filters = random.choice(FILTERS)
            for topic in filters:
                self.do(0.3 + random.random() * 0.5, subscriber, "subscribe", topic=topic, qos=qos)
            if random.random() < 0.3:
                away = self.moment()
                self.do(away, subscriber, random.choice(("disconnect", "drop")))
                self.do(away + random.random() * 4, subscriber, "connect")
            if random.random() < 0.15:
                self.do(self.moment(), subscriber, "unsubscribe", topic=filters[-1])
        if random.random() < 0.3:
            late = self.client("s", clean=random.random() < 0.5)
            at = self.moment()
            self.do(at, late, "connect")
            self.do(at + 0.2, late, "subscribe", topic=random.choice(FILTERS)[0], qos=alike or 2)

    def publishers(self) -> None:
        random = self.random
        self.publishing = [self._publisher() for _ in range(self.scale.publishers)]
        for _ in range(self.scale.publications):
            publisher, qos, retains = random.choice(self.publishing)
            topic = random.choice(TOPICS)
            at = self.moment()
            if retains and random.random() < 0.5:
                own = f"r/{publisher.name}" if random.random() < 0.7 else "r/all"
                if random.random() < 0.2:
                    self.do(at, publisher, "delete", topic=own, qos=qos, retain=True)
                else:
                    self.do(at, publisher, "publish", topic=own, qos=qos, retain=True)
                continue
            count = random.choice((1, 1, 1, 2, 3, 5, 8, random.randint(1, self.scale.burst)))
            size = random.choice((0, 0, 100, 1000, random.randint(0, 8000)))
            level: Literal[0, 1, 2] = 0 if random.random() < 0.1 else qos
            self.do(at, publisher, "publish", topic=topic, qos=level, count=count, size=size)

    def spread(self, random: Random) -> None:
        """Some of what is published in one chunk is on several topics."""
        for place, operation in enumerate(self.operations):
            if operation.do == "publish" and operation.count > 1 and random.random() < SPREAD:
                others = random.sample(TOPICS, random.randint(1, len(TOPICS)))
                self.operations[place] = replace(operation, others=tuple(others))

    def flood(self, random: Random) -> None:
        """Now and then one client publishes more in a chunk than a node deals with in one loop iteration."""
        if random.random() >= FLOODS or self.setting.options.get("link", {}).get("inflight") == 1:
            return
        client = Client(
            f"f{len(self.clients)}",
            random.choice(self.setting.sites),
            random.choice((4, 5)),
            clean=random.random() < 0.5,
            inflight=FLOOD,
        )
        self.clients.append(client)
        self.do(1.0 + random.random(), client, "connect")
        first = FIRST if self.setting.algorithm in TREE else OVERLAY_FIRST
        qos: Literal[1, 2] = random.choice((1, 2))
        for _ in range(random.randint(1, 2)):
            at = first + random.random() * self.scale.seconds
            topic, *others = random.sample(TOPICS, random.randint(2, len(TOPICS)))
            count = random.randint(FLOOD // 4, FLOOD)
            self.do(at, client, "publish", topic=topic, qos=qos, count=count, others=tuple(others))

    def _publisher(self) -> tuple[Client, Literal[1, 2], bool]:
        random = self.random
        will = {"will": "t/w", "will_qos": random.choice((1, 2))} if random.random() < 0.3 else {}
        publisher = self.client(
            "p", clean=random.random() < 0.3, inflight=random.choice((1, 5, 20, 20, 64)), **will
        )
        self.do(1.0 + random.random(), publisher, "connect")
        if random.random() < 0.4:
            away = self.moment()
            self.do(away, publisher, random.choice(("disconnect", "drop", "drop")))
            if not will or random.random() < 0.5:
                self.do(away + random.random() * 3, publisher, "connect")
        qos: Literal[1, 2] = random.choice((1, 2))
        return publisher, qos, random.random() < 0.4

    def after(self, faults: tuple[Fault, ...]) -> None:
        """Some publish when faults are just over and links find together again."""
        random = self.random
        for fault in faults:
            if random.random() < 0.5:
                publisher, qos, _ = random.choice(self.publishing)
                for _ in range(random.randint(1, 4)):
                    at = fault.over + random.random() * 1.5
                    self.do(at, publisher, "publish", topic=random.choice(TOPICS), qos=qos)

    # what befalls them ------------------------------------------------------------------------

    def faults(self, kind: str) -> tuple[Fault, ...]:
        random = self.random
        if kind == "none":
            return ()
        if kind == "kill-all":
            order = list(self.setting.sites)
            random.shuffle(order)
            targets = tuple(f"node/{site}" for site in order)
            between = random.choice((0.0, 0.0, random.random()))
            return (self.fault("kill", targets, value=round(between, 3)),)
        if kind == "arrive":
            return (self.arrival(),)
        if kind == "mixed" and self.hoards and random.random() < HOARDS:
            return self.hoard()
        drawn: list[Fault] = []
        for _ in range(random.randint(1, self.scale.faults)):
            one: Any = kind
            if kind == "mixed":
                weights = MIXED | ({"power": 10} if self.setting.mode == "power" else {})
                weights |= {"hold-session": 5} if self.sessions > 1 else {}
                weights |= {"dns": 10} if self.setting.discover else {}
                one = random.choices(list(weights), list(weights.values()))[0]
            elif kind == "handover" and drawn:
                one = random.choices(list(HANDED_OVER), list(HANDED_OVER.values()))[0]
            elif kind == "pair":
                one = random.choices(list(PAIR), list(PAIR.values()))[0]
            fault = self.one_fault(one)
            if drawn and random.random() < 0.4:  # while the one before lasts, or just after it
                before = drawn[-1]
                fault = replace(fault, at=round(before.at + random.random() * (before.lasts + 0.1), 4))
            drawn.append(fault)
        return tuple(sorted(drawn, key=lambda fault: fault.at))

    def arrival(self) -> Fault:
        """A node comes beside its broker, perhaps while others publish."""
        first = FIRST if self.setting.algorithm in TREE else OVERLAY_FIRST
        lasts = first - 2 + self.random.random() * self.scale.seconds / 3
        return Fault(0.0, "arrive", (f"node/{self.random.choice(self.setting.sites)}",), round(lasts, 3))

    def silent(self, faults: tuple[Fault, ...]) -> None:
        """At a site without a node nobody publishes: it would cross to nobody."""
        sites = {client.name: f"node/{client.site}" for client in self.clients}
        self.operations = [
            operation
            for operation in self.operations
            if operation.do not in {"publish", "delete"}
            or all(sites[operation.client] not in each.targets or operation.at > each.over for each in faults)
        ]

    def moved(self, faults: tuple[Fault, ...], random: Random, kind: Any) -> tuple[Fault, ...]:
        """With them a link of a ring whose delay changes, while messages of QoS 0 cross."""
        one, other = random.choice(self.setting.links)
        at = FIRST - 2 + random.random() * self.scale.seconds
        for site in self.setting.sites:
            client = Client(f"m{len(self.clients)}", site, random.choice((4, 5)))
            self.clients.append(client)
            self.do(1.0 + random.random() / 2, client, "connect")
            topic = random.choice(STREAMS)
            for number in range(round(STREAM / STREAMED)):
                self.do(at + 1 + number * STREAMED, client, "publish", topic=topic)
        lasts, value = 6 + random.random() * self.scale.pause, random.random() * 0.4
        fault = Fault(round(at, 4), kind, (f"link/{one}/{other}",), round(lasts, 3), round(value, 3))
        return tuple(sorted((*faults, fault), key=lambda each: each.at))

    def changed(self, faults: tuple[Fault, ...], random: Random) -> tuple[Fault, ...]:
        """Where sites are unequal, sometimes one is upgraded, perhaps to go back, or the other way round."""
        if not self.setting.variants or random.random() >= CHANGED:
            return faults
        target = (f"node/{random.choice(self.setting.sites)}",)
        begin = FIRST if self.setting.algorithm in TREE else OVERLAY_FIRST
        at, made = begin + random.random() * self.scale.seconds, list(faults)
        kinds: list[Kind] = ["upgrade", "downgrade"]
        random.shuffle(kinds)
        for kind in kinds[: random.choice((1, 1, 2))]:
            made.append(self.change(random, kind, target, at))
            at = made[-1].over + random.random() * 4
        return tuple(sorted(made, key=lambda each: each.at))

    def change(self, random: Random, kind: Kind, targets: tuple[str, ...], at: float) -> Fault:
        """What comes back of a downgraded node is not all that there is."""
        lasts = round(random.choice((0.05, 0.5, random.random() * self.scale.pause)), 3)
        drains = random.choice((0.0, round(lasts * random.random(), 3)))
        has = self.setting.options.get("link", {})
        # a rate stays, as its bound is one for the whole run
        keys = [key for key in UNLIKE if key in has and key != "rate"]
        becomes = Variant() if kind == "upgrade" else variant(random, keys)
        return Fault(round(at, 4), kind, targets, lasts, drains, becomes)

    @property
    def hoards(self) -> bool:
        """Whether a node may keep messages for one site and be done with others."""
        return self.setting.algorithm == "sf" and len(self.setting.sites) > 2

    def hoard(self) -> tuple[Fault, ...]:
        """A few messages wait for a site that is cut off, among many that do not: the segments of spools that
        hold them are written anew. Then nodes are killed that may have done so.
        """
        random = self.random
        ends = [site for pair in self.setting.links for site in pair]
        away = min(self.setting.sites, key=lambda site: (ends.count(site), random.random()))
        near, far = random.sample([site for site in self.setting.sites if site != away], 2)
        for site, topic in ((away, "h/few"), (far, "h/many")):
            subscriber = self.client("h", site=site, clean=False)
            self.do(random.random() * 0.3, subscriber, "connect")
            self.do(0.5, subscriber, "subscribe", topic=topic, qos=2)
        publisher = self.client("h", site=near, clean=False, inflight=64)
        self.do(1.0, publisher, "connect")
        begin = FIRST + random.random()
        for _ in range(random.randint(2, 5)):
            at = begin + 0.5 + random.random() * 2
            qos = random.choice((1, 2))
            self.do(at, publisher, "publish", topic="h/few", qos=qos, size=random.choice((0, 100, 2000)))
            size = random.randint(4000, 8000)
            self.do(at, publisher, "publish", topic="h/many", qos=qos, count=32, size=size)
        cut = tuple(f"link/{one}/{other}" for one, other in self.setting.links if away in (one, other))
        killed = random.sample([site for site in self.setting.sites if site != away], random.choice((1, 2)))
        lasts = 9 + random.random() * 4
        kill = Fault(
            round(begin + lasts * random.uniform(0.4, 1.0), 4),
            "kill",
            tuple(f"node/{site}" for site in killed),
            round(random.random() * 2, 3),
            0.0,
        )
        return Fault(round(begin, 4), "cut", cut, round(lasts, 3), 0.0), kill

    def fault(self, kind: Kind, targets: tuple[str, ...], value: float = 0.0) -> Fault:
        random = self.random
        lasts = random.choice((0.05, 0.5, random.random() * self.scale.pause))
        at = self.moment()
        published = [operation.at for operation in self.operations if operation.do == "publish"]
        if published and random.random() < 0.6:  # while something is under way
            at = random.choice(published) + random.choice((0.001, 0.003, 0.01)) * random.random() * 4
            at += random.random() * 4 * self.pause
        return Fault(round(at, 4), kind, targets, round(lasts, 3), value)

    def one_fault(self, kind: Kind) -> Fault:
        random = self.random
        site = random.choice(self.setting.sites)
        match kind:
            case "hold-session":
                return self.fault(
                    kind, (f"link/{'/'.join(self.link())}",), float(random.randrange(self.sessions))
                )
            case "cut" | "hold" | "hold-one-way" | "slow" | "drift" | "flap":
                ends = list(self.link())
                random.shuffle(ends)
                target = f"link/{ends[0]}/{ends[1]}"
                value = round(random.random() * 0.5, 3) if kind in {"slow", "drift", "flap"} else 0.0
                if kind in {"cut", "hold"} and random.random() < APART:
                    alone = random.choice((site, None))
                    links = [pair for pair in self.links() if alone is None or alone in pair]
                    return self.fault(kind, tuple(f"link/{first}/{second}" for first, second in links))
                return self.fault(kind, (target,), value)
            case "kill":
                processes = [f"{what}/{each}" for each in self.setting.sites for what in ("node", "broker")]
                chosen = random.sample(processes, random.choice((1, 1, 1, 2, 2, 3)))
                if random.random() < 0.5:
                    chosen = [f"node/{target.partition('/')[2]}" for target in chosen]
                if self.pause and random.random() < MACHINES:
                    return self.fault(kind, (f"node/{site}", f"broker/{site}"))
                return self.fault(kind, tuple(dict.fromkeys(chosen)), round(random.random(), 3))
            case "upgrade" | "downgrade":
                return self.change(random, kind, (f"node/{site}",), self.moment())
            case "deposed" | "both":
                fault = self.fault(kind, (f"node/{site}",), float(random.random() < 0.3))
                return replace(fault, lasts=round(fault.lasts + random.choice((0.0, 1.0)), 3))
            case "pause":
                return self.fault(kind, (f"{random.choice(('node', 'node', 'broker'))}/{site}",))
            case "clock":
                return self.fault(kind, (f"node/{site}",), random.choice((-3600.0, -5.0, 5.0, 3600.0)))
            case "dns":
                apart = random.random() < APART
                targets = tuple(f"node/{each}" for each in (self.setting.sites if apart else (site,)))
                fault = self.fault(kind, targets, float(random.randrange(4)))
                if random.random() < FORGOTTEN:
                    fault = replace(fault, lasts=LEAVE_AFTER + round(random.random() * self.scale.pause, 3))
                return fault
            case "flip":
                return self.fault(kind, (f"node/{site}",), round(random.random(), 4))
            case "tear":
                return self.fault(kind, (f"node/{site}",), float(random.randint(1, 60)))
            case "disk-full":
                return self.fault(kind, (f"node/{site}",), float(random.choice((0, 100, 5000))))
            case _:
                return self.fault(kind, (f"node/{site}",))

    def links(self) -> Sequence[tuple[str, str]]:
        """Sites with a link; with an overlay all pairs."""
        if self.setting.algorithm in TREE:
            return self.setting.links
        return list(itertools.combinations(self.setting.sites, 2))

    def link(self) -> tuple[str, str]:
        """One of them, from either end where nothing tells."""
        if self.setting.algorithm in TREE:
            return self.random.choice(self.setting.links)
        first, second = self.random.sample(self.setting.sites, 2)
        return first, second
