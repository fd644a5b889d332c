"""What the core needs from the world. ``ildm.net`` implements it over asyncio, tests over lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from ildm.api import Unreachable

if TYPE_CHECKING:
    from random import Random

    from ildm.api import Timer
    from ildm.config import Address, LookupConfig
    from ildm.core.tables import Key, Row, Table


NO_DESCRIPTOR = "no file descriptor left for a connection"
"""The reason for which a dial fails that the peer has nothing to do with."""


class Transport(Protocol):
    """The part of ``asyncio.Transport`` which the core uses."""

    def write(self, data: bytes) -> None: ...
    def write_eof(self) -> None: ...
    def can_write_eof(self) -> bool: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def is_closing(self) -> bool: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...
    def get_write_buffer_size(self) -> int: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class Endpoint(Protocol):
    """The part of ``asyncio.Protocol`` which sessions implement, and the failure of a dial."""

    def connection_made(self, transport: Any) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        """The connection asked for with :meth:`Driver.dial` could not be made; ``reason`` is for people."""


class Driver(Protocol):
    """Time, chance, connections and the log."""

    @property
    def random(self) -> Random: ...

    def now(self) -> float:
        """Monotonic time in seconds."""

    def precise(self) -> float:
        """Monotonic time in seconds, for short times that are measured. :meth:`now` may be that of the event
        loop: whole milliseconds, and the same throughout an iteration."""

    def wall(self) -> float:
        """Unix time in seconds, for what outlives the process."""

    def token(self, size: int) -> bytes:
        """``size`` bytes nobody can guess."""

    def call_soon(self, callback: Callable[..., None], *args: object) -> object: ...

    def in_turn(self, callback: Callable[[], None]) -> None:
        """Call in a later turn of the loop, after all that have asked before: for work that goes on.

        All such calls have a bounded time in each turn. Who asks again does so from within the call.
        """

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer: ...

    def dial(self, address: Address, endpoint: Endpoint, timeout: float) -> None:
        """Connect by TCP; ends in ``endpoint.connection_made`` or ``endpoint.dial_failed``."""

    def resolve(self, question: LookupConfig, done: Callable[[list[Address] | BaseException], None]) -> None:
        """Ask DNS beside the node, then call ``done`` here with the addresses that it names.

        They are none if there is no such name. ``done`` gets what went wrong instead: an IldmError if that is
        for people.
        """

    def offload(self, owner: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Carry out ``work`` beside the node, then call ``done`` here with its result, or what it raised.

        What is asked for by one owner does not hold up what is asked for by another.
        """

    def log(self, level: str, event: str, **fields: object) -> None: ...


class Store(Protocol):
    """What survives a restart: rows of the tables in :mod:`ildm.core.tables`."""

    def load(self, table: Table) -> Iterable[tuple[Key, Row]]:
        """What earlier runs have saved, in the order of its last change; to be asked at the start."""

    def set_aside(self, table: Table, key: Key, reason: str) -> None:
        """A row that :meth:`load` gave makes no sense: count and log it, and do not give it again."""

    def put(self, table: Table, key: Key, row: Row | None) -> None:
        """Save or, with None, remove a row. Written soon, not at once, in its last state by then."""

    def when_written(self, callback: Callable[[bool], None]) -> None:
        """Tell when all that was put up to now was written: True, or False if it could not be."""
