"""What the node remembers of local clients: their interest, persistent sessions and wills."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ildm.core.driver import SavedSession
from ildm.mqtt import (
    ConnAck,
    Connect,
    Properties,
    Property,
    Publish,
    Subscription,
    Version,
    split_shared,
)

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.config import LimitsConfig
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Store
    from ildm.core.local.client_session import ClientSession

NEVER = 0xFFFFFFFF
"""Session expiry interval of a session that does not expire (MQTT 5, 3.1.2.11.2)."""


def interest_of(topic_filter: str) -> str | None:
    """The filter other sites must know of: without the share; None for ``$``-topics, which never cross."""
    plain = split_shared(topic_filter)[1]
    return None if plain.startswith("$") else plain


class Interest:
    """Multiset of filters with the QoS of each holder; tells what changes for somebody outside."""

    def __init__(self) -> None:
        self._holders: dict[str, list[int]] = {}  # filter -> number of holders at QoS 0, 1, 2
        self.maximum: dict[str, int] = {}

    def replace(self, topic_filter: str, old: int | None, new: int | None) -> dict[str, int | None]:
        """One holder's QoS goes from ``old`` to ``new`` (None: not held); answers what changes outside."""
        plain = interest_of(topic_filter)
        if plain is None or old == new:
            return {}
        holders = self._holders.setdefault(plain, [0, 0, 0])
        if old is not None:
            holders[old] -= 1
        if new is not None:
            holders[new] += 1
        before = self.maximum.get(plain)
        after = next((qos for qos in (2, 1, 0) if holders[qos]), None)
        if after is None:
            del self._holders[plain]
            self.maximum.pop(plain, None)
        else:
            self.maximum[plain] = after
        return {} if before == after else {plain: after}


class ClientRecord:
    """What belongs to a client identifier rather than to a connection (MQTT's session state)."""

    __slots__ = ("expires_at", "expiry", "expiry_timer", "filters", "key", "qos2", "session", "will_timer")

    def __init__(self, key: str) -> None:
        self.key = key
        self.filters: dict[str, int] = {}
        self.qos2: set[int] = set()
        """Packet identifiers of QoS 2 messages transferred and not yet released (MQTT-4.3.3-2)."""
        self.session: ClientSession | None = None
        self.expiry = 0
        """Session expiry interval in seconds; 0 ends the session with the connection."""
        self.expires_at: float | None = None
        self.expiry_timer: Timer | None = None
        self.will_timer: tuple[Timer, Callable[[], None]] | None = None


class ClientRegistry:
    """Follows sessions by the rules of clean session (3.1.1: 3.1.2.4) and session expiry (5: 3.1.2.11.2)."""

    def __init__(
        self,
        driver: Driver,
        store: Store,
        limits: LimitsConfig,
        counters: Counters,
        interest_changed: Callable[[Mapping[str, int | None]], None],
        publish_will: Callable[[Publish, int | None], None],
    ) -> None:
        self.driver = driver
        self.store = store
        self.limits = limits
        self.counters = counters
        self.interest = Interest()
        self.records: dict[str, ClientRecord] = {}
        self._interest_changed = interest_changed
        self._publish_will = publish_will
        self._away = 0

    def restore(self) -> None:
        """Take up what an earlier run has saved; an expired session is forgotten."""
        for client_id, saved in self.store.sessions().items():
            if saved.expires_at is not None and saved.expires_at <= self.driver.wall():
                self.store.save_session(client_id, None)
                continue
            record = ClientRecord(client_id)
            record.expiry = saved.expiry
            record.expires_at = saved.expires_at
            if saved.expires_at is None and saved.expiry != NEVER:
                # it was connected when the node ended: its time runs from now
                record.expires_at = self.driver.wall() + saved.expiry
            self.records[client_id] = record
            self._away += 1
            self._set_filters(record, saved.filters)
            self._start_expiry(record)

    def connected(self, session: ClientSession, connect: Connect, connack: ConnAck) -> ClientRecord:
        """The broker has accepted a client."""
        assigned = connack.properties.get(Property.ASSIGNED_CLIENT_IDENTIFIER)
        key = connect.client_id or (assigned if isinstance(assigned, str) else f"\0{session.id}")
        session.client_id = connect.client_id or (assigned if isinstance(assigned, str) else "")
        record = self.records.get(key)
        if record is None:
            record = self.records[key] = ClientRecord(key)
        elif record.session is None:
            self._away -= 1
        if record.expiry_timer is not None:
            record.expiry_timer.cancel()
            record.expiry_timer = None
        # Not every broker of MQTT 3 says truly whether the session is present (3.1 has no way to). To
        # keep an interest too long costs some traffic, to drop it too early loses messages.
        v5 = connect.version is Version.V5
        forgotten = connect.clean_start or (v5 and not connack.session_present)
        if record.will_timer is not None:
            timer, publish_now = record.will_timer
            timer.cancel()
            record.will_timer = None
            if forgotten:
                publish_now()  # MQTT-3.1.3-9: the old session has ended, its will is due
        if forgotten:
            record.qos2.clear()
            self._set_filters(record, {})
        if v5:
            wish = connack.properties.get(
                Property.SESSION_EXPIRY_INTERVAL, connect.properties.get(Property.SESSION_EXPIRY_INTERVAL, 0)
            )
            record.expiry = int(wish or 0)
        else:
            record.expiry = 0 if connect.clean_start else NEVER
        record.session = session
        record.expires_at = None
        self._save(record)
        return record

    def subscribed(self, record: ClientRecord, granted: Mapping[str, int]) -> None:
        """A SUBACK has granted filters (filter -> QoS)."""
        changes: dict[str, int | None] = {}
        for topic_filter, qos in granted.items():
            old = record.filters.get(topic_filter)
            if old is None and len(record.filters) >= self.limits.subscriptions_per_client:
                self.counters["subscriptions_over_limit"] += 1
                continue
            record.filters[topic_filter] = qos
            changes.update(self.interest.replace(topic_filter, old, qos))
        self._changed(record, changes)

    def unsubscribed(self, record: ClientRecord, filters: list[str]) -> None:
        """An UNSUBACK has confirmed that filters are gone."""
        changes: dict[str, int | None] = {}
        for topic_filter in filters:
            old = record.filters.pop(topic_filter, None)
            if old is not None:
                changes.update(self.interest.replace(topic_filter, old, None))
        self._changed(record, changes)

    def disconnected(
        self, session: ClientSession, record: ClientRecord, connect: Connect, clean: bool
    ) -> None:
        """A connection has ended; ``clean`` when its will must not be sent (MQTT-3.14.4-3)."""
        current = record.session is session
        if not clean and connect.will is not None and not self._continued(record, session, connect):
            self._will(record, connect, delay_allowed=current)
        if not current:
            return  # another connection has taken the session over (MQTT-3.1.4-3)
        record.session = None
        if record.expiry == 0 or self._away >= self.limits.persistent_sessions:
            if record.expiry:
                self.counters["persistent_sessions_over_limit"] += 1
            self._forget(record)
            return
        self._away += 1
        record.expires_at = None if record.expiry == NEVER else self.driver.wall() + record.expiry
        self._save(record)
        self._start_expiry(record)

    # wills ------------------------------------------------------------------------------------

    def _continued(self, record: ClientRecord, session: ClientSession, connect: Connect) -> bool:
        """Whether another connection goes on with the session within the will delay (MQTT-3.1.3-9)."""
        assert connect.will is not None
        newer = record.session
        return (
            newer is not None
            and newer is not session
            and newer.connect is not None
            and not newer.connect.clean_start
            and connect.will.properties.get(Property.WILL_DELAY_INTERVAL, 0) > 0
        )

    def _will(self, record: ClientRecord, connect: Connect, delay_allowed: bool) -> None:
        will = connect.will
        assert will is not None
        properties: Properties = dict(will.properties)
        properties.pop(Property.WILL_DELAY_INTERVAL, None)
        message = Publish(
            topic=will.topic, payload=will.payload, qos=will.qos, retain=will.retain, properties=properties
        )
        expiry = properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
        delay = int(will.properties.get(Property.WILL_DELAY_INTERVAL, 0)) if delay_allowed else 0
        delay = min(
            delay, record.expiry
        )  # MQTT-3.1.3-9 and 3.1.3.2.2: at the end of the session at the latest

        def publish() -> None:
            record.will_timer = None
            self._publish_will(message, expiry)

        if delay == 0:
            publish()
        else:
            record.will_timer = (self.driver.call_later(delay, publish), publish)

    # the end of sessions ----------------------------------------------------------------------

    def _start_expiry(self, record: ClientRecord) -> None:
        if record.expires_at is not None:
            left = max(0.0, record.expires_at - self.driver.wall())
            record.expiry_timer = self.driver.call_later(left, self._expired, record)

    def _expired(self, record: ClientRecord) -> None:
        self._away -= 1
        self.counters["sessions_expired"] += 1
        self._forget(record)

    def _forget(self, record: ClientRecord) -> None:
        self.records.pop(record.key, None)
        if record.will_timer is not None:
            timer, publish_now = record.will_timer
            timer.cancel()
            publish_now()
        self._set_filters(record, {})
        self.store.save_session(record.key, None)

    def _set_filters(self, record: ClientRecord, filters: Mapping[str, int]) -> None:
        changes: dict[str, int | None] = {}
        for topic_filter, old in record.filters.items():
            if topic_filter not in filters:
                changes.update(self.interest.replace(topic_filter, old, None))
        for topic_filter, new in filters.items():
            changes.update(self.interest.replace(topic_filter, record.filters.get(topic_filter), new))
        record.filters = dict(filters)
        if changes:
            self._interest_changed(changes)

    def _changed(self, record: ClientRecord, changes: Mapping[str, int | None]) -> None:
        self._save(record)
        if changes:
            self._interest_changed(changes)

    def _save(self, record: ClientRecord) -> None:
        if record.key.startswith("\0"):
            return
        if record.expiry == 0:
            self.store.save_session(record.key, None)
        else:
            self.store.save_session(
                record.key, SavedSession(record.filters, record.expires_at, record.expiry)
            )


def granted_filters(subscriptions: list[Subscription], reason_codes: list[int]) -> dict[str, int]:
    """Filters of a SUBSCRIBE which its SUBACK grants, with the QoS granted."""
    return {
        wanted.topic_filter: code
        for wanted, code in zip(subscriptions, reason_codes, strict=False)
        if code <= 2
    }
