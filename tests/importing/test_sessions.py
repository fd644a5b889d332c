"""Persistent sessions read from files of brokers and from RabbitMQ's management API."""

from __future__ import annotations

import contextlib
import json
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.importing.sessions import found as bounds
from ildm.importing.sessions.found import SourceError
from ildm.importing.sessions.mosquitto_db import CLIENT, MAGIC, SUBSCRIPTION, read_mosquitto
from ildm.importing.sessions.rabbitmq import filter_of, read_rabbitmq
from ildm.importing.sessions.table import read_table
from tests.support.brokers import Broker, PahoClient
from tests.support.ports import free_port

NEVER = 0xFFFFFFFF
HEADER = MAGIC + struct.pack(">II", 0, 6)


def chunk(kind: int, content: bytes) -> bytes:
    return struct.pack(">II", kind, len(content)) + content


def client(client_id: bytes, expiry: int = NEVER, user: bytes = b"") -> bytes:
    fields = struct.pack(">8xIHHHH4x", expiry, 1, len(client_id), 1883, len(user))
    return chunk(CLIENT, fields + client_id + user)


def subscription(client_id: bytes, topic_filter: bytes, qos: int = 1) -> bytes:
    fields = struct.pack(">IHHBB2x", 0, len(client_id), len(topic_filter), qos, 0)
    return chunk(SUBSCRIPTION, fields + client_id + topic_filter)


def rows(found: bounds.Found) -> dict[str, tuple[dict[str, int], int | None]]:
    return {row["client_id"]: (row["filters"], row["expiry"]) for row in found.rows()}


WHOLE = (
    HEADER
    + chunk(1, bytes(16))
    + subscription(b"a", "ü/#".encode(), 2)
    + chunk(2, b"a message")
    + client(b"a", user=b"name")
    + client(b"b", 3600)
    + client(b"ends with its connection", 0)
    + subscription(b"ends with its connection", b"x")
    + subscription(b"a", b"t", 0)
)


def test_a_database_of_mosquitto(tmp_path: Path) -> None:
    file = tmp_path / "mosquitto.db"
    file.write_bytes(WHOLE)
    assert rows(read_mosquitto(file)) == {"a": ({"ü/#": 2, "t": 0}, None), "b": ({}, 3600)}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "offset 0: no database file of Mosquitto"),
        (b"SQLite format 3\0" + bytes(100), "offset 0: no database file of Mosquitto"),
        (MAGIC + struct.pack(">II", 0, 5), "offset 19: version 5; Mosquitto 2 writes version 6"),
        (HEADER + b"\0\0\0", "offset 23: the file ends in a chunk"),
        (HEADER + chunk(9, b""), "offset 23: chunk of unknown kind 9"),
        (HEADER + struct.pack(">II", 5, 1 << 31), "offset 31: the file ends in a chunk of 2147483648 bytes"),
        (HEADER + chunk(CLIENT, b"x"), "offset 31: a client of 1 bytes"),
        (HEADER + chunk(SUBSCRIPTION, b"x"), "offset 31: a subscription of 1 bytes"),
        (HEADER + client(b"") + client(b"a"), "offset 31: '' is no client identifier"),
        (HEADER + subscription(b"a", b"a/#/b"), "offset 31: filter 'a/#/b'"),
        (HEADER + subscription(b"a", b"a", 3), "offset 31: QoS 3: expected 0, 1 or 2"),
        (HEADER + subscription(b"a", b"\xff"), "offset 31: a name that is no UTF-8"),
        (
            HEADER + chunk(CLIENT, struct.pack(">8xIHHHH4x", 1, 1, 9, 1, 0) + b"abc"),
            "offset 31: texts of 9 and 0 bytes in 3 bytes",
        ),
    ],
)
def test_what_is_no_database_of_mosquitto(tmp_path: Path, raw: bytes, text: str) -> None:
    file = tmp_path / "mosquitto.db"
    file.write_bytes(raw)
    with pytest.raises(SourceError) as refused:
        read_mosquitto(file)
    assert f"{file}: {text}" in str(refused.value)


@given(st.integers(0, len(WHOLE)), st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))))
def test_a_damaged_database_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, length: int, changes: list[tuple[int, int]]
) -> None:
    raw = bytearray(WHOLE)
    for place, value in changes:
        raw[place] = value
    file = tmp_path_factory.getbasetemp() / "damaged.db"
    file.write_bytes(raw[:length])
    with contextlib.suppress(SourceError):  # any other error fails
        read_mosquitto(file)


def test_a_file_that_mosquitto_has_written(broker_factory: Callable[..., Broker]) -> None:
    broker = broker_factory("mosquitto", persistence=True)
    for client_id, topic_filter in (("away", "plant/+/temp"), ("other", "x")):
        with PahoClient(broker.address, client_id, clean=False) as session:
            session.subscribe((topic_filter, 1))
    broker.stop()
    assert rows(read_mosquitto(broker.directory / "mosquitto.db")) == {
        "away": ({"plant/+/temp": 1}, None),
        "other": ({"x": 1}, None),
    }


# lines --------------------------------------------------------------------------------------------


def test_lines(tmp_path: Path) -> None:
    file = tmp_path / "sessions.csv"
    file.write_text('client,filter,qos\na,x/#,1\n"b,c",y,0\na,x/#,2\n\nnothing,,\n', encoding="utf-8-sig")
    assert rows(read_table(file)) == {"a": ({"x/#": 2}, None), "b,c": ({"y": 0}, None), "nothing": ({}, None)}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a,x,1\na,y\n", "line 2: expected client,filter,qos, found 2 fields"),
        (b"a,x,one\n", "line 1: QoS 'one': expected 0, 1 or 2"),
        (b"a,x,3\n", "line 1: QoS '3': expected 0, 1 or 2"),
        (b"a,x,1\n,y,1\n", "line 2: '' is no client identifier"),
        (b"a,x,1\n\nb,+x,1\n", "line 3: filter '+x'"),
        (b"a,x,1\nb,\xff,1\n", "line 2: no UTF-8"),
        (b'a,"x"y,1\n', "line 1: "),
    ],
)
def test_wrong_lines(tmp_path: Path, raw: bytes, text: str) -> None:
    file = tmp_path / "sessions.csv"
    file.write_bytes(raw)
    with pytest.raises(SourceError) as refused:
        read_table(file)
    assert f"{file}: {text}" in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none\.csv: cannot be read: No such file"):
        read_table(tmp_path / "none.csv")


@pytest.mark.parametrize("bound", ["MAX_SESSIONS", "MAX_FILTERS"])
def test_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(bounds, bound, 2)
    file = tmp_path / "sessions.csv"
    file.write_text("a,x,1\nb,y,1\nc,z,1\n")
    with pytest.raises(SourceError, match="line 3: more than 2"):
        read_table(file)


# RabbitMQ -----------------------------------------------------------------------------------------


def queue(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "arguments": {}, "auto_delete": False, "exclusive": False, **more}


def binding(name: str, key: str, source: str = "amq.topic") -> dict[str, Any]:
    return {"source": source, "destination": name, "routing_key": key}


class Management:
    """Answers as RabbitMQ's management API does."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.seen: list[tuple[str, str | None]] = []
        management = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                management.seen.append((self.path, self.headers["Authorization"]))
                status, body = management.answers.get(self.path, (404, b"{}"))
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", body.decode())
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing is logged."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def says(self, queues: list[Any], bindings: list[Any], vhost: str = "%2F") -> None:
        self.answers[f"/api/queues/{vhost}"] = 200, json.dumps(queues).encode()
        self.answers[f"/api/bindings/{vhost}"] = 200, json.dumps(bindings).encode()


@pytest.fixture
def management() -> Iterator[Management]:
    found = Management()
    thread = threading.Thread(target=found.server.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


def test_queues_of_rabbitmq(management: Management) -> None:
    a, zero, other = (f"mqtt-subscription-{name}" for name in ("aqos1qos1", "aqos1qos0", "bqos0"))
    management.says(
        [
            queue(a, arguments={"x-expires": 86_400_500}),
            queue(zero, auto_delete=True),
            queue(other, auto_delete=True),
            queue("mqtt-subscription-cqos1", exclusive=True),
            queue("a queue of AMQP"),
        ],
        [
            binding(a, a, source=""),
            binding(a, "x.*.#"),
            binding(zero, "zero"),
            binding(other, "other"),
            binding("mqtt-subscription-cqos1", "clean"),
            binding("a queue of AMQP", "x"),
        ],
        "plant%2F1",
    )
    found = rows(read_rabbitmq(management.url, "plant/1", "guest", "secret"))
    assert found == {"aqos1": ({"x/+/#": 1, "zero": 0}, 86401)}
    assert {each[1] for each in management.seen} == {"Basic Z3Vlc3Q6c2VjcmV0"}


def test_filters_of_routing_keys() -> None:
    filters = {"a.*.b": "a/+/b", "a*.#": "a*/#", "*": "+", ".a": "/a"}
    assert {key: filter_of(key) for key in filters} == filters


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((401, b"{}"), "status 401: wrong user or password"),
        ((404, b"{}"), "status 404: no such virtual host"),
        ((302, b"http://127.0.0.1:9/"), "status 302"),
        ((200, b"<html>"), "no JSON"),
        ((200, b"{}"), "no list"),
        ((200, b"[1]"), "queue 0: no name"),
        ((200, b'[{"name": "mqtt-subscription-aqos1"}]'), "queue 0: no arguments"),
        (
            (200, b'[{"name": "mqtt-subscription-aqos1", "arguments": {"x-expires": "x"}}]'),
            "queue 0: x-expires is no time",
        ),
    ],
)
def test_what_is_no_rabbitmq(management: Management, answer: tuple[int, bytes], text: str) -> None:
    management.answers["/api/queues/%2F"] = answer
    with pytest.raises(SourceError) as refused:
        read_rabbitmq(management.url, "/", "guest", "secret")
    assert text in str(refused.value)
    assert "secret" not in str(refused.value)


def test_rabbitmq_that_does_not_answer() -> None:
    with pytest.raises(SourceError, match="/api/queues/%2F: no answer: Connection refused"):
        read_rabbitmq(f"http://127.0.0.1:{free_port()}", "/", "guest", "secret")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "127.0.0.1:15672", "http://guest:secret@127.0.0.1"])
def test_addresses_that_are_none_of_rabbitmq(url: str) -> None:
    with pytest.raises(SourceError, match="expected http://HOST:PORT") as refused:
        read_rabbitmq(url, "/", "guest", "secret")
    assert "secret" not in str(refused.value)
