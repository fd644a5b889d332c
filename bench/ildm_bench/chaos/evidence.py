"""What the history of one run says, read once, and plain questions about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ildm_bench.chaos.history import Event, Run
from ildm_bench.chaos.invariants import TAKES_AT_ONCE

NEVER = float("inf")
BY_TOPIC = frozenset({"sg_tbps", "atm_tbps", "stla", "octopia"})
"""Algorithms whose paths differ by topic, so that order is kept for each topic alone."""
UNGUARDED = frozenset({"injection_unguarded", "link_unguarded"})
"""Counters by which a node says that it has let QoS 2 go on which its failing disk did not keep."""

UNCERTAIN = "injection_uncertain_resent"
"""The one by which it says that it has sent QoS 2 again, to a broker that has forgotten its session."""

ADMITTING = (*sorted(UNGUARDED), UNCERTAIN)

WITNESS = "witness."
"""How the names of sessions past the node begin, of whose filters it does not know."""


class Message:
    """One that was published, or a will."""

    __slots__ = (
        "acknowledged",
        "again",
        "held",
        "op",
        "qos",
        "recorded",
        "refused",
        "resent",
        "retain",
        "site",
        "t",
        "topic",
        "value",
    )

    def __init__(self, event: Event) -> None:
        self.op = event.op
        self.site, self.topic, self.value = event.site, event.topic, event.value
        self.qos, self.retain = event.qos, event.retain
        self.t: float | None = None
        self.acknowledged: float | None = None
        self.recorded: float | None = None
        """When its client got PUBREC."""
        self.refused = False
        self.held: float | None = None
        """Of a will: since when its broker has it."""
        self.again: list[float] = []
        """When its client sent it again, of QoS 1."""
        self.resent: list[tuple[float, str]] = []
        """When its client sent it again, and at which site, of QoS 2."""


class Receipt:
    """What a session has received of one message."""

    __slots__ = ("first", "others")

    def __init__(self, event: Event) -> None:
        self.first = event
        self.others: list[Event] = []
        """Of another topic or value than the first."""


class Session(NamedTuple):
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
        self.order: list[tuple[str, str, int]] = []
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
        self.mistaken: set[tuple[str, str, int]] = set()
        """What a session had to take for another, by the identifier a killed broker has used again."""
        self.tree: list[float] = []
        self.admitted: dict[str, list[float]] = defaultdict(list)
        """Process and counter -> when it said that QoS 2 had gone on which its failing disk did not keep, or
        had been sent again to a broker that might have it."""
        self.at_qos_2: dict[tuple[str, int, str, int], list[Event]] = defaultdict(list)
        self.places: set[str] = set()
        self.kept: dict[str, dict[str, str]] = defaultdict(dict)
        """Topic -> site -> value."""
        for event in events:
            getattr(self, f"_{event.op}", self._skip)(event)
        damaging = {"tear", "flip"} if about.mode == "power" else {"tear", "flip", "power"}
        damages = [fault.t for fault, _ in self.faults.values() if fault.topic in damaging]
        self.damaged = min(damages, default=NEVER)
        self.damaged_last = max(damages, default=-1.0)

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
        if event.op == "will" and event.phase == "invoke" and message.held is None:
            message.held = event.t

    _will = _publish

    def _receive(self, event: Event) -> None:
        key = event.session, event.publisher, event.seq
        if event.phase == "fail":
            self.forgotten.add((event.site, event.publisher, event.seq))
            return
        if event.phase == "info" and self.kills(event.site, 0.0, event.t):
            self.mistaken.add(key)
        if event.phase != "ok":
            return
        if event.publisher or event.value:
            receipt = self.receipts.get(key)
            if receipt is None:
                receipt = self.receipts[key] = Receipt(event)
                self.order.append(key)
                self.received[event.publisher, event.seq].append(event)
            first = receipt.first
            if event.topic != first.topic or event.value != first.value:
                receipt.others.append(event)
        if event.qos == 2 and not event.retain and event.publisher:
            self.at_qos_2[event.session, event.incarnation, event.publisher, event.seq].append(event)

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

    def _tree(self, event: Event) -> None:
        self.tree.append(event.t)

    def _counters(self, event: Event) -> None:
        if event.phase == "ok" and event.seq > 0 and event.topic in ADMITTING:
            self.admitted[f"{event.process} {event.topic}"].append(event.t)

    def _retained(self, event: Event) -> None:
        if event.phase == "invoke":
            self.places.add(event.site)
        elif event.phase == "ok":
            self.kept[event.topic][event.site] = event.value

    # judging ----------------------------------------------------------------------------------

    # questions --------------------------------------------------------------------------------

    def sessions(self) -> Mapping[str, Session]:
        sessions = {}
        for lives in self.lives.values():
            kinds = [kind for kind, _ in lives.values()]
            for place, (name, (kind, last)) in enumerate(lives.items()):
                lost = kind != "clean" and kinds[place + 1 : place + 2] == ["resume"]
                sessions[name] = Session(last.site, last.phase == "ok", lost)
        return sessions

    def entitled(self, since: float) -> float:
        """From when on a subscription made at a time is known everywhere."""
        settle = self.about.settle
        spans = [(fault.t, end) for fault, end in self.faults.values()]
        ends = sorted(end for _, end in spans if since < end < NEVER)
        for calm in (since, *ends):
            if not any(begin < calm + settle and end > calm for begin, end in spans):
                return calm + settle
        return NEVER

    def kills(self, site: str, begin: float, end: float) -> list[float]:
        """When the broker of a site was killed, from one time to another."""
        return [fault.t for fault in self._killings(site, begin, end)]

    def killed_lives(self, site: str, begin: float, end: float) -> list[int]:
        """Which of its lives ended so."""
        return [fault.incarnation for fault in self._killings(site, begin, end)]

    def _killings(self, site: str, begin: float, end: float) -> Iterator[Event]:
        for fault, _ in self.faults.values():
            killing = fault.topic.startswith("kill") and fault.session == f"broker/{site}"
            if killing and begin <= fault.t <= end:
                yield fault

    def was_away(self, message: Message, session: str, t: float) -> bool:
        """Whether its session was away after it was published."""
        since = 0.0 if message.t is None else message.t
        return any(since <= back <= t for back in self.resumed[session])

    def is_unsure(self, message: Message) -> bool:
        """Whether its client has got no answer, and its node was killed and did not get it again."""
        at_once = message.qos == 1 or any(make in self.about.broker for make in TAKES_AT_ONCE)
        if message.t is None or message.acknowledged is not None or not message.qos or not at_once:
            return False
        again = message.again if message.qos == 1 else [] if message.recorded is None else [NEVER]
        killed = [t for t, _ in self._node_kills(message.site)]
        return any(t >= message.t and all(back < t for back in again) for t in killed)

    def restarts(self, site: str, since: float) -> list[float]:
        """When the node of a site was started anew that had been killed after a time."""
        return [end for t, end in self._node_kills(site) if t >= since]

    def _node_kills(self, site: str) -> Iterator[tuple[float, float]]:
        for fault, end in self.faults.values():
            if fault.topic.startswith("kill") and fault.session == f"node/{site}":
                yield fault.t, end
