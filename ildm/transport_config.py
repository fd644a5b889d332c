"""Sections of the configuration file that say where to listen, whom to dial, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    model_validator,
)

from ildm.address import Address, parse_address


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _of(*schemes: str) -> AfterValidator:
    """Only addresses of these schemes."""

    def check(address: Address) -> Address:
        if address.scheme not in schemes:
            raise ValueError(f"{str(address)!r}: expected one of {', '.join(schemes)}")
        return address

    return AfterValidator(check)


AddressField = Annotated[Address, BeforeValidator(parse_address), PlainSerializer(str)]
PlainAddress = Annotated[AddressField, _of("mqtt")]
BrokerAddress = Annotated[AddressField, _of("mqtt", "unix")]
LinkAddress = Annotated[AddressField, _of("mqtt")]

Seconds = Annotated[float, Field(gt=0, le=86400 * 365)]


class ListenerConfig(Section):
    """One place where local clients connect to."""

    url: Annotated[AddressField, _of("mqtt", "unix")]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] | None = None
    """Unique; stands in the log and in the metrics. Default: the URL."""
    mode: Annotated[str, Field(pattern=r"^0?[0-7]{3}$")] = "0600"
    """Permissions of a unix socket, octal: who may connect."""

    @property
    def permissions(self) -> int:
        return int(self.mode, 8)

    @property
    def label(self) -> str:
        return self.name or str(self.url)

    @model_validator(mode="after")
    def _fits(self) -> ListenerConfig:
        if "mode" in self.model_fields_set and self.url.scheme != "unix":
            raise ValueError("mode is for unix sockets")
        return self


def anchored_address(address: Address, base: Path) -> Address:
    """With the path of a unix socket relative to ``base``."""
    if address.scheme != "unix":
        return address
    return address._replace(host=str(base / Path(address.host).expanduser()))
