"""The address and client identifier that the node's own sessions used last, over restarts.

A session at another address of the broker, or with another client identifier, is another one: nothing that is
under way is known there, and what it holds from earlier is not to be mistaken for that. So it begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.tables import IN_USE

if TYPE_CHECKING:
    from ildm.core.broker.own_ids import OwnIds
    from ildm.core.broker.parts import BrokerParts
    from ildm.core.transfer.sender import Sender

SHORT = ("short client identifiers",)
"""Key of the row that is there while they are in use."""


class LastAddress:
    """One per node."""

    def __init__(self, parts: BrokerParts, ids: OwnIds) -> None:
        self.parts = parts
        self._ids = ids
        self._saved: str | None = None
        self._saved_short = False
        self._last: dict[int, tuple[str, str]] = {}
        """Of each sender the address and the client identifier."""

    def restore(self) -> None:
        """Take up where an earlier incarnation of the node has been."""
        for key, (address,) in list(self.parts.store.load(IN_USE)):
            if key == ("broker",) and isinstance(address, str):
                self._saved = address
            elif key == SHORT:
                self._saved_short = self._ids.short = True
            else:
                self.parts.store.set_aside(IN_USE, key, f"of {key[0]!r}")

    def of(self, sender: Sender) -> str:
        """Where the last session of a sender was; where it is to be when there was none."""
        last = self._last.get(sender.index)
        return last[0] if last is not None else self._saved or self._now

    def goes_on(self, sender: Sender) -> bool:
        """Whether the first session of a sender, at the address in use, goes on with what the broker has.

        What an earlier incarnation has left at the broker, the spool knows. Beside that the broker may hold a
        message (QoS 2) whose record the spool has lost, and would take another one under its identifier for
        its repetition: so the session goes on only if something is under way in it, and nothing was lost.
        """
        if self.of(sender) != self._now:
            return False
        ids, last = self._ids, self._last.get(sender.index)
        if last is not None:
            return last[1] == ids.of(sender.index)
        if ids.short is not self._saved_short:
            return False
        custody = self.parts.custody
        return sender.resumption.has_noted and custody is not None and not custody.lacks

    def accepted(self, sender: Sender, client_id: str) -> None:
        """A session of a sender has been accepted, and what was under way is dealt with."""
        self._last[sender.index] = self._now, client_id
        short = self._ids.is_short(client_id)
        if short is not self._saved_short:
            self._saved_short = short
            self.parts.store.put(IN_USE, SHORT, (self._now,) if short else None)
        several = len(self.parts.brokers.addresses) > 1
        if self._now != self._saved and (several or self._saved is not None):
            self._saved = self._now
            self.parts.store.put(IN_USE, ("broker",), (self._now,))

    @property
    def _now(self) -> str:
        return str(self.parts.brokers.current)
