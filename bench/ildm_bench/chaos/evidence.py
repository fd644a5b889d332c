"""What the history of one run says, read once, and plain questions about it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ildm_bench.chaos.classed import CONFLATED, EXPIRED, SET_BACK, Class, class_of
from ildm_bench.chaos.history import Event, Run
from ildm_bench.chaos.schedule import CHANGES, PAIRED

NEVER = float("inf")
BY_TOPIC = frozenset({"sg_tbps", "atm_tbps", "stla", "octopia"})
"""Algorithms whose paths differ by topic, so that order is kept for each topic alone."""
UNGUARDED = frozenset({"injection_unguarded", "link_unguarded"})
"""Counters by which a node says that it has let QoS 2 go on which its failing disk did not keep."""

UNCERTAIN = "injection_uncertain_resent"
"""The one by which it says that it has sent QoS 2 again, to a broker that has forgotten its session."""

UNSURE = "link_again_unsure"
"""The one by which a node without state says that it takes what its earlier life may have had."""

TOLD = (*sorted(UNGUARDED), UNCERTAIN, UNSURE, CONFLATED, EXPIRED, SET_BACK)

WITNESS = "witness."
"""How the names of sessions past the node begin, of whose filters it does not know."""


class Message:
    """One that was published, or a will."""

    __slots__ = (
        "acknowledged",
        "again",
        "held",
        "op",
        "publisher",
        "qos",
        "recorded",
        "refused",
        "resent",
        "retain",
        "seq",
        "site",
        "t",
        "topic",
        "value",
    )

    def __init__(self, event: Event) -> None:
        self.op = event.op
        self.publisher, self.seq = event.publisher, event.seq
        self.site, self.topic, self.value = event.site, event.topic, event.value
        self.qos, self.retain = event.qos, event.retain
        self.t: float | None = None
        self.acknowledged: float | None = None
        self.recorded: float | None = None
        """When its client got PUBREC."""
        self.refused = False
        self.held: float | None = None
        """Of a will: since when its broker may have it, as its CONNECT was sent."""
        self.again: list[float] = []
        """When its client sent it again, of QoS 1."""
        self.resent: list[tuple[float, str]] = []
        """When its client sent it again, and at which site, of QoS 2."""


class Receipt:
    """What a session has received of one message."""

    __slots__ = ("differs", "first", "messages", "qos")

    def __init__(self, event: Event) -> None:
        self.first = event
        self.messages = 0
        self.qos = event.qos
        """The highest of all."""
        self.differs = False
        """Whether the topic or value of a later one is not that of the first."""

    def add(self, event: Event) -> None:
        self.messages += 1
        self.qos = max(self.qos, event.qos)
        self.differs |= event.topic != self.first.topic or event.value != self.first.value


class Session(NamedTuple):
    name: str
    site: str
    connected: bool
    lost: bool
    """The broker had it no more when the client wanted to go on with it."""


class Evidence:
    """Events by what they are about."""

    def __init__(self, about: Run, events: Iterable[Event]) -> None:
        self.about = about
        self.messages: dict[tuple[str, int], Message] = {}
        self.receipts: dict[tuple[str, str, int], Receipt] = {}
        """Session, publisher, number -> what came of it; in the order of the first receipts."""
        self.received: dict[tuple[str, int], list[Event]] = defaultdict(list)
        """Message -> first receipt of each session."""
        self.lives: dict[str, dict[str, tuple[str, Event]]] = defaultdict(dict)
        """Client -> session -> what was asked for at first, and its last event of ``connect``."""
        self.resumed: dict[str, list[float]] = defaultdict(list)
        """Session -> when its client came back to it."""
        self.asked: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
        self.withdrawn: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.wanted: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        """Session -> filter -> when it sent SUBSCRIBE."""
        self.changes: list[tuple[float, str]] = []
        """When sessions came, went, or wanted something else, and which."""
        self.faults: dict[str, tuple[Event, float]] = {}
        self.forgotten: set[tuple[str, str, int]] = set()
        self.gone: set[tuple[str, int]] = set()
        """What a node was still to give somebody when its state directory went."""
        self.under_way: set[tuple[str, int]] = set()
        """Messages of an overlay that not all had acknowledged when a node lost its state directory."""
        self.mistaken: set[tuple[str, str, int]] = set()
        """What a session had to take for another, by the identifier a killed broker has used again."""
        self.tree: list[float] = []
        self.deleted: dict[tuple[str, str], float] = {}
        """Session, topic -> when it got an empty message last."""
        self.classes: list[Class] = []
        """Those of all links, in their order."""
        self.admitted: dict[str, list[float]] = defaultdict(list)
        """Process and counter -> when it said that QoS 2 had gone on which its failing disk did not keep, or
        had been sent again to a broker that might have it, or that a class had let messages go or wait."""
        self.readings: dict[tuple[str, str, int], tuple[int, float]] = {}
        """Process, counter, life -> its highest value, and when it was read last."""
        self.bounds: dict[tuple[str, str], int] = {}
        """Process, gauge -> what it may not exceed."""
        self.once: dict[tuple[str, int, str, int, int], list[Event]] = defaultdict(list)
        """Session, life of its broker, publisher, number, QoS -> receipts, where one alone may be."""
        self.places: set[str] = set()
        self.kept: dict[str, dict[str, str]] = defaultdict(dict)
        """Topic -> site -> value."""
        self.begins = NEVER
        """When the first event was; ``ends``: the last."""
        self.ends = 0.0
        for event in events:
            self.ends = max(self.ends, event.t)
            if self.begins == NEVER:
                self.begins = event.t
            getattr(self, f"_{event.op}", self._skip)(event)
        damaging = {"tear", "flip"} | (set() if about.mode == "power" else {"power"})
        self.damages = [(f.t, f.session) for f, _ in self.faults.values() if f.topic in damaging]
        """When a disk was damaged, or power lost in a mode that does not promise to survive that;
        of which process."""
        self.emptied = [(f.t, f.session) for f, _ in self.faults.values() if f.topic == "lose-state"]
        """When a node lost its state directory, and which."""

    # reading ----------------------------------------------------------------------------------

    def _skip(self, event: Event) -> None:
        pass

    def _publish(self, event: Event) -> None:
        key = event.publisher, event.seq
        message = self.messages.get(key)
        if message is None:
            message = self.messages[key] = Message(event)
        if (event.phase == "invoke" and event.op == "publish") or (
            event.phase == "ok" and event.op == "will"
        ):
            message.t = event.t if message.t is None else min(message.t, event.t)
        if event.phase == "ok" and message.acknowledged is None:
            message.acknowledged = event.t
        elif event.phase == "fail":
            message.refused = True
        elif event.phase == "info" and "PUBREC" in event.detail and message.recorded is None:
            message.recorded = event.t
        elif event.phase == "info" and event.op == "publish" and event.qos == 1 and not event.detail:
            message.again.append(event.t)
        if event.phase == "info" and event.op == "publish" and event.qos == 2 and event.dup:
            message.resent.append((event.t, event.site))
        if event.op == "will" and event.phase in ("info", "invoke") and message.held is None:
            # the broker may have it since CONNECT was sent, whose answer may come after the broker is gone
            message.held = event.t

    _will = _publish

    def _receive(self, event: Event) -> None:
        key = event.session, event.publisher, event.seq
        if event.process.startswith("node/"):
            told = self.gone if event.phase == "fail" else self.under_way
            told.add((event.publisher, event.seq))
            return
        if event.phase == "fail":
            self.forgotten.add((event.site, event.publisher, event.seq))
            return
        if event.phase == "info" and self.kills(f"broker/{event.site}", end=event.t):
            self.mistaken.add(key)
        if event.phase != "ok":
            return
        if not event.value:
            self.deleted[event.session, event.topic] = event.t
        if event.publisher or event.value:
            receipt = self.receipts.get(key)
            if receipt is None:
                receipt = self.receipts[key] = Receipt(event)
                self.received[event.publisher, event.seq].append(event)
            receipt.add(event)
        if event.qos != 1 and not event.retain and event.publisher:
            life = event.session, event.incarnation
            self.once[*life, event.publisher, event.seq, event.qos].append(event)

    def _connect(self, event: Event) -> None:
        if event.session:
            self.changes.append((event.t, event.session))
            kind, _ = self.lives[event.process].get(event.session, (event.value, event))
            self.lives[event.process][event.session] = kind, event
            if event.phase == "ok" and event.value == "resume":
                self.resumed[event.session].append(event.t)

    def _subscribe(self, event: Event) -> None:
        self.changes.append((event.t, event.session))
        if event.phase == "ok":
            begun = max(self.wanted[event.session][event.topic], default=event.t)
            # SUBACK may come when it has been withdrawn already
            if all(gone <= begun for gone in self.withdrawn[event.session, event.topic]):
                self.asked[event.session, event.topic].append((event.t, event.qos))
        elif event.phase == "invoke":
            self.wanted[event.session][event.topic].append(event.t)

    def _unsubscribe(self, event: Event) -> None:
        self.changes.append((event.t, event.session))
        if event.phase == "invoke":
            self.withdrawn[event.session, event.topic].append(event.t)

    def _fault(self, event: Event) -> None:
        self.faults[event.value] = event, NEVER

    def _heal(self, event: Event) -> None:
        if event.value in self.faults:
            self.faults[event.value] = self.faults[event.value][0], event.t

    def _class(self, event: Event) -> None:
        may = json.loads(event.detail)
        after_live = may.get("after_live", False)  # earlier histories do not tell
        self.classes.append(Class(event.topic, event.seq, may["conflate"], may["expire"], after_live))

    def _tree(self, event: Event) -> None:
        self.tree.append(event.t)

    def _counters(self, event: Event) -> None:
        if event.phase == "ok":
            key = event.process, event.topic, event.incarnation
            before, _ = self.readings.get(key, (event.seq, 0.0))
            self.readings[key] = max(before, event.seq), event.t
            if event.seq > 0 and event.topic in TOLD:
                self.admitted[f"{event.process} {event.topic}"].append(event.t)
        elif event.phase == "info":
            bound = self.bounds.get((event.process, event.topic), event.seq)
            self.bounds[event.process, event.topic] = min(bound, event.seq)

    def _retained(self, event: Event) -> None:
        if event.phase == "invoke":
            self.places.add(event.site)
        elif event.phase == "ok":
            self.kept[event.topic][event.site] = event.value

    # questions --------------------------------------------------------------------------------

    def sessions(self) -> Mapping[str, Session]:
        sessions = {}
        for lives in self.lives.values():
            kinds = [kind for kind, _ in lives.values()]
            for place, (name, (kind, last)) in enumerate(lives.items()):
                lost = kind != "clean" and kinds[place + 1 : place + 2] == ["resume"]
                sessions[name] = Session(name, last.site, last.phase == "ok", lost)
        return sessions

    def class_of(self, topic: str) -> Class | None:
        """How messages on a topic wait for links."""
        return class_of(self.classes, topic) if self.classes else None

    def let_go(self, counter: str, since: float, until: float = NEVER) -> bool:
        """Whether a node has said by a counter, from one time to another, that it has let messages go."""
        return any(
            name.endswith(f" {counter}") and any(since <= t <= until for t in times)
            for name, times in self.admitted.items()
        )

    def newer(self, session: str, message: Message) -> bool:
        """Whether a session has got a message of the topic that may have taken the place of this one."""
        if self.deleted.get((session, message.topic), -1.0) >= (message.t or 0.0):
            return True
        for (name, publisher, seq), receipt in self.receipts.items():
            other = self.messages.get((publisher, seq))
            if name != session or other is None or other.topic != message.topic:
                continue
            if seq > message.seq if publisher == message.publisher else receipt.first.t >= (message.t or 0.0):
                return True
        return False

    def entitled(self, since: float) -> float:
        """From when on a subscription made at a time is known everywhere."""
        settle = self.about.settle
        spans = [(fault.t, end) for fault, end in self.faults.values()]
        ends = sorted(end for _, end in spans if since < end < NEVER)
        for calm in (since, *ends):
            if not any(begin < calm + settle and end > calm for begin, end in spans):
                return calm + settle
        return NEVER

    def kills(self, target: str, begin: float = 0.0, end: float = NEVER) -> list[tuple[Event, float]]:
        """Kills of ``broker/SITE`` or ``node/SITE`` from one time to another, and when it was back."""
        return [
            (fault, back)
            for fault, back in self.faults.values()
            if (fault.topic.startswith("kill") or fault.topic in CHANGES | PAIRED)
            and fault.session == target
            and begin <= fault.t <= end
        ]

    def standing(self, session: str, wanted: str) -> list[tuple[float, int]]:
        """SUBACKs of a filter that was not withdrawn since: when, and the QoS granted."""
        gone = max(self.withdrawn.get((session, wanted), ()), default=-1.0)
        return [(t, qos) for t, qos in self.asked[session, wanted] if t > gone]
