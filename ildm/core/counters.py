"""Named counters: those of the node, which are declared, and those of plugins, which are not."""

from __future__ import annotations

from ildm.core.declared import COUNTED


class UndeclaredError(LookupError):
    """A counter that :mod:`ildm.core.declared` does not know: a mistake in the node, found by its tests."""


class Tally(dict[str, int]):
    """Name -> count; a name begins to exist when it is first used."""

    def __missing__(self, key: str) -> int:
        return 0


class Counters(Tally):
    """Those of the node. Reading or counting under a name that is not declared is an error.

    It is looked for once for each name, not with each count.

    Raises:
        UndeclaredError: on the first use of such a name.
    """

    def __missing__(self, key: str) -> int:
        if key not in COUNTED:
            raise UndeclaredError(f"counter {key!r} is not declared")
        return 0
