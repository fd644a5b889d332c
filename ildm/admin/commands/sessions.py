"""Sessions that the broker has and the node does not know."""

from __future__ import annotations

from pathlib import Path

from ildm.admin.client import AdminClient
from ildm.admin.commands.kinds import (
    DEFAULT_VHOST,
    NO_FILE,
    NOBODY,
    SecretFile,
    SessionSource,
    SourceName,
    UserName,
    VirtualHost,
)
from ildm.admin.commands.registry import UsageError, command
from ildm.admin.view import Row


@command("sessions import")
def sessions_import(
    node: AdminClient,
    make: SessionSource,
    source: SourceName,
    *,
    user: UserName = NOBODY,
    password_file: SecretFile = NO_FILE,
    vhost: VirtualHost = DEFAULT_VHOST,
) -> Row:
    """Read the filters of sessions that the broker has, and tell them to the node.

    ``source`` is the file ``mosquitto.db``, RabbitMQ's management API (``http://HOST:15672``), or a file of
    lines ``client,filter,qos``. All are taken or, if one of them cannot be, none.
    """
    # imported where it is wanted: commands are made at each start of the command line
    from ildm.config.secret import read_secret  # noqa: PLC0415
    from ildm.importing.sessions.mosquitto_db import read_mosquitto  # noqa: PLC0415
    from ildm.importing.sessions.rabbitmq import read_rabbitmq  # noqa: PLC0415
    from ildm.importing.sessions.table import read_table  # noqa: PLC0415

    if make == "rabbitmq":
        password = read_secret(None, Path(password_file) if password_file else None, "--password-file")
        if not user or password is None:
            raise UsageError("sessions import rabbitmq: needs --user NAME and --password-file FILE")
        found = read_rabbitmq(source, vhost, user, password)
    elif make == "mosquitto":
        found = read_mosquitto(Path(source))
    else:
        found = read_table(Path(source))
    return node.import_sessions(found.rows())


@command("sessions adopted")
def sessions_adopted(node: AdminClient) -> Row:
    """The clients of older sessions are back: end broker.adopt_sessions before its time."""
    return node.end_adoption()
