"""What a client sends on its way to the broker, with a look at each frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ildm.api import Source
from ildm.core.frames import PUBLISH, head_topic, packet_ids, publish_run, run_to_v5
from ildm.core.local.actions import Action
from ildm.core.local.decisions import Decisions
from ildm.core.local.partial import SMALL
from ildm.core.local.spool_room import SpoolRoom
from ildm.mqtt import (
    Disconnect,
    MqttError,
    OverLimit,
    PacketTooLarge,
    PacketType,
    ProtocolViolation,
    check_first_byte,
    decode,
    frame_bounds,
    members,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ildm.core.local.acknowledgements import Acknowledgements
    from ildm.core.local.parts import ClientParts
    from ildm.core.local.publishing import Publishing
    from ildm.core.local.wire import ClientWire

_RELAY, _RUN, _COUNT, _LOOK = (int(a) for a in (Action.RELAY, Action.RUN, Action.COUNT, Action.LOOK))

MAX_HELD = 1 << 20
"""Bytes of another packet, but PUBLISH, that the node must read before the broker gets it."""
AT_ONCE = 100
"""Packets, or runs of them, that are looked at in a row: 30,000 of the smallest may be read at once."""
NO_ROOM = -2
"""Instead of how many more are looked at: there is no room for the next one."""
_CLIENT: Final = Source.CLIENT
"""See :mod:`ildm.mqtt.members`."""


class ClientRelay:
    """Steps over the frames of what one client sends; whatever needs a look gets it by its type."""

    __slots__ = (
        "_acks",
        "_decisions",
        "_parts",
        "_publishing",
        "_spool_room",
        "_wire",
        "actions",
        "clean",
        "messages_in",
        "moving_off",
        "open",
        "said_goodbye",
    )

    def __init__(
        self, parts: ClientParts, wire: ClientWire, acks: Acknowledgements, publishing: Publishing
    ) -> None:
        self._parts = parts
        self._wire = wire
        self._acks = acks
        self._publishing = publishing
        self._decisions: Decisions | None = None
        self._spool_room: SpoolRoom | None = None
        self.actions = b""
        """What is done with a frame, by its first byte (:mod:`.actions`)."""
        self.open = False
        """The broker has accepted the client, and neither has been ended."""
        self.moving_off = False
        """The session ends as soon as the packet under way is whole."""
        self.said_goodbye = False
        """The client has sent a DISCONNECT: nothing that follows is of any effect (MQTT-3.14.4-2)."""
        self.clean = False
        """The client's will is discarded: by its DISCONNECT, or by the node's."""
        self.messages_in = 0

    @property
    def _room(self) -> SpoolRoom:
        """Made when it is needed, as most clients never find the spool full."""
        room = self._spool_room
        if room is None:
            room = SpoolRoom(self._parts, self._wire, self._acks, self._publishing)
            self._spool_room = room
        return room

    @property
    def decisions(self) -> Decisions:
        """Made when it is needed, as most clients send nothing that is asked about or put off."""
        decisions = self._decisions
        if decisions is None:
            decisions = Decisions(self._parts, self._wire, self._acks, self._publishing)
            self._decisions = decisions
        return decisions

    @property
    def _refuses(self) -> bool:
        """Whether each message has to be looked at, to be refused or after one was."""
        return self._parts.refusal is not None and self._room.refuses

    def receive(self, data: bytes) -> None:
        """Relay what has come of a client that the broker has accepted."""
        if not self.open or self.said_goodbye:
            return
        pos = 0
        partial = self._wire.partial
        try:
            if partial is not None and partial.missing:
                if partial.relayed:
                    pos = partial.take(data)
                    if partial.missing:
                        self._wire.relay(data)
                        return
                else:
                    joined = partial.join(data)
                    if joined is None:
                        return
                    data = joined
            self._step(data, pos)
        except MqttError as error:
            self._wire.fail(error)

    def _step(self, data: bytes, pos: int) -> None:
        """Step over the frames of a chunk, which begins with ``pos`` bytes of one relayed in part."""
        broker, acks = self._wire.broker, self._acks
        assert broker is not None
        start = 0  # data[start:pos]: not relayed yet
        refusal, size_limit = self._parts.refusal, self._parts.limits.packet_size
        actions = self.actions if refusal is None or not self._refuses else refusal.actions
        end_of_data = len(data)
        missing, left = 0, AT_ONCE
        try:
            if pos:
                start = self._streamed(data, pos)
                if not self.open:
                    return
            while pos < end_of_data:
                header_end, end = frame_bounds(data, pos)
                if not end:
                    missing = 1
                    break
                if end - pos > size_limit:
                    raise _too_large(end - pos, size_limit)
                if end > end_of_data:
                    missing = end - end_of_data
                    if acks.holds and self._room.must_wait(data[pos], end - pos):
                        left = NO_ROOM
                    elif end - pos > SMALL and self._stream(data, pos, header_end, missing):
                        pos = end_of_data
                    break
                action = actions[data[pos]]
                if action == _RELAY:
                    pos = end
                    continue
                left -= 1
                if left < 0:
                    break
                if action == _RUN:
                    end = self._run(data, pos, header_end, end)
                elif action == _COUNT:
                    self.messages_in += 1
                elif action != _LOOK:
                    raise self._illegal(data[pos])
                elif acks.holds and self._room.must_wait(data[pos], end - pos):
                    end = pos
                else:
                    frame = data[pos:end]
                    result = self._look(frame)
                    if self.said_goodbye:
                        data, end_of_data = data[:end], end
                    if result is not frame:
                        if pos > start:
                            broker.write(data[start:pos])
                        if result:
                            broker.write(result)
                        start = end
                        if self.awaits_decision:
                            left = -1
                if end == pos:
                    left = NO_ROOM
                pos = end
                if left < 0:
                    break
        finally:
            if pos > start:  # what came before a bad packet counts
                broker.write(data if pos == end_of_data and start == 0 else data[start:pos])
            self._parts.router.gathering.send()
        if left < 0 or pos < end_of_data:
            self._put_off(data[pos:], missing, left)
        if self._publishing.unanswered is not None:
            self._publishing.pause_if_too_much()
        self._parts.deliver()

    def _put_off(self, rest: bytes, missing: int, left: int) -> None:
        """Keep the rest of a chunk: until its last packet is whole, there is room, a decision has come, or
        others have had their turn.

        A chunk may hold so many packets that they would wait for seconds.
        """
        if left == NO_ROOM:
            self.decisions.rest = rest
            self._room.wait()
        elif left >= 0:
            self._wire.begin_partial().hold(rest, missing, self._wire.fail)
        elif self.awaits_decision:
            self.decisions.rest = rest
            self._wire.pause("decision")
        else:
            self.decisions.rest = rest
            self._wire.pause("budget")
            self._parts.driver.in_turn(self.next_turn)

    def next_turn(self) -> None:
        """What was put off has its turn."""
        decisions, wire = self.decisions, self._wire
        rest, decisions.rest = decisions.rest, b""
        if rest:
            self.receive(rest)
        if decisions.rest or decisions.awaited is not None:
            return
        wire.resume("budget")
        wire.resume("decision")
        wire.resume("room")
        decisions.rest_done()

    # runs ---------------------------------------------------------------------------------------

    def _run(self, data: bytes, pos: int, header_end: int, end: int) -> int:
        """Transfer the messages of a run that begins at ``pos``; answers where it ends, ``pos``: no room."""
        publishing, acks, router = self._publishing, self._acks, self._parts.router
        v5 = self._wire.version is members.V5
        run_end, size = end, end - pos
        room = 0
        held = acks.holds and data[pos] != PUBLISH
        if held:
            room = acks.room(size)
            if not room:
                return pos
            acks.sent_while_held(1, size)
        try:
            run = publish_run(data, pos, header_end, end, v5)
            if run is None:
                self.messages_in += 1
                publishing.publish(data[pos:end])
                return end
            run_end, size, topic, body = run
            route = router.routes.local.get(topic)
            if route is None:
                route = router.routes.find(topic, None)
        except MqttError as error:
            count = (run_end - pos) // size
            publishing.unusable(error, count)
            self.messages_in += count
            return run_end
        count = (run_end - pos) // size
        if held and count > 1:
            if count > room:
                count, run_end = room, pos + room * size
                run = run_end, size, topic, body
            acks.sent_while_held(count - 1, size)
        self.messages_in += count
        if not route or (publishing.rules is not None and not publishing.may_cross(topic, count)):
            return run_end
        if v5:
            frames, new_size = data[pos:run_end], size
        else:
            frames, new_size = run_to_v5(data, pos, header_end, run)
        unanswered = publishing.unanswered
        if data[pos] == PUBLISH or unanswered is None:
            router.gathering.add(route, frames, new_size, count, publishing.publisher_index(), acks)
            if held:
                router.gathering.send()  # what there is room for depends on it
        else:
            offset = pos + body
            if count == 1:
                ids: Sequence[int] = ((data[offset] << 8) | data[offset + 1],)
            else:
                ids = packet_ids(data[offset:run_end:size], data[offset + 1 : run_end : size])
            unanswered.add_run(topic, frames, new_size, ids)
            self._wire.watching = True
        return run_end

    # large packets ------------------------------------------------------------------------------

    def _stream(self, data: bytes, pos: int, header_end: int, missing: int) -> bool:
        """Whether the incomplete packet at ``pos`` can be relayed as it comes."""
        first = data[pos]
        action = self.actions[first]
        if action == Action.ILLEGAL:
            raise self._illegal(first)
        copy = False
        if action not in (_RELAY, _COUNT):
            if first >> 4 != members.PUBLISH:
                _check_held(first, len(data) - pos + missing)
                return False
            if self._parts.filters_clients or self._refuses:
                return False
            copy = action != _RUN or self._crosses(data, header_end, first & 6 != 0)
        if first >> 4 == members.PUBLISH:
            self.messages_in += 1
            if self._acks.holds and first & 6:
                self._acks.sent_while_held(1, len(data) - pos + missing)
        self._wire.begin_partial().relay(data[pos:], missing, copy)
        return True

    def _crosses(self, data: bytes, header_end: int, identified: bool) -> bool:
        """Whether a message of which a part is there may be wanted elsewhere, or changes an alias."""
        topic = head_topic(data, header_end, identified, self._wire.version is members.V5)
        if topic is None:
            return True
        route = self._parts.router.routes.local.get(topic)
        if route is None:
            try:
                route = self._parts.router.routes.find(topic, None)
            except MqttError as error:
                self._publishing.unusable(error, 1)
                return False
        return bool(route)

    def _streamed(self, data: bytes, end: int) -> int:
        """A packet that was relayed as it came ends at ``end``; answers how much of ``data`` is relayed."""
        wire = self._wire
        partial = wire.partial
        assert partial is not None
        frame = partial.whole()
        waiting = wire.between_packets()
        moving_off = self.moving_off
        if waiting or moving_off:
            wire.relay(data[:end] + waiting)
        aliases = self._publishing.aliases
        if partial.given_up and aliases is not None:
            aliases.forget()
        if frame is not None:
            self._publish(frame)
        if moving_off:
            wire.go_on()
        return end if waiting or moving_off else 0

    # frames that mean something -----------------------------------------------------------------

    def _look(self, frame: bytes) -> bytes | None:
        """Deal with a frame that means something to the node; answers what is to be relayed instead."""
        type = frame[0] >> 4
        if type == members.PUBLISH:
            return self._message(frame)
        if type == members.PUBREL:
            passed = self._publishing.pubrel(frame)
            return None if passed is None else self._arrived(passed)
        _check_held(frame[0], len(frame))
        if type == members.SUBSCRIBE:
            return self.decisions.subscribe(frame)
        if type == members.UNSUBSCRIBE:
            self._publishing.unsubscribing(frame)
        elif type == members.DISCONNECT:
            self._disconnect(frame)
            if self._publishing.is_owed:
                return self.decisions.when_answered(lambda _: self._arrived(frame))
        return self._arrived(frame)

    def _arrived(self, frame: bytes) -> bytes:
        packet_type = members.PACKET_TYPES[frame[0] >> 4]
        assert packet_type is not None  # 0 is illegal
        self._parts.arrived(_CLIENT, self._wire.session, packet_type, frame)
        return frame

    def _message(self, frame: bytes) -> bytes | None:
        self.messages_in += 1
        if self._acks.holds and frame[0] & 6:
            self._acks.sent_while_held(1, len(frame))
        if self._parts.filters_clients:
            return self.decisions.message(frame, self._passed)
        return self._passed(frame)

    def _passed(self, frame: bytes) -> bytes | None:
        """A PUBLISH goes to the broker, unless it is refused; answers what is to be relayed."""
        if self._refuses:
            passing = self._room.unless_refused(frame)
            if passing is None:
                return None
            frame = passing
        self._publish(frame)
        return frame

    def _publish(self, frame: bytes) -> None:
        if not self._parts.router.active or self._publishing.publish(frame):
            self._parts.arrived(_CLIENT, self._wire.session, members.PUBLISH, frame)
        if self._acks.holds:
            self._parts.router.gathering.send()  # what there is room for depends on it

    def _disconnect(self, frame: bytes) -> None:
        clean, expiry, record = True, None, self._publishing.record
        if len(frame) > 2:
            packet = decode(frame, self._wire.version, self._parts.packet_limits)
            assert isinstance(packet, Disconnect)
            told = packet.properties.get(members.SESSION_EXPIRY_INTERVAL)
            if told and record is not None and record.expiry == 0:
                raise ProtocolViolation(
                    "DISCONNECT sets a session expiry which CONNECT had as 0", clause="MQTT-3.14.2-2"
                )
            clean, expiry = packet.reason_code == 0, None if told is None else int(told)
        # what that means for its session is saved before the broker hears of it (MQTT-3.14.4-3)
        self.clean = clean
        self.said_goodbye = True
        if record is not None:
            self._parts.clients.leaves(self._wire.session, record, clean, expiry)
        if self._parts.custody is not None:
            self._parts.custody.flush()

    def _illegal(self, first: int) -> MqttError:
        """Why a client may not send a packet with this first byte."""
        try:
            type = check_first_byte(first, self._wire.version)
        except MqttError as error:
            return error
        clause = "MQTT-3.1.0-2" if type is members.CONNECT else "MQTT-4.13.1-1"
        return ProtocolViolation(f"{type.name} from a client", clause=clause)

    # what was put off, and the end --------------------------------------------------------------

    @property
    def awaits_decision(self) -> bool:
        """Whether a decision about a packet of the client's is awaited."""
        return self._decisions is not None and self._decisions.is_waiting

    def after(self, callback: Callable[[], None]) -> None:
        """Call back when nothing is put off: the end of a client comes after what it has sent."""
        if self._decisions is None:
            callback()
        else:
            self._decisions.after(callback)

    def say_goodbye(self) -> None:
        """A DISCONNECT that waits goes to the broker now: something is to follow it."""
        if self._decisions is not None:
            self._decisions.say_goodbye()

    def stop_waiting(self) -> None:
        """The session ends, and with it what is undecided."""
        if self._decisions is not None:
            self._decisions.stop_waiting()

    def client_gone(self) -> None:
        """The client sends nothing more."""
        if self._decisions is not None:
            self._decisions.client_gone()
        if self._spool_room is not None:
            self._spool_room.room_again()


def _too_large(size: int, limit: int) -> MqttError:
    return PacketTooLarge(f"packet of {size} bytes, limits.packet_size is {limit}", clause="MQTT-3.2.2-15")


def _check_held(first: int, size: int) -> None:
    if size > MAX_HELD:
        name = PacketType(first >> 4).name
        raise OverLimit(f"{name} of {size} bytes, {MAX_HELD} are possible", clause="MQTT-4.13.2")
