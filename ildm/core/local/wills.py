"""Wills on their way to other sites; local clients get them from the local broker (thesis 5.3.3).

A will is saved as long as it may become due. If the node is killed, the broker publishes the wills of all
its clients, but only locally: after the restart the node sends them to the other sites, when the client is
back or after a grace time. Without a journal what is saved may be older than a DISCONNECT: then a client that
is back within that time speaks for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ildm.core.calendar import Calendar
from ildm.core.tables import WILLS
from ildm.mqtt import MqttError, Property, Publish, Version, decode

if TYPE_CHECKING:
    from ildm.api import Stamp, Timer
    from ildm.config import LimitsConfig
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Store
    from ildm.mqtt import Connect

    PublishWill = Callable[[Publish, int, bool, Stamp | None], None]
    """Sends a will across: the message, the publisher's turn, whether an earlier run has left it, and since
    when it is due if that is some time ago."""

OVERHEAD = 300
"""Bytes a saved will is taken to need besides its frame."""


class Pending:
    """A will that is due at some time."""

    __slots__ = ("delayed", "message", "restored", "stamp", "timer", "turn")

    def __init__(
        self, message: Publish, turn: int, *, delayed: bool, restored: bool, stamp: Stamp | None = None
    ) -> None:
        self.message = message
        self.turn = turn
        self.stamp = stamp
        self.delayed = delayed
        """Its client has asked for a delay (MQTT 5, 3.1.3.2.2): the broker has not published it yet."""
        self.restored = restored
        self.timer: Timer | None = None


class Wills:
    """The wills of connected clients that are saved, and those that wait; keys are those of the sessions."""

    def __init__(
        self,
        driver: Driver,
        store: Store,
        limits: LimitsConfig,
        counters: Counters,
        publish: PublishWill,
        journaled: bool = False,
        calendar: Calendar | None = None,
    ) -> None:
        self.driver = driver
        self.calendar = calendar or Calendar(driver)
        self.store = store
        self.limits = limits
        self.counters = counters
        self._publish = publish
        self._journaled = journaled
        self._pending: dict[str, Pending] = {}
        self._saved: dict[str, int] = {}  # bytes of each
        self.bytes = 0
        self._stopped = False

    def restore(self) -> None:
        """Take up the wills which an earlier run has left."""
        now = self.calendar.date()
        for key, (frame, delay, due) in list(self.store.load(WILLS)):
            (name,) = key
            assert isinstance(name, str)
            assert isinstance(frame, bytes)
            assert isinstance(delay, int)
            assert not isinstance(due, str | bytes)
            try:
                message = decode(frame, Version.V5)
            except MqttError as error:
                self.store.set_aside(WILLS, key, str(error))
                continue
            if not isinstance(message, Publish):
                self.store.set_aside(WILLS, key, "no PUBLISH")
                continue
            self._keep(name, len(frame))
            # how long the node was away is unknown: of a client that was connected, the delay runs from now
            left = delay if due is None else due - now
            pending = Pending(message, 0, delayed=delay > 0, restored=True)
            self._wait(name, pending, max(left, self.limits.will_grace))

    def connected(self, key: str, connect: Connect, forgotten: bool, allowed: bool, expiry: int) -> None:
        """A client is there, whose earlier session the broker has ``forgotten`` or not.

        ``allowed``: the rules let its will cross; ``expiry``: of its session, in seconds.
        """
        pending = self._cancel(key)
        if pending is not None and (forgotten if pending.delayed else self._journaled):
            # MQTT-3.1.3-9: the old session has ended; or its connection had, with the node
            self._send(pending)
        will = connect.will
        if will is None or not allowed:
            self.forget(key)
            return
        message = will_message(connect)
        message.packet_id = 1 if message.qos else None
        frame = message.encode(Version.V5)
        self.forget(key)
        if self._keep(key, len(frame)):
            self.store.put(WILLS, (key,), (frame, _delay(connect, expiry), None))

    def resumed(self, key: str) -> None:
        """The client of a saved will has stayed connected over a change of processes."""
        self._cancel(key)

    def due(
        self,
        key: str,
        connect: Connect,
        turn: int,
        expiry: int,
        delay_allowed: bool,
        stamp: Stamp | None = None,
    ) -> None:
        """A connection with a will has ended otherwise than by DISCONNECT.

        ``delay_allowed``: it was the client's latest; then the will saved is its own. ``stamp``: of when
        another connection took the session over.
        """
        if self._stopped:
            return  # it is for the next run, if it is saved
        delay = _delay(connect, expiry) if delay_allowed else 0
        pending = Pending(will_message(connect), turn, delayed=delay > 0, restored=False, stamp=stamp)
        if not delay:
            self._send(pending)
            if delay_allowed:
                self.forget(key)
            return
        if key in self._saved:
            message = replace(pending.message, packet_id=1 if pending.message.qos else None)
            row = message.encode(Version.V5), delay, self.calendar.date() + delay
            self.store.put(WILLS, (key,), row)
        self._wait(key, pending, delay)

    def ended(self, key: str) -> None:
        """A session has ended: a will that waits is due (MQTT-3.1.3-9)."""
        if self._stopped:
            return
        pending = self._cancel(key)
        if pending is not None:
            self._send(pending)
        self.forget(key)

    def forget(self, key: str) -> None:
        """A client's will is no longer to be sent."""
        size = self._saved.pop(key, None)
        if size is not None:
            self.bytes -= size
            self.store.put(WILLS, (key,), None)

    def is_left(self, topic: str, payload: bytes) -> bool:
        """Whether an earlier run has left such a will: the broker may have published it."""
        return any(
            pending.restored
            and pending.message.retain
            and pending.message.topic == topic
            and pending.message.payload == payload
            for pending in self._pending.values()
        )

    def stop(self) -> None:
        """The node ends: what waits is for the next run."""
        self._stopped = True
        for pending in self._pending.values():
            if pending.timer is not None:
                pending.timer.cancel()
        self._pending.clear()

    def _keep(self, key: str, size: int) -> bool:
        size += OVERHEAD
        if self.bytes + size > self.limits.will_bytes:
            self.counters["wills_not_saved"] += 1
            return False
        self._saved[key] = size
        self.bytes += size
        return True

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        size = sum(self._saved.values())
        assert size == self.bytes, f"saved wills of {size} bytes count {self.bytes}"

    def _wait(self, key: str, pending: Pending, seconds: float) -> None:
        self._pending[key] = pending
        pending.timer = self.driver.call_later(seconds, self.ended, key)

    def _cancel(self, key: str) -> Pending | None:
        pending = self._pending.pop(key, None)
        if pending is not None and pending.timer is not None:
            pending.timer.cancel()
        return pending

    def _send(self, pending: Pending) -> None:
        self._publish(pending.message, pending.turn, pending.restored, pending.stamp)


def will_message(connect: Connect) -> Publish:
    """A client's will as the message to be published."""
    will = connect.will
    assert will is not None
    properties = dict(will.properties)
    properties.pop(Property.WILL_DELAY_INTERVAL, None)
    return Publish(
        topic=will.topic, payload=will.payload, qos=will.qos, retain=will.retain, properties=properties
    )


def _delay(connect: Connect, expiry: int) -> int:
    """Seconds: at the end of the session at the latest (MQTT-3.1.3-9, MQTT 5, 3.1.3.2.2)."""
    assert connect.will is not None
    return min(int(connect.will.properties.get(Property.WILL_DELAY_INTERVAL, 0)), expiry)
