"""Secrets that stand in the configuration or in files of their own."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from ildm.config.errors import ConfigError
from ildm.regular import read_regular
from ildm.text import reason

SHORT_SECRET = 16
"""Characters; a secret with fewer is warned of."""


def read_secret(given: SecretStr | None, file: Path | None, key: str) -> str | None:
    """The secret itself, or the first line of its file.

    Raises:
        ConfigError: the file cannot be read or is empty.
    """
    if given is not None:
        return given.get_secret_value()
    if file is None:
        return None
    if not file.name:
        raise ConfigError(f"{key}: expected the name of a file")
    try:
        secret = read_regular(file).decode().split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key}: {file} cannot be read: {reason(error)}") from error
    if not secret:
        raise ConfigError(f"{key}: {file} is empty")
    return secret
