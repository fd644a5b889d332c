"""The unix socket of the admin API, which only its owner can use."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ildm.admin.view import AdminError
from ildm.unix_socket import PATH_LIMIT, listen_at


def open_socket(path: Path, backlog: int = 16) -> socket.socket:
    """Listen on a unix socket with mode 0600; a missing directory is made with mode 0700.

    Raises:
        AdminError: a live process listens there, something else than a socket stands there, or the
            path cannot be used.
    """
    if len(os.fsencode(path)) > PATH_LIMIT:
        raise AdminError(
            f"admin socket {path}: the path is longer than the {PATH_LIMIT} bytes of a unix socket; "
            "set admin.socket to a shorter one"
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return listen_at(path, 0o600, backlog)
    except OSError as error:
        raise AdminError(f"admin socket {path}: {error.strerror or error}") from error
