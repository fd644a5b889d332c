"""Section ``rate`` of links: how many bytes a second may cross."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import ConfigDict, Field

from ildm.config.section import IN_SECONDS, Rate, Section

LEAST_BURST = 1024
LEAST_OF_OVERLAYS: Final = 64_000
"""Bytes a second of a link. Below it what an overlay repeats until it is answered may fill the link."""


class RateConfig(Section):
    """The bytes a second that a link may carry: bytes of MQTT as they are written, after compression."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, serialize_by_alias=True)

    out: Rate | None = None
    """To the neighbour, on all sessions of the link together; null: as many as the connection takes."""
    in_: Annotated[Rate | None, Field(alias="in")] = None
    """From the neighbour, which is asked to keep to it; null: as many as it sends."""
    burst: Annotated[float, IN_SECONDS, Field(ge=0.01, le=60)] = 0.25
    """Seconds of the rate that may be sent at once after a pause."""

    def burst_of(self, rate: int) -> int:
        """Bytes that may go at once at a rate."""
        return max(LEAST_BURST, int(rate * self.burst))
