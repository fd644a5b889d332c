"""What is wrong in the history of one run, in plain Python: the same as `ildm_bench.chaos.invariants`, at
once.

Thousands of short histories a minute are judged so; the queries are for many or long ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ildm.mqtt import topic_matches
from ildm_bench.chaos.history import Event, Run
from ildm_bench.chaos.invariants import (
    BY_WISHES,
    CHANGE,
    FORGETS_RETAINED,
    GIVES_BY_TOPIC,
    HIDES_REPLAY,
    KEEPS_UNRELEASED,
    OURS,
    PROBE,
    READ,
    RETRIES_LATE,
    SHOW_DOLLAR,
    TAKES_AGAIN,
    TAKES_AT_ONCE,
)

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


class Finding(NamedTuple):
    """One time that an invariant did not hold; columns as in `ildm_bench.chaos.invariants.FINDING`."""

    invariant: str
    cause: str
    site: str = ""
    session: str = ""
    publisher: str = ""
    seq: int = -1
    topic: str = ""
    t: float = 0.0

    def __str__(self) -> str:
        """For people."""
        words = [self.invariant]
        if self.cause != OURS:
            words.append(f"({self.cause})")
        if self.publisher:
            words.append(f"{self.publisher}/{self.seq}")
        if self.topic:
            words.append(f"on {self.topic}")
        if self.session:
            words.append(f"at {self.session}")
        if self.site:
            words.append(f"site {self.site}")
        return " ".join(words)


class Verdict(NamedTuple):
    findings: list[Finding]
    owed: int
    """Receipts that had to be, at QoS 1 and 2."""

    @property
    def ours(self) -> list[Finding]:
        """Those against what is promised."""
        return [finding for finding in self.findings if finding.cause == OURS]


class _Message:
    __slots__ = (
        "acknowledged",
        "again",
        "held",
        "op",
        "published",
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


class _Receipt:
    __slots__ = ("first", "messages", "others")

    def __init__(self, event: Event) -> None:
        self.first = event
        self.messages = 0
        self.others: list[Event] = []
        """Of another topic or value than the first."""


class _Session(NamedTuple):
    site: str
    connected: bool
    lost: bool
    """The broker had it no more when the client wanted to go on with it."""


def judge(events: Iterable[Event], about: Run) -> Verdict:
    """All that is wrong; ``events`` in order."""
    return _Judge(about, list(events)).verdict()


class _Judge:
    def __init__(self, about: Run, events: list[Event]) -> None:
        self.about = about
        self.events = events
        self.messages: dict[tuple[str, int], _Message] = {}
        self.receipts: dict[tuple[str, str, int], _Receipt] = {}
        self.order: list[tuple[str, str, int]] = []
        self.lives: dict[str, dict[str, tuple[str, Event]]] = defaultdict(dict)
        """Client -> session -> what was asked for at first, and its last event of ``connect``."""
        self.resumed: dict[str, list[float]] = defaultdict(list)
        """Session -> when its client came back to it."""
        self.asked: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
        self.withdrawn: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.wanted: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        """Session -> filter -> when it sent SUBSCRIBE."""
        self.changes: dict[str, list[tuple[float, str]]] = defaultdict(list)
        """Site -> when sessions there came, went, or wanted something else."""
        self.faults: dict[str, tuple[Event, float]] = {}
        self.forgotten: set[tuple[str, str, int]] = set()
        self.mistaken: set[tuple[str, str, int]] = set()
        """What a session had to take for another, by the identifier a killed broker has used again."""
        self.tree: list[float] = []
        self.admitted: dict[str, list[float]] = defaultdict(list)
        """Process and counter -> when it said that QoS 2 had gone on which its failing disk did not keep, or
        had been sent again to a broker that might have it."""
        self.at_qos_2: dict[tuple[str, int, str, int], list[Event]] = defaultdict(list)
        self.newer: dict[str, list[tuple[float, str]]] = {}
        """Topic -> of its retained messages when each was published, and a site that knows it."""
        self.places: set[str] = set()
        self.kept: dict[str, dict[str, str]] = defaultdict(dict)
        """Topic -> site -> value."""
        self.found: list[Finding] = []
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
            message = self.messages[key] = _Message(event)
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
        if event.phase == "info" and self._kills(event.site, 0.0, event.t):
            self.mistaken.add(key)
        if event.phase != "ok":
            return
        if event.publisher or event.value:
            receipt = self.receipts.get(key)
            if receipt is None:
                receipt = self.receipts[key] = _Receipt(event)
                self.order.append(key)
            receipt.messages += 1
            first = receipt.first
            if event.topic != first.topic or event.value != first.value:
                receipt.others.append(event)
        if event.qos == 2 and not event.retain and event.publisher:
            self.at_qos_2[event.session, event.incarnation, event.publisher, event.seq].append(event)

    def _connect(self, event: Event) -> None:
        if event.session:
            self.changes[event.site].append((event.t, event.session))
            kind, _ = self.lives[event.process].get(event.session, (event.value, event))
            self.lives[event.process][event.session] = kind, event
            if event.phase == "ok" and event.value == "resume":
                self.resumed[event.session].append(event.t)

    def _subscribe(self, event: Event) -> None:
        self.changes[event.site].append((event.t, event.session))
        if event.phase == "ok":
            begun = max(self.wanted[event.session][event.topic], default=event.t)
            # SUBACK may come when it has been withdrawn already
            if all(gone <= begun for gone in self.withdrawn[event.session, event.topic]):
                self.asked[event.session, event.topic].append((event.t, event.qos))
        elif event.phase == "invoke":
            self.wanted[event.session][event.topic].append(event.t)

    def _unsubscribe(self, event: Event) -> None:
        self.changes[event.site].append((event.t, event.session))
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

    def verdict(self) -> Verdict:
        self.sessions = self._sessions()
        owed = self._lost()
        self._twice()
        self._unexpected()
        self._out_of_order()
        if self.about.complete:
            self._unequal()
        return Verdict(self.found, owed)

    def _sessions(self) -> Mapping[str, _Session]:
        sessions = {}
        for lives in self.lives.values():
            kinds = [kind for kind, _ in lives.values()]
            for place, (name, (kind, last)) in enumerate(lives.items()):
                lost = kind != "clean" and kinds[place + 1 : place + 2] == ["resume"]
                sessions[name] = _Session(last.site, last.phase == "ok", lost)
        return sessions

    def _entitled(self, since: float) -> float:
        """From when on a subscription made at a time is known everywhere."""
        settle = self.about.settle
        spans = [(fault.t, end) for fault, end in self.faults.values()]
        ends = sorted(end for _, end in spans if since < end < NEVER)
        for calm in (since, *ends):
            if not any(begin < calm + settle and end > calm for begin, end in spans):
                return calm + settle
        return NEVER

    def _lost(self) -> int:
        owed = 0
        topics = {message.topic for message in self.messages.values()}
        by_topic: dict[str, list[tuple[tuple[str, int], _Message]]] = defaultdict(list)
        for key, message in self.messages.items():
            if message.value and message.qos and message.acknowledged is not None:
                by_topic[message.topic].append((key, message))
        for (name, wanted), terms in self.asked.items():
            if name.startswith(WITNESS):
                continue
            gone = max(self.withdrawn.get((name, wanted), ()), default=-1.0)
            standing = [(t, qos) for t, qos in terms if t > gone]
            session = self.sessions.get(name)
            if not standing or session is None or not (session.connected or session.lost):
                continue
            if min(qos for _, qos in standing) == 0:
                continue
            entitled = self._entitled(min(t for t, _ in standing))
            for topic in topics:
                if topic != wanted and not topic_matches(wanted, topic):
                    continue
                for (publisher, seq), message in by_topic[topic]:
                    if message.t is None or message.t <= entitled:
                        continue
                    owed += 1
                    if (name, publisher, seq) not in self.receipts:
                        cause = self._why(message, session, name, publisher, seq)
                        self._find("lost", cause, session.site, name, publisher, seq, topic, message.t)
        return owed

    def _kills(self, site: str, begin: float, end: float) -> list[float]:
        """When the broker of a site was killed, from one time to another."""
        return [fault.t for fault in self._killings(site, begin, end)]

    def _killed_lives(self, site: str, begin: float, end: float) -> list[int]:
        """Which of its lives ended so."""
        return [fault.incarnation for fault in self._killings(site, begin, end)]

    def _killings(self, site: str, begin: float, end: float) -> Iterator[Event]:
        for fault, _ in self.faults.values():
            killing = fault.topic.startswith("kill") and fault.session == f"broker/{site}"
            if killing and begin <= fault.t <= end:
                yield fault

    def _why(self, message: _Message, session: _Session, name: str, publisher: str, seq: int) -> str:
        """A message was not received."""
        assert message.t is not None
        if session.lost or (session.site, publisher, seq) in self.forgotten:
            return "store"
        if (name, publisher, seq) in self.mistaken:
            return "store"
        killed = self._killed_lives(session.site, message.t, NEVER)
        seen = [
            receipt.first.incarnation
            for (_, *what), receipt in self.receipts.items()
            if what == [publisher, seq] and receipt.first.site == session.site
        ]
        if killed and seen and min(seen) <= max(killed):
            return "store"
        if self._was_unreleased(message, session.site) or self._was_unwilled(message, session.site):
            return "store"
        if self._is_replaced(message, session.site):
            return "replaced"
        if self.damaged_last >= message.t:
            return "disk"
        return "unclear" if killed and self.about.store == "lossy" else OURS

    def _was_unreleased(self, message: _Message, site: str) -> bool:
        """Whether its own broker was killed when it had answered PUBREC and not PUBCOMP, of a make that
        forgets the message then and answers PUBCOMP all the same."""
        if message.recorded is None or message.acknowledged is None or message.site != site:
            return False
        return KEEPS_UNRELEASED not in self.about.broker and bool(
            self._kills(site, message.recorded, message.acknowledged)
        )

    def _was_unwilled(self, message: _Message, site: str) -> bool:
        """Whether it is a will that its own broker had for its site, and was killed before it was due, or
        before it could know, as the machine of its node had lost power."""
        due = message.t
        if message.held is None or due is None or message.site != site:
            return False
        silences = [
            end
            for fault, end in self.faults.values()
            if (fault.topic, fault.session) == ("power", f"node/{site}") and fault.t <= due <= end
        ]
        return bool(self._kills(site, message.held, max([due, *silences])))

    def _was_repeated(self, message: _Message, session: str, t: float, after: _Message) -> bool:
        """Whether its client sent it again, and first before the session had subscribed: again after that, or
        what it comes after was sent before that, too."""
        begins = [
            min(asked for asked, _ in terms)
            for (name, wanted), terms in self.asked.items()
            if name == session and topic_matches(wanted, message.topic)
        ]
        first = NEVER if message.t is None else message.t
        other = NEVER if after.t is None else after.t
        return any(
            first < begin and first < again <= t and (again >= begin or other < begin)
            for begin in begins
            for again in message.again
        )

    def _have_met(self, message: _Message, t: float) -> bool:
        """Whether nodes have met again between its publication and ``t``, or shortly before."""
        return self.about.target == "ildm" and any(
            end <= t and end + self.about.settle >= (message.t or 0.0)
            for fault, end in self.faults.values()
            if not fault.session.startswith("broker/")
        )

    def _was_early(self, message: _Message, session: str) -> bool:
        """Whether it was published before all sites knew that the session has subscribed."""
        for (name, wanted), terms in self.asked.items():
            if name == session and topic_matches(wanted, message.topic):
                gone = max(self.withdrawn.get((name, wanted), ()), default=-1.0)
                begin = min((t for t, _ in terms if t > gone), default=NEVER)
                if (message.t or 0.0) <= self._entitled(begin) < NEVER:
                    return True
        return False

    def _was_away(self, message: _Message, session: str, t: float) -> bool:
        """Whether its session was away after it was published."""
        since = 0.0 if message.t is None else message.t
        return any(since <= back <= t for back in self.resumed[session])

    def _may_be_replayed(self, message: _Message, session: str, t: float) -> bool:
        """Whether it came as what the broker retained, perhaps, from a make that does not say so."""
        if not message.retain or HIDES_REPLAY not in self.about.broker or message.t is None:
            return False
        return any(
            message.t <= asked <= t
            for wanted, times in self.wanted[session].items()
            if topic_matches(wanted, message.topic)
            for asked in times
        )

    def _is_replaced(self, message: _Message, site: str) -> bool:
        """Whether its site knew a newer retained message of the topic: overlays pass on none after that."""
        if not message.retain or self.about.target != "ildm" or self.about.algorithm not in BY_TOPIC:
            return False
        if message.topic not in self.newer:
            self.newer[message.topic] = list(self._known(message.topic))
        assert message.t is not None
        return any(t > message.t and where in {site, ""} for t, where in self.newer[message.topic])

    def _known(self, topic: str) -> Iterator[tuple[float, str]]:
        """Of retained messages of a topic when each was published, and a site that knows it; empty: all."""
        for key, message in self.messages.items():
            if message.topic != topic or not message.retain or message.t is None:
                continue
            yield message.t, message.site
            if not message.value and message.acknowledged is not None:
                yield message.t, ""  # who has got a deletion does not tell whose it was
            for (_, *what), receipt in self.receipts.items():
                if what == [*key]:
                    yield message.t, receipt.first.site

    def _twice(self) -> None:
        for (session, _, publisher, seq), events in self.at_qos_2.items():
            if len(events) > 1:
                last = events[-1]
                message = self.messages.get((publisher, seq))
                begins = message.site if message is not None else ""
                told = (
                    self.admitted[f"node/{last.site} injection_unguarded"]
                    + self.admitted[f"node/{begins} link_unguarded"]
                )
                admitted = any(events[0].t <= t <= last.t for t in told)
                if admitted or self.damaged <= last.t:
                    cause = "disk"
                elif self._is_resent(message, events):
                    cause = "resent"
                elif message is not None and self._is_repaired(message, last.site, last.t):
                    cause = "repaired"
                else:
                    cause = OURS
                self._find("twice", cause, last.site, session, publisher, seq, last.topic, last.t)

    def _is_resent(self, message: _Message | None, events: list[Event]) -> bool:
        """Whether it was sent again, for each time but the first, to a broker that takes it for new then.

        Or by it: with another identifier, or the client would know it, but with DUP.
        """
        begin, last = events[0].t, events[-1]
        if TAKES_AGAIN not in self.about.broker:
            return False
        resent = [] if message is None else message.resent
        if message is not None and message.t is not None and self._was_away(message, last.session, begin):
            begin = message.t
        times = {t for t, site in resent if site == last.site and begin <= t <= last.t}
        told = self.admitted[f"node/{last.site} {UNCERTAIN}"]
        redelivered = sum(event.dup for event in events)
        uncertain = any(begin <= t <= last.t + READ for t in told)
        return len(times) + redelivered >= len(events) - 1 or uncertain

    def _is_repaired(self, message: _Message, site: str, t: float) -> bool:
        """Whether it is retained, and the broker of a site was killed, which does not keep that; or had taken
        another one of which its node does not know."""
        if not message.retain or message.t is None:
            return False
        forgetful = any(make in self.about.broker for make in FORGETS_RETAINED)
        if forgetful and self._kills(site, message.t, t):
            return True
        return any(
            other.retain
            and (other.topic, other.site) == (message.topic, site)
            and other.t is not None
            and message.t < other.t <= t
            and self._is_unsure(other)
            for other in self.messages.values()
        )

    def _unexpected(self) -> None:
        for (session, publisher, seq), receipt in self.receipts.items():
            first = receipt.first
            message = self.messages.get((publisher, seq))
            right = (
                message is not None
                and not receipt.others
                and first.topic == message.topic
                and first.value == message.value
                and not (message.op == "will" and message.refused and message.acknowledged is None)
                and any(topic_matches(each, first.topic) for each in self.wanted[session])
            )
            if not right:
                shown = any(make in self.about.broker for make in SHOW_DOLLAR)
                probe = not publisher and first.topic.startswith(PROBE) and shown
                cause = "probe" if probe else OURS
                self._find("unexpected", cause, first.site, session, publisher, seq, first.topic, first.t)

    def _out_of_order(self) -> None:
        # A message crosses with the QoS that is wanted of its topic, a retained one with its own, as all
        # sites keep it; order is promised for each of these.
        wanted = {
            qos
            for (session, _), terms in self.asked.items()
            for _, qos in terms
            if not session.startswith(WITNESS)
        }
        by_topic = self.about.algorithm in BY_TOPIC or self.about.target != "ildm" or len(wanted) != 1
        highest: dict[tuple[str, str, int, int, bool, str], int] = {}
        highest_of_topic: dict[tuple[str, str, int, int, bool, str], int] = {}
        opening: dict[tuple[str, str, str], int] = {}
        """Site, publisher, topic -> what has come first."""
        for key in self.order:
            session, publisher, seq = key
            receipt = self.receipts[key]
            message = self.messages.get((publisher, seq))
            if message is None or message.op != "publish" or receipt.first.retain:
                continue
            first = receipt.first
            topic = first.topic if by_topic else ""
            stream = session, publisher, first.qos, message.qos, message.retain, topic
            before = highest.get(stream, -1)
            of_topic = session, publisher, first.qos, message.qos, message.retain, first.topic
            in_topic = seq > highest_of_topic.get(of_topic, -1)
            highest_of_topic[of_topic] = max(seq, highest_of_topic.get(of_topic, -1))
            at_site = first.site, publisher, first.topic
            opening.setdefault(at_site, seq)
            if seq >= before:
                highest[stream] = seq
                continue
            overlay = self.about.algorithm in BY_TOPIC
            since = (message.t or 0.0) - (CHANGE if overlay else self.about.settle)
            away = self._was_away(message, session, first.t)
            if self._was_repeated(message, session, first.t, self.messages[publisher, before]):
                cause = "again"
            elif any(since <= t <= first.t for t in self.tree):
                cause = "tree"
            elif overlay and any(
                fault.t <= first.t and end + CHANGE >= (message.t or 0.0)
                for fault, end in self.faults.values()
            ):
                cause = "down"
            elif overlay and seq < opening[at_site]:
                cause = "first"
            elif overlay and self._was_early(message, session):
                cause = "early"
            elif in_topic and GIVES_BY_TOPIC in self.about.broker and away:
                cause = "backlog"
            elif first.dup and RETRIES_LATE in self.about.broker and away:
                cause = "retry"
            elif self._may_be_replayed(message, session, first.t):
                cause = "replay"
            elif self._is_repaired(message, first.site, first.t):
                cause = "repaired"
            elif message.retain and not overlay and self._have_met(message, first.t):
                cause = "met"
            elif (
                (self.about.target, self.about.algorithm) == ("ildm", BY_WISHES)
                and by_topic
                and first.qos < message.qos
                and any(since <= t <= first.t and of != session for t, of in self.changes[first.site])
            ):
                cause = "quality"
            else:
                cause = "disk" if self.damaged <= first.t else OURS
            self._find("order", cause, first.site, session, publisher, seq, first.topic, first.t)

    def _unequal(self) -> None:
        if not self.places:
            return
        cause = "disk" if self.damaged < NEVER else OURS
        setters: dict[str, list[tuple[str, int, _Message]]] = defaultdict(list)
        for (publisher, seq), message in self.messages.items():
            if message.retain:
                setters[message.topic].append((publisher, seq, message))
        for topic in sorted({*self.kept, *setters}):
            values = {site: self.kept[topic].get(site, "") for site in sorted(self.places)}
            of = setters[topic]
            if len(set(values.values())) > 1:
                why = "unknown" if cause == OURS and self._is_unknown(of, values) else cause
                self._find("retained", why, min(values), "", "", -1, topic, 0.0)
            acknowledged = [seq for _, seq, message in of if message.acknowledged is not None]
            certain = (
                acknowledged
                and len({publisher for publisher, _, _ in of}) == 1
                and len({message.qos for _, _, message in of}) == 1
                and all(message.qos and message.op == "publish" for _, _, message in of)
            )
            if not certain:
                continue
            newest = max(acknowledged)
            fresh = {message.value for _, seq, message in of if seq >= newest}
            for site, value in values.items():
                if value not in fresh:
                    self._find("stale", cause, site, "", of[0][0], newest, topic, 0.0)

    def _is_unknown(self, of: list[tuple[str, int, _Message]], values: Mapping[str, str]) -> bool:
        """Whether a site has what its broker has taken, and its node was killed before it knew."""
        return any(
            self._is_unsure(message) and values.get(message.site) == message.value for _, _, message in of
        )

    def _is_unsure(self, message: _Message) -> bool:
        """Whether its client has got no answer, and its node was killed and did not get it again."""
        at_once = message.qos == 1 or any(make in self.about.broker for make in TAKES_AT_ONCE)
        if message.t is None or message.acknowledged is not None or not message.qos or not at_once:
            return False
        again = message.again if message.qos == 1 else [] if message.recorded is None else [NEVER]
        killed = [
            fault.t
            for fault, _ in self.faults.values()
            if fault.topic.startswith("kill") and fault.session == f"node/{message.site}"
        ]
        return any(t >= message.t and all(back < t for back in again) for t in killed)

    def _find(
        self,
        invariant: str,
        cause: str,
        site: str,
        session: str,
        publisher: str,
        seq: int,
        topic: str,
        t: float,
    ) -> None:
        self.found.append(Finding(invariant, cause, site, session, publisher, seq, topic, t))
