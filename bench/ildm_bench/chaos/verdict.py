"""What is wrong in the history of one run, in plain Python: the same as `ildm_bench.chaos.invariants`, at
once.

Thousands of short histories a minute are judged so; the queries are for many or long ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from ildm.mqtt import topic_matches
from ildm_bench.chaos.causes import Causes
from ildm_bench.chaos.evidence import BY_TOPIC, WITNESS, Evidence, Message
from ildm_bench.chaos.history import Event, Run
from ildm_bench.chaos.invariants import OURS, PROBE, SHOW_DOLLAR


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


def judge(events: Iterable[Event], about: Run) -> Verdict:
    """All that is wrong; ``events`` in order."""
    return _Judge(Evidence(about, events)).verdict()


class _Judge:
    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.about = evidence.about
        self.causes = Causes(evidence)
        self.found: list[Finding] = []

    def verdict(self) -> Verdict:
        self.sessions = self.evidence.sessions()
        owed = self._lost()
        self._twice()
        self._unexpected()
        self._out_of_order()
        if self.about.complete:
            self._unequal()
        return Verdict(self.found, owed)

    def _lost(self) -> int:
        owed = 0
        topics = {message.topic for message in self.evidence.messages.values()}
        by_topic: dict[str, list[tuple[tuple[str, int], Message]]] = defaultdict(list)
        for key, message in self.evidence.messages.items():
            if message.value and message.qos and message.acknowledged is not None:
                by_topic[message.topic].append((key, message))
        for (name, wanted), terms in self.evidence.asked.items():
            if name.startswith(WITNESS):
                continue
            gone = max(self.evidence.withdrawn.get((name, wanted), ()), default=-1.0)
            standing = [(t, qos) for t, qos in terms if t > gone]
            session = self.sessions.get(name)
            if not standing or session is None or not (session.connected or session.lost):
                continue
            if min(qos for _, qos in standing) == 0:
                continue
            entitled = self.evidence.entitled(min(t for t, _ in standing))
            for topic in topics:
                if topic != wanted and not topic_matches(wanted, topic):
                    continue
                for (publisher, seq), message in by_topic[topic]:
                    if message.t is None or message.t <= entitled:
                        continue
                    owed += 1
                    if (name, publisher, seq) not in self.evidence.receipts:
                        cause = self.causes.of_lost(message, session, name, publisher, seq)
                        self._find("lost", cause, session.site, name, publisher, seq, topic, message.t)
        return owed

    def _twice(self) -> None:
        for (session, _, publisher, seq), events in self.evidence.at_qos_2.items():
            if len(events) > 1:
                last = events[-1]
                cause = self.causes.of_twice(self.evidence.messages.get((publisher, seq)), events)
                self._find("twice", cause, last.site, session, publisher, seq, last.topic, last.t)

    def _unexpected(self) -> None:
        for (session, publisher, seq), receipt in self.evidence.receipts.items():
            first = receipt.first
            message = self.evidence.messages.get((publisher, seq))
            right = (
                message is not None
                and not receipt.others
                and first.topic == message.topic
                and first.value == message.value
                and not (message.op == "will" and message.refused and message.acknowledged is None)
                and any(topic_matches(each, first.topic) for each in self.evidence.wanted[session])
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
            for (session, _), terms in self.evidence.asked.items()
            for _, qos in terms
            if not session.startswith(WITNESS)
        }
        by_topic = self.about.algorithm in BY_TOPIC or self.about.target != "ildm" or len(wanted) != 1
        highest: dict[tuple[str, str, int, int, bool, str], int] = {}
        highest_of_topic: dict[tuple[str, str, int, int, bool, str], int] = {}
        opening: dict[tuple[str, str, str], int] = {}
        """Site, publisher, topic -> what has come first."""
        for key in self.evidence.order:
            session, publisher, seq = key
            receipt = self.evidence.receipts[key]
            message = self.evidence.messages.get((publisher, seq))
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
            cause = self.causes.of_order(
                message,
                self.evidence.messages[publisher, before],
                first,
                opening=seq < opening[at_site],
                in_topic=in_topic,
                by_topic=by_topic,
            )
            self._find("order", cause, first.site, session, publisher, seq, first.topic, first.t)

    def _unequal(self) -> None:
        if not self.evidence.places:
            return
        setters: dict[str, list[tuple[str, int, Message]]] = defaultdict(list)
        for (publisher, seq), message in self.evidence.messages.items():
            if message.retain:
                setters[message.topic].append((publisher, seq, message))
        for topic in sorted({*self.evidence.kept, *setters}):
            values = {site: self.evidence.kept[topic].get(site, "") for site in sorted(self.evidence.places)}
            of = setters[topic]
            if len(set(values.values())) > 1:
                cause = self.causes.of_unequal([message for _, _, message in of], values)
                self._find("retained", cause, min(values), "", "", -1, topic, 0.0)
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
                    self._find("stale", self.causes.of_stale(), site, "", of[0][0], newest, topic, 0.0)

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
