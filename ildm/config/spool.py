"""Section ``spool``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ildm.config.section import IN_BYTES, IN_SECONDS, OFF, Bytes, Section


class SpoolConfig(Section):
    """What the node has acknowledged, or is answerable for, and others have not taken yet: kept on disk."""

    mode: Annotated[Literal["off", "process", "power"], OFF] = "process"
    """What an acknowledged message of QoS 1 or 2 survives: nothing, the end of the process, or that of the
    machine's power."""
    directory: Path | None = None
    """Default ``STATE_DIR/spool``."""
    bytes: Annotated[int, IN_BYTES, Field(ge=1 << 20, le=1 << 44)] = 1 << 30
    """Bytes of disk, at most."""
    segment_bytes: Annotated[int, IN_BYTES, Field(ge=64 << 10, le=1 << 30)] = 16 << 20
    """Bytes of one file."""
    page_bytes: Bytes = 1 << 20
    """Of what waits for one session of a link, or with the broker, so much is in memory."""
    full: Literal["hold", "refuse", "drop_oldest"] = "hold"
    """Without room, publishers get no acknowledgement; or are refused (MQTT 5: 0x97, others get none); or
    what has waited longest is dropped."""
    failure_wait: Annotated[float, IN_SECONDS, Field(ge=0, le=3600)] = 10.0
    """While nothing can be written: seconds that messages of QoS 2 wait which a later incarnation of the node
    would know nothing of. Then they go on, counted ``*_unguarded``: if it is killed then, they may come
    twice."""
    delay: Annotated[float, IN_SECONDS, Field(ge=0, le=1)] = 0.002
    """With ``power``: the least time from one write to the next."""
    identities: Annotated[int, Field(ge=1024, le=1 << 24)] = 65_536
    """Gaps that are remembered in the numbers of messages that have come, for all sites together, so that
    none comes twice."""
    uncertain: Literal["resend", "drop"] = "resend"
    """A QoS 2 message that the broker may have delivered, when it has lost its session and delivers before
    the release: twice perhaps, or perhaps not at all."""

    @model_validator(mode="after")
    def _segments(self) -> SpoolConfig:
        if self.segment_bytes * 4 > self.bytes:
            raise ValueError("segment_bytes is to be a quarter of bytes at most")
        return self
