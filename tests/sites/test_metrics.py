"""Metrics and health of nodes before real brokers, as Prometheus and a supervisor ask for them."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import ValidationError

from ildm.admin.families import METRICS
from ildm.api import Filter, Source
from ildm.config import Config, MetricsConfig
from ildm.core.metrics import PREFIX
from ildm.mqtt import PacketType, Publish
from ildm.net.figures import PLUGIN_NAMES
from ildm.net.health import FULL_FOR
from ildm.net.metrics import CONNECTIONS
from tests.sites.client import until, within
from tests.sites.conftest import Sites
from tests.sites.site import Site
from tests.support.ports import LOOPBACK, free_port
from tests.support.programs import need

LISTENING = {"metrics": {"listen": f"{LOOPBACK}:0"}}


async def get(site: Site, path: str, **headers: str) -> tuple[int, str]:
    """Status and text that the listener for metrics answers."""
    assert site.server.metrics is not None
    url = f"http://{LOOPBACK}:{site.server.metrics.port}{path}"
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as response:
        return response.status, await response.text()


def samples(text: str) -> dict[str, float]:
    """Name with labels -> value."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    found = {name: float(value) for name, _, value in lines}
    assert len(found) == len(lines), "a series stands there twice"
    return found


async def scraped(site: Site) -> dict[str, float]:
    status, text = await get(site, "/metrics")
    assert status == 200
    return samples(text)


async def test_what_crosses_is_counted_and_what_links_are_is_seen(sites: Sites, topic_root: str) -> None:
    here, there = await sites.row(["mosquitto"] * 2, "pf", **LISTENING)
    subscriber = await there.connect()
    await subscriber.subscribe((f"{topic_root}/#", 1))
    publisher = await here.connect()
    for number in range(5):
        await publisher.publish(f"{topic_root}/{number}", b"x", 1)
    await subscriber.receive_all(5)
    near, far = await scraped(here), await scraped(there)
    assert near['ildm_client_messages_total{direction="in"}'] == 5
    assert near['ildm_transferred_total{direction="out"}'] == 5
    assert near[f'ildm_link_messages_total{{neighbor="{there.name}",direction="out"}}'] == 5
    assert near[f'ildm_link_state{{neighbor="{there.name}",state="active"}}'] == 1
    assert far['ildm_transferred_total{direction="in"}'] == far["ildm_injected_total"] == 5
    assert far['ildm_client_messages_total{direction="out"}'] == 5
    assert far['ildm_link_dropped_total{reason="overflow",qos="1"}'] == 0
    assert near["ildm_ready"] == near["ildm_broker_up"] == 1
    assert near['ildm_client_connections{listener="listen"}'] == 1
    # QoS 1 was acknowledged, so both have come before
    assert near["ildm_broker_connect_seconds_count"] == near["ildm_broker_connack_seconds_count"] == 1
    assert near["ildm_client_handshake_seconds_count"] == 0
    assert near['ildm_plugin_calls_total{plugin="algorithm/pf"}'] > 0


async def test_promtool_finds_nothing_to_complain_of(sites: Sites) -> None:
    promtool = need("promtool")
    site = await sites.make("mosquitto", "sf", **LISTENING)
    _, text = await get(site, "/metrics")
    done = await asyncio.to_thread(
        subprocess.run, [promtool, "check", "metrics"], input=text, capture_output=True, text=True
    )
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


async def test_only_what_is_declared_is_shown(sites: Sites) -> None:
    site = await sites.make("mosquitto", "pf", **LISTENING)
    _, text = await get(site, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    families = {line.split()[2].removeprefix(PREFIX) for line in text.splitlines() if "# TYPE" in line}
    assert families <= {name.removesuffix("_total") for name in METRICS}
    assert len(families) > 90


async def test_ready_as_long_as_the_broker_is_there(sites: Sites) -> None:
    broker = await sites.own_broker("mosquitto")
    site = await sites.make(broker, "pf", **LISTENING)
    assert await get(site, "/readyz") == (200, "ok\n")
    await asyncio.to_thread(broker.kill)
    await until(lambda: not any(sender.open for sender in site.node.injector.senders), "the broker is missed")
    status, text = await get(site, "/readyz")
    assert (status, str(site.node.broker_address) in text) == (503, True)
    assert await get(site, "/livez") == (200, "ok\n")
    assert (await scraped(site))["ildm_broker_up"] == 0


async def test_not_ready_while_publishers_wait_for_room(sites: Sites, topic_root: str) -> None:
    small = {"bytes": 1 << 20, "segment_bytes": 64 << 10}
    here, there = await sites.row(["mosquitto"] * 2, "pf", **LISTENING, spool=small)
    await there.stop()
    publisher = await here.connect()
    for number in range(30):
        publisher.send(Publish(topic=topic_root, payload=bytes(50_000), qos=1, packet_id=number + 1))
    status = 200
    async with asyncio.timeout(4 * FULL_FOR):
        while status == 200:
            status, text = await get(here, "/readyz")
            await asyncio.sleep(0.1)
    assert (status, "no room; publishers of QoS 1 and 2 wait" in text) == (503, True)
    assert await get(here, "/livez") == (200, "ok\n")
    figures = await scraped(here)
    assert (figures["ildm_spool_full"], figures["ildm_ready"], figures["ildm_broker_up"]) == (1, 0, 1)
    await there.start()
    here.add(there)
    async with asyncio.timeout(4 * FULL_FOR):
        while status == 503:
            status, _ = await get(here, "/readyz")
            await asyncio.sleep(0.1)
    assert (await scraped(here))["ildm_spool_full"] == 0


async def test_a_node_that_only_relays_tries_its_broker(sites: Sites) -> None:
    broker = await sites.own_broker("mosquitto")
    site = await sites.make(broker, None, **LISTENING)
    answers = await asyncio.gather(*(get(site, "/readyz") for _ in range(5)))
    assert answers == [(200, "ok\n")] * 5
    nowhere = sites.prepare(broker, None, broker_address=(LOOPBACK, free_port()), **LISTENING)
    await nowhere.start()
    status, text = await get(nowhere, "/readyz")
    assert (status, "refused" in text) == (503, True)


async def test_a_node_that_stops_is_not_ready(sites: Sites) -> None:
    site = await sites.make("mosquitto", "pf", **LISTENING)
    site.node.accepting = False
    assert await get(site, "/readyz") == (503, "the node is stopping\n")


async def test_a_token_is_demanded(sites: Sites, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-of-some-length\n")
    site = await sites.make("mosquitto", None, metrics={"listen": f"{LOOPBACK}:0", "token_file": str(file)})
    for header in (
        {},
        {"Authorization": "Bearer a-token"},
        {"Authorization": "Basic a-token-of-some-length"},
    ):
        assert (await get(site, "/metrics", **header))[0] == 401
        assert (await get(site, "/livez", **header))[0] == 401
    code, text = await get(site, "/metrics", Authorization="Bearer a-token-of-some-length")
    assert code == 200
    refused = [line for line in text.splitlines() if line.startswith("ildm_metrics_requests_refused_total ")]
    assert len(refused) == 1
    assert int(refused[0].split()[1]) == 6


async def test_the_listener_answers_nothing_else(sites: Sites) -> None:
    site = await sites.make("mosquitto", "pf", **LISTENING)
    for path in ("/", "/v1/status", "/v1/clients", "/metrics/"):
        assert (await get(site, path))[0] == 404
    assert site.server.metrics is not None
    url = f"http://{LOOPBACK}:{site.server.metrics.port}/metrics"
    async with aiohttp.ClientSession() as http, http.post(url) as response:
        assert response.status == 405


async def test_who_only_connects_takes_a_bounded_number_of_places(sites: Sites) -> None:
    site = await sites.make("mosquitto", None, **LISTENING)
    metrics = site.server.metrics
    assert metrics is not None
    writers = [(await asyncio.open_connection(LOOPBACK, metrics.port))[1] for _ in range(CONNECTIONS)]
    reader, writer = await asyncio.open_connection(LOOPBACK, metrics.port)
    with contextlib.suppress(ConnectionResetError):
        assert await within(reader.read(), "the end of one too many") == b""
    assert metrics.refused == 1
    for each in (*writers, writer):
        each.close()
    await until(lambda: not metrics.connections, "their end")
    assert (await get(site, "/livez"))[0] == 200


class Noisy(Filter):
    """Counts under names as only a hostile plugin would."""

    wants = frozenset({(Source.CLIENT, PacketType.PUBLISH)})

    def filter(self, session: Any, message: bytes) -> None:
        for number in range(PLUGIN_NAMES + 20):
            self.api.count(f'{number} "quoted\\')
        self.api.gauge("level", 2.5)


async def test_what_plugins_count_is_bounded_and_cannot_break_the_format(
    sites: Sites, topic_root: str
) -> None:
    site = await sites.make("mosquitto", None, filters=[Noisy], **LISTENING)
    client = await site.connect()
    await client.publish(topic_root, b"x", 1)
    found = await scraped(site)
    names = [name for name in found if name.startswith("ildm_plugin_counted_total")]
    assert len(names) == PLUGIN_NAMES
    assert found['ildm_plugin_counted_total{plugin="filter/Noisy",name="7 \\"quoted\\\\"}'] == 1
    assert found['ildm_series_left_out{of="plugins"}'] == 20
    assert found['ildm_plugin_gauge{plugin="filter/Noisy",name="level"}'] == 2.5


def test_beyond_loopback_a_token_is_needed() -> None:
    assert str(Config.model_validate({"metrics": {"listen": 9640}}).metrics.listen) == "127.0.0.1:9640"
    for wrong in ("0.0.0.0:9640", "192.0.2.1:9640", "mqtts://127.0.0.1:1", True, 70000):
        with pytest.raises(ValidationError):
            MetricsConfig.model_validate({"listen": wrong})
    MetricsConfig.model_validate({"listen": "0.0.0.0:9640", "token_file": "token"})
