"""Sessions from before the node was there: their clients get what other sites publish meanwhile."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from ildm.admin.view import AdminError, UnknownError
from ildm.core.broker.older_sessions import TOPIC
from ildm.importing.sessions.found import SourceError
from ildm.mqtt import Version
from tests.sites.client import Client, until
from tests.sites.conftest import Sites
from tests.sites.site import Site, join, joined, settled
from tests.support.brokers import Broker, PahoClient, RabbitMQ


def leave_session(broker: Broker, client_id: str, topic_filter: str) -> None:
    """A session at the broker, whose client has gone; there is no node yet."""
    with PahoClient(broker.address, client_id, clean=False) as client:
        client.subscribe((topic_filter, 1))


def wait_told(broker: Broker) -> None:
    """Until Mosquitto tells of one session whose client is away."""
    with PahoClient(broker.address) as client:
        client.subscribe((TOPIC, 0))
        client.receive_until(b"1")


async def back_with(site: Site, client_id: str) -> Client:
    return await site.connect(client_id, clean=False, version=Version.V311)


async def test_sessions_of_mosquitto_s_file(sites: Sites, topic_root: str) -> None:
    broker = await sites.own_broker("mosquitto", persistence=True)
    name, unnamed = f"{topic_root}-old", f"{topic_root}-clean"
    await asyncio.to_thread(leave_session, broker, name, f"{topic_root}/+/temp")
    await asyncio.to_thread(leave_session, broker, unnamed, f"{topic_root}/never")
    await asyncio.to_thread(broker.stop)
    await asyncio.to_thread(broker.start)
    here = await sites.make("mosquitto", "sf")
    there = await sites.make(broker, "sf")
    await join(here, there)

    answer = await there.shell(f"sessions import mosquitto {broker.directory / 'mosquitto.db'}")
    assert (answer["sessions"], answer["filters"], answer["unknown"]) == (2, 2, 0)
    await settled(here, there)
    await (await here.connect()).publish(f"{topic_root}/a/temp", b"meanwhile", 1)
    client = await back_with(there, name)
    assert (await client.receive()).payload == b"meanwhile"


async def test_sessions_of_rabbitmq(sites: Sites, topic_root: str, tmp_path: Path) -> None:
    broker = await sites.own_broker("rabbitmq", management=True)
    assert isinstance(broker, RabbitMQ)
    name = f"{topic_root}-qos1"
    await asyncio.to_thread(leave_session, broker, name, f"{topic_root}/+/temp/#")
    here = await sites.make("mosquitto", "sf")
    there = await sites.make(broker, "sf")
    await join(here, there)
    secret = tmp_path / "secret"
    secret.write_text("guest\n")
    url = f"http://127.0.0.1:{broker.management_port}"

    asked = f"sessions import rabbitmq {url} --user guest --password-file {secret}"
    answer = await there.shell(asked)
    assert (answer["sessions"], answer["filters"]) == (1, 1)
    await settled(here, there)
    assert here.link(there).interest == {f"{topic_root}/+/temp/#": 1}
    await (await here.connect()).publish(f"{topic_root}/a/temp/x", b"meanwhile", 1)
    client = await back_with(there, name)
    assert (await client.receive()).payload == b"meanwhile"
    with pytest.raises(SourceError, match="status 401: wrong user or password"):
        await there.shell(asked.replace("--user guest", "--user nobody"))
    with pytest.raises(SourceError, match="status 404: no such virtual host"):
        await there.shell(f"{asked} --vhost nowhere")


async def test_nothing_is_taken_of_lines_of_which_one_is_wrong(
    sites: Sites, topic_root: str, tmp_path: Path
) -> None:
    site = await sites.make("mosquitto", "sf", limits={"subscriptions_per_client": 2})
    file = tmp_path / "sessions.csv"
    file.write_text(f"one,{topic_root},1\ntwo,x/#/y,1\n")
    with pytest.raises(SourceError, match=r"sessions\.csv: line 2: filter 'x/#/y'"):
        await site.shell(f"sessions import csv {file}")
    file.write_text(f"one,{topic_root},1\ntwo,x,1\ntwo,y,1\ntwo,z,1\n")
    with pytest.raises(AdminError, match=r"client 'two', filter 'z': exceeds"):
        await site.shell(f"sessions import csv {file}")
    assert site.node.clients.records == {}
    file.write_text(f"one,{topic_root},1\n")
    assert (await site.shell(f"sessions import csv {file}"))["sessions"] == 1
    assert list(site.node.clients.records) == ["one"]


async def test_sessions_of_clients_that_are_away(sites: Sites, topic_root: str) -> None:
    """A start without state warns of them, or lets everything cross until an administrator ends that."""
    broker = await sites.own_broker("mosquitto", extra=["sys_interval 1"])
    name = f"{topic_root}-old"
    await asyncio.to_thread(leave_session, broker, name, f"{topic_root}/x")
    await asyncio.to_thread(wait_told, broker)
    here = await sites.make("mosquitto", "sf")
    there = await sites.make(broker, "sf")
    away = "the broker has sessions whose clients are away"

    def warnings() -> list[Any]:
        assert there.server is not None
        events = there.server.view.history.rows()
        return [event["fields"]["sessions"] for event in events if event["event"].startswith(away)]

    await until(lambda: warnings() == [1])
    await there.stop()

    adopting = await sites.make(broker, "sf", broker={"adopt_sessions": 3600})
    await join(here, adopting)
    await settled(here, adopting)
    assert here.link(adopting).interest == {"#": 2}
    await (await here.connect()).publish(f"{topic_root}/x", b"meanwhile", 1)
    client = await back_with(adopting, name)
    assert (await client.receive()).payload == b"meanwhile"
    assert await adopting.shell("sessions adopted") == {"unknown": 1}
    with pytest.raises(UnknownError, match="no sessions are being adopted"):
        await adopting.shell("sessions adopted")


@pytest.mark.parametrize("make", ["mosquitto", "rabbitmq"])
async def test_a_node_that_has_lost_its_state(sites: Sites, make: str, topic_root: str) -> None:
    """What is published after it is back waits at the broker for the session, whose client is away."""
    here, there = await sites.row(["mosquitto", make], "sf", broker={"adopt_sessions": 3600})
    name = f"{topic_root}-old"
    client = await back_with(there, name)
    await client.subscribe((f"{topic_root}/x", 1))
    await client.disconnect()
    await there.stop()
    shutil.rmtree(there.config.state_dir)
    await there.start()
    there.add(here)
    await joined(here, there)
    await settled(here, there)
    assert name not in there.node.clients.records
    await (await here.connect()).publish(f"{topic_root}/x", b"meanwhile", 1)
    back = await back_with(there, name)
    assert (await back.receive()).payload == b"meanwhile"
