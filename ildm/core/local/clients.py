"""What the node remembers of local clients: their interest, persistent sessions and wills."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ildm.core.calendar import Calendar
from ildm.core.local.leaving import Leaving
from ildm.core.local.record import OLDER, UNKNOWN, Client, ClientRecord, digest_of, interest_of
from ildm.core.local.requests import ALL_FILTERS, FilterBudget
from ildm.core.local.wills import Wills
from ildm.core.tables import SESSIONS, SUBSCRIPTIONS, UNRELEASED
from ildm.mqtt import (
    ConnAck,
    Connect,
    Publish,
    members,
)

if TYPE_CHECKING:
    from ildm.config import LimitsConfig
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Store
    from ildm.core.local.rules import PublishRules
    from ildm.core.local.wills import PublishWill

TOLD = 10
"""Sessions with unknown filters that the log names; the gauge ``sessions_unknown`` counts all."""
NEVER = 0xFFFFFFFF
"""Session expiry interval of a session that does not expire (MQTT 5, 3.1.2.11.2)."""


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


class ClientRegistry:
    """Follows sessions by the rules of clean session (3.1.1: 3.1.2.4) and session expiry (5: 3.1.2.11.2)."""

    def __init__(
        self,
        driver: Driver,
        store: Store,
        limits: LimitsConfig,
        counters: Counters,
        interest_changed: Callable[[Mapping[str, int | None]], None],
        publish_will: PublishWill,
        rules: PublishRules,
        cooperating: bool,
        journaled: bool = False,
        adopts: bool = True,
        calendar: Calendar | None = None,
    ) -> None:
        self.driver = driver
        self.calendar = calendar or Calendar(driver)
        self.store = store
        self.limits = limits
        self.counters = counters
        self._adopts = adopts and cooperating
        self._told_unknown = 0
        self.unknown = 0
        """Sessions whose filters the node does not know. Kept, as are the next two: there may be very many,
        and they are asked for at each look of the administrator's."""
        self.persistent = 0
        """Sessions that go on without a connection."""
        self.filters = 0
        """Of all sessions."""
        self.interest = Interest()
        self.budget = FilterBudget(limits)
        self.leaving = Leaving(driver, self._withdraw)
        self.records: dict[str, ClientRecord] = {}
        self._interest_changed = interest_changed
        self._rules = rules
        self._cooperating = cooperating
        self.wills = Wills(driver, store, limits, counters, publish_will, journaled, self.calendar)
        self.session_ended: Callable[[str], None] = lambda key: None
        """Told of each session (:attr:`ClientRecord.key`) which the broker has forgotten."""
        self.session_away: Callable[[str], None] = lambda key: None
        """Told of each that goes on without a connection."""
        self._away = 0
        self._started = int(driver.wall() * 1000)

    def restore(self) -> None:
        """Take up what an earlier run has saved; an expired session is forgotten."""
        now = self.calendar.cautious()
        for key, (expires_at, expiry) in list(self.store.load(SESSIONS)):
            (client_id,) = key
            assert isinstance(client_id, str)
            assert isinstance(expiry, int)
            assert not isinstance(expires_at, str | bytes)
            if expires_at is not None and expires_at <= now:
                self.store.put(SESSIONS, key, None)
                continue
            record = ClientRecord(client_id)
            record.saved = True
            self._set_expiry(record, expiry)
            record.expires_at = expires_at
            if expires_at is None and expiry != NEVER:
                # it was connected when the node ended: its time runs from now
                record.expires_at = now + expiry
            self.records[client_id] = record
            self._away += 1
        changes: dict[str, int | None] = {}
        for key, (qos,) in list(self.store.load(SUBSCRIPTIONS)):
            client_id, topic_filter = key
            assert isinstance(client_id, str)
            assert isinstance(topic_filter, str)
            assert isinstance(qos, int)
            found = self.records.get(client_id)
            if found is None:
                self.store.put(SUBSCRIPTIONS, key, None)
            elif not 0 <= qos <= 2:
                self.store.set_aside(SUBSCRIPTIONS, key, f"QoS {qos}")
            elif (limit := self.budget.refuses(found, topic_filter)) is not None:
                self._stays_local(found, topic_filter, limit)
                self.store.put(SUBSCRIPTIONS, key, None)
            else:
                found.filters[topic_filter] = qos
                self.unknown += topic_filter == UNKNOWN
                self.filters += 1
                self.budget.change(found, topic_filter, 1)
                changes.update(self.interest.replace(topic_filter, None, qos))
        for key, (digest,) in list(self.store.load(UNRELEASED)):
            client_id, packet_id = key
            assert digest is None or isinstance(digest, int)
            assert isinstance(client_id, str)
            assert isinstance(packet_id, int)
            found = self.records.get(client_id)
            if found is None:
                self.store.put(UNRELEASED, key, None)
            else:
                found.qos2[packet_id] = digest
        if self._cooperating:
            self.wills.restore()
        if changes:
            self._interest_changed(changes)
        for record in self.records.values():
            self._start_expiry(record)

    def follow_rules(self, rules: PublishRules) -> None:
        """Hold all clients, also those that are here, to other rules."""
        self._rules = rules
        for record in self.records.values():
            session = record.session
            if session is not None and session.connect is not None:
                session.follow(rules.of(session.connect.username, session.client_id))

    def connected(self, session: Client, connect: Connect, connack: ConnAck) -> ClientRecord:
        """The broker has accepted a client."""
        assigned = connack.properties.get(members.ASSIGNED_CLIENT_IDENTIFIER)
        key = connect.client_id or (assigned if isinstance(assigned, str) else session.unnamed(self._started))
        session.client_id = connect.client_id or (assigned if isinstance(assigned, str) else "")
        rules = self._rules.of(connect.username, session.client_id)
        if rules is not None:
            session.follow(rules)
        record = self.records.get(key)
        is_new = record is None
        if record is None:
            record = self.records[key] = ClientRecord(key)
        elif record.session is None:
            self._away -= 1
        if record.expiry_timer is not None:
            record.expiry_timer.cancel()
            record.expiry_timer = None
        # Not every broker of MQTT 3 says truly whether the session is present (3.1 has no way to). To
        # keep an interest too long costs some traffic, to drop it too early loses messages.
        v5 = connect.version is members.V5
        forgotten = connect.clean_start or (v5 and not connack.session_present)
        if forgotten:
            self._release_all(record)
            self.session_ended(record.key)
            self._leave(record)
        if v5:
            wish = connack.properties.get(
                members.SESSION_EXPIRY_INTERVAL, connect.properties.get(members.SESSION_EXPIRY_INTERVAL, 0)
            )
            self._set_expiry(record, int(wish or 0))
        else:
            self._set_expiry(record, 0 if connect.clean_start else NEVER)
        earlier = record.session
        if earlier is not None and earlier.connect is not None and earlier.connect.will is not None:
            earlier.taken_over()
        record.session = session
        record.expires_at = None
        self._save(record)
        flagless = connect.version is members.V31  # its clients subscribe at each connection
        if is_new and self._adopts and not connect.clean_start and (connack.session_present or flagless):
            self._adopt(record, told=not flagless)
        allowed = self._cooperating and connect.will is not None and session.may_send(connect.will.topic)
        self.wills.connected(key, connect, forgotten, allowed, record.expiry)
        return record

    def comes(
        self,
        key: str,
        expiry: int,
        filters: Mapping[str, int],
        qos2: Mapping[int, int | None],
        changes: dict[str, int | None],
    ) -> ClientRecord:
        """A client is going on that an earlier process has served, with what that knew of it.

        Its record has no session until :meth:`resumed`.

        Args:
            changes: of the interest; the caller tells of those of all clients at once (:meth:`all_resumed`).
        """
        record = self.records.get(key)
        if record is None:
            record = self.records[key] = ClientRecord(key)
            self._set_expiry(record, expiry)
            if expiry:
                self._save(record)
            for topic_filter, qos in filters.items():
                limit = self.budget.refuses(record, topic_filter)
                if limit is not None:
                    self._stays_local(record, topic_filter, limit)
                    continue
                self._set_filter(record, topic_filter, qos)
                changes.update(self.interest.replace(topic_filter, None, qos))
            for packet_id, digest in qos2.items():
                record.qos2[packet_id] = digest
                if record.saved:
                    self.store.put(UNRELEASED, (key, packet_id), (digest,))
        else:
            self._away -= 1
            if record.expiry_timer is not None:
                record.expiry_timer.cancel()
                record.expiry_timer = None
            record.expires_at = None
        self.wills.resumed(key)
        return record

    def resumed(self, session: Client, record: ClientRecord) -> None:
        """A client that has come is served."""
        assert session.connect is not None
        rules = self._rules.of(session.connect.username, session.client_id)
        if rules is not None:
            session.follow(rules)
        record.session = session

    def comes_not(self, record: ClientRecord) -> None:
        """A client was to come, and cannot be served."""
        self._away_or_ended(record)

    def all_resumed(self, changes: Mapping[str, int | None]) -> None:
        """The clients of an earlier process are here."""
        if changes:
            self._interest_changed(changes)

    def subscribed(self, record: ClientRecord, granted: Mapping[str, int]) -> None:
        """A SUBACK has granted filters (filter -> QoS)."""
        changes: dict[str, int | None] = {}
        for topic_filter, qos in granted.items():
            old = record.filters.get(topic_filter)
            limit = self.budget.refuses(record, topic_filter) if old is None else None
            while limit == ALL_FILTERS and self.leaving:
                self.leaving.withdraw_some()
                limit = self.budget.refuses(record, topic_filter)
            if limit is not None:
                self._stays_local(record, topic_filter, limit)
                continue
            if old != qos:
                self._set_filter(record, topic_filter, qos)
                changes.update(self.interest.replace(topic_filter, old, qos))
        if changes:
            self._interest_changed(changes)
        session = record.session
        if record.is_unknown and UNKNOWN not in granted and session and session.version is members.V31:
            self.unsubscribed(record, [UNKNOWN])

    def _adopt(self, record: ClientRecord, *, told: bool) -> None:
        """The broker has a session that the node has never seen: its filters are unknown."""
        self.subscribed(record, {UNKNOWN: 2})
        if told and self._told_unknown < TOLD:
            self._told_unknown += 1
            self.driver.log(
                "warning",
                "the broker has a session that the node does not know: the client gets all topics of other"
                " sites until it begins a clean session",
                client_id=record.key,
            )

    @property
    def room(self) -> int:
        """Sessions without a connection that may still be kept."""
        return max(0, self.limits.persistent_sessions - self._away)

    def imported(self, client_id: str, filters: Mapping[str, int], expiry: int) -> None:
        """An administrator has told the filters of a session that the broker has.

        Filters are added to those that the node knows: one too many costs bytes, one too few loses messages.
        A session that ends with its connection has replaced what the broker had.
        """
        record = self.records.get(client_id)
        if record is None:
            record = self._begin_away(client_id, expiry)
        elif record.expiry == 0:
            return
        self.counters["sessions_imported"] += 1
        known = record.filters
        self.subscribed(record, {each: qos for each, qos in filters.items() if each not in known})
        if record.is_unknown:
            self.unsubscribed(record, [UNKNOWN])

    def _begin_away(self, key: str, expiry: int) -> ClientRecord:
        """A session that goes on without a connection, and that the node has not seen begin."""
        record = self.records[key] = ClientRecord(key)
        self._away += 1
        self._set_expiry(record, expiry)
        if expiry != NEVER:
            record.expires_at = self.calendar.cautious() + expiry
        self._save(record)
        self._start_expiry(record)
        return record

    @property
    def adopts_for(self) -> float:
        """Seconds for which the site still wants everything, for older sessions whose clients are away."""
        record = self.records.get(OLDER)
        if record is None or record.expires_at is None:
            return 0.0
        return max(0.0, record.expires_at - self.calendar.cautious())

    def adopt(self, seconds: int) -> None:
        """For so long the site wants everything, for older sessions whose clients are away."""
        self.subscribed(self._begin_away(OLDER, seconds), {UNKNOWN: 2})

    def end_adoption(self) -> bool:
        """The site wants no more than clients do; False: that was so."""
        record = self.records.get(OLDER)
        if record is None:
            return False
        if record.expiry_timer is not None:
            record.expiry_timer.cancel()
        self._away -= 1
        self._forget(record)
        return True

    def want_all(self, wanted: bool) -> None:
        """The site wants everything, as long as the node does not know what neighbours behind it want."""
        old, new = (None, 2) if wanted else (2, None)
        self._interest_changed(self.interest.replace(UNKNOWN, old, new))

    def _stays_local(self, record: ClientRecord, topic_filter: str, limit: str) -> None:
        """The client's broker has a filter that other sites are not told of."""
        self.counters["subscriptions_over_limit"] += 1
        if not record.told_over_limit:
            record.told_over_limit = True
            self.driver.log(
                "warning",
                "subscription stays at its broker",
                client_id=record.key.removeprefix("\0"),
                filter=topic_filter[:200],
                limit=limit,
            )

    def unsubscribed(self, record: ClientRecord, filters: list[str]) -> None:
        """An UNSUBACK has confirmed that filters are gone."""
        changes: dict[str, int | None] = {}
        for topic_filter in filters:
            old = record.filters.get(topic_filter)
            if old is not None:
                self._set_filter(record, topic_filter, None)
                changes.update(self.interest.replace(topic_filter, old, None))
        if changes:
            self._interest_changed(changes)

    def leaves(self, session: object, record: ClientRecord, clean: bool, expiry: int | None) -> None:
        """A DISCONNECT has come; ``clean``: it discards the will, ``expiry``: it changes the session's."""
        if record.session is not session:
            return  # another connection has taken the session over
        if clean:
            self.wills.forget(record.key)
        if expiry is not None:
            self._set_expiry(record, expiry)
            self._save(record)

    def disconnected(self, session: Client, record: ClientRecord, connect: Connect, clean: bool) -> None:
        """A connection has ended; ``clean`` when its will must not be sent (MQTT-3.14.4-3)."""
        current = record.session is session
        if not clean and connect.will is not None and not self._continued(record, session, connect):
            if session.may_send(connect.will.topic):
                turn = session.publisher_index()
                stamp = session.taken_over_at
                self.wills.due(record.key, connect, turn, record.expiry, delay_allowed=current, stamp=stamp)
            else:
                self.counters["publish_denied"] += 1
        elif current:
            self.wills.forget(record.key)
        if not current:
            return  # another connection has taken the session over (MQTT-3.1.4-3)
        self._away_or_ended(record)

    def _away_or_ended(self, record: ClientRecord) -> None:
        """The client of a record is not connected any more."""
        record.session = None
        if record.expiry == 0 or self._away >= self.limits.persistent_sessions:
            if record.expiry:
                self.counters["persistent_sessions_over_limit"] += 1
            self._forget(record)
            return
        self._away += 1
        record.expires_at = None if record.expiry == NEVER else self.calendar.cautious() + record.expiry
        self._save(record)
        self._start_expiry(record)
        self.session_away(record.key)

    # wills ------------------------------------------------------------------------------------

    def _continued(self, record: ClientRecord, session: Client, connect: Connect) -> bool:
        """Whether another connection goes on with the session within the will delay (MQTT-3.1.3-9)."""
        assert connect.will is not None
        newer = record.session
        return (
            newer is not None
            and newer is not session
            and newer.connect is not None
            and not newer.connect.clean_start
            and connect.will.properties.get(members.WILL_DELAY_INTERVAL, 0) > 0
        )

    # QoS 2 ----------------------------------------------------------------------------------------

    def transferred(self, record: ClientRecord, message: Publish) -> None:
        """A QoS 2 message is transferred; sent again before it is released, it is not (MQTT-4.3.3-2)."""
        assert message.packet_id is not None
        digest = record.qos2[message.packet_id] = digest_of(message.topic, message.payload)
        if record.saved:
            self.store.put(UNRELEASED, (record.key, message.packet_id), (digest,))

    def released(self, record: ClientRecord, packet_id: int) -> None:
        """The client has sent PUBREL."""
        self.reused(record, packet_id)

    def reused(self, record: ClientRecord, packet_id: int) -> None:
        """The identifier stands for no message, or for another one."""
        if packet_id in record.qos2:
            del record.qos2[packet_id]
            if record.saved:
                self.store.put(UNRELEASED, (record.key, packet_id), None)

    def _release_all(self, record: ClientRecord) -> None:
        for packet_id in list(record.qos2):
            self.released(record, packet_id)

    def stop(self) -> None:
        """The node ends: what waits to be saved is."""
        for left in self.leaving:
            for topic_filter in left.filters:
                self._remove_row(left, topic_filter)
        self.wills.stop()

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        records = self.records.values()
        found = (
            sum(len(record.filters) for record in records),
            sum(record.is_unknown for record in records),
            sum(record.expiry > 0 for record in records),
        )
        counted = self.filters, self.unknown, self.persistent
        assert found == counted, f"{found} filters, unknown and persistent sessions count {counted}"
        self.budget.check([*records, *self.leaving])
        self.wills.check()

    # the end of sessions ----------------------------------------------------------------------

    def _start_expiry(self, record: ClientRecord) -> None:
        if record.expires_at is not None:
            left = max(0.0, record.expires_at - self.calendar.cautious())
            record.expiry_timer = self.driver.call_later(left, self._expired, record)

    def _expired(self, record: ClientRecord) -> None:
        self._away -= 1
        self.counters["sessions_expired"] += 1
        self._forget(record)

    def _forget(self, record: ClientRecord) -> None:
        self.records.pop(record.key, None)
        self.session_ended(record.key)
        self.wills.ended(record.key)
        self._leave(record)
        self._set_expiry(record, 0)
        self._save(record)

    def _set_expiry(self, record: ClientRecord, expiry: int) -> None:
        self.persistent += (expiry > 0) - (record.expiry > 0)
        record.expiry = expiry

    def _leave(self, record: ClientRecord) -> None:
        """The filters of a session that has ended go, little by little."""
        self.unknown -= record.is_unknown
        self.filters -= len(record.filters)
        self.leaving.add(record)

    def _set_filter(self, record: ClientRecord, topic_filter: str, qos: int | None) -> None:
        if qos is None:
            del record.filters[topic_filter]
            self.unknown -= topic_filter == UNKNOWN
            self.filters -= 1
            self.budget.change(record, topic_filter, -1)
        else:
            if topic_filter not in record.filters:
                self.unknown += topic_filter == UNKNOWN
                self.filters += 1
                self.budget.change(record, topic_filter, 1)
            record.filters[topic_filter] = qos
        if record.saved:
            row = None if qos is None else (qos,)
            self.store.put(SUBSCRIPTIONS, (record.key, topic_filter), row)

    def _withdraw(self, left: ClientRecord, filters: list[str]) -> None:
        """Forget some filters of a session that has ended."""
        changes: dict[str, int | None] = {}
        for topic_filter in filters:
            self._remove_row(left, topic_filter)
            self.budget.change(left, topic_filter, -1)
            changes.update(self.interest.replace(topic_filter, left.filters.pop(topic_filter), None))
        if changes:
            self._interest_changed(changes)

    def _remove_row(self, left: ClientRecord, topic_filter: str) -> None:
        """Unless it is the row of a newer session now."""
        now = self.records.get(left.key)
        if left.saved and not (now is not None and now.saved and topic_filter in now.filters):
            self.store.put(SUBSCRIPTIONS, (left.key, topic_filter), None)

    def _save(self, record: ClientRecord) -> None:
        """Keep the rows of a session as it is now; its filters one by one, as they change."""
        wanted = record.expiry != 0 and not record.key.startswith("\0")
        if wanted:
            self.store.put(SESSIONS, (record.key,), (record.expires_at, record.expiry))
        elif record.saved:
            self.store.put(SESSIONS, (record.key,), None)
        if wanted is not record.saved:
            record.saved = wanted
            for packet_id, digest in record.qos2.items():
                self.store.put(UNRELEASED, (record.key, packet_id), (digest,) if wanted else None)
            for topic_filter, qos in record.filters.items():
                row = (qos,) if wanted else None
                self.store.put(SUBSCRIPTIONS, (record.key, topic_filter), row)
