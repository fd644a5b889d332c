"""A client of another member, as registry and router of the owner know it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from ildm.api import Stamp
    from ildm.core.local.record import ClientRecord
    from ildm.core.local.rules import ClientRules
    from ildm.core.transfer.retained import RetainedStore
    from ildm.core.transfer.router import Router
    from ildm.mqtt import Connect

_ids: Final = count(1)


class Guest:
    """Implements :class:`ildm.core.local.record.Client`.

    Args:
        member: where it is connected.
        key: of its record at its member.
        client_id: empty where the broker has given it none.
    """

    def __init__(
        self,
        member: str,
        key: str,
        client_id: str,
        peer: str,
        connect: Connect,
        retained: RetainedStore,
        router: Router,
        opened_at: float,
    ) -> None:
        self.id = -next(_ids)  # sessions of this process have others
        self.member = member
        self._key = key
        self.client_id = client_id
        self.peer = peer
        self.version = connect.version
        self.connect: Connect | None = connect
        self.opened_at = opened_at
        self.taken_over_at: Stamp | None = None
        self.record: ClientRecord | None = None
        """None: another connection had taken its session over before this owner heard of it."""
        self.rules: ClientRules | None = None
        self._retained = retained
        self._router = router
        self._index = -1

    @property
    def superseded(self) -> bool:
        """Another connection goes on with its session, so the client sends there again what was not
        acknowledged here."""
        record = self.record
        if record is None:
            return True
        newer = record.session
        if newer is self:
            return False
        return newer is None or newer.connect is None or not newer.connect.clean_start

    def taken_over(self) -> None:
        self.taken_over_at = self._retained.next_stamp()

    def follow(self, rules: ClientRules | None) -> None:
        self.rules = rules

    def may_send(self, topic: str) -> bool:
        return self.rules is None or self.rules.allow(topic)

    def publisher_index(self) -> int:
        if self._index < 0:
            self._index = (
                crc32(self.client_id.encode()) & 0xFFFF if self.client_id else self._router.next_publisher()
            )
        return self._index

    def unnamed(self, started: int) -> str:
        return self._key  # the same with all owners

    def say_goodbye(self) -> None:
        """Its member does so by itself."""
