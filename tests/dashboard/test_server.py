"""The server of the dashboard over nodes with real brokers: who gets what, and what it says."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ildm.admin.client import AdminClient
from ildm.net.dashboard.auth import ATTEMPTS, HEADER
from ildm.net.dashboard.server import CONNECTIONS, HEADERS
from ildm.net.dashboard.stream import READERS, Reader
from tests.dashboard.conftest import Sites
from tests.dashboard.visitor import LISTENING, WRITING, Visitor, dashboard, stranger, token_of, visitor
from tests.net.transport.pki import Pki
from tests.sites.client import until
from tests.sites.site import Site
from tests.support.ports import LOOPBACK

API = (
    "/events",
    "/api/snapshot",
    "/api/clients",
    "/api/subscriptions",
    "/api/retained",
    "/api/neighbors",
    "/api/history",
    "/api/overlay",
    "/api/traces/1",
    "/no-such",
)
POSTS = ("/login", "/logout", "/api/traces", "/api/kick", "/api/neighbors", "/api/neighbors/remove")


@pytest.fixture
async def site(sites: Sites) -> Site:
    return await sites.make("mosquitto", "sf", **LISTENING)


def counter(site: Site, name: str) -> int:
    return site.node.counters[f"dashboard_{name}"]


# who may look -----------------------------------------------------------------------------------------


async def test_a_stranger_gets_the_page_and_nothing_else(site: Site) -> None:
    async with stranger(site) as visitor:
        status, page = await visitor.get("/")
        assert status == 200
        assert site.name not in page
        for path in API:
            status, answer = await visitor.get(path)
            assert (path, status) == (path, 401)
            assert "log in" in answer["error"]
        assert (await visitor.post("/api/traces", {"topic": "a"}))[0] == 401
        assert counter(site, "requests_refused") == len(API) + 1


async def test_the_token_opens_it_until_the_logout(site: Site) -> None:
    async with stranger(site) as visitor:
        await visitor.log_in(token_of(site))
        cookies = list(visitor.http.cookie_jar)
        assert [cookie["httponly"] for cookie in cookies] == [True]
        assert [cookie["samesite"] for cookie in cookies] == ["Strict"]
        assert token_of(site) not in cookies[0].value
        assert (await visitor.get("/api/snapshot"))[0] == 200
        held = {cookie.key: cookie.value for cookie in cookies}
        assert await visitor.post("/logout") == (204, "")
        assert (await visitor.get("/api/snapshot"))[0] == 401
        visitor.http.cookie_jar.update_cookies(held)
        assert (await visitor.get("/api/snapshot"))[0] == 401


async def test_wrong_tokens_are_refused_and_then_not_even_read(site: Site) -> None:
    async with stranger(site) as visitor:
        for _ in range(ATTEMPTS):
            assert (await visitor.post("/login", {"token": "x" * 43}))[0] == 401
        status, answer = await visitor.post("/login", {"token": token_of(site)})
        assert status == 429
        assert "too many wrong tokens" in answer["error"]
        assert counter(site, "logins_refused") == ATTEMPTS + 1
    assert "x" * 43 not in str(site.server.driver.history.rows())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"token": 1}', b'{"token": "a", "b": 1}', b"\xff" * 10])
async def test_a_login_that_is_not_understood(site: Site, body: bytes) -> None:
    async with stranger(site) as visitor:
        assert (await visitor.post("/login", body))[0] == 400
        assert (await visitor.post("/login", b"[" + b"[" * 20_000))[0] in (400, 413)


async def test_other_pages_cannot_use_the_login(site: Site) -> None:
    """Neither by a form, nor by a script, nor by a name of theirs that leads here."""
    async with visitor(site) as held:
        own = {"Origin": held.base, HEADER: "1"}
        for headers in (
            {},
            {HEADER: "1"},
            {"Origin": held.base},
            {**own, "Origin": "https://evil.example"},
            {**own, "Origin": "null"},
            {**own, "Origin": f"http://{LOOPBACK}:1"},
        ):
            for path in POSTS:
                assert (await held.post(path, {}, headers))[0] == 403
        for path in (*API, "/"):
            assert (await held.get(path, Host="evil.example"))[0] == 421
            assert (await held.get(path, Host=f"evil.example:{dashboard(site).port}"))[0] == 421
        assert (await held.get("/api/snapshot", Host="localhost"))[0] == 200


async def test_every_answer_has_the_headers_that_guard_it(site: Site) -> None:
    async with visitor(site) as held:
        for path in ("/", "/api/snapshot", "/api/nothing", "/api/overlay", "/events"):
            async with held.http.get(held.base + path) as response:
                assert {name: response.headers[name] for name in HEADERS} == HEADERS
                assert "Access-Control-Allow-Origin" not in response.headers
                assert response.headers["Cache-Control"] == ("no-cache" if path == "/" else "no-store")
        async with held.http.get(held.base + "/") as response:
            tag = response.headers["ETag"]
        assert await held.get("/", **{"If-None-Match": tag}) == (304, "")
        assert "unsafe" not in HEADERS["Content-Security-Policy"]


async def test_tls_makes_the_cookie_secure(sites: Sites, pki: Pki) -> None:
    site = await sites.make(
        "mosquitto", None, dashboard={"listen": f"{LOOPBACK}:0", "tls": pki.server("dashboard")}
    )
    connector = aiohttp.TCPConnector(ssl=pki.trusting())
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        held = Visitor(http, dashboard(site).port, "https")
        await held.log_in(token_of(site))
        (cookie,) = http.cookie_jar
        assert cookie["secure"] is True
        assert cookie.key.startswith("__Host-")
        status, answer = await held.get("/api/snapshot")
        assert status == 200
        assert answer["snapshot"]["algorithm"] is None


# what it says -----------------------------------------------------------------------------------------


async def test_the_snapshot_says_what_is_so(sites: Sites, topic_root: str) -> None:
    here, there = await sites.row(["mosquitto"] * 2, "sf", **LISTENING)
    client = await here.connect("c-1")
    await client.subscribe((f"{topic_root}/#", 1))
    async with visitor(here) as held:
        status, answer = await held.get("/api/snapshot")
    assert status == 200
    found = answer["snapshot"]
    assert (found["node_id"], found["clients"], found["problems"]) == (here.name, 1, [])
    assert found["broker"]["connected"] is True
    (row,) = found["neighbors"]
    assert (row["node_id"], row["state"]) == (there.name, "active")
    assert answer["graph"]["edges"] == [[*sorted((here.name, there.name)), True]]
    assert answer["graph"]["node"] == here.name
    assert answer["write"] is False


async def test_what_is_down_is_said_with_its_reason(sites: Sites) -> None:
    broker = await sites.own_broker("mosquitto")
    here = await sites.make(broker, "sf", **LISTENING)
    there = await sites.make("mosquitto", "sf", **LISTENING)
    far = await sites.make(sites.shared_broker("mosquitto", 1), "sf", **LISTENING)
    here.add(there)
    there.add(far)
    await until(lambda: here.is_joined(there) and there.is_joined(far))
    await until(lambda: len(here.node.links.membership.topology.graph()) == 2)  # type: ignore[attr-defined]
    async with visitor(here) as held:
        graph = (await held.get("/api/snapshot"))[1]["graph"]
        assert len(graph["edges"]) == 2
        await there.stop()
        broker.kill()

        def problems(answer: Any) -> dict[str, Any]:
            return {each["kind"]: each for each in answer["snapshot"]["problems"]}

        answer = await held.wait_for(
            "/api/snapshot", lambda told: {"broker", "neighbor", "site"} <= set(problems(told))
        )
        found = problems(answer)
    assert [far.name, there.name] in answer["graph"]["gone"]
    assert found["broker"]["state"] == "down"
    assert found["broker"]["reason"]
    assert found["broker"]["since"] > here.node.started_at
    assert found["neighbor"]["name"] == there.name
    assert found["neighbor"]["reason"]
    assert found["neighbor"]["since"] >= here.node.started_at
    assert found["site"]["name"] == far.name
    assert {each["grade"] for each in found.values()} == {"bad"}


async def test_what_was_dropped_lately_is_a_problem(sites: Sites, topic_root: str) -> None:
    options = {**LISTENING, "link": {"queue_messages": 5}, "spool": {"mode": "off"}}
    here = await sites.make("mosquitto", "pf", **options)
    there = await sites.make(sites.shared_broker("mosquitto", 1), "pf")
    here.add(there)
    await until(lambda: here.is_joined(there))
    async with visitor(here) as held:
        assert (await held.get("/api/snapshot"))[1]["snapshot"]["drops"] == []
        await there.stop()
        client = await here.connect()
        await client.publish_all(f"{topic_root}/a", [b"x"] * 50)
        await client.publish(f"{topic_root}/b", b"", 1)
        told = (await held.get("/api/snapshot"))[1]["snapshot"]
    (drop,) = [each for each in told["drops"] if each["qos"] == "0"]
    assert (drop["where"], drop["reason"]) == ("link", "overflow")
    assert drop["messages"] >= 40
    (found,) = [each for each in told["problems"] if each["kind"] == "messages"]
    assert "within the last minute" in found["reason"]
    assert [each["kind"] for each in told["problems"]] == ["neighbor", "messages"]


async def test_the_stream_tells_it_each_second(sites: Sites, topic_root: str) -> None:
    here, _ = await sites.row(["mosquitto"] * 2, "pf", **LISTENING)
    async with visitor(here) as held:
        (first, whole), (second, news) = await held.events(2)
        assert (first, second) == ("whole", "news")
        assert whole["graph"]["edges"]
        assert news["snapshot"]["time"] > whole["snapshot"]["time"]
        assert news["snapshot"].keys() == whole["snapshot"].keys()
        assert len(news["sample"]) == len(whole["columns"])
        assert dashboard(here).stream.samples
    await until(lambda: dashboard(here).stream.readers == 0)


async def test_readers_are_bounded_and_counted(site: Site) -> None:
    stream = dashboard(site).stream
    async with visitor(site) as held, AsyncExitStack() as stack:
        for _ in range(READERS):
            await stack.enter_async_context(held.http.get(f"{held.base}/events"))
        assert stream.readers == READERS
        status, answer = await held.get("/events")
        assert status == 503
        assert "as many pages" in answer["error"]
        assert counter(site, "readers_refused") == 1
        assert (await held.get("/api/snapshot"))[0] == 200


async def test_a_reader_that_is_too_slow_misses_events_and_holds_no_more(site: Site) -> None:
    stream = dashboard(site).stream
    reader = stream.join()
    assert reader.offer("b")
    assert not reader.offer("c")
    assert [await reader.next(), await reader.next()] == ["b", "c"]
    reader.behind = True
    stream._look()
    stream._look()
    assert (await reader.next() or "").startswith("event: whole")
    assert (await reader.next() or "").startswith("event: news")
    stream._look()
    stream._look()
    stream._look()
    assert reader.behind
    assert counter(site, "events_skipped") == 1
    stream.leave(reader)
    assert isinstance(reader, Reader)


async def test_connections_that_say_nothing_give_way(site: Site) -> None:
    server = dashboard(site)
    writers = []
    for _ in range(CONNECTIONS):
        _, writer = await asyncio.open_connection(LOOPBACK, server.port)
        writer.write(b"GET / HTTP/1.1\r\n")
        writers.append(writer)
    assert server._runner is not None
    web_server = server._runner.server
    assert web_server is not None
    await until(lambda: len(web_server.connections) == CONNECTIONS)
    async with visitor(site) as held:
        assert (await held.get("/api/snapshot"))[0] == 200
    for writer in writers:
        writer.close()


# tables -----------------------------------------------------------------------------------------------


async def test_clients_and_subscriptions_are_found_page_by_page(site: Site, topic_root: str) -> None:
    clients = [await site.connect(f"Meter-{number}") for number in range(3)]
    for number, client in enumerate(clients):
        await client.subscribe(*((f"{topic_root}/{number}/{each}", 1) for each in range(4)))
    await clients[0].subscribe((f"$share/g/{topic_root}/+/3", 0))
    async with visitor(site) as held:
        found, cursor = [], ""
        while cursor is not None:
            status, page = await held.get(f"/api/subscriptions?limit=5&cursor={cursor}")
            assert status == 200
            assert len(page["items"]) <= 5
            assert page["total"] == 13
            found += page["items"]
            cursor = page["cursor"]
        assert len({(row["filter"], row["source"]) for row in found}) == len(found) == 13
        _, page = await held.get("/api/subscriptions?q=METER-1")
        assert {row["source"] for row in page["items"]} == {"client Meter-1"}
        _, page = await held.get(f"/api/subscriptions?topic={topic_root}/2/3")
        assert sorted(row["filter"] for row in page["items"]) == [
            f"$share/g/{topic_root}/+/3",
            f"{topic_root}/2/3",
        ]
        _, page = await held.get("/api/clients?q=meter&limit=2")
        assert [row["client_id"] for row in page["items"]] == ["Meter-0", "Meter-1"]
        assert page["items"][0]["subscriptions"] == 5
        _, page = await held.get(f"/api/clients?q=meter&limit=2&cursor={page['cursor']}")
        assert [row["client_id"] for row in page["items"]] == ["Meter-2"]
        assert page["cursor"] is None
        for wrong in ("limit=201", "limit=-1", "limit=x", "cursor=x", "cursor=1.2.3", "topic=a%23/%2B"):
            assert (await held.get(f"/api/subscriptions?{wrong}"))[0] == 400


async def test_retained_messages_and_events(site: Site, topic_root: str) -> None:
    client = await site.connect("retaining")
    for number in range(3):
        await client.publish(f"{topic_root}/{number}", b"value", 1, retain=True)
    async with visitor(site) as held:
        _, page = await held.get(f"/api/retained?filter={topic_root}/%2B&limit=2")
        assert [row["topic"] for row in page["items"]] == [f"{topic_root}/0", f"{topic_root}/1"]
        _, page = await held.get(f"/api/retained?filter={topic_root}/2")
        assert [row["size"] for row in page["items"]] == [5]
        assert (await held.get("/api/retained?filter=a%23"))[0] == 400
        _, page = await held.get("/api/history?q=RETAINING&limit=1")
        (row,) = page["items"]
        assert (row["event"], row["fields"]["client_id"]) == ("client connected", "retaining")
        _, page = await held.get(f"/api/history?limit=200&before={row['number']}")
        assert all(each["number"] < row["number"] for each in page["items"])


async def test_a_search_lets_others_have_their_turn(site: Site) -> None:
    """100,000 filters: the loop is never held for 10 ms of its own time by them."""
    client = await site.connect("holder")
    record = site.node.clients.records["holder"]
    record.filters.update({f"plant/{number}/temperature": 1 for number in range(100_000)})
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with visitor(site) as held:
        task = asyncio.create_task(others())
        status, page = await held.get("/api/subscriptions?q=nothing-has-this")
        task.cancel()
        assert (status, page["items"], page["cursor"]) == (200, [], None)
        assert page["looked_at"] == page["total"] == 100_000
        _, page = await held.get("/api/subscriptions?q=plant/99999")
        assert [row["filter"] for row in page["items"]] == ["plant/99999/temperature"]
    assert turns > 5
    record.filters.clear()
    await client.disconnect()


async def test_an_overlay_is_shown_by_its_keys(sites: Sites, topic_root: str) -> None:
    here, there = await sites.row(["mosquitto"] * 2, "sg_tbps", **LISTENING)
    client = await here.connect()
    await client.subscribe((f"{topic_root}/a", 0))
    async with visitor(here) as held:
        page = await held.wait_for(
            f"/api/overlay?q={topic_root}",
            lambda page: page.get("items") and page["items"][0]["levels"],
        )
        assert page["node"] == here.name
        assert topic_root in page["items"][0]["key"]
        assert page["total"] >= page["found"] >= 1
    async with visitor(there) as held:
        assert (await held.get("/api/snapshot"))[1]["graph"]["topology"] == "any"


async def test_a_trace_is_begun_and_its_result_fetched(sites: Sites, topic_root: str) -> None:
    here, there = await sites.row(["mosquitto"] * 2, "sf", **LISTENING)
    subscriber = await there.connect()
    await subscriber.subscribe((f"{topic_root}/a", 0))
    await until(lambda: f"{topic_root}/a" in here.link(there).interest)
    async with visitor(here) as held:
        status, begun = await held.post("/api/traces", {"topic": f"{topic_root}/a"})
        assert status == 202
        found = await held.wait_for(f"/api/traces/{begun['id']}", lambda trace: trace["state"] != "running")
        assert found["state"] == "done"
        assert [hop["node"] for hop in found["result"]["hops"]] == [here.name, there.name]
        assert (await held.get("/api/traces/unknown"))[0] == 404
        assert (await held.post("/api/traces", {"topic": "a/#"}))[0] == 400
        assert (await held.post("/api/traces", {"topic": "$SYS/a"}))[0] == 409


# changes ----------------------------------------------------------------------------------------------


async def test_without_write_nothing_can_be_changed(site: Site) -> None:
    client = await site.connect("stays")
    async with visitor(site) as held:
        for path, body in (
            ("/api/kick", {"client_id": "stays"}),
            ("/api/neighbors", {"address": f"{LOOPBACK}:1"}),
            ("/api/neighbors/remove", {"target": "x"}),
        ):
            status, answer = await held.post(path, body)
            assert status == 403
            assert "dashboard.write is false" in answer["error"]
    await client.publish("a", b"", 1)
    assert not site.node.links.neighbors


async def test_clients_are_ended_and_neighbours_changed(sites: Sites) -> None:
    here = await sites.make("mosquitto", "sf", **WRITING)
    there = await sites.make(sites.shared_broker("mosquitto", 1), "sf")
    client = await here.connect("a/ö\u202e<b>")
    async with visitor(here) as held:
        assert await held.post("/api/kick", {"client_id": "a/ö\u202e<b>"}) == (
            200,
            {"client_id": "a/ö\u202e<b>", "ended": 1},
        )
        await client.wait_closed()
        assert (await held.post("/api/kick", {"client_id": "nobody"}))[0] == 404
        status, row = await held.post("/api/neighbors", {"address": str(there.link_address)})
        assert (status, row["saved"]) == (201, True)
        await until(lambda: here.is_joined(there))
        assert (await held.post("/api/neighbors", {"address": str(there.link_address)}))[0] == 409
        assert (await held.post("/api/neighbors", {"address": "nowhere"}))[0] == 400
        status, row = await held.post("/api/neighbors/remove", {"target": there.name})
        assert (status, row["state"]) == (200, "removed")
        assert (await held.get("/api/snapshot"))[1]["write"] is True
    rows = await asyncio.to_thread(AdminClient(here.config.admin_socket).neighbors)
    assert rows.items == []


async def test_a_token_that_others_can_read_stops_the_start(sites: Sites, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("x" * 43)
    file.chmod(0o644)
    options = {"dashboard": {"listen": f"{LOOPBACK}:0", "token_file": str(file)}}
    site = sites.prepare(sites.shared_broker("mosquitto"), None, **options)
    sites.all.remove(site)
    with pytest.raises(Exception, match="can be read by others"):
        await site.start()
