"""What requests to the dashboard hold."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, StrictBool

from ildm.admin.requests import Body, number

__all__ = ["Kick", "Login", "RemoveNeighbor", "Topic", "number", "origin_is"]

Name = Annotated[str, Field(min_length=1, max_length=65535)]


class Login(Body):
    token: Annotated[SecretStr, Field(max_length=1024)]


class Topic(Body):
    topic: Name


class Kick(Body):
    client_id: Name


class RemoveNeighbor(Body):
    target: Name
    save: StrictBool = True
    force: StrictBool = False


def origin_is(origin: str | None, host: str) -> bool:
    """Whether a request comes from a page of the server that it is for.

    By name and port alone: before a plain listener there may be a proxy that speaks TLS.
    """
    try:
        parts = urlsplit(origin or "")
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
