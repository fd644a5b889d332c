"""``ildm pub`` and ``ildm sub``: a publisher and a subscriber to try brokers and nodes with."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ildm.address import Address
from ildm.admin.commands import UsageError
from ildm.mqtt import MqttError, validate_topic_filter, validate_topic_name
from ildm.mqtt.constants import MAX_STRING
from ildm.text import printable, reason

if TYPE_CHECKING:
    from ildm.cli.tool.client import Target
    from ildm.cli.tool.place import Place

HOST, PORT = "127.0.0.1", 1883
PASSWORD_VARIABLE = "ILDM_PASSWORD"  # noqa: S105 - a name, no password

Host = Annotated[str, typer.Option("-h", "--host", help="Node or broker.")]
Port = Annotated[int, typer.Option("-p", "--port", min=1, max=65535)]
Url = Annotated[
    str | None,
    typer.Option(
        "-L",
        "--url",
        metavar="URL",
        help="In place of -h and -p: mqtt, mqtts, ws or wss://HOST:PORT[/PATH], unix:/PATH.",
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--cafile", metavar="FILE", help="TLS: who is trusted; by default the system's authorities."
    ),
]
CertFile = Annotated[Path | None, typer.Option("--cert", metavar="FILE", help="TLS: certificate to show.")]
KeyFile = Annotated[Path | None, typer.Option("--key", metavar="FILE", help="TLS: its key.")]
Qos = Annotated[int, typer.Option("-q", "--qos", min=0, max=2, help="Quality of service.")]
ClientId = Annotated[str, typer.Option("-i", "--id", help="Client identifier; by default a random one.")]
Protocol = Annotated[str, typer.Option("-V", "--mqtt", metavar="3.1.1|5", help="MQTT version.")]
User = Annotated[str | None, typer.Option("-u", "--user", metavar="NAME")]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help=f"First line is the password [env: {PASSWORD_VARIABLE}].",
    ),
]
Password = Annotated[
    str | None,
    typer.Option("-P", "--pw", "--password", metavar="PASSWORD", hidden=True, help="Refused, says why."),
]
Timeout = Annotated[
    float, typer.Option("--timeout", help="Seconds to wait for an answer.", min=0.1, max=86400)
]


def sub(
    topics: Annotated[list[str], typer.Option("-t", "--topic", metavar="FILTER", help="May be repeated.")],
    host: Host = HOST,
    port: Port = PORT,
    url: Url = None,
    cafile: CaFile = None,
    cert: CertFile = None,
    key: KeyFile = None,
    qos: Qos = 0,
    client_id: ClientId = "",
    count: Annotated[
        int | None, typer.Option("-C", "--count", min=1, help="End after so many messages.")
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option("-W", "--wait", min=0, max=1e9, help="End with status 1 after so many seconds."),
    ] = None,
    version: Protocol = "3.1.1",
    clean: Annotated[
        bool, typer.Option("--clean/--persistent", help="New session, or one that the broker keeps.")
    ] = True,
    user: User = None,
    password_file: PasswordFile = None,
    password: Password = None,
    timeout: Timeout = 10.0,
    reconnect: Annotated[
        bool, typer.Option("--reconnect/--no-reconnect", help="When the connection is lost: connect again.")
    ] = True,
    form: Annotated[
        str, typer.Option("--format", metavar="text|payload|json", help="text is TOPIC PAYLOAD.")
    ] = "text",
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="With topics, as by default (for habit).")
    ] = False,
) -> None:
    """Print messages that match a topic filter."""
    _refuse(password)
    if form not in ("text", "payload", "json"):
        raise UsageError(f"--format {form}: expected text, payload or json")
    if not clean and not client_id:
        raise UsageError("--persistent needs a client identifier (-i)")
    for topic_filter in topics:
        try:
            validate_topic_filter(topic_filter, shared=version == "5")
        except MqttError as error:
            raise UsageError(f"-t {_short(topic_filter)}: {error}") from None
    place = _place(host, port, url, cafile, cert, key)
    target = _target(place, client_id, version, clean, user, password_file, timeout)
    from ildm.cli.tool.listening import listen  # noqa: PLC0415 - slow to import

    listen(target, topics, qos, count=count, wait=wait, reconnect=reconnect, form=form)


def pub(
    topic: Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC")],
    message: Annotated[str | None, typer.Option("-m", "--message", metavar="TEXT")] = None,
    lines: Annotated[
        bool, typer.Option("-l", "--lines", help="A message for each line of standard input.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="The file is the message.")
    ] = None,
    host: Host = HOST,
    port: Port = PORT,
    url: Url = None,
    cafile: CaFile = None,
    cert: CertFile = None,
    key: KeyFile = None,
    qos: Qos = 0,
    retain: Annotated[bool, typer.Option("-r", "--retain", help="The broker is to keep it.")] = False,
    client_id: ClientId = "",
    version: Protocol = "3.1.1",
    user: User = None,
    password_file: PasswordFile = None,
    password: Password = None,
    timeout: Timeout = 10.0,
) -> None:
    """Publish a message or many."""
    _refuse(password)
    if (message is not None) + lines + (file is not None) != 1:
        raise UsageError("give one of -m TEXT, -l and -f FILE")
    if any(wild in topic for wild in "+#") or not topic:
        raise UsageError(f"-t {_short(topic)}: a topic to publish on is not empty and has no wildcards")
    try:
        validate_topic_name(topic)
    except MqttError as error:
        raise UsageError(f"-t {_short(topic)}: {error}") from None
    place = _place(host, port, url, cafile, cert, key)
    target = _target(place, client_id, version, True, user, password_file, timeout)
    payloads = _payloads(message, file)
    from ildm.cli.tool.client import Connection  # noqa: PLC0415 - slow to import

    connection = Connection(target)
    for payload in payloads:
        connection.publish(topic, payload, qos, retain)
    connection.flush()
    connection.close()


def _payloads(message: str | None, file: Path | None) -> Iterator[bytes]:
    if message is not None:
        return iter([message.encode("utf-8", "surrogateescape")])
    if file is None:
        return (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
    try:
        return iter([file.read_bytes()])
    except OSError as error:
        raise UsageError(f"{file}: {reason(error)}") from error


def _place(
    host: str, port: int, url: str | None, cafile: Path | None, cert: Path | None, key: Path | None
) -> Place:
    from ildm.cli.tool.place import Place, client_context, parse_place  # noqa: PLC0415 - slow to import

    if url is None:
        place = Place(Address(host, port))
    elif (host, port) != (HOST, PORT):
        raise UsageError("--url says host and port: leave out -h and -p")
    else:
        try:
            place = parse_place(url)
        except ValueError as error:
            raise UsageError(f"--url: {error}") from None
    if place.address.has_tls:
        return place._replace(tls=client_context(cafile, cert, key))
    if cafile or cert or key:
        raise UsageError("--cafile, --cert and --key need --url mqtts://... or wss://...")
    return place


def _target(
    place: Place,
    client_id: str,
    version: str,
    clean: bool,
    user: str | None,
    password_file: Path | None,
    timeout: float,
) -> Target:
    from ildm.cli.tool.client import VERSIONS, Target  # noqa: PLC0415 - slow to import

    if version not in VERSIONS:
        raise UsageError(f"-V {version}: expected {' or '.join(VERSIONS)}")
    password = os.environ.get(PASSWORD_VARIABLE)
    if password_file is not None:
        from ildm.config import read_secret  # noqa: PLC0415 - slow to import

        password = read_secret(None, password_file, "--password-file")
    for option, text in (("-i", client_id), ("-u", user), (PASSWORD_VARIABLE, password)):
        _check_text(option, text or "")
    if user is None:
        if password_file is not None:
            raise UsageError("--password-file needs -u NAME")
        password = None
    return Target(place, client_id or f"ildm{secrets.token_hex(4)}", version, clean, user, password, timeout)


def _refuse(password: str | None) -> None:
    if password is not None:
        raise UsageError(
            "-P: everybody on this machine can read a command line: give the password by "
            f"--password-file FILE or in the variable {PASSWORD_VARIABLE}"
        )


def _check_text(option: str, text: str) -> None:
    """Raises UsageError for what cannot be a string of MQTT (MQTT 5, 1.5.4)."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UsageError(f"{option}: is no UTF-8") from None
    if size > MAX_STRING or "\0" in text:
        raise UsageError(f"{option}: expected at most {MAX_STRING} bytes, none of them zero")


def _short(text: str) -> str:
    return printable(text if len(text) <= 80 else f"{text[:77]}...")
