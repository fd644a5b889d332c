"""Section ``broker``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from ildm.address import Address
from ildm.config.section import IN_BYTES, IN_SECONDS, Seconds, Section
from ildm.config.transports import BrokerAddress, BrokerTls


class BrokerConfig(Section):
    """The local broker."""

    address: BrokerAddress = Address("127.0.0.1", 1884)
    """``HOST:PORT``, ``mqtts://HOST:PORT``, or ``unix:/PATH``."""
    addresses: Annotated[list[BrokerAddress], Field(max_length=16)] = []
    """In the place of ``address``: several, each tried when the one before cannot be reached."""
    tls: BrokerTls | None = None
    """Needed with mqtts."""
    proxy: Literal["none", "v1", "v2"] = "none"
    """Tell the broker by the PROXY protocol who its clients are; v2: with the name in their certificates."""
    protocol: Literal["auto", "3.1.1", "5"] = "auto"
    """MQTT version of the node's own sessions; ``auto`` tries 5 and falls back."""
    username: str | None = None
    """Of the node's own sessions, which need the right to publish what other sites send."""
    password: SecretStr | None = None
    """Of the same; give this or ``password_file``."""
    password_file: Path | None = None
    """Its first line is the password."""
    connect_timeout: Seconds = 5.0
    """Until the connection, TLS included, is there."""
    connack_timeout: Seconds = 30.0
    """Time from a client's CONNECT, or its last AUTH, until the broker's answer."""
    keep_alive: Annotated[int, IN_SECONDS, Field(ge=1, le=65535)] = 30
    """Seconds, of the node's own sessions."""
    reconnect_min: Seconds = 0.2
    """First pause between attempts; it doubles, with jitter."""
    reconnect_max: Seconds = 10.0
    """The longest pause."""
    packet_size: Annotated[int, IN_BYTES, Field(ge=128, le=1 << 28)] = 1 << 28
    """Bytes of the largest packet given to a broker of 3.1.1, which cannot say what it takes."""
    audit: bool = True
    """Compare the broker's retained messages with what the node remembers, and mend them."""
    audit_rate: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    """Topics a second that are compared, at most."""
    unknown_sessions: Literal["everything", "ignore"] = "everything"
    """A client that comes back to a session from before the node gets all topics of other sites, as nobody
    knows its filters; or only those it subscribes to from now on."""

    adopt_sessions: Annotated[float, IN_SECONDS, Field(ge=0, le=86400 * 365)] = 0.0
    """After a start without state the site gets all topics for so long, as the broker may have sessions whose
    clients are away."""

    @model_validator(mode="after")
    def _one_password(self) -> BrokerConfig:
        if self.password is not None and self.password_file is not None:
            raise ValueError("give password or password_file, not both")
        if self.addresses and "address" in self.model_fields_set:
            raise ValueError("give address or addresses, not both")
        if self.adopt_sessions and self.unknown_sessions == "ignore":
            raise ValueError("adopt_sessions: needs unknown_sessions: everything")
        for number, address in enumerate(self.candidates):
            if address in self.candidates[:number]:
                raise ValueError(f"addresses: {address} stands there twice")
            if self.proxy != "none" and address.scheme == "unix":
                raise ValueError("proxy is for TCP")
            if address.has_tls and self.tls is None:
                raise ValueError(f"tls: {address} needs it, at least {{ca: FILE}}")
        if self.tls is not None and not any(address.has_tls for address in self.candidates):
            raise ValueError(f"tls is without effect with {self.candidates[0]}: write mqtts://")
        return self

    @property
    def candidates(self) -> list[Address]:
        """Where the broker may be, in the order in which that is tried."""
        return self.addresses or [self.address]

    @property
    def located(self) -> list[tuple[str, Address]]:
        """The same, each with its key in the file."""
        if not self.addresses:
            return [("broker.address", self.address)]
        return [(f"broker.addresses.{index}", address) for index, address in enumerate(self.addresses)]
