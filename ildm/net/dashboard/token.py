"""The token of the dashboard: 32 random bytes in a file that nobody but its owner may read."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from ildm.config import ConfigError
from ildm.regular import open_regular
from ildm.text import reason

if TYPE_CHECKING:
    from ildm.config import Config

KEY = "dashboard.token_file"
SIZE = 32
"""Random bytes of a token that is made."""
SHORTEST = 32
"""Characters of one that was given."""
LONGEST = 1024


def take_token(path: Path) -> tuple[str, bool]:
    """What stands in the file, and whether it was made just now, as there was none.

    Raises:
        ConfigError: it cannot be made, or that of :func:`read_token`.
    """
    try:
        made = _make(path)
    except OSError as error:
        raise ConfigError(f"{KEY}: {path} cannot be made: {reason(error)}") from error
    return read_token(path), made


def read_token(path: Path) -> str:
    """What stands in the file.

    Raises:
        ConfigError: it cannot be read, others may read it, or its token is too short.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            found = os.fstat(file.fileno())
            content = file.read(LONGEST + 1)
    except OSError as error:
        raise ConfigError(f"{KEY}: {path} cannot be read: {reason(error)}") from error
    if found.st_mode & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        raise ConfigError(f"{KEY}: {path} can be read by others ({mode}): chmod 600 {path}")
    token = content.split(b"\n", 1)[0].strip()
    if not SHORTEST <= len(token) <= LONGEST or not token.isascii() or not token.decode().isprintable():
        raise ConfigError(
            f"{KEY}: the first line of {path} is to be {SHORTEST} to {LONGEST} characters of ASCII: "
            "remove the file, and a token is made"
        )
    return token.decode()


def _make(path: Path) -> bool:
    """Whether there was none. The file has its mode from the first moment, and its content, too."""
    if os.path.lexists(path):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(secrets.token_urlsafe(SIZE).encode() + b"\n")
        try:
            os.link(fresh, path)  # which, unlike a rename, replaces nothing
        except FileExistsError:
            return False
    finally:
        fresh.unlink()
    return True


def login_address(config: Config, token: str) -> str:
    """Where to look, with the token: a browser keeps what follows ``#`` to itself."""
    listen = config.dashboard.listen
    assert listen is not None
    place = listen._replace(host="localhost") if listen.is_wildcard else listen
    return f"{config.dashboard.scheme}://{place}/#token={token}"
