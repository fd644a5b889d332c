"""Comparing the local broker's retained messages with what the node remembers, topic by topic.

A broker may come back without its store, or with an older one; a node may be killed between saving a
message and injecting it; and what reached a broker on two connections at once it may have taken in
another order (:mod:`ildm.core.transfer.contention`). So the node looks: everything after each connection
of its own session, else what is contested. It subscribes to exact names, as not every broker has retained
messages for wildcards, and injects what is missing or different, and deletes what should be gone. A value
which a client has set behind the node's back, at the broker itself, is overruled that way.

Silence proves that a value is missing only where the account may read. A value of the same parent (all levels
but the last) proves that. Before the broker has shown one, one value of the parent is tried, and the others
follow when the broker has shown it. Where the broker hides what it was given, nothing is mended. A will is
judged by the broker: after the node has sent one, the value of the broker wins. That it has none counts only
on a topic which the broker has shown before: what the node takes for gone is deleted at all sites.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from ildm.api import Stamp
from ildm.core.backoff import Backoff
from ildm.core.broker.audit_session import AuditSession
from ildm.core.broker.visibility import Unshown, Visibility, parent_of
from ildm.core.transfer.contention import SETTLE
from ildm.mqtt import Property, Publish, Version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ildm.core.broker.injection import Injector

VALUES = 100
"""Values asked for at once: some brokers drop what they cannot send at once."""
DELETIONS = 1000
BATCH_BYTES = 32_768
"""Bytes of topics in one SUBSCRIBE."""
AT_START = 3.0
"""Seconds after the first connection: neighbours may know something newer, and tell it first."""
ATTEMPTS = 3
"""Connections that may be lost over one batch."""
KEEPS_NONE = "the broker keeps no retained messages; lost ones are not set again"
SHOWS_NONE = "the broker hides retained messages from the node's account; lost ones are not set again"
LEARN = 2.0
"""Seconds between looks at parents of which it is unknown whether the account may read them."""
WILL = 5.0
"""Seconds after a will of the node within which the broker publishes the same will."""
TOPICS = 10_000
"""Topics of wills, and of one search for further parents."""
POISON = 10_000
"""Topics remembered whose value the broker hangs up on; of more, the oldest is tried again."""


class Auditor:
    """Decides what is looked at; :class:`AuditSession` looks."""

    def __init__(self, injector: Injector) -> None:
        self.injector = injector
        self.parts = injector.parts
        self.driver = injector.parts.driver
        self.retained = injector.parts.retained
        config = injector.parts.config.broker
        self.enabled = config.audit
        self.rate = config.audit_rate
        self.agenda: dict[str, bool] = {}
        """Topics to look at, and whether each was contested."""
        self.session: AuditSession | None = None
        self.looked_at = 0
        self.repaired = 0
        self._failed = 0
        self._denied = False
        self._backoff = Backoff(self.driver.random, config.reconnect_min, config.reconnect_max)
        self._first = True
        self._waiting: Any = None
        self._checking = False
        self._alarm: Any = None
        self._stopped = False
        self._visibility = Visibility()
        self._learning: set[str] = set()
        """Topics that are looked at for their parents alone."""
        self._learnt_at = 0
        self._came_at = 0
        """The latest stamp when the broker came: it has been given what is newer."""
        self._learner: Any = None
        self._wills: dict[str, float] = {}
        """Topics of wills that were sent, and when: the broker's value wins."""
        self._told: set[str] = set()
        self.unseen: str | None = None
        """Why what the broker keeps is not compared, for people; None: it is."""
        self._poison: dict[str, Stamp | None] = {}
        """Topics with a value that the broker hangs up on."""
        self.retained.contention.wake = self._contested
        self.retained.expired = self._expired
        self.retained.scheduled = self._expiry_ahead

    # why to look ------------------------------------------------------------------------------

    def broker_came(self) -> None:
        """The node's own session has been accepted: what the broker has is uncertain."""
        delay, self._first = (AT_START if self._first else SETTLE), False
        self.unseen = None
        self._came_at = self.retained.clock.last
        self._visibility.forget()
        self._wills.clear()  # silence of a broker that was away says nothing of them
        if not self.injector.keeps_retained:
            self._cannot(KEEPS_NONE)
        elif self.enabled and not self._stopped:
            if self._waiting is not None:
                self._waiting.cancel()
            self._waiting = self.driver.call_later(delay, self._everything)
            if self._learner is None:
                self._learner = self.driver.call_later(LEARN, self._learn)

    def _everything(self) -> None:
        self._waiting = None
        self.agenda = {
            **dict.fromkeys([*self.retained.values, *self.retained.deletions], False),
            **self.agenda,
        }
        self.looked_at = self.repaired = 0
        self._failed = 0
        self._look()

    def _cannot(self, reason: str) -> None:
        """What the broker keeps cannot be compared."""
        self.unseen = reason
        if reason not in self._told:
            self._told.add(reason)
            self.driver.log("warning", "retained messages of the broker are not mended", reason=reason)

    def _learn(self) -> None:
        """Look at one topic of each further parent, while the broker still has what it was given."""
        self._learner = self.driver.call_later(LEARN, self._learn)
        changed = self.retained.clock.last
        if changed == self._learnt_at or self._waiting is not None or not self.injector.connected:
            return
        if self.agenda or (self.session is not None and self.session.is_looking):
            return
        self._learnt_at = changed
        parents: set[int] = set()
        for topic in islice(reversed(self.retained.values), TOPICS):
            parent = parent_of(topic)
            if parent in parents or self._visibility.is_known(topic):
                continue
            if self.retained.values[topic].stamp.time <= self._came_at:
                continue  # the broker may have lost it
            contention = self.retained.contention
            if self.retained.releases.is_unreleased(topic):
                continue
            uncertain = topic in contention.contested or contention.is_settling(topic)
            if uncertain or contention.is_open(topic) or topic in self.agenda:
                self._learnt_at = 0
                continue
            parents.add(parent)
            self._learning.add(topic)
            self.agenda[topic] = False
        self._look()

    def seen(self, topic: str) -> None:
        """The broker has shown a message on a topic."""
        if self._visibility.shown(topic):
            self.unseen = None

    def _was_given(self, topic: str) -> bool:
        """Whether the node has injected a value since the broker came, which then keeps it, shown or not.

        A value of a local client proves nothing: the broker may have refused it, or await its release.
        """
        value = self.retained.values.get(topic)
        return (
            value is not None
            and value.stamp.node != self.parts.node_id
            and value.stamp.time > self._came_at
            and topic not in self.retained.contention.contested
        )

    def _hidden(self) -> None:
        """The broker shows nothing on a topic, which says nothing of what it keeps."""
        self.parts.counters["retained_audit_denied"] += 1
        self._cannot(SHOWS_NONE)

    def _try(self, topic: str) -> None:
        """Inject one value of an unknown parent; further ones wait until it is looked at."""
        if self._visibility.may_try(topic):
            if not self.repair(topic):
                return  # it is withheld, or on its way
            self.repaired += 1
            self._visibility.tried(topic)
        self.retained.contention.contest(topic)

    def will_sent(self, topic: str, restored: bool) -> None:
        """The node has sent a retained will, which the broker may have judged otherwise."""
        if self.enabled and not restored and len(self._wills) < TOPICS:
            self._wills[topic] = self.driver.now()
        elif not restored:
            return
        self.retained.contention.contest(topic)

    def overrules(self, topic: str, found: Publish) -> bool:
        """Whether the broker's value stays, as it judged a will otherwise; empty: it has none."""
        sent = self._wills.get(topic)
        if sent is None:
            return self.parts.events.left_will(topic, found.payload)
        if self.driver.now() - sent < WILL:
            self.retained.contention.contest(topic)  # the broker may publish it a little later
            return True
        del self._wills[topic]
        self.parts.counters["retained_wills_overruled"] += 1
        properties = dict(found.properties)
        properties.pop(Property.SUBSCRIPTION_IDENTIFIER, None)
        value = Publish(
            topic=topic,
            payload=found.payload,
            qos=self.parts.config.link.qos and 1,
            retain=True,
            properties=properties,
        )
        self.parts.events.value_found(value)
        return True

    def _contested(self) -> None:
        if not self._checking and not self._stopped:
            self._checking = True
            self.driver.call_later(SETTLE, self._check)

    def _check(self) -> None:
        """Look at contested topics that have come to rest."""
        self._checking = False
        if not self.injector.connected or self.injector.is_behind:
            self._contested()
            return
        quiet = self.retained.contention.take_quiet()
        if self.enabled:
            self.agenda.update(dict.fromkeys(quiet, True))
            self._look()
        else:
            for topic in quiet:
                self.repair(topic)
        if self.retained.contention.contested:
            self._contested()

    def _expired(self, topic: str) -> None:
        if self.injector.version is not Version.V5:  # else the broker sees to it
            self.repair(topic)

    def _expiry_ahead(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if not self._stopped:
            self._alarm = self.driver.call_later(max(0.0, at - self.driver.now()), self._look_for_expired)

    def _look_for_expired(self) -> None:
        self._alarm = None
        self.retained.look_for_expired()

    def poisonous(self, message: Publish) -> None:
        """The broker hangs up on it: no repair sends it again, else it would with each new connection."""
        if not message.retain:
            return
        self._poison.pop(message.topic, None)
        self._poison[message.topic] = self.retained.newest(message.topic)
        if len(self._poison) > POISON:
            del self._poison[next(iter(self._poison))]

    def broker_absent(self) -> None:
        """It has ended; the next one may take what it did not."""
        self._poison.clear()

    def broker_moved(self) -> None:
        """The broker is looked for elsewhere."""
        self._poison.clear()
        if self.session is not None:
            self.session.abort()

    def stop(self) -> None:
        self._stopped = True
        for timer in (self._waiting, self._alarm, self._learner):
            if timer is not None:
                timer.cancel()
        self.agenda.clear()
        if self.session is not None:
            self.session.end()

    # looking ----------------------------------------------------------------------------------

    def _look(self) -> None:
        if not self.injector.keeps_retained:
            self.agenda.clear()
        if self._stopped or not self.agenda or not self.injector.connected:
            return
        if self.injector.is_behind:
            if self._waiting is None:
                self._waiting = self.driver.call_later(SETTLE, self._look_again)
            return
        if self.session is None:
            self.session = AuditSession(self)
            config = self.parts.config.broker
            self.driver.dial(self.parts.brokers.current, self.session, config.connect_timeout)
        else:
            self.session.go_on()

    def _look_again(self) -> None:
        self._waiting = None
        self._look()

    def batch(self) -> dict[str, bool]:
        """The next topics to look at: values, or deletions, which are told by silence."""
        batch: dict[str, bool] = {}
        size = 0
        deletions: bool | None = None
        done: list[str] = []
        for topic, contested in self.agenda.items():
            if self.retained.newest(topic) is None:
                done.append(topic)  # forgotten meanwhile
                continue
            if self._is_on_its_way(topic):
                done.append(topic)
                continue
            deleted = topic in self.retained.deletions
            if deletions is None:
                deletions = deleted
            if deleted is not deletions:
                continue
            size += len(topic.encode()) + 3
            if batch and (size > BATCH_BYTES or len(batch) >= (DELETIONS if deletions else VALUES)):
                break
            batch[topic] = contested
        for topic in [*done, *batch]:
            del self.agenda[topic]
        return batch

    def looked(self, batch: Iterable[str], count: int, wrong: Iterable[str], missing: Iterable[str]) -> None:
        """A batch has been looked at; topics are ``wrong`` with another message, ``missing`` without one."""
        unseen = set(missing)
        repairs = list(wrong)
        for topic in unseen:
            if topic in self._learning:
                if not self._visibility.is_readable(topic):
                    self._visibility.hidden(topic)
                    self._hidden()
            elif topic in self._wills:
                if self._visibility.has_shown(topic):
                    self.overrules(topic, Publish(topic=topic, retain=True))
                else:
                    self._hidden()
            elif self._is_missing(topic):
                repairs.append(topic)
        for topic in batch:
            self._learning.discard(topic)
            if topic not in self.retained.contention.contested:
                self._wills.pop(topic, None)
        self._failed = 0
        self._backoff.reset()
        self.looked_at += count
        for topic in repairs:
            self.repaired += 1
            self.repair(topic)
        if not self.agenda:
            level = "info" if self.repaired else "debug"
            self.driver.log(
                level,
                "compared the broker's retained messages",
                topics=self.looked_at,
                repaired=self.repaired,
            )
            self.looked_at = self.repaired = 0

    def _is_missing(self, topic: str) -> bool:
        """Whether the broker's silence proves that it lacks a value; else do what it asks for."""
        unshown = self._visibility.unshown(topic, self._was_given(topic))
        if unshown is Unshown.HIDDEN:
            self._hidden()
        elif unshown is Unshown.BUSY:
            self.retained.contention.contest(topic)
        elif unshown is Unshown.UNKNOWN:
            self._try(topic)
        return unshown is Unshown.MISSING

    def denied(self, topic: str, contested: bool) -> None:
        """The broker does not let the node subscribe to a topic."""
        self.parts.counters["retained_audit_denied"] += 1
        if not self._denied:
            self._denied = True
            self.driver.log(
                "warning", "the broker does not let the node see its retained messages", topic=topic
            )
        self._visibility.denied(topic)
        self._learning.discard(topic)
        self._wills.pop(topic, None)
        self.unseen = SHOWS_NONE
        if contested:
            self.repair(topic)

    def failed(self, batch: dict[str, bool]) -> None:
        """The connection has ended, or could not be made, with this left to look at."""
        self.session = None
        if self._stopped:
            return
        self.agenda = {**batch, **self.agenda}
        if not self.agenda:
            return
        self._failed += 1
        if self._failed >= ATTEMPTS and batch:
            self._failed = 0
            self.parts.counters["retained_audit_failed"] += len(batch)
            self.driver.log(
                "warning", "retained messages of the broker cannot be compared", topics=len(batch)
            )
            for topic, contested in batch.items():
                del self.agenda[topic]
                self._learning.discard(topic)
                self._wills.pop(topic, None)
                if contested:
                    self.repair(topic)
        if self.injector.connected:  # else everything is looked at when it is
            self.driver.call_later(self._backoff.next(), self._look)

    def _is_on_its_way(self, topic: str) -> bool:
        """Whether the broker is about to get what it should have on a topic; if so, it is looked at later."""
        contention, releases = self.retained.contention, self.retained.releases
        on_its_way = contention.is_open(topic) or releases.awaits(topic) or self.injector.is_behind
        if on_its_way:
            self.retained.contention.contest(topic)
        return on_its_way

    def repair(self, topic: str) -> bool:
        """Inject what the broker should have on a topic, unless the broker hangs up on that, or a client is
        about to release just that."""
        if topic in self._poison and self._poison[topic] == self.retained.newest(topic):
            self.parts.counters["retained_repair_withheld"] += 1
            return False
        if not self.injector.keeps_retained or self._is_on_its_way(topic):
            return False
        injected = self.injector.inject_newest(topic)
        if injected:
            self.parts.counters["retained_repaired"] += 1
        return injected
