"""Addresses to listen on and to dial, and TLS there, as several sections have them; ``listeners``."""

from __future__ import annotations

import ipaddress
import platform
import ssl
import sys
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    model_validator,
)

from ildm.address import SCHEMES, Address, parse_address
from ildm.config.section import Seconds, Section


def _of(*schemes: str) -> AfterValidator:
    """Only addresses of these schemes."""

    def check(address: Address) -> Address:
        if address.scheme not in schemes:
            raise ValueError(f"{str(address)!r}: expected one of {', '.join(schemes)}")
        return address

    return AfterValidator(check)


AddressField = Annotated[Address, BeforeValidator(parse_address), PlainSerializer(str)]
PlainAddress = Annotated[AddressField, _of("mqtt")]
BrokerAddress = Annotated[AddressField, _of("mqtt", "mqtts", "unix")]
LinkAddress = Annotated[AddressField, _of("mqtt", "mqtts")]


class KeyPair(Section):
    """A certificate and its private key, in PEM form."""

    cert: Path
    """The certificate, and after it those that lead to its authority."""
    key: Path
    """Of the certificate, not encrypted."""


class TlsFiles(Section):
    """What all sections on TLS have in common."""

    ca: Path | None = None
    """Certificates of the authorities that are trusted, and no others."""
    crl: Path | None = None
    """Revoked certificates; once given, it has to be there and current."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """Of TLS, the oldest."""
    ciphers: str | None = None
    """Of TLS 1.2, in OpenSSL's form; null: OpenSSL's own choice."""
    watch: Seconds = 60.0
    """How often the files are looked at; changed ones are taken up, connections stay."""

    @property
    def files(self) -> list[Path]:
        """All that contexts are made of."""
        named = (self.ca, self.crl, getattr(self, "cert", None), getattr(self, "key", None))
        return [path for path in named if path is not None]


class ListenerTls(TlsFiles, KeyPair):
    """TLS towards clients."""

    verify: Literal["none", "optional", "require"] = "none"
    """Whether clients show certificates; those they show must be of ``ca``."""
    sni: dict[Annotated[str, Field(min_length=1, max_length=253)], KeyPair] = {}
    """Other certificates, for clients that ask for these names; ``*.example.org`` stands for one level."""

    @property
    def files(self) -> list[Path]:
        return [*super().files, *(path for pair in self.sni.values() for path in (pair.cert, pair.key))]

    @model_validator(mode="after")
    def _authority(self) -> Self:
        if (self.verify == "none") is not (self.ca is None):
            raise ValueError("ca and verify (optional or require) go together")
        if self.crl is not None and self.ca is None:
            raise ValueError("crl is without effect without ca")
        return self


class BrokerTls(TlsFiles):
    """TLS towards the broker."""

    cert: Path | None = None
    """What the node shows, if the broker asks for a certificate."""
    key: Path | None = None
    """Of the certificate."""
    server_name: str | None = None
    """What the broker's certificate must be for; null: the host of the address."""

    @model_validator(mode="after")
    def _authority(self) -> Self:
        if self.ca is None:
            raise ValueError("ca: needed, as no authority of the system is trusted")
        if (self.cert is None) is not (self.key is None):
            raise ValueError("cert and key go together")
        return self


def _fingerprint(text: object) -> object:
    """``AB:CD:...``, as openssl prints it, or plain hexadecimal -> the latter in small letters."""
    return text.replace(":", "").lower() if isinstance(text, str) else text


Fingerprint = Annotated[str, BeforeValidator(_fingerprint), Field(pattern=r"^[0-9a-f]{64}$")]


def psk_missing() -> str | None:
    """Why TLS by a shared secret cannot be had here."""
    if sys.version_info >= (3, 13):
        return None if ssl.HAS_PSK else "needs an OpenSSL that has it, and this Python's has not"
    return f"needs Python 3.13 or newer at both ends, and this is {platform.python_version()}"


class LinkTls(TlsFiles):
    """TLS on links: both ends show a certificate of ``ca``, bound to the node id, or have the link secret."""

    psk: bool = False
    """Without certificates: keys are made of ``link.secret``. Needs Python 3.13 at all nodes."""
    cert: Path | None = None
    """The certificate, and after it those that lead to its authority."""
    key: Path | None = None
    """Of the certificate, not encrypted."""
    min_version: Literal["1.3"] = "1.3"
    """Of TLS; there is no other for links."""
    identity: Literal["san", "pin"] = "san"
    """A neighbour's certificate has the alternative name ``URI:ildm:NODE_ID``, or is the one in ``pins``."""
    pins: dict[str, Fingerprint] = {}
    """SHA-256 of the certificate of each node."""

    @model_validator(mode="after")
    def _identities(self) -> Self:
        if self.psk:
            missing = psk_missing()
            if missing is not None:
                raise ValueError(f"psk: {missing}")
            others = sorted(self.model_fields_set - {"psk", "min_version", "watch"})
            if others:
                raise ValueError(f"psk: there are no certificates then: leave out {', '.join(others)}")
            return self
        if self.cert is None or self.key is None:
            raise ValueError("cert and key: needed, or psk: true")
        if self.ca is None:
            raise ValueError("ca: needed, as no authority of the system is trusted")
        if (self.identity == "pin") is not bool(self.pins):
            raise ValueError("pins and identity: pin go together")
        return self


def _network(text: str) -> str:
    """``ADDRESS`` or ``ADDRESS/BITS``, in the usual form."""
    return str(ipaddress.ip_network(text))


Network = Annotated[str, AfterValidator(_network)]


class ProxyConfig(Section):
    """The PROXY protocol, versions 1 and 2, towards clients."""

    trust: Annotated[list[Network], Field(min_length=1)]
    """Networks of the proxies. They have to say where each connection comes from; nobody else may."""
    timeout: Seconds = 5.0
    """Until the header must be there."""


TLS_OF = {"mqtt": "mqtts", "ws": "wss", "unix": "mqtts"}
"""Scheme with TLS of one without."""


class ListenerConfig(Section):
    """One place where local clients connect to."""

    url: Annotated[AddressField, _of(*SCHEMES)]
    """``mqtt://``, ``mqtts://``, ``ws://`` or ``wss://HOST:PORT``, or ``unix:/PATH``."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] | None = None
    """Unique; stands in the log and in the metrics. Default: the URL."""
    mode: Annotated[str, Field(pattern=r"^0?[0-7]{3}$")] = "0600"
    """Permissions of a unix socket, octal: who may connect."""
    tls: ListenerTls | None = None
    """Needed with mqtts and wss."""
    proxy: ProxyConfig | None = None
    """Behind proxies that say by the PROXY protocol whom they bring."""
    path: str | None = "/mqtt"
    """Of a WebSocket's request; null: any."""
    origins: list[str] | None = None
    """Pages of the web whose scripts may connect by WebSocket, as ``https://HOST``; null: all."""

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
        if self.proxy is not None and self.url.scheme == "unix":
            raise ValueError("proxy is for TCP")
        for key in {"path", "origins"} & self.model_fields_set:
            if not self.url.has_websocket:
                raise ValueError(f"{key} is for ws and wss")
        if self.path is not None and not self.path.startswith("/"):
            raise ValueError(f"path: {self.path!r} does not begin with /")
        if self.url.has_tls is not (self.tls is not None):
            raise ValueError(
                f"{self.url} needs tls: {{cert: FILE, key: FILE}}"
                if self.url.has_tls
                else f"tls is without effect with {self.url}: write {TLS_OF.get(self.url.scheme)}://"
            )
        return self
