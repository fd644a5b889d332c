"""A member's connection with the owner of its site, for the clients that it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ildm.api import Unreachable
from ildm.core.guests import wire
from ildm.core.guests.wire import MemberError

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.config import Address
    from ildm.core.driver import Driver, Transport
    from ildm.core.guests.outbox import Outbox
    from ildm.core.guests.parts import GuestRegistry, GuestWaits

AGAIN = 0.05
"""Seconds between two dials while nobody owns the site."""
ANSWER = 5.0
"""Seconds that a dial may take."""
LARGEST = 1 << 20
"""Bytes of a frame of the owner's: all are short."""


class Joining:
    """Dials the owner, and the next one when the connection has ended; an endpoint of the driver's."""

    def __init__(
        self,
        driver: Driver,
        outbox: Outbox,
        clients: GuestRegistry,
        waits: GuestWaits,
        at: Address,
        *,
        node_id: str,
        member: str,
        life: str,
    ) -> None:
        self.driver = driver
        self.outbox = outbox
        self.clients = clients
        self.waits = waits
        self.at = at
        self.epoch = 0
        """Of the owner that is there, or was last."""
        self._hello = wire.to_json(
            {"version": wire.VERSION, "node_id": node_id, "member": member, "life": life}
        )
        self._transport: Transport | None = None
        self._frames = wire.Frames(LARGEST)
        self._again: Timer | None = None
        self._stopped = False
        self._told = ""

    def start(self) -> None:
        self._again = None
        if not self._stopped:
            self.driver.dial(self.at, self, ANSWER)

    def stop(self) -> None:
        """Say nothing more; what was said goes out."""
        self._stopped = True
        if self._again is not None:
            self._again.cancel()
        if self._transport is not None:
            self._transport.close()

    # the connection -----------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._frames = wire.Frames(LARGEST)
        transport.write(wire.frame(wire.HELLO, self._hello))

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        self._soon()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.outbox.connected:
            self.driver.log("info", "the owner of the site is gone", epoch=self.epoch)
        self.outbox.lost()
        self._transport = None
        self._soon()

    def _soon(self) -> None:
        if not self._stopped:
            self._again = self.driver.call_later(AGAIN, self.start)

    def eof_received(self) -> bool | None:
        return None

    def pause_writing(self) -> None:
        """What waits is bounded by the outbox."""

    def resume_writing(self) -> None:
        """Nothing was paused."""

    def data_received(self, data: bytes) -> None:
        try:
            for kind, body in self._frames.feed(data):
                self._arrived(kind, body)
        except (MemberError, ValueError, KeyError, TypeError) as error:
            self.driver.log("error", "the owner of the site is not understood", error=str(error))
            if self._transport is not None:
                self._transport.abort()

    def _arrived(self, kind: int, body: bytes) -> None:
        if kind == wire.TAKEN:
            self.outbox.taken(int.from_bytes(body))
        elif kind == wire.TOLD:
            self.waits.heard(int.from_bytes(body))
        elif kind == wire.WELCOME:
            self._welcome(wire.from_json(body))
        else:
            raise MemberError(f"a frame of kind {kind} from the owner")

    def _welcome(self, told: dict[str, Any]) -> None:
        refused = told.get("refused")
        if refused is not None:
            if refused != self._told:
                self._told = refused
                self.driver.log("error", "the owner of the site does not serve this member", reason=refused)
            return
        self._told = ""
        self.epoch = int(told["epoch"])
        outbox, transport = self.outbox, self._transport
        assert transport is not None
        taken = max(int(told["taken"]), outbox.durable)
        known = self.clients.known_at(taken)
        transport.write(wire.frame(wire.ANEW, wire.to_json(known)))
        asked = [
            [number, persistent, filters]
            for number, (_, persistent, filters) in self.waits.told.items()
            if number <= taken
        ]
        outbox.resume(taken, transport.write)
        if asked:
            transport.write(wire.frame(wire.ASK, wire.to_json(asked)))
        self.driver.log("info", "this member's clients are served with the owner", epoch=self.epoch)
