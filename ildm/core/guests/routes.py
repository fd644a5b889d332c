"""Which messages of a member's clients go to the owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ildm.core.transfer.routes import Routes

if TYPE_CHECKING:
    from ildm.core.transfer.ports import Neighbor, Targets

OWNER: Any = cast("Targets", (("owner", 2, 0),))
"""A route of its own; what its only element is nobody asks."""


class GuestRoutes(Routes):
    """All do: the owner knows which of them other sites want."""

    def _ask(self, topic: str, retain: bool, source: Neighbor | None) -> Targets:
        return () if topic.startswith("$") else cast("Targets", OWNER)
