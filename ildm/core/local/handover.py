"""A client's session as plain data, and made anew of it by the process that takes the client over.

Both connections go on at the byte where they stood: what has been read of a packet and not passed on is read
again by the new session, and what has been passed on in part is only remembered by its length. A description
has three parts. What never changes (:func:`fixed`) is described while the client is served. What the node
needs of all clients before it serves any stands in :func:`kept`. The rest (:func:`exported`) is short for a
client of which nothing is under way. The format has a version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ildm.api import SessionStatus, Stamp
from ildm.config import parse_address
from ildm.core.local.ack_gate import GateScanner
from ildm.core.local.aliases import TopicAliases
from ildm.core.local.answers import Answers
from ildm.core.local.broker_session import BrokerSession
from ildm.core.local.client_session import ClientSession
from ildm.core.local.client_state import RELAYING
from ildm.core.local.unanswered import Unanswered, UnansweredBatch, UnansweredMessage
from ildm.mqtt import Connect, Framer, Publish, Subscribe, Subscription, Unsubscribe, Version, decode, members

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ildm.core.driver import Transport
    from ildm.core.local.parts import ClientParts
    from ildm.core.local.publishing import Publishing
    from ildm.core.local.record import ClientRecord
    from ildm.core.local.relay import ClientRelay
    from ildm.core.session import BaseSession, Origin

VERSION = 3
"""Of the format of descriptions."""
READS = (2, VERSION)
"""Versions that :class:`Restored` understands."""
ALL_SIZES = 1 << 28
"""Bytes of a packet in a message that filters look at: more than the largest."""

State = dict[str, Any]
"""Of JSON's types; bytes are texts of the characters U+0000 to U+00FF."""
Kept = list[Any]
"""Key and expiry of a client's record, its filters, and what of QoS 2 it has not released."""
AT_REST: State = {
    "again": "",
    "aliases": [None, None],
    "after": "",
    "beside": "",
    "broker_again": "",
    "dropped_qos2": [],
    "partial": None,
    "pings": 0,
    "requests": [],
    "scanner": [0, "", None, 0],
    "unanswered": [],
}
"""What :func:`exported` leaves out of a client of which nothing is under way."""


def _text(data: bytes | bytearray) -> str:
    return data.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


# what is handed over ------------------------------------------------------------------------------


def unsettled(session: ClientSession) -> str | None:
    """Why a session cannot be described just now; None: it can."""
    paired, relay, wire = session.paired, session.relay, session.wire
    publishing, acks = session.publishing, session.acks
    if session.state is not RELAYING or paired is None or not (session.is_open and paired.is_open):
        return "it is not served by the broker"
    if paired._left or wire.ended or wire.lingers or relay.said_goodbye or relay.moving_off:
        return "it is ending"
    record = publishing.record
    if record is None or record.session is not session or session.taken_over_at is not None:
        return "another connection has taken it over"
    decisions = relay._decisions
    if decisions is not None and (decisions.is_waiting or decisions._after_rest is not None):
        return "a decision about its packets is awaited"
    if publishing._patience is not None:
        return "answers of the broker are out of order"
    pending = publishing._pending
    if pending is not None and pending._rejections:
        return "a SUBSCRIBE is rejected in part"
    gate = acks._gate
    if gate is not None and gate._answers:
        return "a SUBACK waits for other sites"
    barrier, custody = acks._barrier, session.parts.custody
    if custody is not None and (acks.lsn > custody.durable or (barrier is not None and len(barrier))):
        return "an acknowledgement waits for the disk"
    return None


def release(session: ClientSession) -> None:
    """Give the client the acknowledgements that a full queue holds back: what they are for is kept by now."""
    gate = session.acks._gate
    if gate is not None:
        for reason in gate.reasons:
            gate.release(reason)


def fixed(session: ClientSession) -> State:
    """What stays as it is from CONNACK to the end."""
    paired, connect = session.paired, session.connect
    assert paired is not None
    assert connect is not None
    state: State = {
        "client_id": session.client_id,
        "peer": session.peer,
        "listener": "" if session.origin is None else session.origin.listener,
        "version": int(session.version),
        "opened": [session.opened_at, paired.opened_at],
        "connect": _text(connect.encode()),
        "keep_alive": session.wire.keep_alive,
        "receive_maximum": session.acks.receive_maximum,
        "broker": str(paired.address),
    }
    if session.version is members.V5:
        answers = session.wire.answers
        state["answers"] = [answers._packet_room, answers._wants_reasons]
    return state


def kept(session: ClientSession) -> Kept:
    """What the registry of clients knows of a settled session."""
    record = session.publishing.record
    assert record is not None
    return [record.key, record.expiry, record.filters, list(record.qos2.items())]


def exported(session: ClientSession) -> State:
    """The rest of what a settled session is, but for its connections. It does nothing more from then on."""
    paired, wire, publishing = session.paired, session.wire, session.publishing
    assert paired is not None
    state: State = {"messages": [session.relay.messages_in, paired.messages_out]}
    if wire.pings:
        state["pings"] = wire.pings
    if wire.beside:
        state["beside"] = _text(wire.beside)
    after = wire.between_packets()
    if after:
        state["after"] = _text(after)
    if publishing.dropped_qos2:
        state["dropped_qos2"] = sorted(publishing.dropped_qos2)
    if publishing.aliases is not None or paired._aliases is not None:
        state["aliases"] = _aliases_of(publishing.aliases), _aliases_of(paired._aliases)
    if session.relay._decisions is not None or wire.partial is not None:
        state["again"], state["partial"] = _incoming(session.relay, wire.partial)
    scanner = wire.scanner
    if scanner is None or not scanner.between_frames:
        state["broker_again"], state["scanner"] = _outgoing(paired, scanner)
    if publishing.unanswered:
        state["unanswered"] = _unanswered_of(publishing.unanswered)
    if publishing._pending is not None:
        state["requests"] = _requests_of(publishing, session.version)
    _end(session, paired)
    return state


def _end(session: ClientSession, paired: BrokerSession) -> None:
    """Nothing that still comes, as the call of a timer, may do anything in the session's name."""
    session.relay.open = False
    paired._left = True
    wire = session.wire
    wire.forget_partial()
    if session.relay._decisions is not None:
        session.relay._decisions.rest = b""
    room = session.relay._spool_room
    if room is not None and room._pinging is not None:
        room._pinging.cancel()
    for one in (session, paired):
        if one._cut_off is not None:
            one._cut_off.cancel()
        one.transport = None
        one.status = SessionStatus.CLOSED


def _aliases_of(aliases: TopicAliases | None) -> list[Any] | None:
    if aliases is None:
        return None
    return [aliases.maximum, sorted(aliases.missing), list(aliases._topics.items())]


def _incoming(relay: ClientRelay, partial: Any) -> tuple[str, list[Any] | None]:
    """What of the client is to be read again, and of a packet that the broker has in part what lacks."""
    decisions = relay._decisions
    rest = b"" if decisions is None else decisions.rest
    if partial is None or not partial.missing:
        return _text(rest), None
    kept = None if partial._parts is None else b"".join(partial._parts)
    if not partial.relayed:
        return _text((kept or b"") + rest), None
    return _text(rest), [partial.missing, None if kept is None else _text(kept), partial.given_up]


def _outgoing(paired: BrokerSession, scanner: GateScanner | None) -> tuple[str, list[Any]]:
    """What of the broker is to be read again, and where in a packet the client is."""
    if scanner is None:
        assert paired._framer is not None
        return _text(paired._framer._held), [0, "", None, 0]
    held = None if scanner._held is None else b"".join(scanner._held)
    if scanner.deferred:
        return _text(scanner._head or held or b""), [0, "", None, 0]
    return "", [scanner._skip, _text(scanner._head), None if held is None else _text(held), scanner._missing]


def _unanswered_of(unanswered: Unanswered) -> list[Any]:
    rows = [_batch_row(run, qos) for qos, runs in _queues(unanswered) for run in runs]
    queued = {run for _, runs in _queues(unanswered) for run in runs}
    loose: dict[UnansweredBatch, None] = {}
    for places in (unanswered._places or {}).values():
        loose.update({run: None for run, _ in places if run.loose and run not in queued})
    return rows + [_batch_row(run, 0) for run in loose]


def _queues(unanswered: Unanswered) -> Iterable[tuple[int, Iterable[UnansweredBatch]]]:
    return (1, unanswered._qos1), (2, unanswered._qos2)


def _batch_row(run: UnansweredBatch, qos: int) -> list[Any]:
    one = run.message
    message = None if one is None else [_text(one.message.encode(members.V5)), one.stamp, one.released]
    sets = [sorted(run.early or ()), sorted(run.over or ())]
    return [
        qos,
        _text(run.topic),
        _text(run.frames),
        run.size,
        list(run.ids),
        run.done,
        *sets,
        run.bytes,
        message,
    ]


def _requests_of(publishing: Publishing, version: Version) -> list[Any]:
    pending = publishing._pending
    found: list[Any] = []
    for packet_id, (request, size) in () if pending is None else pending._requests.items():
        subscriptions = [each for each in request if isinstance(each, Subscription)]
        filters = [each for each in request if isinstance(each, str)]
        packet = (
            Subscribe(packet_id=packet_id, subscriptions=subscriptions)
            if subscriptions
            else Unsubscribe(packet_id=packet_id, topic_filters=filters)
        )
        found.append([_text(packet.encode(version)), size])
    return found


# what is taken over -------------------------------------------------------------------------------


class Restored:
    """A session that another process has handed over, which goes on when it is told to.

    Args:
        state: all that :func:`fixed` and :func:`exported` have said.
        origin: of the client's connection, in this process.

    Raises:
        ValueError, KeyError, TypeError, MqttError: no session can be like this.
    """

    def __init__(self, parts: ClientParts, state: State, origin: Origin | None) -> None:
        self._state = state = {**AT_REST, **state}
        self._parts = parts
        self.session = session = ClientSession(parts, origin)
        connect = decode(_bytes(state["connect"]), members.V311, parts.packet_limits)
        if not isinstance(connect, Connect):
            raise ValueError("no CONNECT")
        session.connect = connect
        session.client_id, session.peer = state["client_id"], state["peer"]
        session.version = session.wire.version = Version(state["version"])
        session.relay.actions = parts.actions[session.version]
        session.relay.messages_in, messages_out = state["messages"]
        self.broker = paired = BrokerSession(parts, session, b"")
        paired.address = parse_address(state["broker"])
        paired._accepted = paired._admitted = True
        paired._passed = messages_out
        session.paired = session.wire.broker = paired
        self._restore_wire()
        self._restore_publishing()

    def _restore_wire(self) -> None:
        state, parts = self._state, self._parts
        session, paired = self.session, self.broker
        wire = session.wire
        wire.keep_alive, wire.pings = state["keep_alive"], state["pings"]
        wire.beside = bytearray(_bytes(state["beside"])) or None
        if state["after"]:
            wire._interjected = [_bytes(state["after"])]
        if session.version is members.V5:
            wire.answers = Answers(parts.limits, session.connect)
            wire.answers._packet_room, wire.answers._wants_reasons = state["answers"]
        session.acks.receive_maximum = state["receive_maximum"]
        partial = state["partial"]
        if partial is not None:
            missing, kept, given_up = partial
            copy = None if kept is None else _bytes(kept)
            wire.begin_partial().relay(copy or b"", missing, copy is not None)
            wire.begin_partial().given_up = given_up
        _, aliases = state["aliases"]
        paired._aliases = _aliases(aliases)
        skip, head, held, missing = state["scanner"]
        if parts.filters_broker and not (skip or head or held):
            paired._framer = Framer(ALL_SIZES)
            if paired._aliases is None:
                paired._aliases = paired._client_aliases()
            return
        scanner = GateScanner(parts.broker_wanted, parts.limits.packet_size, session.version)
        scanner._skip, scanner._head, scanner._missing = skip, _bytes(head), missing
        scanner._held = None if held is None else [_bytes(held)]
        scanner.between_frames = not (skip or head or held)
        wire.scanner = scanner

    def _restore_publishing(self) -> None:
        state, parts = self._state, self._parts
        session = self.session
        publishing = session.publishing
        publishing.aliases = _aliases(state["aliases"][0])
        publishing.dropped_qos2 = set(state["dropped_qos2"]) or None
        if parts.transfers_acknowledged or state["unanswered"]:
            publishing.unanswered = _unanswered(state["unanswered"])
        for text, size in state["requests"]:
            packet = decode(_bytes(text), session.version, parts.packet_limits)
            if not isinstance(packet, Subscribe | Unsubscribe):
                raise ValueError("no SUBSCRIBE or UNSUBSCRIBE")
            request: Any = packet.subscriptions if isinstance(packet, Subscribe) else packet.topic_filters
            pending = publishing.pending
            pending._requests[packet.packet_id] = request, size
            pending.bytes += size

    def begin(self, client: Transport, broker: Transport, record: ClientRecord) -> None:
        """The session has its connections, of which nothing is read yet."""
        state, parts, session = self._state, self._parts, self.session
        for one, transport, opened in zip(
            (session, self.broker), (client, broker), state["opened"], strict=True
        ):
            _connected(one, transport, opened)
            transport.set_write_buffer_limits(high=parts.limits.write_buffer)
        self.broker.peer = parts.brokers.places.get(self.broker.address) or ""
        session.state = RELAYING
        session.relay.open = True
        session.wire.watching = True
        parts.brokers.reached(self.broker.address)
        session.publishing.record = record
        parts.events.client_resumed(session, record)

    def serve_broker(self) -> None:
        """Read what the broker sends: first again what the process before had read and not passed on."""
        broker = self.broker
        self._read_again(broker, "broker_again")
        if broker.is_open:
            broker._watched()
            broker.resume("upgrade")

    def serve_client(self) -> None:
        """The same for the client."""
        session = self.session
        self._read_again(session, "again")
        if session.is_open:
            session.resume("upgrade")
            session.publishing.pause_if_too_much()
            if session.wire.scanner is not None and self._parts.filters_broker:
                session.move_off()  # filters are to look at packets of which the client has one in part
            elif self.broker.address not in self._parts.brokers.addresses:
                session.move_off()  # as after a reload: the broker is not configured any more

    def _read_again(self, one: ClientSession | BrokerSession, what: str) -> None:
        again = _bytes(self._state[what])
        if again and one.is_open:
            one.data_received(again)


def _connected(one: BaseSession, transport: Transport, opened: float) -> None:
    one.transport = transport
    one.status = SessionStatus.ESTABLISHED
    one.opened_at = opened
    one.pause("upgrade")


def _aliases(row: list[Any] | None) -> TopicAliases | None:
    if row is None:
        return None
    maximum, missing, topics = row
    aliases = TopicAliases(maximum)
    aliases.missing = frozenset(missing)
    aliases._topics = {int(alias): str(topic) for alias, topic in topics}
    return aliases


def _unanswered(rows: list[Any]) -> Unanswered:
    made = Unanswered()
    loose: list[UnansweredBatch] = []
    for qos, topic, frames, size, ids, done, early, over, kept, message in rows:
        run = UnansweredBatch(_bytes(topic), _bytes(frames), size, ids)
        run.done, run.early, run.over, run.bytes = done, set(early) or None, set(over) or None, kept
        if message is not None:
            frame, stamp, released = message
            packet = decode(_bytes(frame), members.V5)
            if not isinstance(packet, Publish):
                raise ValueError("no PUBLISH")
            one = UnansweredMessage(packet, None if stamp is None else Stamp(*stamp), released)
            run.message = one
            made._single[ids[0] | packet.qos << 16] = run
        if qos:
            made._add(run, qos)
        else:
            run.loose = True
            loose.append(run)
            made.messages += len(ids)
            made.bytes += kept
        made.messages -= done + len(over)
        made.early += len(early)
    if loose:
        made._note_all()
        for run in loose:
            made._note(run)
    return made
