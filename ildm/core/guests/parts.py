"""What a member that does not own the site has where the owner has router, registry and waits.

Each does here what concerns this member alone, and tells the owner the rest through the :class:`Outbox`. The
owner does it with its own router, registry and waits, so nothing of a client is decided twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from ildm.core.calendar import Calendar
from ildm.core.guests.wire import (
    BATCH,
    BATCH_HEAD,
    CONNECTED,
    DISCONNECTED,
    LEAVES,
    MESSAGE,
    MESSAGE_HEAD,
    RELEASED,
    RELEASED_BODY,
    SUBSCRIBED,
    UNSUBSCRIBED,
    of_client,
    record,
    text,
)
from ildm.core.local.acknowledgements import Acknowledgements
from ildm.core.local.client_session import ClientSession
from ildm.core.local.clients import ClientRegistry
from ildm.core.local.rules import PublishRules
from ildm.core.local.waits import Waits
from ildm.core.transfer.identity import UNKNOWN as UNKNOWN_ORIGIN
from ildm.core.transfer.identity import Origin
from ildm.core.transfer.router import Router
from ildm.mqtt import ConnAck, Connect, Property, Publish, Version

if TYPE_CHECKING:
    from ildm.api import Stamp
    from ildm.config import LimitsConfig
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Store
    from ildm.core.guests.outbox import Outbox
    from ildm.core.local.record import Client, ClientRecord
    from ildm.core.plugin.dispatch import Dispatch
    from ildm.core.plugin.filtering import Awaited
    from ildm.core.transfer.batch import Batch
    from ildm.core.transfer.inbound import NeighborReceipt
    from ildm.core.transfer.ports import LocalBroker, Targets
    from ildm.core.transfer.receipt import Holdable
    from ildm.core.transfer.retained import RetainedStore

_SECRET = (Property.AUTHENTICATION_METHOD, Property.AUTHENTICATION_DATA)


class GuestRouter(Router):
    """Sends to the owner what may be wanted elsewhere."""

    def __init__(
        self,
        driver: Driver,
        dispatch: Dispatch,
        counters: Counters,
        cache_size: int,
        round_robin: Literal["publisher", "message"],
        retained: RetainedStore,
        injector: LocalBroker,
        outbox: Outbox,
    ) -> None:
        super().__init__(driver, dispatch, counters, cache_size, round_robin, retained, injector)
        self.outbox = outbox

    @property
    def active(self) -> bool:
        return True

    def joins(self, message: Publish) -> bool:
        return message.qos < 2 and super().joins(message)

    def publish(
        self, message: Publish, index: int, holder: Holdable | None, stamp: Stamp | None = None
    ) -> None:
        if holder is not None and self.joins(message):
            super().publish(message, index, holder, stamp)
            return
        self.gathering.send()
        outbox = self.outbox
        if message.topic.startswith("$") or not self._crosses(message.qos, 1):
            return
        session, unreleased = 0, False
        client = holder._wire.client if isinstance(holder, Acknowledgements) else None
        if isinstance(client, ClientSession):
            session = client.id
            known = client.publishing.record
            unreleased = message.qos == 2 and known is not None and message.packet_id in known.qos2
        head = MESSAGE_HEAD.pack(session, index, unreleased, self.driver.wall())
        outbox.append(record(MESSAGE, head + message.encode(Version.V5)))
        self._took(holder)

    def forward(
        self,
        route: Targets,
        batch: Batch,
        index: int,
        source: Holdable | None,
        turn: int | None = None,
        origin: Origin = UNKNOWN_ORIGIN,
        here: bool = False,
        receipt: NeighborReceipt | None = None,
    ) -> None:
        if not self._crosses(batch.qos, batch.count):
            return
        since = 0.0
        if batch.since is not None:
            since = self.driver.wall() - (self.driver.now() - batch.since)
        head = BATCH_HEAD.pack(index, batch.count, batch.size, since)
        self.outbox.append(record(BATCH, head + batch.frames))
        self._took(source)

    def _crosses(self, qos: int, count: int) -> bool:
        """Whether messages go to the owner: those of QoS 0 do not wait for one."""
        if qos == 0 and not (self.outbox.connected and not self.outbox.full):
            self.counters["pair_dropped_alone"] += count
            return False
        self.counters["pair_deposited"] += count
        return True

    def _took(self, source: Holdable | None) -> None:
        if source is not None and self.outbox.full:
            self.outbox.hold(source)


class GuestRegistry(ClientRegistry):
    """The clients that are connected here; what outlives a connection is at the owner.

    Args:
        outbox: of the member.
    """

    def __init__(
        self,
        driver: Driver,
        store: Store,
        limits: LimitsConfig,
        counters: Counters,
        rules: PublishRules,
        outbox: Outbox,
        calendar: Calendar | None = None,
    ) -> None:
        super().__init__(
            driver, store, limits, counters, _unheard, _unsent, rules, False, False, False, calendar
        )
        self.outbox = outbox
        self.began: dict[int, int] = {}
        """Of each client by the number of its session: which record has told of it."""
        self.ended: dict[int, tuple[int, Client, ClientRecord]] = {}
        """Sessions that have ended, until the owner knows: the record that has told, and what they were."""
        self.crossed: dict[str, dict[int, int]] = {}
        """By client: packet identifiers of QoS 2, each with the number of the record that has its message."""

    def _tell(self, kind: int, number: int, value: object) -> int:
        return self.outbox.append(record(kind, of_client(number, value)))

    def connected(self, session: Client, connect: Connect, connack: ConnAck) -> ClientRecord:
        found = super().connected(session, connect, connack)
        told = describe(session, connect, found) | {"connack": text(connack.encode(connect.version))}
        self.began[session.id] = self._tell(CONNECTED, session.id, told)
        return found

    def subscribed(self, record: ClientRecord, granted: Mapping[str, int]) -> None:
        super().subscribed(record, granted)
        if record.session is not None and granted:
            self._tell(SUBSCRIBED, record.session.id, dict(granted))

    def unsubscribed(self, record: ClientRecord, filters: list[str]) -> None:
        super().unsubscribed(record, filters)
        if record.session is not None and filters:
            self._tell(UNSUBSCRIBED, record.session.id, filters)

    def leaves(self, session: object, record: ClientRecord, clean: bool, expiry: int | None) -> None:
        if record.session is session and record.session is not None:
            self._tell(LEAVES, record.session.id, [clean, expiry])

    def disconnected(self, session: Client, record: ClientRecord, connect: Connect, clean: bool) -> None:
        self.ended[session.id] = self._tell(DISCONNECTED, session.id, clean), session, record
        self._forget_taken()
        if record.session is session:
            record.session = None
            self._forget(record)

    def transferred(self, record: ClientRecord, message: Publish) -> None:
        super().transferred(record, message)
        if message.packet_id is not None:
            # its record comes next
            self.crossed.setdefault(record.key, {})[message.packet_id] = self.outbox.last + 1

    def released(self, record: ClientRecord, packet_id: int) -> None:
        """The owner may know of it by an earlier connection, so it is told in any case."""
        self.reused(record, packet_id)
        session = record.session
        if session is not None:
            self.outbox.append(_released(session.id, packet_id))

    def reused(self, record: ClientRecord, packet_id: int) -> None:
        super().reused(record, packet_id)
        if record.key in self.crossed:
            self.crossed[record.key].pop(packet_id, None)

    def _release_all(self, record: ClientRecord) -> None:
        """The owner does so by itself."""
        record.qos2.clear()

    def _forget_taken(self) -> None:
        durable = self.outbox.durable
        for number in [number for number, (told, _, _) in self.ended.items() if told <= durable]:
            _, _, record = self.ended.pop(number)
            self.began.pop(number, None)
            if self.records.get(record.key) is None:
                self.crossed.pop(record.key, None)

    def known_at(self, taken: int) -> list[dict[str, object]]:
        """What an owner has to know of the clients that were here when a record had been told, and whose end
        it has not been told by then."""
        self._forget_taken()
        here = [(each.session, each) for each in self.records.values() if each.session is not None] + [
            (session, each) for told, session, each in self.ended.values() if told > taken
        ]
        found: list[dict[str, object]] = []
        for session, each in here:
            connect = session.connect
            if connect is None or self.began.get(session.id, taken + 1) > taken:
                continue
            crossed = self.crossed.get(each.key, {})
            unreleased = [[i, d] for i, d in each.qos2.items() if crossed.get(i, 0) <= taken]
            found.append(
                describe(session, connect, each)
                | {
                    "session": session.id,
                    "expiry": each.expiry,
                    "filters": dict(each.filters),
                    "qos2": unreleased,
                }
            )
        return found


class GuestWaits(Waits):
    """What clients wait for is with the owner."""

    outbox: Outbox
    told: dict[int, tuple[Callable[[], None], bool, list[str]]]
    """By the number of a SUBSCRIBED: called when other sites know the filters; whether they are saved."""

    def follow(self, outbox: Outbox) -> GuestWaits:
        self.outbox = outbox
        self.told = {}
        return self

    def when_advertised(
        self, callback: Callable[[], None], persistent: bool, topic_filters: Sequence[str]
    ) -> bool:
        self.told[self.outbox.last] = callback, persistent, list(topic_filters)
        return False

    def heard(self, number: int) -> None:
        """Other sites know the filters of a SUBSCRIBED."""
        told = self.told.pop(number, None)
        if told is not None:
            told[0]()

    def before_subscribe(self, topic_filters: Sequence[str], wait: float) -> Awaited[None] | None:
        return None

    def when_saved(self, callback: Callable[[], None]) -> bool:
        outbox = self.outbox
        if outbox.covers(outbox.last):
            return True
        outbox.when(outbox.last, callback)
        return False


def describe(session: Client, connect: Connect, record: ClientRecord) -> dict[str, object]:
    """What an owner has to know of a client in any case. The password stays here."""
    properties = {key: value for key, value in connect.properties.items() if key not in _SECRET}
    told = replace(connect, password=None, properties=properties)
    return {
        "key": record.key,
        "client_id": session.client_id,
        "peer": session.peer,
        "connect": text(told.encode()),
    }


def _released(session: int, packet_id: int) -> bytes:
    return record(RELEASED, RELEASED_BODY.pack(session, packet_id))


def _unheard(changes: Mapping[str, int | None]) -> None:
    """Other sites hear of interest from the owner."""


def _unsent(message: Publish, turn: int, restored: bool, stamp: Stamp | None) -> None:
    """The owner sends wills."""
