"""Strangers at the links of a node with a secret: recorded handshakes, other names, mirrors, its own id."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from ildm.core.link.handshake import Accepted
from ildm.core.link.hello import Refusal
from ildm.mqtt import ConnAck, Connect, Version
from tests.net.transport.client import WAIT, connected, echoes
from tests.net.transport.conftest import until
from tests.security.conftest import NODE, SECRET, Target
from tests.security.neighbor import Listening, Wire, dial, taking


@contextlib.contextmanager
def neighbor(target: Target, address: str) -> Iterator[Callable[[], str]]:
    """A neighbour that the node dials: why it is not linked with it."""
    target.node.admin.add_neighbor(address, save=False)
    try:
        yield lambda: next(
            row["reason"] or "" for row in target.node.admin.neighbors().items if row["address"] == address
        )
    finally:
        target.node.admin.remove_neighbor(address, save=False, force=True)


def replayed(target: Target, sent: list[bytes]) -> Refusal | None:
    """What a node answers to what was sent in an earlier handshake."""
    with socket.create_connection(("127.0.0.1", target.link), WAIT) as connection:
        wire = Wire(connection)
        for piece in sent:
            wire.send(piece)
        answer = wire.packet()
        while answer is not None and not isinstance(answer, ConnAck):
            answer = wire.packet()
        return None if answer is None else Refusal.parse(answer)


def test_a_recorded_handshake_is_worth_nothing(target: Target) -> None:
    outcome, sent = dial(target.link, "site-r", SECRET)
    assert isinstance(outcome, Accepted)
    assert len(sent) == 3, "CONNECT, the proof, and nothing in answer to CONNACK"
    refusal = replayed(target, sent)
    assert refusal is not None
    assert refusal.kind == "secret"


def test_a_proof_for_one_name_does_not_serve_for_another(target: Target) -> None:
    outcome, _ = dial(target.link, "site-r", SECRET, said="site-q")
    assert isinstance(outcome, Refusal)
    assert outcome.kind == "secret"


@pytest.mark.parametrize("secret", [None, "", SECRET.upper()])
def test_no_secret_and_another_one_do_not_serve(target: Target, secret: str | None) -> None:
    outcome, _ = dial(target.link, "site-q", secret)
    assert isinstance(outcome, Refusal)
    assert outcome.kind in {"secret", "ended"}
    assert "site-q" not in [row["node_id"] for row in target.node.admin.neighbors().items]


def test_the_nodes_own_id_is_refused_also_with_the_secret(target: Target) -> None:
    outcome, _ = dial(target.link, NODE, SECRET)
    assert isinstance(outcome, Refusal)
    assert outcome.kind == "own-id"


def test_recorded_answers_do_not_make_a_neighbour(target: Target) -> None:
    recorded: list[bytes] = []

    def again(wire: Wire) -> None:
        """The first time as it should be, later what was sent the first time."""
        if not recorded:
            taking("site-w", SECRET)(wire)
            assert len(wire.sent) == 2, "a challenge, and the proof in CONNACK"
            recorded.extend(wire.sent)
            return
        for piece in recorded:
            wire.packet()
            wire.send(piece)
        wire.packet()

    with Listening(again) as far, neighbor(target, far.address) as reason:
        until(lambda: reason() == "the neighbour did not prove the link secret")
        assert recorded
        assert not target.node.links_up(1)


def test_a_mirror_that_lets_the_node_talk_to_itself_gets_nowhere(target: Target) -> None:
    """It can answer every challenge by the node's own answer to it."""

    def mirror(wire: Wire) -> None:
        connection = wire._connection
        with socket.create_connection(("127.0.0.1", target.link), WAIT) as back:
            ways = [
                threading.Thread(target=pump, args=pair, daemon=True)
                for pair in ((connection, back), (back, connection))
            ]
            for way in ways:
                way.start()
            for way in ways:
                way.join(WAIT)

    with Listening(mirror) as far, neighbor(target, far.address) as reason:
        until(lambda: "itself" in reason() or "own" in reason())
        assert not target.node.links_up(1)


def pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(4096):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(("version", "code"), [(Version.V311, 2), (Version.V5, 0x85)])
def test_a_client_with_the_id_of_the_nodes_own_session_does_not_take_it_over(
    target: Target, version: Version, code: int
) -> None:
    with socket.create_connection(("127.0.0.1", target.plain), WAIT) as stranger:
        wanted = Connect(client_id=f"ildm-{NODE}-0", clean_start=True, version=version)
        stranger.sendall(wanted.encode(version))
        assert stranger.recv(4)[3] == code
        assert stranger.recv(4) == b"" or version is Version.V5
    assert target.status["broker"]["connected"]
    with connected("127.0.0.1", target.plain) as client:
        echoes(client, "own/id")
