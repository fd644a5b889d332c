"""Plugins made for a trial, by a node that never begins to work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any

from ildm.core.node import Node

if TYPE_CHECKING:
    from ildm.config import Address, Config, LookupConfig
    from ildm.core.driver import Endpoint
    from ildm.core.plugin.loading import PluginSpecs
    from ildm.core.tables import Key, Row, Table


def try_plugins(config: Config, plugins: PluginSpecs) -> None:
    """Make the plugins as a node would at its start; whatever they ask the node for comes to nothing.

    Raises:
        PluginError: one of them cannot be made.
    """
    Node(config, plugins, _IdleDriver(), EmptyStore(), node_id=config.node_id or "trial")


class _IdleTimer:
    def cancel(self) -> None:
        """It never fires."""


class _IdleDriver:
    """Nothing is dialed, called or logged, and no time passes."""

    def __init__(self) -> None:
        self.random = Random(0)  # noqa: S311 - nothing is decided with it

    def now(self) -> float:
        return 0.0

    def precise(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 0.0

    def token(self, size: int) -> bytes:
        return bytes(size)

    def call_soon(self, callback: Callable[..., None], *args: object) -> None:
        """Soon never comes."""

    def in_turn(self, callback: Callable[[], None]) -> None:
        """No turn comes."""

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> _IdleTimer:
        return _IdleTimer()

    def dial(self, address: Address, endpoint: Endpoint, timeout: float) -> None:
        """Nobody is called."""

    def resolve(self, question: LookupConfig, done: Callable[[list[Address] | BaseException], None]) -> None:
        """Nobody is asked."""

    def offload(self, owner: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Nobody works."""

    def log(self, level: str, event: str, **fields: object) -> None:
        """There is no log."""


class EmptyStore:
    """The store of a node of which nothing outlives the process."""

    """Nothing was saved, and nothing is."""

    def load(self, table: Table) -> Iterable[tuple[Key, Row]]:
        return ()

    def set_aside(self, table: Table, key: Key, reason: str) -> None:
        """There is nothing to be set aside."""

    def put(self, table: Table, key: Key, row: Row | None) -> None:
        """It is lost."""

    def when_written(self, callback: Callable[[bool], None]) -> None:
        """Never."""
