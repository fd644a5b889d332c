"""The other end of a link, in the hands of a stranger: whole handshakes, recorded ones, and parts of them."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from ildm.core.link.handshake import Accepted, AcceptorHandshake, DialerHandshake, Handshake, Terms
from ildm.core.link.hello import NONCE, Hello, Refusal, link_key
from ildm.mqtt import Framer, Version, decode
from tests.net.transport.client import WAIT

NONE = Refusal("ended", "the connection was ended", 0)  # type: ignore[arg-type]
"""No answer came."""


def terms(node_id: str, secret: str | None) -> Terms:
    key = None if secret is None else link_key(secret)
    return Terms(node_id, key, keep_alive=10, inflight=100, packet_size=1 << 20)


def hello(node_id: str, token: str = "token") -> Hello:
    return Hello(node_id, boot=1, algorithm="pf", sessions=1, index=0, token=token)


class Wire:
    """One connection, and all that was sent on it in pieces as they went."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(WAIT)
        self._connection = connection
        self._framer = Framer(1 << 20)
        self._frames: list[bytes] = []
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)
        self._connection.sendall(data)

    def packet(self) -> Any:
        """The next one; None when the connection has been ended."""
        frame = self.frame()
        return None if frame is None else decode(frame, Version.V5)

    def frame(self) -> bytes | None:
        """The bytes of the same."""
        while not self._frames:
            try:
                data = self._connection.recv(4096)
            except (ConnectionError, ssl.SSLError):
                return None
            if not data:
                return None
            self._frames += self._framer.feed(data)
        return self._frames.pop(0)

    def meet(self, handshake: Handshake) -> Accepted | Refusal:
        """Carry a handshake on to its end."""
        while handshake.outcome is None:
            frame = self.frame()
            if frame is None:
                return NONE
            self.send(handshake.receive(decode(frame, Version.V5), frame))
        return handshake.outcome


def dial(
    port: int,
    node_id: str,
    secret: str | None,
    *,
    said: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> tuple[Accepted | Refusal, list[bytes]]:
    """How a node takes one that proves to be ``node_id``; what that has sent.

    ``said``: what it calls itself on the wire, a name of the same length.
    """
    with socket.create_connection(("127.0.0.1", port), WAIT) as plain:
        connection = plain
        try:
            if tls is not None:
                connection = tls.wrap_socket(plain)
            wire = Wire(connection)
            handshake = DialerHandshake(terms(node_id, secret), hello(node_id), bytes(NONCE), lambda _: None)
            connect = handshake.start()
            wire.send(connect.replace(node_id.encode(), (said or node_id).encode()))
            return wire.meet(handshake), wire.sent
        except (ConnectionError, ssl.SSLError):
            return NONE, []


class Listening:
    """Takes connections of a node, one after the other, each as ``meet`` says; for a ``with`` block."""

    def __init__(self, meet: Callable[[Wire], object], tls: ssl.SSLContext | None = None) -> None:
        self._meet = meet
        self._tls = tls
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join(WAIT)
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._server.accept()
            except OSError:  # closed
                return
            tls = self._tls
            plain.settimeout(WAIT)
            try:
                with plain if tls is None else tls.wrap_socket(plain, server_side=True) as connection:
                    self._meet(Wire(connection))
            except (ConnectionError, ssl.SSLError):
                plain.close()  # the node has ended it, as it should


def taking(
    node_id: str, secret: str | None = None, clings: threading.Event | None = None
) -> Callable[[Wire], None]:
    """What a node with this id and secret does with one that dials; ``clings``: until then it stays."""

    def meet(wire: Wire) -> None:
        answer = AcceptorHandshake(
            terms(node_id, secret), bytes(NONCE), lambda far: hello(node_id, far.token)
        )
        wire.meet(answer)
        if clings is not None:
            clings.wait(WAIT)

    return meet
