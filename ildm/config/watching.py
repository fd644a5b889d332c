"""Sections for who watches a node: ``admin``, ``metrics``, ``dashboard``, ``trace``, ``log``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ildm.address import Address
from ildm.config.section import Seconds, Section
from ildm.config.transports import ListenerTls, PlainAddress

TOKEN_NAME = "dashboard.token"  # noqa: S105 - the name of its file
"""Of the file in the state directory, unless another is given."""


def own_address(value: object) -> object:
    """A port alone is one of this machine."""
    return Address("127.0.0.1", value) if type(value) is int and 0 <= value <= 65535 else value


class AdminConfig(Section):
    """The admin API."""

    socket: Path | None = None
    """Unix socket of the admin API; default ``STATE_DIR/admin.sock``, of a member of a pair
    ``STATE_DIR/admin-MEMBER.sock``."""
    connections: Annotated[int, Field(ge=1, le=10_000)] = 64
    """At a time. One more ends the one that is idle for longest, or is not taken."""
    idle: Seconds = 20.0
    """A connection may be without a whole request; after it, it is ended."""


class MetricsConfig(Section):
    """Metrics and health for programs that watch; see :mod:`ildm.admin.metrics`."""

    listen: Annotated[PlainAddress, BeforeValidator(own_address)] | None = None
    """``HOST:PORT``, or a port of 127.0.0.1; null: on the admin socket only."""
    token_file: Path | None = None
    """Its first line is demanded as a bearer token."""

    @model_validator(mode="after")
    def _guarded(self) -> MetricsConfig:
        if self.listen is not None and not self.listen.is_loopback and self.token_file is None:
            raise ValueError(f"listen {self.listen} is reached from elsewhere: that needs token_file")
        return self


class DashboardConfig(Section):
    """Pages for people, served by the node; see ``ildm/net/dashboard``."""

    listen: Annotated[PlainAddress, BeforeValidator(own_address)] | None = None
    """``HOST:PORT``, or a port of 127.0.0.1; null: none."""
    token_file: Path | None = None
    """Who knows the token in it may look; made if it is not there. Default ``STATE_DIR/dashboard.token``."""
    tls: ListenerTls | None = None
    """Needed beyond loopback."""
    hosts: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,253}$")]] = []
    """Names by which browsers reach it, besides ``localhost``, that of ``listen`` and IP addresses."""
    write: bool = False
    """Whether clients can be ended, and neighbours added and removed, from there."""

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if self.listen is not None and not self.listen.is_loopback and self.tls is None:
            raise ValueError(f"listen {self.listen} is reached from elsewhere: that needs tls")
        return self

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"


class TraceConfig(Section):
    """Where traces of messages go besides to who has asked for them; see ``ildm/net/otlp.py``."""

    otlp: Annotated[str, Field(pattern=r"^https?://[^\s/@]+(/[^\s@]*)?$", max_length=2048)] | None = None
    """``http://HOST:4318/v1/traces``: a collector of OpenTelemetry (OTLP over HTTP, JSON); null: none."""
    ca: Path | None = None
    """Needed with https: certificates of the authorities that are trusted, and no others."""
    headers_file: Path | None = None
    """What the collector demands, a line ``NAME: VALUE`` each."""
    queue: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Spans that wait for the collector; what comes beyond is counted, and dropped."""
    timeout: Seconds = 10.0
    """Until it must have answered."""

    @model_validator(mode="after")
    def _authority(self) -> Self:
        if (self.otlp or "").startswith("https://") is not (self.ca is not None):
            raise ValueError("ca and an otlp of https go together")
        if self.headers_file is not None and self.otlp is None:
            raise ValueError("headers_file is without effect without otlp")
        return self


class LogConfig(Section):
    """What the node logs, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is logged."""
    format: Literal["auto", "console", "json"] = "auto"
    """``auto``: coloured on a terminal, else JSON."""
