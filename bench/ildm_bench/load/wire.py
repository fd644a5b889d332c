"""What coordinator and workers say to each other: JSON with its length before it, files as they are.

A worker that listens on more than loopback wants a secret. Both sides then prove that they have it by
HMAC-SHA-256 over the two nonces and their role, so that it does not travel.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any

from ildm_bench.load.connection import LoadError

VERSION = 1
MAX_MESSAGE = 1 << 26
PART = 1 << 20
HANDSHAKE = 10.0
"""Seconds that the other side has to prove itself."""


class Channel:
    """One end of a connection between a coordinator and a worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str) -> None:
        self._reader = reader
        self._writer = writer
        self.peer = peer

    async def send(self, kind: str, **content: Any) -> None:
        """Raises: LoadError, the other side has gone."""
        data = json.dumps({"kind": kind, **content}).encode()
        await self._write(len(data).to_bytes(4, "big") + data)

    async def _write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise LoadError(f"the connection with {self.peer} has ended") from error

    async def receive(self, *kinds: str) -> dict[str, Any]:
        """The next message, which must be one of ``kinds``.

        Raises:
            LoadError: the other side has failed, gone, or says something else.
        """
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            if size > MAX_MESSAGE:
                raise LoadError(f"{self.peer} speaks another protocol")
            message = json.loads(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError) as error:
            raise LoadError(f"the connection with {self.peer} has ended") from error
        except ValueError as error:
            raise LoadError(f"{self.peer} speaks another protocol") from error
        if not isinstance(message, dict):
            raise LoadError(f"{self.peer} speaks another protocol")
        if message.get("kind") == "failed":
            raise LoadError(str(message.get("reason")))
        if message.get("kind") not in kinds:
            raise LoadError(f"{self.peer} says {message.get('kind')!r} instead of {' or '.join(kinds)}")
        return message

    async def send_file(self, path: Path) -> None:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            await self.send("file", size=size)
            while part := await asyncio.to_thread(file.read, PART):
                await self._write(part)

    async def receive_file(self, path: Path) -> None:
        """Raises: LoadError."""
        left = int((await self.receive("file"))["size"])
        with path.open("wb") as file:
            while left:
                part = await self._reader.read(min(PART, left))
                if not part:
                    raise LoadError(f"the connection with {self.peer} has ended within a log")
                await asyncio.to_thread(file.write, part)
                left -= len(part)

    def close(self) -> None:
        self._writer.close()

    async def prove(self, secret: str, coordinator: bool) -> None:
        """Exchange versions and, with a secret, proofs of it.

        Raises:
            LoadError: the other side has another version or not the secret.
        """
        roles = ("coordinator", "worker") if coordinator else ("worker", "coordinator")
        nonce = secrets.token_hex(16)
        async with asyncio.timeout(HANDSHAKE):
            await self.send("hello", version=VERSION, nonce=nonce)
            hello = await self.receive("hello")
            if hello.get("version") != VERSION:
                raise LoadError(
                    f"{self.peer} has version {hello.get('version')} of the protocol, not {VERSION}"
                )
            nonces = sorted([nonce, str(hello.get("nonce"))])
            if nonces[0] == nonces[1]:
                raise LoadError(f"{self.peer} repeats what it is told")
            await self.send("proof", proof=_proof(secret, roles[0], nonces))
            said = (await self.receive("proof")).get("proof")
        if not hmac.compare_digest(str(said).encode(), _proof(secret, roles[1], nonces).encode()):
            raise LoadError(f"{self.peer} has another secret")


def _proof(secret: str, role: str, nonces: list[str]) -> str:
    return hmac.new(secret.encode(), " ".join([role, *nonces]).encode(), hashlib.sha256).hexdigest()
