"""The state that a plugin finds again after a restart."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Protocol

from ildm.core.plugin.arguments import check_state
from ildm.core.tables import PLUGIN_STATE

if TYPE_CHECKING:
    from ildm.core.driver import Store
    from ildm.core.plugin.account import Account

OVERHEAD = 300
"""Bytes that an entry is taken to need besides its key and value."""


class Save(Protocol):
    """What keeps an entry of a plugin's state, or with None forgets it."""

    def __call__(self, key: str, value: bytes | None) -> None: ...


class PluginState(MutableMapping[str, bytes]):
    """See :attr:`ildm.api.NodeApi.state`.

    Args:
        entries: what an earlier run has saved; changed with each call.
    """

    __slots__ = ("_account", "_bytes", "_entries", "_save")

    def __init__(self, account: Account, entries: dict[str, bytes], save: Save) -> None:
        self._account = account
        self._entries = entries
        self._save = save
        self._bytes = sum(size_of(key, value) for key, value in entries.items())

    def __getitem__(self, key: str) -> bytes:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<state of a plugin: {len(self)} entries>"

    def __setitem__(self, key: str, value: bytes) -> None:
        check_state(key, value)
        old = self._entries.get(key)
        if old == value:
            return
        more = size_of(key, value) - (0 if old is None else size_of(key, old))
        limit = self._account.limits.plugin_state_bytes
        if more > 0 and self._bytes + more > limit:
            raise self._account.refuse(
                "state", f"state of {self._bytes + more} bytes, more than limits.plugin_state_bytes: {limit}"
            )
        self._bytes += more
        self._entries[key] = value
        self._save(key, value)

    def __delitem__(self, key: str) -> None:
        self._bytes -= size_of(key, self._entries.pop(key))
        self._save(key, None)

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        size = sum(size_of(key, value) for key, value in self._entries.items())
        assert size == self._bytes, f"entries of {size} bytes count {self._bytes}"


def size_of(key: str, value: bytes) -> int:
    """Bytes that an entry counts for in ``limits.plugin_state_bytes``."""
    return OVERHEAD + len(key.encode()) + len(value)


def saved_states(store: Store) -> dict[str, dict[str, bytes]]:
    """By plugin: the entries that earlier runs have saved. Damaged ones are set aside."""
    states: dict[str, dict[str, bytes]] = {}
    for row_key, (value,) in store.load(PLUGIN_STATE):
        plugin, key = row_key
        if isinstance(plugin, str) and isinstance(key, str) and isinstance(value, bytes):
            states.setdefault(plugin, {})[key] = value
        else:
            store.set_aside(PLUGIN_STATE, row_key, "no text and bytes")
    return states
