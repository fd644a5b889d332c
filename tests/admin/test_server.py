from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ildm.admin import server
from ildm.admin.server import BODY_LIMIT, AdminServer
from ildm.admin.view import AdminError, UnknownError
from ildm.config import Address
from ildm.config.watching import AdminConfig
from ildm.core.counters import Counters
from ildm.unix_socket import socket_inode
from tests.admin.fake_node import REFUSED, FakeView


class Api:
    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http

    async def __call__(
        self, method: str, path: str, body: Any = None, raw: bytes | None = None
    ) -> tuple[int, Any]:
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        async with self.http.request(method, f"http://node{path}", data=data) as response:
            return response.status, await response.json()


@pytest.fixture
def fake() -> FakeView:
    return FakeView()


@pytest.fixture
async def api(fake: FakeView, socket_path: Path) -> AsyncIterator[Api]:
    server = AdminServer(fake, socket_path, AdminConfig(), Counters())
    await server.start()
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket_path))) as http:
        yield Api(http)
    await server.stop()
    assert socket_inode(socket_path) is None


async def test_what_the_view_says(api: Api, fake: FakeView) -> None:
    assert await api("GET", "/v1/status") == (200, fake.status())
    assert await api("GET", "/v1/algorithm") == (200, fake.algorithm())
    assert await api("GET", "/v1/internals") == (200, fake.internals())
    assert await api("GET", "/v1/neighbors") == (200, {"total": 1, "items": fake.rows})
    assert await api("GET", "/v1/neighbors/refused") == (200, {"total": 1, "items": [REFUSED]})
    assert await api("GET", "/v1/clients") == (200, {"total": 2, "items": fake.clients()})
    assert await api("GET", "/v1/subscriptions") == (200, {"total": 5, "items": fake.subscriptions()})


async def test_the_overlay(api: Api, fake: FakeView) -> None:
    assert await api("GET", "/v1/overlay") == (200, fake.overlay().model_dump(mode="json"))
    status, tree = await api("GET", "/v1/overlay/trace?topic=a%2Fb%20c")
    assert (status, tree["topic"], len(tree["trees"])) == (200, "a/b c", 3)
    assert await api("GET", "/v1/overlay/trace") == (400, {"error": "topic: is missing"})
    broken = {"error": "algorithm sf failed in trace"}
    assert await api("GET", "/v1/overlay/trace?topic=broken") == (409, broken)
    fake.without_overlay = True
    assert await api("GET", "/v1/overlay") == (409, {"error": "algorithm sf has no overlay"})


async def test_an_overlay_that_does_not_answer(fake: FakeView, socket_path: Path) -> None:
    fake.silent = True
    server = AdminServer(fake, socket_path, AdminConfig(), Counters(), trace_timeout=0.01)
    await server.start()
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket_path))) as http:
        status, answer = await Api(http)("GET", "/v1/overlay/trace?topic=a")
    await server.stop()
    assert (status, answer) == (504, {"error": "the overlay gave no answer on 'a' within 0.01 s"})


@pytest.mark.parametrize(
    ("query", "rows"), [("limit=2", [0, 1]), ("limit=2&offset=3", [3, 4]), ("offset=9", []), ("limit=0", [])]
)
async def test_pages(api: Api, fake: FakeView, query: str, rows: list[int]) -> None:
    status, page = await api("GET", f"/v1/subscriptions?{query}")
    assert (status, page["total"]) == (200, 5)
    assert page["items"] == [fake.subscriptions()[row] for row in rows]


@pytest.mark.parametrize("query", ["limit=x", "limit=-1", "limit=100001", "offset=1.5", "limit=" + "9" * 40])
async def test_pages_that_cannot_be(api: Api, query: str) -> None:
    status, answer = await api("GET", f"/v1/clients?{query}")
    assert status == 400
    assert answer["error"].startswith(f"{query.partition('=')[0]}: expected a number")


async def test_a_neighbour_comes_and_goes(api: Api, fake: FakeView) -> None:
    status, row = await api("POST", "/v1/neighbors", {"address": "[::1]:1885", "save": False})
    assert (status, row["address"], row["saved"]) == (201, "[::1]:1885", False)
    assert (await api("DELETE", "/v1/neighbors/%5B%3A%3A1%5D%3A1885?save=false"))[0] == 200
    assert (await api("DELETE", "/v1/neighbors/north"))[0] == 200
    assert fake.calls == [
        ("add", Address("::1", 1885), False),
        ("remove", "[::1]:1885", False),
        ("remove", "north", True),
    ]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"address": "nowhere"}, "address: 'nowhere': expected HOST:PORT"),
        ({"address": "h:1", "saved": True}, "saved: unknown key"),
        ({"address": "h:1", "save": "yes"}, "save: "),
        ({}, "address: "),
        ([], "body: "),
    ],
)
async def test_a_neighbour_that_was_not_understood(api: Api, fake: FakeView, body: Any, text: str) -> None:
    status, answer = await api("POST", "/v1/neighbors", body)
    assert status == 400
    assert answer["error"].startswith(text)
    assert fake.calls == []


async def test_sessions_are_imported(api: Api, fake: FakeView) -> None:
    session = {"client_id": "old", "filters": {"a/#": 1, "$SYS/#": 0}}
    status, answer = await api("POST", "/v1/sessions", {"sessions": [session]})
    assert (status, answer) == (200, {"sessions": 1, "filters": 2, "skipped": 0, "unknown": 1})
    assert fake.calls == [("import", [{**session, "expiry": None}])]


async def test_the_adoption_of_sessions_ends(api: Api, fake: FakeView) -> None:
    assert await api("DELETE", "/v1/sessions/adoption") == (200, {"unknown": 2})
    fake.broken = UnknownError("no sessions are being adopted")
    assert await api("DELETE", "/v1/sessions/adoption") == (404, {"error": "no sessions are being adopted"})
    assert fake.calls == [("adopted",)]


async def test_many_sessions_are_one_request(api: Api) -> None:
    sessions = [{"client_id": f"c{number}", "filters": {f"a/{number}": 1}} for number in range(5000)]
    assert (await api("POST", "/v1/sessions", {"sessions": sessions}))[1]["filters"] == 5000


@pytest.mark.parametrize(
    ("session", "text"),
    [
        ({"client_id": "a", "filters": {"a/#/b": 1}}, "sessions.0.filters.a/#/b.[key]: "),
        ({"client_id": "a", "filters": {"a": 3}}, "sessions.0.filters.a: "),
        ({"client_id": "a", "filters": {"a": True}}, "sessions.0.filters.a: "),
        ({"client_id": "", "filters": {}}, "sessions.0.client_id: "),
        ({"client_id": "a"}, "sessions.0.filters: "),
        ({"client_id": "a", "filters": {}, "expiry": 0}, "sessions.0.expiry: "),
        ({"client_id": "a", "filters": {}, "qos": 0}, "sessions.0.qos: unknown key"),
    ],
)
async def test_sessions_that_were_not_understood(api: Api, fake: FakeView, session: Any, text: str) -> None:
    status, answer = await api("POST", "/v1/sessions", {"sessions": [session]})
    assert status == 400
    assert answer["error"].startswith(text)
    assert fake.calls == []


async def test_too_many_filters(api: Api, fake: FakeView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_FILTERS", 2)
    session = {"client_id": "a", "filters": {"a": 1, "b": 1, "c": 1}}
    assert await api("POST", "/v1/sessions", {"sessions": [session]}) == (
        400,
        {"error": "body: 3 filters; 2 at most"},
    )
    assert fake.calls == []


async def test_refusals_of_the_node(api: Api) -> None:
    assert await api("POST", "/v1/neighbors", {"address": "127.0.0.1:1885"}) == (
        409,
        {"error": "127.0.0.1:1885 is a neighbour already"},
    )
    assert await api("DELETE", "/v1/neighbors/nobody") == (404, {"error": "nobody is not a neighbour"})
    status, answer = await api("DELETE", "/v1/neighbors/north?save=maybe")
    assert (status, answer["error"]) == (400, "save: expected true or false, found 'maybe'")


async def test_log_level(api: Api, fake: FakeView) -> None:
    assert await api("PUT", "/v1/log-level", {"level": "debug"}) == (200, {"level": "debug"})
    status, answer = await api("PUT", "/v1/log-level", {"level": "loud"})
    assert status == 400
    assert "'debug', 'info', 'warning' or 'error'" in answer["error"]
    assert fake.calls == [("level", "debug")]


async def test_stop(api: Api, fake: FakeView) -> None:
    assert await api("POST", "/v1/stop") == (202, {"stopping": True})
    assert fake.calls == [("stop",)]


async def test_what_is_no_request(api: Api) -> None:
    assert (await api("POST", "/v1/neighbors", raw=b"{"))[0] == 400
    assert await api("GET", "/v1/nothing") == (404, {"error": "GET /v1/nothing: Not Found"})
    assert await api("PUT", "/v1/status", {}) == (405, {"error": "PUT /v1/status: Method Not Allowed"})
    status, answer = await api("POST", "/v1/neighbors", raw=b" " * (BODY_LIMIT + 1))
    assert status == 413
    assert "error" in answer


async def test_a_fault_of_ours_is_told_and_survived(api: Api, fake: FakeView) -> None:
    fake.broken = KeyError("inner detail")
    status, answer = await api("GET", "/v1/status")
    assert (status, answer) == (500, {"error": "internal error: KeyError; see the node's log"})
    fake.broken = None
    assert (await api("GET", "/v1/status"))[0] == 200


async def test_a_second_server_is_refused_and_leaves_the_first_alone(
    api: Api, fake: FakeView, socket_path: Path
) -> None:
    second = AdminServer(fake, socket_path, AdminConfig(), Counters())
    with pytest.raises(AdminError, match="is this node started twice"):
        await second.start()
    await second.stop()
    assert (await api("GET", "/v1/status"))[0] == 200


async def test_stop_without_start_and_twice(fake: FakeView, socket_path: Path) -> None:
    server = AdminServer(fake, socket_path, AdminConfig(), Counters())
    await server.stop()
    await server.start()
    await server.stop()
    await server.stop()
    await server.start()
    await server.stop()


async def test_real_messages_are_traced_as_it_is_asked(api: Api, fake: FakeView) -> None:
    body = {"filter": "a/#", "seconds": 5}
    assert await api("POST", "/v1/traces", body) == (201, {"name": "one"})
    assert await api("POST", "/v1/traces", {**body, "messages": 7, "one_in": 9}) == (201, {"name": "one"})
    status, found = await api("GET", "/v1/traces/one")
    assert (status, found["left_out"]) == (200, 3)
    assert (await api("DELETE", "/v1/traces/one"))[1]["over"] is True
    assert await api("GET", "/v1/traces/two") == (404, {"error": "there is no trace 'two' (any more)"})
    assert fake.calls[:2] == [("watch", "a/#", 5.0, 100, 1), ("watch", "a/#", 5.0, 7, 9)]
    for wrong in (
        {"filter": "a/#/b"}, {"filter": "$SYS/#"}, {"seconds": 0}, {"seconds": 601}, {"messages": 0},
        {"messages": 1001}, {"one_in": 0}, {"payload": True},
    ):  # fmt: skip
        status, answer = await api("POST", "/v1/traces", body | wrong)
        assert status == 400
        assert next(iter(wrong)) in answer["error"]


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nA: " + b"b" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\n",
    ],
)
async def test_what_is_no_http_does_not_fill_the_log(
    api: Api, socket_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    reader, writer = await asyncio.open_unix_connection(socket_path)
    writer.write(sent)
    async with asyncio.timeout(120):
        assert (await reader.read()).startswith(b"HTTP/1.0 400 ")
    writer.close()
    assert caplog.records == []
    logging.getLogger("ildm.http").error("of a handler")  # what is our own fault is still said
    assert [each.message for each in caplog.records] == ["of a handler"]


async def test_a_caller_that_goes_in_the_middle_of_a_body_is_no_error_of_the_node(
    api: Api, socket_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = await asyncio.open_unix_connection(socket_path)
    writer.write(
        b"POST /v1/neighbors HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 99\r\n\r\n"
    )
    async with asyncio.timeout(120):
        assert b" 100 " in await reader.readline()  # the handler waits for the rest
    writer.transport.abort()
    await api("GET", "/v1/status")
    assert "admin request failed" not in capsys.readouterr().err


async def test_who_connects_and_says_nothing_is_ended_and_keeps_nobody_out(
    fake: FakeView, socket_path: Path
) -> None:
    counters = Counters()
    server = AdminServer(fake, socket_path, AdminConfig(connections=8, idle=0.4), counters)
    await server.start()
    silent = [await asyncio.open_unix_connection(str(socket_path)) for _ in range(20)]
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket_path))) as http:
        assert (await Api(http)("GET", "/v1/status"))[0] == 200  # there is room for it
        async with asyncio.timeout(120):
            for reader, _ in silent:
                assert await reader.read() == b""
        assert counters["admin_connections_idle"] + counters["admin_connections_refused"] >= 20
        assert (await Api(http)("GET", "/v1/status"))[0] == 200
    for _, writer in silent:
        writer.close()
    await server.stop()


async def test_who_never_ends_the_body_of_a_request_keeps_nobody_out(
    fake: FakeView, socket_path: Path
) -> None:
    server = AdminServer(fake, socket_path, AdminConfig(connections=2, idle=0.4), Counters())
    await server.start()
    slow = [await asyncio.open_unix_connection(str(socket_path)) for _ in range(2)]
    async with asyncio.timeout(120):
        for _, writer in slow:
            writer.write(b"POST /v1/bans HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
        for reader, _ in slow:
            assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket_path))) as http:
            assert (await Api(http)("GET", "/v1/status"))[0] == 200
    for _, writer in slow:
        writer.close()
    await server.stop()


async def test_a_connection_too_many_beside_busy_ones_is_not_taken(
    fake: FakeView, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters, asked = Counters(), []
    monkeypatch.setattr(fake, "problems", asked.append)  # no answer until it is asked for
    server = AdminServer(fake, socket_path, AdminConfig(connections=1), counters)
    await server.start()
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket_path))) as http:
        busy = asyncio.create_task(Api(http)("GET", "/v1/health"))
        async with asyncio.timeout(120):
            while not asked:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_unix_connection(str(socket_path))
        async with asyncio.timeout(120):
            assert await reader.read() == b""
        writer.close()
        assert counters["admin_connections_refused"] == 1
        asked[0]([])
        assert await busy == (200, {"ready": True, "problems": [], "warnings": []})
    await server.stop()
