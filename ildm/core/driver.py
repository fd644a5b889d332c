"""What the core needs from the world. ``ildm.net`` implements it over asyncio, tests over lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from random import Random

    from ildm.api import Timer
    from ildm.config import Address


class Transport(Protocol):
    """The part of ``asyncio.Transport`` which the core uses."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def is_closing(self) -> bool: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class Endpoint(Protocol):
    """The part of ``asyncio.Protocol`` which sessions implement, and the failure of a dial."""

    def connection_made(self, transport: Any) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...

    def dial_failed(self, reason: str) -> None:
        """The connection asked for with :meth:`Driver.dial` could not be made."""


class Driver(Protocol):
    """Time, chance, connections and the log."""

    @property
    def random(self) -> Random: ...

    def now(self) -> float:
        """Monotonic time in seconds."""

    def wall(self) -> float:
        """Unix time in seconds, for what outlives the process."""

    def token(self, size: int) -> bytes:
        """``size`` bytes nobody can guess."""

    def call_soon(self, callback: Callable[..., None], *args: object) -> object: ...

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer: ...

    def dial(self, address: Address, endpoint: Endpoint, timeout: float) -> None:
        """Connect by TCP; ends in ``endpoint.connection_made`` or ``endpoint.dial_failed``."""

    def log(self, level: str, event: str, **fields: object) -> None: ...


class SavedSession(NamedTuple):
    """What survives of a persistent session."""

    filters: Mapping[str, int]
    """Filter -> granted QoS."""
    expires_at: float | None
    """Unix time; None while the client is connected, or when the session does not expire."""
    expiry: int
    """Session expiry interval in seconds; 0xFFFFFFFF: it does not expire."""


class Store(Protocol):
    """What survives a restart."""

    def sessions(self) -> Mapping[str, SavedSession]: ...

    def save_session(self, client_id: str, session: SavedSession | None) -> None:
        """Keep or, with None, forget a persistent session. Written soon, not at once."""

    def retained(self) -> Iterable[tuple[bytes, float | None]]:
        """Retained messages as frames of MQTT 5, oldest first, and when each expires (Unix time)."""

    def save_retained(self, topic: str, frame: bytes | None, expires_at: float | None) -> None:
        """Keep or, with None, forget the retained message of a topic. Written soon, not at once."""

    def save_neighbor(self, address: Address, wanted: bool) -> None:
        """Remember that a neighbour was added (or removed) at run time; written at once."""
