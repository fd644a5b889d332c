"""What a node takes up while it runs, kind by kind, seen from outside where that is where it shows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from ildm.core.link.hello import link_key
from ildm.core.plugin.loading import PluginSpecs
from ildm.log import get_logger, set_log_level
from ildm.mqtt import (
    Connect,
    Disconnect,
    Framer,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    Version,
    decode,
)
from ildm.net.reload import ReloadError
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.ports import LOOPBACK, free_port
from tests.net.reload.conftest import MakeRig, Rig, until
from tests.net.test_otlp import Collector, collector, message, sent
from tests.net.test_plugin_reload import SPECS

__all__ = ["collector"]


async def test_limits(rig: MakeRig, mosquitto: Mosquitto) -> None:
    """For clients that are connected, and for those that come."""
    node = await rig(mosquitto.address)
    first = await node.talker()
    lines = await node.reload(limits={"clients": 1, "packet_size": 1024, "partial_bytes": 4096})
    assert lines == [
        "limits.clients: 100000 -> 1",
        "limits.packet_size: 16777216 -> 1024",
        "limits.partial_bytes: 134217728 -> 4096",
    ]
    assert await first.lives()
    with pytest.raises(AssertionError, match="reason_code=151"):
        await node.talker()
    await node.reload(limits={"clients": 5})
    await node.talker()
    answer = await first.ask(Publish(topic="t", payload=bytes(2000), qos=1, packet_id=1))
    assert answer == Disconnect(reason_code=0x95)
    assert node.server.node.partials.limit == 4096


async def test_addresses_that_are_exempt(rig: MakeRig, mosquitto: Mosquitto) -> None:
    node = await rig(mosquitto.address)
    before = await node.talker()
    await node.reload(limits={"exempt": [], "per_address": 1})
    await node.talker()
    with pytest.raises((AssertionError, ConnectionError)):
        await node.talker()
    assert node.counted("connections_refused_address_connections") == 1
    assert await before.lives()


async def test_rules_of_publish_hold_for_clients_that_are_connected(
    rig: MakeRig, mosquitto: Mosquitto
) -> None:
    node = await rig(mosquitto.address)
    await node.talker()
    (session,) = node.server.node.sessions
    assert session.may_send("secret/a")
    await node.reload(publish=[{"deny": ["secret/#"], "client_id": session.client_id}])
    assert not session.may_send("secret/a")
    assert session.may_send("other")
    await node.reload(publish=[])
    assert session.may_send("secret/a")


async def test_neighbours_come_and_go_and_that_outlives_what_was_said_at_run_time(rig: MakeRig) -> None:
    one, other = (f"{LOOPBACK}:{free_port()}" for _ in range(2))
    node = await rig(algorithm="sf", link={"listen": f"{LOOPBACK}:0", "neighbors": [one]})
    view, links = node.server.view, node.server.node.links
    assert await node.reload(link={"neighbors": [other]}) == [
        f"- link.neighbors: {one}",
        f"+ link.neighbors: {other}",
    ]
    assert [str(address) for address in links.neighbors] == [other]
    view.remove_neighbor(other, save=True, force=False)
    await node.reload(link={"neighbors": []})
    assert await node.reload(link={"neighbors": [other]}) == [f"+ link.neighbors: {other}"]
    assert [str(address) for address in links.neighbors] == [other]
    await node.server.stop()
    await node.start()
    links = node.server.node.links
    assert [str(address) for address in links.neighbors] == [other]
    [before] = links.neighbors.values()
    await node.reload(link={"neighbors": [{"url": other, "id": "b"}]})
    assert before.gone  # the link is made anew, with what is said of it now
    assert [str(address) for address in links.neighbors] == [other]


async def test_level_and_format_of_the_log(rig: MakeRig, capsys: pytest.CaptureFixture[str]) -> None:
    node = await rig(log={"level": "error", "format": "json"})
    set_log_level("error")
    capsys.readouterr()
    try:
        await node.reload(log={"level": "info"})
        record = json.loads(capsys.readouterr().err.splitlines()[-1])
        assert record["event"] == "configuration reloaded"
        assert record["changes"] == ["log.level: error -> info"]
        await node.reload(log={"format": "console"})
        get_logger("x").info("for people")
        assert not capsys.readouterr().err.splitlines()[-1].startswith("{")
    finally:
        await node.reload(log={"format": "json"})
        set_log_level("info")


async def scraped(port: int, token: str | None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{LOOPBACK}:{port}/metrics", headers=headers) as answer,
    ):
        return answer.status


async def test_where_metrics_are_and_who_may_see_them(rig: MakeRig, tmp_path: Path) -> None:
    node = await rig()
    token, (port, later) = tmp_path / "token", (free_port(), free_port())
    await node.reload(metrics={"listen": port})
    assert await scraped(port, None) == 200
    token.write_text("first")
    await node.reload(metrics={"token_file": str(token)})
    assert [await scraped(port, each) for each in (None, "first")] == [401, 200]
    token.write_text("second")
    lines = await node.reload()
    assert lines == ["metrics.token_file: the secret it held -> the one it holds now"]
    assert [await scraped(port, each) for each in ("first", "second")] == [401, 200]
    await node.reload(metrics={"listen": later})
    assert await scraped(later, "second") == 200
    assert await node.refuses(port)
    await node.reload(metrics={"listen": None})
    assert await node.refuses(later)


async def test_the_password_for_the_broker(rig: MakeRig, tmp_path: Path) -> None:
    """With the next connection that is made."""
    shown: asyncio.Queue[Connect] = asyncio.Queue()

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:

        framer = Framer()
        while data := await reader.read(4096):
            for frame in framer.feed(data):
                packet = decode(frame, Version.V5)
                if isinstance(packet, Connect):
                    shown.put_nowait(packet)
                    writer.write(bytes((0x20, 3, 0, 0x86, 0)))  # bad user name or password
        writer.close()

    password = tmp_path / "password"
    password.write_text("first")
    server = await asyncio.start_server(broker, LOOPBACK, 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        node = await rig(
            algorithm="sf",
            link={"listen": f"{LOOPBACK}:0"},
            broker={
                "address": f"{LOOPBACK}:{port}",
                "username": "u",
                "password_file": str(password),
                "protocol": "5",
                "reconnect_max": 0.2,
            },
        )
        while (await asyncio.wait_for(shown.get(), 30)).password != b"first":
            pass
        password.write_text("second")
        lines = await node.reload(broker={"username": "v"})
        assert lines == [
            "broker.username: u -> v",
            "broker.password_file: the secret it held -> the one it holds now",
        ]
        while (packet := await asyncio.wait_for(shown.get(), 30)).password != b"second":
            pass
        assert packet.username == "v"


async def test_a_link_secret_in_a_file_of_the_same_name(rig: MakeRig, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret of before\n")
    node = await rig(algorithm="sf", link={"listen": f"{LOOPBACK}:0", "secret_file": str(secret)})
    secret.write_text("the secret from now on\n")
    lines = await node.reload()
    assert lines == ["link.secret_file: the secret it held -> the one it holds now"]
    terms = node.server.node.links.terms
    assert (terms.key, terms.former) == (link_key("the secret from now on"), link_key("the secret of before"))


async def test_a_neighbour_that_messages_wait_for_is_not_removed(
    rig: MakeRig, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    listen = f"{LOOPBACK}:{free_port()}"
    broker = {"address": f"{LOOPBACK}:1"}
    other = Rig(tmp_path / "other", node_id="other", broker=broker, algorithm="pf", link={"listen": listen})
    await other.start()
    link = {"listen": f"{LOOPBACK}:0", "neighbors": [listen], "reconnect_min": 0.1}
    node = await rig(mosquitto.address, algorithm="pf", link=link)
    links = node.server.node.links
    await until(lambda: links.cooperation.active)
    await other.stop()
    await until(lambda: links.links and not any(each.connected for each in links.links.values()))
    talker = await node.talker()
    assert isinstance(await talker.ask(Publish(topic="t", payload=b"x", qos=1, packet_id=1)), PubAck)
    with pytest.raises(ReloadError) as caught:
        await node.reload(link={"neighbors": []})
    assert str(caught.value) == (
        f"link.neighbors: messages for {listen} that nobody else may have would be thrown away (1); "
        f"to do so: ildm neighbor remove --force {listen}"
    )
    assert [str(address) for address in links.neighbors] == [listen]
    node.server.view.remove_neighbor(listen, save=True, force=True)
    assert await node.reload() == [f"- link.neighbors: {listen}"]


async def test_options_of_plugins(rig: MakeRig) -> None:
    link = {"listen": f"{LOOPBACK}:0"}
    specs = PluginSpecs(SPECS.algorithm, SPECS.filters)
    node = await rig(plugins=specs, algorithm={"name": "sizing", "size": 1}, filters=["bare"], link=link)
    lines = await node.reload(algorithm={"size": 2})
    assert lines == ["algorithm.options.size: ******** -> ********"]
    (loaded,) = [each for each in node.server.node.dispatch.loaded if each.kind == "algorithm"]
    assert loaded.gauges["size"] == 2


async def test_options_that_plugins_have_taken_already_are_no_change(rig: MakeRig) -> None:
    link = {"listen": f"{LOOPBACK}:0"}
    specs = PluginSpecs(SPECS.algorithm, SPECS.filters)
    node = await rig(plugins=specs, algorithm={"name": "sizing", "size": 1}, filters=["bare"], link=link)
    view = node.server.view
    node.write(algorithm={"size": 2}, filters=[{"name": "bare"}], limits={"clients": 7})
    view.reload_plugins(view.read_config())
    assert await node.reload() == ["limits.clients: 100000 -> 7"]
    node.write(algorithm={"size": 9})  # which it does not take
    view.reload_plugins(view.read_config())
    assert await node.reload(algorithm={"size": 1}) == ["algorithm.options.size: ******** -> ********"]


async def test_a_file_that_says_the_same_is_taken_up_too(rig: MakeRig) -> None:
    node = await rig()
    assert await node.reload() == []
    assert node.counted("config_reloads_applied") == 1


async def test_who_waits_is_told_what_the_file_says_then(rig: MakeRig) -> None:
    """Signals without number while one reload is under way are one reload more."""
    node = await rig()
    node.write(limits={"clients": 7})
    node.server.reloader.ask()
    await asyncio.sleep(0)  # it has begun
    for _ in range(50):
        node.server.reloader.ask()
    await asyncio.sleep(0)
    assert await node.reload() == []
    assert node.counted("config_reloads_applied") == 3
    assert node.server.config.limits.clients == 7


async def test_subscriptions_and_messages_go_on_across_a_reload(rig: MakeRig, mosquitto: Mosquitto) -> None:
    node = await rig(mosquitto.address)
    talker = await node.talker()
    wanted = [Subscription(topic_filter="reload/t", qos=0)]
    assert isinstance(await talker.ask(Subscribe(packet_id=1, subscriptions=wanted)), SubAck)
    await node.reload(limits={"clients": 77}, listeners=[{"url": f"mqtt://{LOOPBACK}:{free_port()}"}])
    got = await talker.ask(Publish(topic="reload/t", payload=b"after", qos=0))
    assert isinstance(got, Publish)
    assert got.payload == b"after"


async def test_a_collector_of_traces(rig: MakeRig, collector: Collector, tmp_path: Path) -> None:
    """One comes to be, another one gets what waits for it, none is left."""
    node = await rig()
    traces, elsewhere = node.server.view.traces, f"http://{LOOPBACK}:{free_port()}/v1/traces"
    assert traces.ended is None
    assert await node.reload(trace={"otlp": elsewhere, "timeout": 5}) == [
        f"trace.otlp: null -> {elsewhere}",
        "trace.timeout: 10 -> 5",
    ]
    exporter = node.server.exporter
    assert exporter is not None
    traces.ended([message()])  # nobody is there: it is tried again
    (tmp_path / "headers").write_text("X-Tenant: one\n")
    await node.reload(trace={"otlp": collector.url, "headers_file": "headers"})
    assert node.server.exporter is exporter
    await sent(exporter)
    assert set(collector.spans()) == {"a", "b", "c"}
    assert collector.headers[0]["X-Tenant"] == "one"
    with pytest.raises(ReloadError, match=r"trace\.headers_file"):
        await node.reload(trace={"headers_file": "missing"})
    del node.document["trace"]
    await node.reload()
    assert node.server.exporter is None
    assert traces.ended is None
