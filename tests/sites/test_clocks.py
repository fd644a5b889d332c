"""A site whose clock is 400 days behind, before a real broker."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sites.client import Client
from tests.sites.conftest import Sites
from tests.sites.process import ProcessSite
from tests.sites.site import Site
from tests.sites.test_metrics import LISTENING, get, scraped
from tests.sites.test_once import join
from tests.support.brokers import Fleet
from tests.support.programs import need


@pytest.fixture
async def behind(fleet: Fleet, tmp_path: Path) -> AsyncIterator[ProcessSite]:
    faketime = need("faketime")
    site = ProcessSite(fleet.shared("mosquitto", 1), tmp_path / "behind", "sf", "behind")
    # faketime itself stays beside what it runs, and would be killed in its place
    asked = await asyncio.create_subprocess_exec(
        faketime, "-f", "-400d", "printenv", "LD_PRELOAD", stdout=PIPE
    )
    library = (await asked.communicate())[0].decode().strip()
    assert library
    site.command[:0] = ["env", "FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME=-400d", f"LD_PRELOAD={library}"]
    await site.start()
    yield site
    if site.process is not None and site.process.returncode is None:
        await site.kill()


async def kept(broker: tuple[str, int], topic: str) -> dict[str, bytes]:
    """What a new subscriber gets."""
    client = await Client.connect(broker)
    await client.subscribe((f"{topic}/#", 1))
    probe = await Client.connect(broker)
    await probe.publish(f"{topic}/probe", b"probe", 1)
    found = await client.receive_until(b"probe")
    for each in (client, probe):
        await each.disconnect()
    return {message.topic.removeprefix(f"{topic}/"): message.payload for message in found}


AnySite = Site | ProcessSite


async def set_all(site: AnySite, there: AnySite, topic: str, **values: bytes) -> None:
    """Set values one after the other; returns when they have arrived at the other site."""
    watching = await there.connect()
    await watching.subscribe((f"{topic}/+", 1))
    client = await site.connect()
    for name, value in values.items():
        await client.publish(f"{topic}/{name}", value, 1, retain=True)
    await client.publish(f"{topic}/last", b"last", 1)
    await watching.receive_until(b"last")
    for each in (client, watching):
        await each.disconnect()


async def test_a_site_400_days_behind_ends_like_the_other_and_both_tell(
    sites: Sites, behind: ProcessSite, topic_root: str
) -> None:
    here = await sites.make("mosquitto", "sf", **LISTENING)
    await join(here, behind)
    near, far, topic = here.broker.address, behind.broker.address, topic_root
    await set_all(behind, here, topic, two=b"b1", three=b"b3")
    await set_all(here, behind, topic, two=b"a2", three=b"", four=b"a4")
    assert await kept(near, topic) == await kept(far, topic) == {"two": b"a2", "four": b"a4"}
    await set_all(behind, here, topic, two=b"b2", four=b"")
    assert await kept(near, topic) == await kept(far, topic) == {"two": b"b2"}

    doubt = "which of them is wrong is not known"
    said = f"the clock of behind is 400 d behind this node's; {doubt}"
    assert await get(here, "/readyz") == (200, f"ok\n{said}\n")
    skew = (await scraped(here))['ildm_clock_skew_seconds{neighbor="behind"}']
    assert skew == pytest.approx(-400 * 86_400, abs=60)
    assert (await behind.status())["clock"] == [
        f"the clock of {here.name} is 400 d ahead of this node's; {doubt}"
    ]
    [row] = await behind.neighbors()
    assert row["clock_skew"] == pytest.approx(400 * 86_400, abs=60)
    assert "the clocks of this node and a neighbour are apart" in behind.log()
