"""Why something that did not hold does not count against the nodes: each reason is one class.

The table of excuses in ``README.md`` is printed from these classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from ildm.mqtt import topic_matches
from ildm_bench.chaos.classed import CONFLATED, EXPIRED, SET_BACK
from ildm_bench.chaos.evidence import BY_TOPIC, NEVER, UNCERTAIN, UNSURE, Evidence, Message
from ildm_bench.chaos.history import Event

OURS = "ours"
"""The cause of what no excuse holds for."""

KEEPS_UNRELEASED = "activemq"
"""The make of broker that keeps in a crash what it has answered with PUBREC alone."""
TAKES_AGAIN = "activemq"
"""The make that delivers a message of QoS 2 once more which comes again before its PUBREL (MQTT-4.3.3-10)."""
TAKES_AT_ONCE = ("rabbitmq", "activemq", "moquette", "amqtt")
"""The makes with which a message of QoS 2 takes effect when it comes, not when it is released."""
FORGETS_RETAINED = ("rabbitmq", "activemq", "moquette", "amqtt", "-default")
"""The makes, and settings, that keep no retained messages in a crash."""
BY_WISHES = "sf"
"""The algorithm that sends a message with the QoS that is wanted of its topic."""
GIVES_BY_TOPIC = "activemq"
"""The make from which what has waited for a session comes topic by topic."""
HIDES_REPLAY = "moquette"
"""The make from which what a topic retains comes with the flag cleared, against MQTT-3.3.1-8."""
RETRIES_LATE = "moquette"
"""The make that sends again what was under way 5 s after its session is back; what has waited goes first,
against MQTT-4.6.0-1."""
PROBE = "$ildm/probe/"
"""How topics begin on which nodes try their brokers (`ildm.core.broker.delivery`)."""
SHOW_DOLLAR = ("rabbitmq", "moquette")
"""The makes that give topics with ``$`` to subscribers of ``#``, against MQTT-4.7.2-1."""

READ = 2.0
"""Seconds within which what a counter of a live node says is read."""
DELAYS = frozenset({"slow", "drift", "flap"})
"""Faults in which links stay up."""
CHANGE = 6.0
"""Seconds after a site of an overlay has begun to use other links, or after a fault, in which casts may still
miss it, as long as others are given to hear of a subscription. What it missed is sent again, and late."""


class Case(NamedTuple):
    """Something that did not hold, once."""

    invariant: str
    site: str = ""
    message: Message | None = None
    """None: nobody has published it, or the case is about a topic."""
    since: float = 0.0
    t: float = NEVER
    """Damage to a disk in between may be why."""
    session: str = ""
    forgotten: bool = False
    """The broker has lost the session."""
    receipts: Sequence[Event] = ()
    """``twice``: all at that QoS; ``order``, ``unexpected``: the first."""
    before: Message | None = None
    """``order``: it was published later, and received before."""
    opening: bool = False
    """``order``: at this site a later one of the topic was the first of all."""
    in_topic: bool = False
    """``order``: it is in order among those of its topic."""
    by_topic: bool = False
    """``order``: more is not promised."""
    setters: Sequence[Message] = ()
    """``retained``, ``stale``: the retained messages of the topic."""
    values: Mapping[str, str] = {}
    """``retained``: site -> what it has of the topic."""

    @property
    def receipt(self) -> Event:
        return self.receipts[0]

    @property
    def published(self) -> float:
        return 0.0 if self.message is None or self.message.t is None else self.message.t

    def away(self, evidence: Evidence) -> bool:
        """Whether its session was away between the publication and the first receipt."""
        return any(
            self.published <= back <= self.receipt.t for back in evidence.resumed[self.receipt.session]
        )


class Excuse(ABC):
    """The docstring of an excuse is its text, and its name that of the class.

    ``holds``: whether it is why the case did not hold.
    """

    name: ClassVar[str]
    text: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.name, cls.text = cls.__name__.lower(), " ".join((cls.__doc__ or "").split())

    @staticmethod
    @abstractmethod
    def holds(case: Case, evidence: Evidence) -> bool: ...


class Store(Excuse):
    """A killed broker lost the message or the session. Also: it had answered QoS 2 with PUBREC alone, reused
    an identifier, or was killed before a will was due.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        message, site = case.message, case.site
        assert message is not None
        assert message.t is not None
        key = message.publisher, message.seq
        if case.forgotten or (site, *key) in evidence.forgotten or (case.session, *key) in evidence.mistaken:
            return True
        # Another session there got it in the life that the kill ended. By time it cannot be told: what the
        # broker has sent may be read after the kill.
        killed = [fault.incarnation for fault, _ in evidence.kills(f"broker/{site}", message.t)]
        seen = [first.incarnation for first in evidence.received.get(key, ()) if first.site == site]
        if killed and seen and min(seen) <= max(killed):
            return True
        return message.site == site and (
            _was_unreleased(message, evidence) or _was_unwilled(message, evidence)
        )


def _was_unreleased(message: Message, evidence: Evidence) -> bool:
    """Whether its own broker was killed when it had answered PUBREC and not PUBCOMP, of a make that forgets
    the message then and answers PUBCOMP all the same."""
    if message.recorded is None or message.acknowledged is None:
        return False
    return KEEPS_UNRELEASED not in evidence.about.broker and bool(
        evidence.kills(f"broker/{message.site}", message.recorded, message.acknowledged)
    )


def _was_unwilled(message: Message, evidence: Evidence) -> bool:
    """Whether it is a will that its own broker had for its site, and was killed before it was due, or before
    it could know, as it or its node stood still or the machine had lost power."""
    due, site = message.t, message.site
    if message.held is None or due is None:
        return False
    silences = [
        end
        for fault, end in evidence.faults.values()
        if fault.topic in {"power", "pause"}
        and fault.session in {f"node/{site}", f"broker/{site}"}
        and fault.t <= due <= end
    ]
    return bool(evidence.kills(f"broker/{site}", message.held, max([due, *silences])))


class Unclear(Excuse):
    """A broker that may lose what it has acknowledged was killed after the publication, and no session of its
    site has the message.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        return evidence.about.store == "lossy" and bool(evidence.kills(f"broker/{case.site}", case.published))


class Disk(Excuse):
    """A spool was torn or altered, or lost power in a mode that does not promise to survive that.
    For a will also: its own node's spool was, since its broker has it. For twice also: injection_unguarded or
    link_unguarded of a node rose.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        message = case.message
        for t, process in evidence.damages:
            begin = case.since
            if message is not None and message.held is not None and process == f"node/{message.site}":
                begin = message.held
            if begin <= t <= case.t:
                return True
        if case.invariant != "twice":
            return False
        told = (
            evidence.admitted[f"node/{case.site} injection_unguarded"]
            + evidence.admitted[f"node/{message.site if message is not None else ''} link_unguarded"]
        )
        begin = case.receipt.t if message is None or message.t is None else message.t
        return any(begin <= t <= case.t for t in told)


class State(Excuse):
    """A node lost its state directory while it was still to give somebody the message, or to send the will.
    For twice: it gives its broker a retained message again, or takes QoS 2 again that its client repeats.
    With an overlay also: not all sites had acknowledged the message.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        message = case.message
        if case.invariant == "twice":
            return message is not None and _is_taken_again(message, case, evidence)
        of = case.setters if message is None else (message,)
        return any(_is_gone(each, evidence) for each in of)


def _is_taken_again(message: Message, case: Case, evidence: Evidence) -> bool:
    """Whether a node has forgotten it that knew it."""
    for t, process in evidence.emptied:
        unsure = message.retain or (message.publisher, message.seq) in evidence.under_way
        if unsure and process == f"node/{case.site}" and case.published <= t <= case.t:
            return True
        repeated = any(again >= t and site == message.site for again, site in message.resent)
        if process == f"node/{message.site}" and case.published <= t and repeated:
            return True
    return False


def _is_gone(message: Message, evidence: Evidence) -> bool:
    """Whether it was a node's to give, or a will's of a client there, when that node lost its state."""
    held = message.held
    return (message.publisher, message.seq) in evidence.gone or (
        held is not None
        and any(process == f"node/{message.site}" and held <= t for t, process in evidence.emptied)
    )


class Rerouted(Excuse):
    """The message was rerouted to a node that had lost its state directory. link_again_unsure of the node
    rose.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        node = f"node/{case.site}"
        told = evidence.admitted[f"{node} {UNSURE}"]
        return any(
            process == node and case.published <= t <= case.t and any(t <= at <= case.t + READ for at in told)
            for t, process in evidence.emptied
        )


class Conflated(Excuse):
    """Of its topic only the newest message waits for links (`conflate`), and the session got a newer one.
    link_conflated of a node rose.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        message = case.message
        assert message is not None
        of = evidence.class_of(message.topic)
        return (
            of is not None
            and of.conflates
            and evidence.let_go(CONFLATED, case.published)
            and evidence.newer(case.session, message)
        )


class Expired(Excuse):
    """Messages of its class wait for links no longer than `expire`. link_dropped_aged of a node rose."""

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        message = case.message
        assert message is not None
        of = evidence.class_of(message.topic)
        return of is not None and of.expires and evidence.let_go(EXPIRED, case.published)


class Behind(Excuse):
    """What waited when a link came up goes after newer messages of its class (`after_live`). link_set_back of
    a node rose between the publication and the receipt.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        message = case.message
        assert message is not None
        of = evidence.class_of(message.topic)
        return (
            of is not None
            and of.after_live
            and evidence.let_go(SET_BACK, case.published, case.receipt.t + READ)
        )


class Resent(Excuse):
    """ActiveMQ delivers QoS 2 again if the client or the node sends it again before PUBREL. The client's
    events, injection_uncertain_resent or DUP show it.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        if TAKES_AGAIN not in evidence.about.broker:
            return False
        message, receipts, begin = case.message, case.receipts, case.receipt.t
        if message is not None and message.t is not None and case.away(evidence):
            begin = message.t
        resent = [] if message is None else message.resent
        times = {t for t, site in resent if site == case.site and begin <= t <= case.t}
        told = evidence.admitted[f"node/{case.site} {UNCERTAIN}"]
        redelivered = sum(event.dup for event in receipts)
        uncertain = any(begin <= t <= case.t + READ for t in told)
        return len(times) + redelivered >= len(receipts) - 1 or uncertain


class Repaired(Excuse):
    """A killed broker lost the retained message, or an unacknowledged or older one replaced it there. The
    node publishes it again, to all subscribers.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        message, site, t = case.message, case.site, case.t
        if message is None or not message.retain or message.t is None:
            return False
        if case.invariant == "order" and (site, message.publisher, message.seq) in evidence.forgotten:
            return True
        if _is_of(FORGETS_RETAINED, evidence) and evidence.kills(f"broker/{site}", message.t, t):
            return True
        return any(
            other.retain
            and (other.topic, other.site) == (message.topic, site)
            and other.t is not None
            and (
                (message.t < other.t <= t and _is_unsure(other, evidence))
                or (
                    message.site != site
                    and other.acknowledged is not None
                    and other.t <= message.t <= other.acknowledged
                )
            )
            for other in evidence.messages.values()
        )


def _is_of(makes: Iterable[str], evidence: Evidence) -> bool:
    """Whether there are brokers of these makes."""
    return any(make in evidence.about.broker for make in makes)


def _is_unsure(message: Message, evidence: Evidence) -> bool:
    """Whether its client has got no answer, and its node was killed and did not get it again."""
    at_once = message.qos == 1 or _is_of(TAKES_AT_ONCE, evidence)
    if message.t is None or message.acknowledged is not None or not message.qos or not at_once:
        return False
    again = message.again if message.qos == 1 else [] if message.recorded is None else [NEVER]
    killed = evidence.kills(f"node/{message.site}", message.t)
    return any(all(back < fault.t for back in again) for fault, _ in killed)


class Again(Excuse):
    """A QoS 1 message was sent first before the session had subscribed, and again by its client or its killed
    node. Later messages of the first round come before it.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        message, receipt, before = case.message, case.receipt, case.before
        assert message is not None
        assert before is not None
        begins = [
            min(asked for asked, _ in terms)
            for (name, wanted), terms in evidence.asked.items()
            if name == receipt.session and topic_matches(wanted, message.topic)
        ]
        first = NEVER if message.t is None else message.t
        other = NEVER if before.t is None else before.t
        by_node = message.qos == 1 and message.site != receipt.site
        killed = evidence.kills(f"node/{receipt.site}", first) if by_node else []
        times = [*message.again, *(back for _, back in killed)]
        return any(
            first < begin and first < again <= receipt.t and (again >= begin or other < begin)
            for begin in begins
            for again in times
        )


class Tree(Excuse):
    """The links in use changed between publication and receipt, or in the settle time before (with an overlay
    6 s).
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        since = case.published - (CHANGE if _is_overlay(evidence) else evidence.about.settle)
        return any(since <= t <= case.t for t in evidence.tree)


def _is_overlay(evidence: Evidence) -> bool:
    return evidence.about.algorithm in BY_TOPIC


class Down(Excuse):
    """With an overlay, a fault lasted between publication and receipt, or ended less than 6 s before the
    publication.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        return _is_overlay(evidence) and any(
            fault.t <= case.t and end + CHANGE >= case.published for fault, end in evidence.faults.values()
        )


class First(Excuse):
    """With an overlay, the message is older than the first one of its publisher and topic at this site."""

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        return _is_overlay(evidence) and case.opening


class Early(Excuse):
    """With an overlay, the message was published before all sites knew of the subscription. It is fetched,
    and comes behind those sent directly.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        message, session = case.message, case.receipt.session
        if message is None or not _is_overlay(evidence):
            return False
        begins = [
            min((t for t, _ in evidence.standing(name, wanted)), default=NEVER)
            for name, wanted in evidence.asked
            if name == session and topic_matches(wanted, message.topic)
        ]
        return any(case.published <= evidence.entitled(begin) < NEVER for begin in begins)


class Backlog(Excuse):
    """ActiveMQ gives out topic by topic what waited for an absent session. Within its topic the message is in
    order.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        return case.in_topic and GIVES_BY_TOPIC in evidence.about.broker and case.away(evidence)


class Retry(Excuse):
    """Moquette sends messages in flight again, with DUP, only 5 s after the session is back. They come behind
    what has waited.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        return case.receipt.dup and RETRIES_LATE in evidence.about.broker and case.away(evidence)


class Replay(Excuse):
    """Moquette gives retained messages to new subscribers without the flag. The message is retained and older
    than the SUBSCRIBE.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        message = case.message
        if message is None or not message.retain or message.t is None:
            return False
        return HIDES_REPLAY in evidence.about.broker and any(
            message.t <= asked <= case.t
            for wanted, times in evidence.wanted[case.receipt.session].items()
            if topic_matches(wanted, message.topic)
            for asked in times
        )


class Met(Excuse):
    """A retained message was in flight when nodes met, or while one of their sessions was held. Nodes tell
    each other the newest one first.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        message, about = case.message, evidence.about
        if message is None or not message.retain or _is_overlay(evidence) or about.target == "bridge":
            return False
        return any(
            (end <= case.t or (fault.topic == "hold-session" and fault.t <= case.t))
            and end + about.settle >= case.published
            for fault, end in evidence.faults.values()
            if not fault.session.startswith("broker/")
        )


class Quality(Excuse):
    """With SF, the message crossed at less QoS than it was published with, while another session came or
    went. Less QoS does not wait for more.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        message, about, receipt = case.message, evidence.about, case.receipt
        if about.target == "bridge" or about.algorithm != BY_WISHES or not case.by_topic:
            return False
        since = case.published - about.settle
        return (
            message is not None
            and receipt.qos < message.qos
            and any(since <= t <= case.t and of != receipt.session for t, of in evidence.changes)
        )


class Ring(Excuse):
    """At QoS 0, a fault other than a delay lasted in the 6 s before the publication, or until the receipt.
    Links that come up close a ring for as long as news of them take beyond link.settle.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        return not case.receipt.qos and any(
            fault.topic not in DELAYS and fault.t <= case.t and end + CHANGE >= case.published
            for fault, end in evidence.faults.values()
        )


class Unknown(Excuse):
    """A site has a retained message that was never acknowledged. Its node was killed before it knew, and its
    client did not send it again.
    """

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        return any(
            _is_unsure(message, evidence) and case.values.get(message.site) == message.value
            for message in case.setters
        )


class Probe(Excuse):
    """A subscriber of # got a node's own message on $ildm/probe/... from RabbitMQ or Moquette."""

    @staticmethod
    def holds(case: Case, evidence: Evidence) -> bool:
        receipt = case.receipt
        return not receipt.publisher and receipt.topic.startswith(PROBE) and _is_of(SHOW_DOLLAR, evidence)


EXCUSES: dict[str, tuple[type[Excuse], ...]] = {
    "lost": (Store, Disk, State, Unclear, Conflated, Expired),
    "twice": (Disk, State, Rerouted, Resent, Repaired, Ring),
    "unexpected": (Probe,),
    "order": (Again, Tree, Down, First, Early, Backlog, Retry, Replay, Repaired, Met, Quality, Disk, Behind),
    "retained": (Disk, State, Unknown),
    "stale": (Disk, State),
}
"""Invariant -> its excuses; the first that holds is the cause."""
CAUSES: dict[str, str] = {
    OURS: "against what is promised",
    **{excuse.name: excuse.text for excuses in EXCUSES.values() for excuse in excuses},
}
"""Name -> text."""


def cause(case: Case, evidence: Evidence) -> str:
    """The name of the excuse that holds; `OURS` if there is none."""
    for excuse in EXCUSES.get(case.invariant, ()):
        if excuse.holds(case, evidence):
            return excuse.name
    return OURS


def table() -> str:
    """All excuses, as Markdown."""
    lines = ["| Excuse | Of | Holds for |", "|---|---|---|"]
    for name, text in CAUSES.items():
        of = [
            invariant
            for invariant, excuses in EXCUSES.items()
            if any(excuse.name == name for excuse in excuses)
        ]
        if of:
            lines.append(f"| `{name}` | {', '.join(of)} | {text} |")
    return "\n".join(lines) + "\n"
