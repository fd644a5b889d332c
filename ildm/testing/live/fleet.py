"""Brokers in tests: requiring, pairing and sharing them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ildm.testing.live.brokers import KINDS, Broker, broker_class, new_broker


def require_broker(kind: str) -> None:
    """Skip the running test where the broker is missing; fail it where all parts must be there.

    They must be where ``CI`` or ``ILDM_REQUIRE_ALL`` is set to anything but an empty string, 0 or false.
    """
    reason = broker_class(kind).available()
    if reason is None:
        return
    if any(os.environ.get(name, "").lower() not in {"", "0", "false"} for name in ("CI", "ILDM_REQUIRE_ALL")):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def broker_pairs(kinds: Iterable[str] = KINDS, *, same: bool = False) -> list[tuple[str, str]]:
    """All unordered pairs of different makes; with `same` also each make with itself.

    For ``@pytest.mark.parametrize("broker_pair", broker_pairs(...), indirect=True)``.
    """
    pairs = itertools.combinations_with_replacement if same else itertools.combinations
    return list(pairs(kinds, 2))


class Fleet:
    """Started brokers below one directory, shared by name or made on demand, all stopped by `close`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._all: list[Broker] = []
        self._shared: dict[tuple[str, int], Broker] = {}

    def start(self, kind: str, **options: Any) -> Broker:
        """A new broker that has answered its first CONNECT. Skips or fails the test when it is missing."""
        require_broker(kind)
        broker = new_broker(kind, self._directory / f"{kind}-{len(self._all)}", **options)
        self._all.append(broker)
        broker.start()
        return broker

    def shared(self, kind: str, index: int = 0) -> Broker:
        """The `index`-th broker of that make, started at the first call and if a test has stopped it."""
        broker = self._shared.get((kind, index))
        if broker is None:
            broker = self._shared[kind, index] = self.start(kind)
        elif not broker.running:
            broker.kill()
            broker.start()
        return broker

    def pids(self) -> list[int]:
        """The living processes of all brokers."""
        return [pid for broker in self._all for pid in broker.pids()]

    def close(self) -> None:
        """End all of them. Nobody needs what they would still write, so none is asked first."""
        for broker in self._all:
            broker.kill()
