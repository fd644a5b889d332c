"""The connection between coordinator and worker: proofs of the secret, messages, files."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ildm_bench.load import wire
from ildm_bench.load.connection import LoadError
from ildm_bench.load.wire import PART, Channel


async def _channels() -> tuple[Channel, Channel]:
    ends = socket.socketpair()
    opened = [await asyncio.open_connection(sock=end) for end in ends]
    first, second = opened
    return Channel(*first, "the worker"), Channel(*second, "the coordinator")


@contextmanager
def _closing(*channels: Channel) -> Iterator[None]:
    try:
        yield
    finally:
        for channel in channels:
            channel.close()


async def _prove(secret: str, other: str) -> tuple[BaseException | None, BaseException | None]:
    ours, theirs = await _channels()
    with _closing(ours, theirs):
        first, second = await asyncio.gather(
            ours.prove(secret, coordinator=True),
            theirs.prove(other, coordinator=False),
            return_exceptions=True,
        )
        return first, second


@pytest.mark.parametrize("secret", ["", "open sesame", "Geheimnis mit ü"])
async def test_who_has_the_secret_is_let_in(secret: str) -> None:
    assert await _prove(secret, secret) == (None, None)


@pytest.mark.parametrize(("secret", "other"), [("a", "b"), ("", "b"), ("a", "")])
async def test_who_has_another_secret_is_refused_by_both(secret: str, other: str) -> None:
    errors = await _prove(secret, other)
    assert [type(error) for error in errors] == [LoadError, LoadError]
    assert [str(error) for error in errors] == [
        "the worker has another secret",
        "the coordinator has another secret",
    ]


async def test_the_secret_does_not_travel_and_no_proof_serves_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    send = Channel.send

    async def spy(self: Channel, kind: str, **content: Any) -> None:
        said.append(json.dumps(content))
        await send(self, kind, **content)

    monkeypatch.setattr(Channel, "send", spy)
    for _ in range(2):
        await _prove("very secret", "very secret")
    assert len(set(said)) == len(said) == 8
    assert not any("very secret" in text for text in said)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([{"kind": "hello", "version": 99, "nonce": "x"}], "has version 99"),
        (
            [{"kind": "hello", "version": wire.VERSION, "nonce": "x"}, {"kind": "proof", "proof": "é"}],
            "secret",
        ),
        ([{"kind": "hello", "version": wire.VERSION, "nonce": "x"}, {"kind": "proof"}], "secret"),
        ([{"kind": "bye"}], "says 'bye' instead of hello"),
        ([], "has ended"),
    ],
)
async def test_a_peer_that_proves_nothing_is_refused(answers: list[dict[str, Any]], reason: str) -> None:
    ours, theirs = await _channels()
    with _closing(ours, theirs):
        for answer in answers:
            await theirs.send(**answer)
        if not answers:
            theirs.close()
        with pytest.raises(LoadError, match=reason):
            await ours.prove("s", coordinator=True)


async def test_one_that_repeats_what_it_is_told_is_refused() -> None:
    ours, theirs = await _channels()
    with _closing(ours, theirs):
        proving = asyncio.create_task(ours.prove("s", coordinator=False))
        hello = await theirs.receive("hello")
        await theirs.send(hello.pop("kind"), **hello)
        with pytest.raises(LoadError, match="repeats what it is told"):
            await proving


async def test_a_silent_peer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "HANDSHAKE", 0.1)
    ours, theirs = await _channels()
    with _closing(ours, theirs), pytest.raises(TimeoutError):
        await ours.prove("s", coordinator=True)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "speaks another protocol"),
        (b"\0\0\0\4nope", "speaks another protocol"),
        (b"\0\0\0\1\xff", "speaks another protocol"),
        (b"\0\0\0\2[]", "speaks another protocol"),
        (b"\0\0\0\2{}", "says None instead of hello or bye"),
        (b'\0\0\0\x22{"kind":"failed","reason":"dusty"}', "dusty"),
        (b"\0\0\0\x09{", "has ended"),
        (b"", "the connection with the worker has ended"),
    ],
)
async def test_what_cannot_be_understood_is_an_error(data: bytes, reason: str) -> None:
    ours, theirs = await _channels()
    with _closing(ours):
        theirs._writer.write(data)
        theirs.close()
        with pytest.raises(LoadError, match=reason):
            await ours.receive("hello", "bye")


async def test_sending_to_one_that_has_gone_is_an_error() -> None:
    ours, theirs = await _channels()
    with _closing(ours):
        theirs.close()
        with pytest.raises(LoadError, match="the connection with the worker has ended"):
            await ours.send("progress", text="x" * 10_000_000)


@pytest.mark.parametrize("size", [0, 1, PART, 3 * PART + 17])
async def test_files_arrive_as_they_are(tmp_path: Path, size: int) -> None:
    (tmp_path / "from").write_bytes(bytes(range(256)) * (size // 256) + bytes(size % 256))
    ours, theirs = await _channels()
    with _closing(ours, theirs):
        await asyncio.gather(ours.send_file(tmp_path / "from"), theirs.receive_file(tmp_path / "to"))
        await ours.send("bye")
        assert (await theirs.receive("bye"))["kind"] == "bye"
    assert (tmp_path / "to").read_bytes() == (tmp_path / "from").read_bytes()


async def test_a_file_that_breaks_off_is_an_error(tmp_path: Path) -> None:
    ours, theirs = await _channels()
    with _closing(ours):
        await theirs.send("file", size=10)
        theirs._writer.write(b"12345")
        theirs.close()
        with pytest.raises(LoadError, match="within a log"):
            await ours.receive_file(tmp_path / "to")
