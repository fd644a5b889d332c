"""Several nodes before one broker, of which one has the links (ildm/core/several_processes.md)."""

from __future__ import annotations

import pytest

from ildm.mqtt import Version
from tests.sites.conftest import Sites
from tests.sites.site import join, settled


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_nodes_that_only_relay_stand_beside_one_that_has_links(
    sites: Sites, topic_root: str, qos: int
) -> None:
    """Their subscribers get what comes from other sites, once; what their clients publish stays here."""
    here = await sites.make("mosquitto", "pf")
    beside = await sites.make("mosquitto", None)
    there = await sites.make(sites.shared_broker("mosquitto", 1), "pf")
    await join(here, there)
    at_here, at_beside, at_there = [await site.connect() for site in (here, beside, there)]
    for client in (at_here, at_beside, at_there):
        await client.subscribe((f"{topic_root}/#", 2))

    await at_there.publish(f"{topic_root}/in", b"from there", qos)
    for client in (at_here, at_beside, at_there):
        assert (await client.receive()).payload == b"from there"
    await at_beside.publish(f"{topic_root}/local", b"from beside", qos)
    for client in (at_here, at_beside):
        assert (await client.receive()).payload == b"from beside"
    await at_here.publish(f"{topic_root}/out", b"from here", qos)
    for client in (at_here, at_beside, at_there):
        assert (await client.receive()).payload == b"from here"
    await settled(here, there)
    assert [client.waiting for client in (at_here, at_beside, at_there)] == [0, 0, 0]


async def test_a_session_goes_on_at_another_node_of_its_broker(sites: Sites, topic_root: str) -> None:
    """It is the broker's: taken over by whoever connects with its identifier, through whichever node."""
    one = await sites.make("mosquitto", None)
    other = await sites.make("mosquitto", None)
    name = f"{topic_root}-client"
    first = await one.connect(name, clean=False, version=Version.V311)
    await first.subscribe((f"{topic_root}/#", 1))
    second = await other.connect(name, clean=False, version=Version.V311)
    await first.wait_closed()
    assert second.connack.session_present
    await second.publish(f"{topic_root}/x", b"once", 1)
    await second.publish(f"{topic_root}/x", b"end", 1)
    assert [message.payload for message in await second.receive_until(b"end")] == [b"once"]


async def test_nodes_that_share_no_topic_may_both_have_links(sites: Sites, topic_root: str) -> None:
    """By the rules of its links each has topics of its own, and who publishes them is its client."""

    def own(part: str) -> dict[str, list[dict[str, list[str]]]]:
        return {"rules": [{"allow": [f"{topic_root}/{part}/#"]}]}

    one = await sites.make("mosquitto", "pf", link=own("one"))
    other = await sites.make("mosquitto", "pf", link=own("other"))
    there = await sites.make(sites.shared_broker("mosquitto", 1), "pf")
    for site in (one, other):
        await join(site, there)
    at_one, at_other, at_there = [await site.connect() for site in (one, other, there)]
    for client in (at_one, at_other, at_there):
        await client.subscribe((f"{topic_root}/#", 1))
    for client in (at_one, at_there):
        await client.publish(f"{topic_root}/one/x", b"one", 1)
    for client in (at_other, at_there):
        await client.publish(f"{topic_root}/other/x", b"other", 1)
    await settled(one, other, there)
    for part, client in (("one", at_one), ("other", at_other)):
        await client.publish(f"{topic_root}/{part}/end", f"end of {part}".encode(), 1)
    await settled(one, other, there)
    ends = [b"end of one", b"end of other"]
    for client in (at_one, at_other, at_there):
        found = [message.payload for message in await client.receive_all(6)]
        assert sorted(found) == [*ends, b"one", b"one", b"other", b"other"]
        assert client.waiting == 0
