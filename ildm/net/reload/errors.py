"""Why a configuration is not taken up."""

from __future__ import annotations

from collections.abc import Sequence

from ildm.mqtt import IldmError


class ReloadError(IldmError):
    """The node goes on as before. The text is one reason a line, each with the key it is about."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("\n".join(reasons))
        self.reasons: Sequence[str] = reasons
