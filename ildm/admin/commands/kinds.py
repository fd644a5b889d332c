"""Types of parameters: how their values are read from text, shown in help texts, and completed."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NewType

from ildm.admin.client import AdminClient
from ildm.mqtt import MqttError, validate_topic_filter, validate_topic_name

AddressText = NewType("AddressText", str)
"""``HOST:PORT``, checked."""
NeighborTarget = NewType("NeighborTarget", str)
"""Address or node id of a neighbour."""
Receiver = NewType("Receiver", str)
"""Who is to get what is in the spool, as ``ildm spool`` names it."""
OutputFile = NewType("OutputFile", str)
"""Where to write; ``-`` is standard output."""
TopicName = NewType("TopicName", str)
"""Of a message: no wildcards, checked."""
SessionSource = NewType("SessionSource", str)
"""Make of the broker whose sessions are read, or ``csv``."""
SourceName = NewType("SourceName", str)
"""A file, or an address of HTTP."""
Interpreter = NewType("Interpreter", str)
"""Path of a Python; empty: the one that runs already."""
UserName = NewType("UserName", str)
SecretFile = NewType("SecretFile", str)
"""Its first line is the password."""
VirtualHost = NewType("VirtualHost", str)
LogLevelName = Literal["debug", "info", "warning", "error"]
LogLevelChoice = NewType("LogLevelChoice", str)
"""One of them, or :data:`SHOW`."""
KeyText = NewType("KeyText", str)
"""Part of a key in an overlay."""
ClientName = NewType("ClientName", str)
"""Client identifier, user name or address."""
SenderName = NewType("SenderName", str)
"""Client identifier; empty: nobody in particular."""
BanKind = Literal["client", "user", "address"]
Filter = NewType("Filter", str)
"""Topic filter, checked."""
Duration = NewType("Duration", float)
"""Seconds; 0: without end, or none."""
Limit = NewType("Limit", int)
"""Number of rows."""
ROWS = Limit(1000)
EVERYTHING = Filter("#")
FOR_EVER = Duration(0)
PROBE = Duration(0)
"""No real messages are looked at."""
MESSAGES = Limit(100)
ALL = Limit(1)
SHOWN = Limit(20)
SHOW = LogLevelChoice("show")
"""Stands for the level as it is."""
ANYBODY = SenderName("")
ANY_KEY = KeyText("")
NOBODY = UserName("")
NO_FILE = SecretFile("")
SAME = Interpreter("")
MINUTE = Duration(60)
DEFAULT_VHOST = VirtualHost("/")
SESSION_SOURCES = ("mosquitto", "rabbitmq", "csv")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds."""


@dataclass(frozen=True)
class Kind:
    """How values of one type are read, shown in help texts, and completed."""

    metavar: str
    parse: Callable[[str], Any]
    """Text -> value; ValueError says what is wrong."""
    choices: tuple[str, ...] = ()
    complete: Callable[[AdminClient], Iterable[str]] | None = None


def _address(text: str) -> str:
    from ildm.config import parse_address  # noqa: PLC0415 - slow to import

    address = parse_address(text)
    if address.port == 0:
        raise ValueError(f"{text!r}: nobody listens at port 0")
    return str(address)


def _target(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("expected HOST:PORT or a node id")
    return text


def _receiver(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("expected a receiver, as the command spool names it")
    return text


def _file(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("expected the name of a file, or -")
    return text


def topic_name(text: str) -> str:
    if not text:
        raise ValueError("expected a topic name")
    try:
        validate_topic_name(text)
    except MqttError as error:
        raise ValueError(str(error)) from None
    return text


def _filter(text: str) -> str:
    try:
        validate_topic_filter(text)
    except MqttError as error:
        raise ValueError(str(error)) from None
    return text


def _name(text: str) -> str:
    if not text:
        raise ValueError("expected a client identifier, a user name or an address")
    return text


def _kind(text: str) -> str:
    kinds = typing.get_args(BanKind)
    if text not in kinds:
        raise ValueError(f"{text!r}: expected one of {', '.join(kinds)}")
    return text


def _session_source(text: str) -> str:
    if text not in SESSION_SOURCES:
        raise ValueError(f"{text!r}: expected one of {', '.join(SESSION_SOURCES)}")
    return text


def _duration(text: str) -> float:
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        seconds = float(number) * UNITS[unit]
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86400 * 3650:
        raise ValueError(f"{text!r}: expected seconds, or 5m, 2h, 1d; 10 years at most")
    return seconds


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= 100_000):
        raise ValueError(f"{text!r}: expected a number from 1 to 100000")
    return int(text)


def _level(text: str) -> str:
    levels = typing.get_args(LogLevelName)
    if text not in (*levels, SHOW):
        raise ValueError(f"{text!r}: expected one of {', '.join(levels)}")
    return text


def _known_targets(node: AdminClient) -> list[str]:
    rows = node.neighbors().items
    return [str(row[key]) for key in ("address", "node_id") for row in rows if row.get(key)]


def _known_clients(node: AdminClient) -> list[str]:
    return [row["client_id"] for row in node.clients().items if row["connected"]]


def _receivers(node: AdminClient) -> list[str]:
    return [row["receiver"] for row in node.spool()["receivers"]]


KINDS: dict[Any, Kind] = {
    AddressText: Kind("HOST:PORT", _address),
    NeighborTarget: Kind("HOST:PORT|NODE_ID", _target, complete=_known_targets),
    Limit: Kind("NUMBER", _limit),
    TopicName: Kind("TOPIC", topic_name),
    Receiver: Kind("RECEIVER", _receiver, complete=_receivers),
    ClientName: Kind("NAME", _name, complete=_known_clients),
    SenderName: Kind("CLIENT_ID", str, complete=_known_clients),
    BanKind: Kind("KIND", _kind, choices=typing.get_args(BanKind)),
    Filter: Kind("FILTER", _filter),
    Duration: Kind("TIME", _duration),
    OutputFile: Kind("FILE", _file),
    SessionSource: Kind("MAKE", _session_source, choices=SESSION_SOURCES),
    SourceName: Kind("FILE|URL", _file),
    Interpreter: Kind("PATH", str),
    UserName: Kind("NAME", str),
    SecretFile: Kind("FILE", str),
    VirtualHost: Kind("NAME", str),
    LogLevelChoice: Kind("LEVEL", _level, choices=typing.get_args(LogLevelName)),
    KeyText: Kind("TEXT", str),
}
