"""What filters decide about a client's packets: asked, awaited, and carried out.

While a decision is awaited nothing of the client is read beyond the chunk the packet came in, whose rest is
kept: what it sends stays in order, and its buffers are TCP's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ildm.api import Source
from ildm.core.local.requests import Rejections
from ildm.core.plugin.filtering import Awaited, Rejected
from ildm.mqtt import MqttError, PubAck, Publish, PubRec, Subscribe, Subscription, decode, members

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.core.local.acknowledgements import Acknowledgements
    from ildm.core.local.parts import ClientParts
    from ildm.core.local.publishing import Publishing
    from ildm.core.local.wire import ClientWire

FAILURE = 0x80
"""Return code of SUBACK for a subscription that is not made (3.1.1, 3.9.3)."""


class Decisions:
    """Asks the filters about one client's packets, keeps what comes behind an undecided one, and answers what
    they reject."""

    __slots__ = (
        "_acks",
        "_after_rest",
        "_fetching",
        "_goodbye",
        "_hold_left",
        "_last_call",
        "_parts",
        "_publishing",
        "_told",
        "_wire",
        "awaited",
        "rest",
    )

    def __init__(
        self, parts: ClientParts, wire: ClientWire, acks: Acknowledgements, publishing: Publishing
    ) -> None:
        self._parts = parts
        self._wire = wire
        self._acks = acks
        self._publishing = publishing
        self.awaited: Awaited[Any] | None = None
        self.rest = b""
        """Of a chunk: its turn comes after a decision, when others have had theirs, or when there is room."""
        self._after_rest: Callable[[], None] | None = None
        self._goodbye: Awaited[None] | None = None
        """It is awaited that the broker answers what the client has sent before its DISCONNECT."""
        self._fetching: Awaited[None] | None = None
        """It is awaited that the broker gets the retained messages a SUBSCRIBE asks for."""
        self._hold_left = 0.0
        """Seconds for which SUBSCRIBEs that follow each other may still wait for that."""
        self._last_call: Timer | None = None
        self._told: set[str] | None = None
        """What kinds of the client's packets the log has named as rejected."""

    # decisions that wait ------------------------------------------------------------------------

    def when_decided(self, answer: object, carry_out: Callable[[Any], bytes | None]) -> bytes | None:
        """Carry a decision out, now or when it has come; answers what is to be relayed now."""
        if not isinstance(answer, Awaited):
            return carry_out(answer)
        self.awaited = answer
        self._wire.kept_back()
        answer.then(partial(self._decided, carry_out))
        return None

    def _decided(self, carry_out: Callable[[Any], bytes | None], answer: object) -> None:
        self.awaited = None
        try:
            passed = carry_out(answer)
        except MqttError as error:
            self.rest = b""
            self._wire.fail(error)
            passed = None
        if passed:
            self._wire.relay(passed)
        self._parts.router.gathering.send()
        self._parts.deliver()
        if not self.is_waiting:
            self._wire.go_on()

    @property
    def is_waiting(self) -> bool:
        """Whether a decision is awaited: compiled code takes for None what it has set to None itself."""
        return self.awaited is not None

    def client_gone(self) -> None:
        """The client has gone: what it has sent still counts, if that is decided in time."""
        if not self._wire.has_broker:
            self.stop_waiting()
        elif self.awaited is not None or self.rest:
            limit = self._parts.limits.decision_timeout
            self._last_call = self._parts.driver.call_later(limit, self._too_late)

    def _too_late(self) -> None:
        self._last_call = None
        if self.awaited is None:
            self.client_gone()  # it is being dealt with
        else:
            self.stop_waiting()
            self._wire.go_on()

    def stop_waiting(self) -> None:
        """The session ends, and with it what is undecided."""
        if self._last_call is not None:
            self._last_call.cancel()
            self._last_call = None
        if self.awaited is not None:
            self.awaited.cancel()
            self._parts.counters["undecided"] += self.awaited not in (self._goodbye, self._fetching)
            self.awaited = None
            self.rest = b""

    def after(self, callback: Callable[[], None]) -> None:
        """Call back when nothing is put off: the end of a client comes after what it has sent."""
        if self.rest or self.awaited is not None:
            self._after_rest = callback
        else:
            callback()

    def rest_done(self) -> None:
        """Nothing is put off any more."""
        after, self._after_rest = self._after_rest, None
        if after is not None:
            after()

    # DISCONNECT ---------------------------------------------------------------------------------

    def when_answered(self, carry_out: Callable[[Any], bytes]) -> bytes | None:
        """Carry out when the broker has answered what it has got, or has had its time.

        After a DISCONNECT it answers nothing more, and what it has taken by then would stay at its site.
        """
        goodbye = self._goodbye = Awaited()
        self._wire.linger(lambda: goodbye.tell(None))
        return self.when_decided(goodbye, carry_out)

    def say_goodbye(self) -> None:
        """A DISCONNECT that waits goes to the broker now: something is to follow it."""
        if self._goodbye is not None:
            self._goodbye.tell(None)

    # PUBLISH ------------------------------------------------------------------------------------

    def message(self, frame: bytes, passed: Callable[[bytes], bytes | None]) -> bytes | None:
        """Ask about a PUBLISH; answers what is to be relayed. One that passes is handed to ``passed``."""

        def carry_out(answer: bytes | Rejected) -> bytes | None:
            publishing = self._publishing
            if isinstance(answer, Rejected):
                self._drop(frame, answer)
                return None
            if publishing.dropped_qos2 and frame[0] & 6 == 4:
                packet = decode(frame, self._wire.version)
                assert isinstance(packet, Publish)
                publishing.dropped_qos2.discard(packet.packet_id or 0)  # its PUBREL is for the broker
            return passed(answer)

        chain = self._parts.dispatch.chain
        spelled = self._publishing.spelled_out(frame)
        return self.when_decided(chain.message(Source.CLIENT, self._wire.session, spelled), carry_out)

    def _drop(self, frame: bytes, rejected: Rejected) -> None:
        """Answer a message that a filter has dropped as the broker would have."""
        self._parts.counters["filtered"] += 1
        self._wire.kept_back()
        version, publishing = self._wire.version, self._publishing
        packet = decode(frame, version)
        assert isinstance(packet, Publish)
        self.log_rejected("message", rejected, topic=packet.topic[:200])
        if packet.packet_id is None:
            return
        self._acks.answered_at_once(len(frame))
        code = int(rejected.reason) if version is members.V5 else 0
        acknowledgement = PubAck if packet.qos == 1 else PubRec
        answer = acknowledgement(packet_id=packet.packet_id, reason_code=code)
        self._wire.to_client(self._wire.answers.with_reason(answer, rejected.text))
        if packet.qos == 2 and code < 0x80:  # a failure ends the handshake (MQTT-4.3.3-4)
            if publishing.dropped_qos2 is None:
                publishing.dropped_qos2 = set()
            publishing.dropped_qos2.add(packet.packet_id)

    # SUBSCRIBE ----------------------------------------------------------------------------------

    def subscribe(self, frame: bytes) -> bytes | None:
        """Ask about each entry; answers what is to be relayed."""
        packet = decode(frame, self._wire.version, self._parts.packet_limits)
        assert isinstance(packet, Subscribe)
        chain = self._parts.dispatch.chain
        if not chain.admits_subscriptions:
            return self._fetched(frame, packet.packet_id, packet.subscriptions)
        answers = chain.subscriptions(self._wire.session, packet)
        return self.when_decided(answers, lambda answers: self._admitted(frame, packet, answers))

    def _admitted(
        self, frame: bytes, packet: Subscribe, answers: Sequence[Subscription | Rejected]
    ) -> bytes | None:
        """The broker gets what is admitted, in the client's own bytes if that is all of it as it was."""
        entries = [answer for answer in answers if not isinstance(answer, Rejected)]
        rejections = None
        if len(entries) < len(answers):
            rejections = self._rejections(packet.subscriptions, answers)
            if not entries:
                self._wire.kept_back()
                codes = rejections.merged(())
                suback = self._wire.answers.suback(packet.packet_id, codes, rejections.text, {})
                self._acks.answer_suback(suback)
                return None
        elif all(entry is answer for entry, answer in zip(packet.subscriptions, entries, strict=True)):
            return self._fetched(frame, packet.packet_id, entries)
        admitted = Subscribe(packet_id=packet.packet_id, subscriptions=entries, properties=packet.properties)
        return self._fetched(admitted.encode(self._wire.version), packet.packet_id, entries, rejections)

    def _fetched(
        self,
        frame: bytes,
        packet_id: int,
        entries: list[Subscription],
        rejections: Rejections | None = None,
    ) -> bytes | None:
        """The broker gets the SUBSCRIBE behind the retained messages that an overlay fetches for it.

        A client that sends many without waiting for SUBACK waits for all of them no longer than for one.
        """
        now = self._parts.driver.now()
        if not len(self._publishing.pending):
            self._hold_left = self._parts.config.link.subscribe_wait

        def passes(answer: object) -> bytes:
            self._hold_left -= self._parts.driver.now() - now
            self._publishing.pending.add(packet_id, entries, len(frame), rejections)
            self._wire.watching = True
            self._parts.arrived(Source.CLIENT, self._wire.session, members.SUBSCRIBE, frame)
            return frame

        names = [entry.topic_filter for entry in entries]
        self._fetching = self._parts.waits.before_subscribe(names, self._hold_left)
        return passes(None) if self._fetching is None else self.when_decided(self._fetching, passes)

    def _rejections(
        self, entries: Sequence[Subscription], answers: Sequence[Subscription | Rejected]
    ) -> Rejections:
        codes: list[int | None] = []
        found: list[tuple[Subscription, Rejected]] = []
        version = self._wire.version
        for entry, answer in zip(entries, answers, strict=True):
            if not isinstance(answer, Rejected):
                codes.append(None)
                continue
            found.append((entry, answer))
            if version is members.V5:
                codes.append(int(answer.reason))
            else:
                # MQTT 3.1 has no code for it: "it must therefore make a positive acknowledgement" (3.8)
                codes.append(entry.qos if version is members.V31 else FAILURE)
        self._parts.counters["subscriptions_rejected"] += len(found)
        entry, first = found[0]
        self.log_rejected("subscription", first, filter=entry.topic_filter[:200], entries=len(found))
        return Rejections(codes, next((answer.text for _, answer in found if answer.text), ""))

    def log_rejected(self, kind: str, rejected: Rejected, **about: object) -> None:
        """One line for the first of a kind on each connection: there may be thousands a second."""
        if self._told is None:
            self._told = set()
        if kind in self._told:
            return
        self._told.add(kind)
        self._parts.driver.log(
            "info",
            f"{kind} rejected",
            plugin=rejected.plugin,
            reason=f"0x{rejected.reason:02X}",
            text=rejected.text,
            client_id=self._wire.client_id,
            peer=self._wire.peer,
            **about,
        )
