"""The owner's part: clients of other members are its guests, and their messages cross as its clients' do."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ildm.core.frames import frames_topic
from ildm.core.guests import wire
from ildm.core.guests.guest import Guest
from ildm.core.guests.wire import MemberError
from ildm.core.tables import GUESTS
from ildm.core.transfer.back_pressure import BackPressure
from ildm.core.transfer.batch import Batch
from ildm.core.transfer.custody import Custody
from ildm.mqtt import (
    ConnAck,
    Connect,
    MqttError,
    Property,
    Publish,
    Version,
    decode,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ildm.api import Timer
    from ildm.core.driver import Transport
    from ildm.core.node import Node

BACK = 2.0
"""Seconds after a claim for which the site wants everything at most: until the members of before are back,
and other sites know what their clients want."""
FAULTS = (MemberError, MqttError, ValueError, KeyError, TypeError, struct.error)
"""What a frame raises that makes no sense."""


class House:
    """The clients of one member, through any number of connections with it.

    Args:
        life: of the member's process.
        taken: the last of its records that is done.
    """

    def __init__(self, member: str, life: str, taken: int) -> None:
        self.member = member
        self.life = life
        self.taken = taken
        self.guests: dict[int, Guest] = {}
        """By the number of their session there."""
        self.session: HostSession | None = None
        self.gone: Timer | None = None
        """Set while it is away."""


class Host:
    """One for an owner, whose members may all serve clients.

    Args:
        members: names that may connect.
    """

    def __init__(self, node: Node, members: Iterable[str]) -> None:
        self.node = node
        self.members = frozenset(members)
        self.houses: dict[str, House] = {}
        self._awaited: set[str] = set()
        self._timer: Timer | None = None
        self._stopped = False

    def restore(self) -> None:
        """Take up what former owners have saved. Members of then that live come with their clients; until
        they are here the site wants everything."""
        node = self.node
        for (member,), (life, taken) in list(node.store.load(GUESTS)):
            if not (isinstance(member, str) and isinstance(life, str) and isinstance(taken, int)):
                continue
            if member in self.members:
                self.houses[member] = House(member, life, taken)
                self._awaited.add(member)
            else:
                node.store.put(GUESTS, (member,), None)
        if self._awaited:
            node.clients.want_all(True)
            self._timer = node.driver.call_later(BACK, self._all_back)

    def _all_back(self) -> None:
        if self._stopped:
            return
        self._awaited.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.node.clients.want_all(False)

    @property
    def guests(self) -> list[Guest]:
        return [guest for house in self.houses.values() for guest in house.guests.values()]

    def enter(self, session: HostSession, member: str, life: str) -> House:
        """A member has come."""
        house = self.houses.get(member)
        if house is None or house.life != life:
            if house is not None:
                self._leave(house)
            house = self.houses[member] = House(member, life, 0)
            self.node.store.put(GUESTS, (member,), (life, 0))
        if house.gone is not None:
            house.gone.cancel()
            house.gone = None
        former, house.session = house.session, session
        if former is not None:
            former.end()
        return house

    def came(self, house: House) -> None:
        """It has told of its clients."""
        self._awaited.discard(house.member)
        if not self._awaited and self._timer is not None:
            filters = {each for guest in self.guests if guest.record for each in guest.record.filters}
            if self.node.local.waits.when_advertised(self._all_back, False, sorted(filters)):
                self._all_back()

    def lost(self, house: House, session: HostSession) -> None:
        """Its connection has ended: its process has, or it comes back at once."""
        if house.session is session and not self._stopped:
            house.session = None
            grace = self.node.config.limits.will_grace
            house.gone = self.node.driver.call_later(grace, self._leave, house)

    def _leave(self, house: House) -> None:
        """A member's process has ended, and with it the connections of its clients."""
        if house.gone is not None:
            house.gone.cancel()
        house.gone = None
        guests, house.guests = house.guests, {}
        clients = self.node.clients
        for guest in guests.values():
            record = guest.record
            if record is not None and record.session is guest and guest.connect is not None:
                self.node.counters["pair_guests_left"] += 1
                clients.disconnected(guest, record, guest.connect, False)

    def stop(self) -> None:
        """The owner ends: what comes now is for the next one."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for house in self.houses.values():
            if house.gone is not None:
                house.gone.cancel()
            if house.session is not None:
                house.session.end()


class HostSession:
    """One connection of a member's; an endpoint of a listener, and what queues hold of its messages."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.node = host.node
        self.house: House | None = None
        self._transport: Transport | None = None
        self._frames = wire.Frames(self.node.config.limits.packet_size + wire.SLACK)
        self._holds: set[object] = set()
        self._put_off: list[bytes] = []
        """Records that wait at a start; the member's outbox bounds them."""
        self._durable = 0
        self._said = 0
        self._does: Mapping[int, Callable[[House, int, bytes], None]] = {
            wire.CONNECTED: self._connected,
            wire.SUBSCRIBED: self._subscribed,
            wire.UNSUBSCRIBED: self._unsubscribed,
            wire.LEAVES: self._leaves,
            wire.DISCONNECTED: self._disconnected,
            wire.RELEASED: self._released,
            wire.BATCH: self._batch,
            wire.MESSAGE: self._message,
        }

    # the connection -----------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.node.local.start_gate.let_go(self)
        for reason in self._holds:
            if isinstance(reason, BackPressure | Custody):
                reason.no_longer_held(self)
        if self.house is not None:
            self.host.lost(self.house, self)

    def eof_received(self) -> bool | None:
        return None

    def pause_writing(self) -> None:
        """Answers are short, and bounded by what a member sends."""

    def resume_writing(self) -> None:
        """Nothing was paused."""

    def end(self) -> None:
        """Take nothing more."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            for kind, body in self._frames.feed(data):
                if self._transport is None:
                    return
                self._arrived(kind, body)
        except FAULTS as error:
            member = "" if self.house is None else self.house.member
            self.node.driver.log(
                "error", "a member of the site is not understood", member=member, error=str(error)
            )
            self.end()

    def _go_on(self) -> None:
        """Neighbours have told what they want."""
        waiting, self._put_off = self._put_off, []
        house = self.house
        for body in waiting:
            if house is not None and self._transport is not None:
                self._do(house, body)

    def _say(self, kind: int, body: bytes) -> None:
        if self._transport is not None:
            self._transport.write(wire.frame(kind, body))

    def _arrived(self, kind: int, body: bytes) -> None:
        house = self.house
        if house is None:
            if kind != wire.HELLO:
                raise MemberError(f"a frame of kind {kind} before HELLO")
            self._hello(wire.from_json(body))
        elif kind == wire.DO:
            gate = self.node.local.start_gate
            if self._put_off or gate.closed:
                # neighbours have not told what they want, so messages would go to nobody
                if not self._put_off:
                    gate.hold(self, self._go_on)
                self._put_off.append(body)
            else:
                self._do(house, body)
        elif kind == wire.ANEW:
            self._anew(house, wire.from_json(body))
        elif kind == wire.ASK:
            for number, persistent, filters in wire.from_json(body):
                self._when_told(int(number), bool(persistent), filters)
        else:
            raise MemberError(f"a frame of kind {kind} from a member")

    def _hello(self, told: dict[str, Any]) -> None:
        node, host = self.node, self.host
        member, refused = told["member"], None
        if told["version"] != wire.VERSION:
            refused = f"it speaks version {told['version']} between members, the owner {wire.VERSION}"
        elif member not in host.members:
            refused = f"{member} is no member of the site"
        elif told["node_id"] != node.node_id:
            refused = f"it serves {told['node_id']}, not {node.node_id}"
        if refused is not None:
            node.driver.log("warning", "a member of the site is refused", member=member, reason=refused)
            self._say(wire.WELCOME, wire.to_json({"refused": refused}))
            return
        self.house = house = host.enter(self, member, told["life"])
        self._durable = self._said = house.taken

        def welcome() -> None:
            self._say(wire.WELCOME, wire.to_json({"epoch": node.epoch, "taken": house.taken}))

        custody = node.custody
        if custody is None or custody.covers(custody.last):
            welcome()
        else:  # an earlier connection may have brought what is not on disk yet
            custody.when(custody.last, welcome)

    # clients ------------------------------------------------------------------------------------

    def _guest(self, house: House, told: dict[str, Any]) -> Guest:
        node = self.node
        connect = decode(wire.raw(told["connect"]), Version.V311, node.config.limits.packet)
        if not isinstance(connect, Connect):
            raise MemberError("no CONNECT of a guest")
        return Guest(
            house.member,
            told["key"],
            told["client_id"],
            told["peer"],
            connect,
            node.retained,
            node.router,
            node.driver.wall(),
        )

    def _anew(self, house: House, rows: list[dict[str, Any]]) -> None:
        """All clients of a member, as they were when this owner had got the last record it has."""
        registry, changes = self.node.clients, dict[str, int | None]()
        for told in rows:
            if told["session"] in house.guests:
                continue
            guest = house.guests[told["session"]] = self._guest(house, told)
            known = registry.records.get(told["key"])
            if known is not None and known.session is not None:
                continue  # the client has come back elsewhere, before its member
            qos2 = {int(packet_id): digest for packet_id, digest in told["qos2"]}
            guest.record = registry.comes(told["key"], told["expiry"], told["filters"], qos2, changes)
            registry.resumed(guest, guest.record)
        registry.all_resumed(changes)
        self.host.came(house)

    def _do(self, house: House, body: bytes) -> None:
        node = self.node
        number = house.taken
        try:
            for number, kind, what in wire.records_of(body):
                if number > house.taken:
                    self._record(house, number, kind, what)
        finally:
            node.router.gathering.send()
        house.taken = max(house.taken, number)
        node.store.put(GUESTS, (house.member,), (house.life, house.taken))
        custody = node.custody
        if custody is None:
            self._is_durable(number)
        else:
            custody.when(custody.last, lambda: self._is_durable(number))

    def _record(self, house: House, number: int, kind: int, what: bytes) -> None:
        """Do what a record tells of. One that cannot be understood is passed over: it would come for ever."""
        does = self._does.get(kind)
        try:
            if does is None:
                raise MemberError(f"a record of kind {kind}")
            does(house, number, what)
        except FAULTS as error:
            self.node.counters["pair_unusable"] += 1
            self.node.driver.log(
                "error",
                "a record of a member makes no sense",
                member=house.member,
                kind=kind,
                error=str(error),
            )

    def _is_durable(self, number: int) -> None:
        self._durable = max(self._durable, number)
        self._answer()

    def _answer(self) -> None:
        """Say what is durable, unless a queue is full: then members wait, and with them their clients."""
        if self._durable > self._said and not self._holds:
            self._said = self._durable
            self._say(wire.TAKEN, wire.NUMBER.pack(self._durable))

    def _connected(self, house: House, number: int, body: bytes) -> None:
        session, told = _of_client(body)
        guest = house.guests[session] = self._guest(house, told)
        assert guest.connect is not None
        connack = decode(wire.raw(told["connack"]), guest.version)
        if not isinstance(connack, ConnAck):
            raise MemberError("no CONNACK of a guest")
        guest.record = self.node.clients.connected(guest, guest.connect, connack)

    def _subscribed(self, house: House, number: int, body: bytes) -> None:
        session, granted = _of_client(body)
        guest = house.guests.get(session)
        if guest is None or guest.record is None or guest.record.session is not guest:
            self._say(wire.TOLD, wire.NUMBER.pack(number))
            return
        self.node.clients.subscribed(guest.record, granted)
        self._when_told(number, guest.record.saved, list(granted))

    def _when_told(self, number: int, persistent: bool, filters: list[str]) -> None:
        def told() -> None:
            self._say(wire.TOLD, wire.NUMBER.pack(number))

        if self.node.local.waits.when_advertised(told, persistent, filters):
            told()

    def _unsubscribed(self, house: House, number: int, body: bytes) -> None:
        session, filters = _of_client(body)
        guest = house.guests.get(session)
        if guest is not None and guest.record is not None and guest.record.session is guest:
            self.node.clients.unsubscribed(guest.record, filters)

    def _leaves(self, house: House, number: int, body: bytes) -> None:
        session, (clean, expiry) = _of_client(body)
        guest = house.guests.get(session)
        if guest is not None and guest.record is not None:
            self.node.clients.leaves(guest, guest.record, clean, expiry)

    def _disconnected(self, house: House, number: int, body: bytes) -> None:
        session, clean = _of_client(body)
        guest = house.guests.pop(session, None)
        if guest is not None and guest.record is not None and guest.connect is not None:
            self.node.clients.disconnected(guest, guest.record, guest.connect, clean)

    def _released(self, house: House, number: int, body: bytes) -> None:
        session, packet_id = wire.RELEASED_BODY.unpack(body)
        guest = house.guests.get(session)
        if guest is not None and guest.record is not None and guest.record.session is guest:
            self.node.clients.released(guest.record, packet_id)
            self.node.retained.releases.released(guest.record.key, packet_id)

    # messages -----------------------------------------------------------------------------------

    def _batch(self, house: House, number: int, body: bytes) -> None:
        index, count, size, date = wire.BATCH_HEAD.unpack_from(body)
        node = self.node
        router, since = node.router, None
        if date:
            since = node.driver.now() - max(0.0, node.driver.wall() - date)
        batch = Batch(body[wire.BATCH_HEAD.size :], count, size, since)
        batch.verify()
        if router.has_overlay or router.dispatch.asks_each:
            if batch.qos:
                batch = batch.numbered(1)  # those of a run have none
            for place in range(count):
                router.publish(batch.part(place, 1).message, index, self)
            return
        for run in batch.runs():
            topic = frames_topic(run.frames)
            route = router.routes.local.get(topic)
            if route is None:
                route = router.routes.find(topic, None)
            if route:
                router.gathering.add(route, run.frames, run.size, run.count, index, self, since=since)

    def _message(self, house: House, number: int, body: bytes) -> None:
        session, index, unreleased, date = wire.MESSAGE_HEAD.unpack_from(body)
        node = self.node
        message = decode(body[wire.MESSAGE_HEAD.size :], Version.V5)
        if not isinstance(message, Publish):
            raise MemberError("no PUBLISH of a guest")
        left = message.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
        if left is not None:
            age = int(max(0.0, node.driver.wall() - date))
            message.properties[Property.MESSAGE_EXPIRY_INTERVAL] = max(1, int(left) - age)
        guest = house.guests.get(session)
        packet_id = message.packet_id
        if message.qos < 2 or packet_id is None or guest is None:
            node.router.publish(message, index, self)
            return
        if guest.superseded:
            node.counters["pair_superseded"] += 1
            return
        record = guest.record
        assert record is not None
        if record.has_transferred(message, message.topic):
            return
        node.clients.transferred(record, message)
        node.router.publish(message, index, self)
        if not unreleased:
            node.clients.released(record, packet_id)
        elif message.retain:
            node.retained.releases.sent(record.key, packet_id, message.topic)

    # as the source of messages ------------------------------------------------------------------

    @property
    def credit(self) -> tuple[int, int]:
        """Its outbox bounds what it sends; how much of that is on its way, the owner does not know."""
        return 0, 0

    def hold(self, reason: object) -> None:
        """Answer nothing until every reason is withdrawn."""
        self._holds.add(reason)

    def release(self, reason: object) -> None:
        self._holds.discard(reason)
        self._answer()

    def overran(self) -> None:
        """What is dropped was of QoS 0: the rest waits in the spool."""


def _of_client(body: bytes) -> tuple[int, Any]:
    return wire.NUMBER.unpack_from(body)[0], wire.from_json(body[wire.NUMBER.size :])
