"""What a plugin keeps in the node's spool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ildm.core.spool import Delivery, Record

if TYPE_CHECKING:
    from ildm.core.spool import Outlet
    from ildm.core.transfer.custody import Custody

PAGE = 256 << 10
"""Bytes read back at once."""


class Keeping:
    """See :meth:`ildm.api.NodeApi.keep`: an outlet of the plugin's own, with its bytes as they are.

    Args:
        custody: of the node; None: nothing is kept.
        key: of the plugin, as its state is saved under.
    """

    def __init__(self, custody: Custody | None, key: str) -> None:
        self._custody = custody
        self._outlet: Outlet | None = None
        if custody is not None:
            self._outlet = custody.spool.outlet(f"plugin/{key}")
        self._held: set[int] = set()
        """What is kept; the outlet is told to free nothing else."""
        self._to_be_written = False

    def keep(self, data: bytes) -> int | None:
        custody, outlet = self._custody, self._outlet
        if custody is None or outlet is None:
            return None
        number = custody.spool.append(Record(data, 1, None), (Delivery(outlet.name, 1, held=True),))
        self._held.add(number)
        self._write_soon(custody)
        return number

    def unkeep(self, number: int) -> None:
        custody, outlet = self._custody, self._outlet
        if custody is None or outlet is None or number not in self._held:
            return
        self._held.remove(number)
        outlet.free(number, 0, 1)
        self._write_soon(custody)

    def kept(self) -> Iterator[tuple[int, bytes]]:
        outlet = self._outlet
        if outlet is None:
            return
        while page := outlet.read(PAGE):
            self._held.update(stored.lsn for stored in page)
            for stored in page:
                yield stored.lsn, stored.record.frames

    def _write_soon(self, custody: Custody) -> None:
        """With what else comes in this turn of the event loop, unless something is sent before."""
        if not self._to_be_written:
            self._to_be_written = True
            custody.driver.call_soon(self._write, custody)

    def _write(self, custody: Custody) -> None:
        self._to_be_written = False
        custody.flush()
