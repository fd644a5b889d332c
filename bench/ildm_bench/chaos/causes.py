"""Why something promised did not hold in a run, where that is for a reason that is said apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ildm.mqtt import topic_matches
from ildm_bench.chaos.evidence import BY_TOPIC, NEVER, UNCERTAIN, Evidence, Message, Session
from ildm_bench.chaos.history import Event
from ildm_bench.chaos.invariants import (
    BY_WISHES,
    CHANGE,
    FORGETS_RETAINED,
    GIVES_BY_TOPIC,
    HIDES_REPLAY,
    KEEPS_UNRELEASED,
    OURS,
    READ,
    RETRIES_LATE,
    TAKES_AGAIN,
)


class Causes:
    """Each of the public methods answers a cause; ``OURS``: there is none that excuses it."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.about = evidence.about

    def of_lost(self, message: Message, session: Session, name: str, publisher: str, seq: int) -> str:
        """A message was not received by the session ``name``."""
        assert message.t is not None
        if session.lost or (session.site, publisher, seq) in self.evidence.forgotten:
            return "store"
        if (name, publisher, seq) in self.evidence.mistaken:
            return "store"
        killed = self.evidence.killed_lives(session.site, message.t, NEVER)
        seen = [
            first.incarnation
            for first in self.evidence.received.get((publisher, seq), ())
            if first.site == session.site
        ]
        if killed and seen and min(seen) <= max(killed):
            return "store"
        if self._was_unreleased(message, session.site) or self._was_unwilled(message, session.site):
            return "store"
        if self.evidence.damaged_last >= message.t:
            return "disk"
        return "unclear" if killed and self.about.store == "lossy" else OURS

    def _was_unreleased(self, message: Message, site: str) -> bool:
        """Whether its own broker was killed when it had answered PUBREC and not PUBCOMP, of a make that
        forgets the message then and answers PUBCOMP all the same."""
        if message.recorded is None or message.acknowledged is None or message.site != site:
            return False
        return KEEPS_UNRELEASED not in self.about.broker and bool(
            self.evidence.kills(site, message.recorded, message.acknowledged)
        )

    def _was_unwilled(self, message: Message, site: str) -> bool:
        """Whether it is a will that its own broker had for its site, and was killed before it was due, or
        before it could know, as it or its node stood still or the machine had lost power."""
        due = message.t
        if message.held is None or due is None or message.site != site:
            return False
        silences = [
            end
            for fault, end in self.evidence.faults.values()
            if fault.topic in {"power", "pause"}
            and fault.session in {f"node/{site}", f"broker/{site}"}
            and fault.t <= due <= end
        ]
        return bool(self.evidence.kills(site, message.held, max([due, *silences])))

    # twice ------------------------------------------------------------------------------------

    def of_twice(self, message: Message | None, events: list[Event]) -> str:
        """A session has received a message of QoS 2 in each of these events."""
        first, last = events[0], events[-1]
        begins = message.site if message is not None else ""
        told = (
            self.evidence.admitted[f"node/{last.site} injection_unguarded"]
            + self.evidence.admitted[f"node/{begins} link_unguarded"]
        )
        begin = first.t if message is None or message.t is None else message.t
        if self.evidence.damaged <= last.t or any(begin <= t <= last.t for t in told):
            return "disk"
        if self._is_resent(message, events):
            return "resent"
        if message is not None and self._is_repaired(message, last.site, last.t):
            return "repaired"
        return OURS

    def _is_resent(self, message: Message | None, events: list[Event]) -> bool:
        """Whether it was sent again, for each time but the first, to a broker that takes it for new then.

        Or by it: with another identifier, or the client would know it, but with DUP.
        """
        begin, last = events[0].t, events[-1]
        if TAKES_AGAIN not in self.about.broker:
            return False
        resent = [] if message is None else message.resent
        if (
            message is not None
            and message.t is not None
            and self.evidence.was_away(message, last.session, begin)
        ):
            begin = message.t
        times = {t for t, site in resent if site == last.site and begin <= t <= last.t}
        told = self.evidence.admitted[f"node/{last.site} {UNCERTAIN}"]
        redelivered = sum(event.dup for event in events)
        uncertain = any(begin <= t <= last.t + READ for t in told)
        return len(times) + redelivered >= len(events) - 1 or uncertain

    def _is_repaired(self, message: Message, site: str, t: float) -> bool:
        """Whether it is retained, and the broker of a site was killed, which does not keep that; or had taken
        another one of which its node does not know, or an older one of a client there after it."""
        if not message.retain or message.t is None:
            return False
        forgetful = any(make in self.about.broker for make in FORGETS_RETAINED)
        if forgetful and self.evidence.kills(site, message.t, t):
            return True
        return any(
            other.retain
            and (other.topic, other.site) == (message.topic, site)
            and other.t is not None
            and (
                (message.t < other.t <= t and self.evidence.is_unsure(other))
                or (
                    message.site != site
                    and other.acknowledged is not None
                    and other.t <= message.t <= other.acknowledged
                )
            )
            for other in self.evidence.messages.values()
        )

    # order ------------------------------------------------------------------------------------

    def of_order(
        self,
        message: Message,
        before: Message,
        first: Event,
        *,
        opening: bool,
        in_topic: bool,
        by_topic: bool,
    ) -> str:
        """A message has been received, ``first``, after one that was published later, ``before``.

        ``opening``: at this site a later one of the topic was the first of all. ``in_topic``: it is in order
        among those of its topic. ``by_topic``: more is not promised.
        """
        evidence, session = self.evidence, first.session
        published = message.t or 0.0
        overlay = self.about.algorithm in BY_TOPIC
        since = published - (CHANGE if overlay else self.about.settle)
        away = evidence.was_away(message, session, first.t)
        if self._was_repeated(message, first, before):
            return "again"
        if any(since <= t <= first.t for t in evidence.tree):
            return "tree"
        if overlay and any(
            fault.t <= first.t and end + CHANGE >= published for fault, end in evidence.faults.values()
        ):
            return "down"
        if overlay and opening:
            return "first"
        if overlay and self._was_early(message, session):
            return "early"
        if in_topic and GIVES_BY_TOPIC in self.about.broker and away:
            return "backlog"
        if first.dup and RETRIES_LATE in self.about.broker and away:
            return "retry"
        if self._may_be_replayed(message, session, first.t):
            return "replay"
        if self._is_repaired(message, first.site, first.t) or self._was_lost(message, first):
            return "repaired"
        if message.retain and not overlay and self._have_met(message, first.t):
            return "met"
        if (
            (self.about.target, self.about.algorithm) == ("ildm", BY_WISHES)
            and by_topic
            and first.qos < message.qos
            and any(since <= t <= first.t and of != session for t, of in evidence.changes)
        ):
            return "quality"
        return "disk" if evidence.damaged <= first.t else OURS

    def _was_repeated(self, message: Message, receipt: Event, after: Message) -> bool:
        """Whether its client sent it again, or the node there, which was killed, and first before the session
        had subscribed: again after that, or what it comes after was sent before that, too."""
        begins = [
            min(asked for asked, _ in terms)
            for (name, wanted), terms in self.evidence.asked.items()
            if name == receipt.session and topic_matches(wanted, message.topic)
        ]
        first = NEVER if message.t is None else message.t
        other = NEVER if after.t is None else after.t
        restarts = self.evidence.restarts(receipt.site, first)
        times = message.again + (restarts if message.qos == 1 and message.site != receipt.site else [])
        return any(
            first < begin and first < again <= receipt.t and (again >= begin or other < begin)
            for begin in begins
            for again in times
        )

    def _was_lost(self, message: Message, first: Event) -> bool:
        """Whether it is retained, and the broker had taken it and lost it with its store."""
        return message.retain and (first.site, first.publisher, first.seq) in self.evidence.forgotten

    def _have_met(self, message: Message, t: float) -> bool:
        """Whether nodes have met again between its publication and ``t``, or shortly before, or a session
        of theirs alone was held up."""
        return self.about.target == "ildm" and any(
            (end <= t or (fault.topic == "hold-session" and fault.t <= t))
            and end + self.about.settle >= (message.t or 0.0)
            for fault, end in self.evidence.faults.values()
            if not fault.session.startswith("broker/")
        )

    def _was_early(self, message: Message, session: str) -> bool:
        """Whether it was published before all sites knew that the session has subscribed."""
        for (name, wanted), terms in self.evidence.asked.items():
            if name == session and topic_matches(wanted, message.topic):
                gone = max(self.evidence.withdrawn.get((name, wanted), ()), default=-1.0)
                begin = min((t for t, _ in terms if t > gone), default=NEVER)
                if (message.t or 0.0) <= self.evidence.entitled(begin) < NEVER:
                    return True
        return False

    def _may_be_replayed(self, message: Message, session: str, t: float) -> bool:
        """Whether it came as what the broker retained, perhaps, from a make that does not say so."""
        if not message.retain or HIDES_REPLAY not in self.about.broker or message.t is None:
            return False
        return any(
            message.t <= asked <= t
            for wanted, times in self.evidence.wanted[session].items()
            if topic_matches(wanted, message.topic)
            for asked in times
        )

    # retained ---------------------------------------------------------------------------------

    def of_unequal(self, setters: Iterable[Message], values: Mapping[str, str]) -> str:
        """What sites have retained of a topic is not the same; ``setters``: its retained messages."""
        if self.evidence.damaged < NEVER:
            return "disk"
        # a site has what its broker has taken, and its node was killed before it knew
        unknown = any(
            self.evidence.is_unsure(message) and values.get(message.site) == message.value
            for message in setters
        )
        return "unknown" if unknown else OURS

    def of_stale(self) -> str:
        """A site has an older retained message than it should."""
        return "disk" if self.evidence.damaged < NEVER else OURS
