"""The records that a plugin keeps in the spool of its node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ildm.core.spool import Delivery, Record

if TYPE_CHECKING:
    from ildm.core.spool import Consumer
    from ildm.core.transfer.custody import Custody

PAGE = 256 << 10
"""Bytes read back at once."""


class PluginLog:
    """See :meth:`ildm.api.NodeApi.keep`: a consumer of the plugin's own, with its bytes as they are.

    Args:
        custody: of the node; None: nothing is kept.
        key: of the plugin, as its state is saved under.
    """

    def __init__(self, custody: Custody | None, key: str) -> None:
        self._custody = custody
        self._consumer: Consumer | None = None
        if custody is not None:
            self._consumer = custody.spool.consumer(f"plugin/{key}")
        self._held: set[int] = set()
        """What is kept; the consumer is told to free nothing else."""
        self._to_be_written = False

    def keep(self, data: bytes) -> int | None:
        custody, consumer = self._custody, self._consumer
        if custody is None or consumer is None:
            return None
        number = custody.spool.append(Record(data, 1, None), (Delivery(consumer.name, 1, held=True),))
        self._held.add(number)
        self._write_soon(custody)
        return number

    def unkeep(self, number: int) -> None:
        custody, consumer = self._custody, self._consumer
        if custody is None or consumer is None or number not in self._held:
            return
        self._held.remove(number)
        consumer.free(number, 0, 1)
        self._write_soon(custody)

    def kept(self) -> Iterator[tuple[int, bytes]]:
        consumer = self._consumer
        if consumer is None:
            return
        while page := consumer.read(PAGE):
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
