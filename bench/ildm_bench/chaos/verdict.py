"""What must hold in the history of a run, and what of it does not: all that is said of that.

A message is *owed* to a session that has subscribed to its topic when the message is handed over, once the
subscription is known at all sites: after the first stretch of `Run.settle` seconds without any fault that
begins at or after its SUBACK. The session must not unsubscribe, and must be connected when the history ends.
Owed at QoS 0 is not promised; how much of it came is only counted.

Neither Arrow nor Spark is needed here: thousands of short histories a minute are judged as they are made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from ildm.mqtt import topic_matches
from ildm_bench.chaos.evidence import BY_TOPIC, WITNESS, Evidence, Message
from ildm_bench.chaos.excuses import OURS, Case, cause
from ildm_bench.chaos.history import Event, Run

INVARIANTS = {
    "lost": "a message of QoS 1 or 2 was acknowledged and owed to a session, which never got it",
    "twice": "a session got a message at QoS 0 or 2 more than once in one life of its broker",
    "unexpected": "it got what nobody had published, or had changed, or what it had not asked for",
    "order": "of one publisher and QoS a later message came before an earlier one",
    "retained": "after quiet, sites have different retained values on a topic",
    "stale": "a site has a retained value that was replaced, or deleted, and that acknowledged",
    "unbounded": "memory, spool or a window went beyond its bound",
    "budget": "a link carried more in ten seconds than its rate and burst allow, as the network saw it",
    "unadmitted": "nodes lost more than their counters admit",
}
"""Name -> found when."""

ADMITTING = (
    "*dropped*",
    "*expired",
    "*_refused",
    "*_forgotten",
    "refused_by_broker",
    "undecided",
    "spool_damaged",
    "spool_unreadable",
    "wills_not_saved",
    "subscriptions_over_limit",
)
"""Counters by which a node says that it has not passed on what it was given."""


CARRIED = "bytes_in_10_s"
"""The gauge of a link that :mod:`ildm_bench.chaos.virtual.carried` reads."""


def admits(counter: str) -> bool:
    """Whether a node admits by this counter that it has not passed something on."""
    return any(fnmatchcase(counter, pattern) for pattern in ADMITTING)


class Finding(NamedTuple):
    """One time that an invariant did not hold.

    ``unbounded``, ``budget``: the gauge ``topic`` of the process ``session`` was ``seq``. ``unadmitted``: of
    the messages lost, by site, ``seq`` are in no counter of any node.
    """

    invariant: str
    cause: str
    """`OURS`, or the excuse that holds."""
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
    owed_qos0: int = 0
    missing_qos0: int = 0

    @property
    def ours(self) -> list[Finding]:
        """Those against what is promised."""
        return [finding for finding in self.findings if finding.cause == OURS]


def judge(events: Iterable[Event], about: Run) -> Verdict:
    """All that is wrong; ``events`` in order."""
    return judged(Evidence(about, events))


def judged(evidence: Evidence) -> Verdict:
    """All that is wrong by what was read of a history."""
    return _Judge(evidence).verdict()


class _Judge:
    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.about = evidence.about
        self.found: list[Finding] = []
        self.owed = {False: 0, True: 0}
        """At QoS 0, and above it."""
        self.missing_qos0 = 0

    def verdict(self) -> Verdict:
        self._lost()
        self._twice()
        self._unexpected()
        self._out_of_order()
        if self.about.complete:
            self._unequal()
        self._unbounded()
        self._unadmitted()
        return Verdict(self.found, self.owed[True], self.owed[False], self.missing_qos0)

    def _lost(self) -> None:
        sessions = self.evidence.sessions()
        by_topic: dict[str, list[Message]] = defaultdict(list)
        for message in self.evidence.messages.values():
            if message.value and (message.acknowledged is not None or not message.qos):
                by_topic[message.topic].append(message)
        for name, wanted in self.evidence.asked:
            if name.startswith(WITNESS):
                continue
            standing = self.evidence.standing(name, wanted)
            session = sessions.get(name)
            if not standing or session is None or not (session.connected or session.lost):
                continue
            granted = min(qos for _, qos in standing)
            entitled = self.evidence.entitled(min(t for t, _ in standing))
            for topic, messages in by_topic.items():
                if topic != wanted and not topic_matches(wanted, topic):
                    continue
                for message in messages:
                    if message.t is None or message.t <= entitled:
                        continue
                    promised = bool(granted and message.qos)
                    self.owed[promised] += 1
                    if (name, message.publisher, message.seq) in self.evidence.receipts:
                        continue
                    if not promised:
                        self.missing_qos0 += 1
                        continue
                    self._find(
                        Case(
                            "lost",
                            session.site,
                            message,
                            since=message.t,
                            session=name,
                            forgotten=session.lost,
                        ),
                        site=session.site,
                        session=name,
                        publisher=message.publisher,
                        seq=message.seq,
                        topic=topic,
                        t=message.t,
                    )

    def _twice(self) -> None:
        for (_, _, publisher, seq, qos), events in self.evidence.once.items():
            if len(events) > 1:
                last = events[-1]
                message = self.evidence.messages.get((publisher, seq))
                if not qos and (message is None or message.qos == 1):
                    continue  # its own client may have sent it again
                self._find_received(Case("twice", last.site, message, t=last.t, receipts=events), last)

    def _unexpected(self) -> None:
        for (session, publisher, seq), receipt in self.evidence.receipts.items():
            first = receipt.first
            message = self.evidence.messages.get((publisher, seq))
            right = (
                message is not None
                and not receipt.differs
                and first.topic == message.topic
                and first.value == message.value
                and not (message.op == "will" and message.refused and message.acknowledged is None)
                and any(topic_matches(each, first.topic) for each in self.evidence.wanted[session])
            )
            if not right:
                self._find_received(Case("unexpected", receipts=[first]), first)

    def _out_of_order(self) -> None:
        # A message crosses with the QoS that is wanted of its topic, a retained one with its own, as all
        # sites keep it; order is promised for each of these.
        wanted = {
            qos
            for (session, _), terms in self.evidence.asked.items()
            for _, qos in terms
            if not session.startswith(WITNESS)
        }
        by_topic = self.about.algorithm in BY_TOPIC or self.about.target != "ildm" or len(wanted) != 1
        highest: dict[tuple[str, str, int, int, bool, str], int] = {}
        highest_of_topic: dict[tuple[str, str, int, int, bool, str], int] = {}
        opening: dict[tuple[str, str, str], int] = {}
        """Site, publisher, topic -> what has come first."""
        for (session, publisher, seq), receipt in self.evidence.receipts.items():
            first = receipt.first
            message = self.evidence.messages.get((publisher, seq))
            if message is None or message.op != "publish" or first.retain:
                continue
            stream = session, publisher, first.qos, message.qos, message.retain
            of_all, of_topic = (*stream, self._ordered(first.topic, by_topic)), (*stream, first.topic)
            before = highest.get(of_all, -1)
            in_topic = seq > highest_of_topic.get(of_topic, -1)
            highest_of_topic[of_topic] = max(seq, highest_of_topic.get(of_topic, -1))
            came_first = opening.setdefault((first.site, publisher, first.topic), seq)
            if seq >= before:
                highest[of_all] = seq
                continue
            case = Case(
                "order",
                first.site,
                message,
                t=first.t,
                receipts=[first],
                before=self.evidence.messages[publisher, before],
                opening=seq < came_first,
                in_topic=in_topic,
                by_topic=by_topic,
            )
            self._find_received(case, first)

    def _ordered(self, topic: str, by_topic: bool) -> str:
        """A name for the topics among which order is kept: those of a class, unless it conflates."""
        of = self.evidence.class_of(topic)
        if by_topic or (of is not None and of.conflates):
            return topic
        return "" if of is None else f"#{of.number}"

    def _unequal(self) -> None:
        if not self.evidence.places:
            return
        setters: dict[str, list[Message]] = defaultdict(list)
        for message in self.evidence.messages.values():
            if message.retain:
                setters[message.topic].append(message)
        for topic in sorted({*self.evidence.kept, *setters}):
            values = {site: self.evidence.kept[topic].get(site, "") for site in sorted(self.evidence.places)}
            of = setters[topic]
            if len(set(values.values())) > 1:
                case = Case("retained", setters=of, values=values)
                self._find(case, site=min(values), topic=topic)
            acknowledged = [message.seq for message in of if message.acknowledged is not None]
            # What a topic may hold is certain where one publisher alone has set it, at one QoS above 0.
            certain = (
                acknowledged
                and len({message.publisher for message in of}) == 1
                and len({message.qos for message in of}) == 1
                and all(message.qos and message.op == "publish" for message in of)
            )
            if not certain:
                continue
            newest = max(acknowledged)
            fresh = {message.value for message in of if message.seq >= newest}
            for site, value in values.items():
                if value not in fresh:
                    publisher = of[0].publisher
                    self._find(
                        Case("stale", setters=of), site=site, publisher=publisher, seq=newest, topic=topic
                    )

    def _unbounded(self) -> None:
        beyond: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
        for (process, gauge, _), reading in self.evidence.readings.items():
            bound = self.evidence.bounds.get((process, gauge))
            if bound is not None and reading[0] > bound:
                beyond[process, gauge].append(reading)
        for (process, gauge), readings in beyond.items():
            highest, last = max(value for value, _ in readings), max(t for _, t in readings)
            invariant = "budget" if gauge == CARRIED else "unbounded"
            self._find(Case(invariant), session=process, seq=highest, topic=gauge, t=last)

    def _unadmitted(self) -> None:
        lost = {
            (finding.publisher, finding.seq, finding.site)
            for finding in self.found
            if finding.invariant == "lost" and finding.cause == OURS
        }
        if not lost or self.about.target != "ildm":
            return
        readings = self.evidence.readings.items()
        beyond = len(lost) - sum(value for (_, counter, _), (value, _) in readings if admits(counter))
        if beyond > 0:
            self._find(Case("unadmitted"), seq=beyond)

    def _find_received(self, case: Case, event: Event) -> None:
        self._find(
            case,
            site=event.site,
            session=event.session,
            publisher=event.publisher,
            seq=event.seq,
            topic=event.topic,
            t=event.t,
        )

    def _find(self, case: Case, **columns: Any) -> None:
        self.found.append(Finding(case.invariant, cause(case, self.evidence), **columns))
