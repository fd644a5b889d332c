"""What rules of links and sites let through, and how often each has decided."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.admin.exposition import expose
from ildm.config.site import SiteConfig
from tests.sites.conftest import Sites
from tests.sites.site import Site, join, settled


def hits(site: Site) -> dict[str, tuple[int, int]]:
    """Of each rule: messages out, and in."""
    return {row["rule"]: (row["hits_out"], row["hits_in"]) for row in site.server.admin.view.rules()}


@pytest.mark.parametrize("algorithm", ["sg_tbps", "atm_tbps", "stla"])
async def test_the_rules_of_a_site_hold_in_an_overlay(sites: Sites, algorithm: str, topic_root: str) -> None:
    """What leaves it and what enters it, whoever asks for it; at the site itself everything goes on."""
    rules: list[dict[str, Any]] = [
        {"deny": [f"{topic_root}/secret/#"]},
        {"allow": [f"{topic_root}/out/#"], "direction": "out", "qos": 1},
        {"allow": [f"{topic_root}/in/#"], "direction": "in", "qos": 0},
    ]
    here = await sites.make("mosquitto", algorithm, site={"rules": rules})
    there = await sites.make(sites.shared_broker("mosquitto", 1), algorithm)
    await join(here, there)
    at = {site: await site.connect() for site in (here, there)}
    names = ("secret", "out", "in")
    for client in at.values():
        await client.subscribe(*((f"{topic_root}/{name}/#", 2) for name in names))
    await settled(here, there)
    assert set(here.node.site_rules.advertised) == {
        f"{topic_root}/in/#"
    }  # what else it asks for nobody sends
    for site, client in at.items():
        for name in names:
            await client.publish(f"{topic_root}/{name}/{site.name}", b"x", 2)
        await client.publish(f"{topic_root}/{name}/end", b"end", 2)
    await settled(here, there)
    got = {}
    for site, client in at.items():
        # its own four, and what has come
        messages = await client.receive_all(4 + (2 if site is here else 1))
        assert client.waiting == 0
        other = there if site is here else here
        got[site] = [(m.topic, m.qos) for m in messages if m.topic.endswith((other.name, "/end"))]
    assert sorted(got[there]) == [(f"{topic_root}/in/end", 2), (f"{topic_root}/out/{here.name}", 1)]
    assert sorted(got[here]) == [
        (f"{topic_root}/in/end", 0),
        (f"{topic_root}/in/end", 2),
        (f"{topic_root}/in/{there.name}", 0),
    ]
    assert here.node.counters["site_rules_kept"] == 3
    assert hits(here)["site.rules.0"][0] == 1
    assert hits(here)["site.rules.1"] == (1, 0)
    assert hits(here)["site.rules.2"] == (0, 2)
    assert hits(here)["site.rules.rest"][0] == 2
    assert hits(there) == {}


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
async def test_the_hits_of_rules_of_links(sites: Sites, algorithm: str, topic_root: str) -> None:
    rules: list[dict[str, Any]] = [
        {"deny": [f"{topic_root}/secret"]},
        {"allow": [f"{topic_root}/+"]},
    ]
    here = await sites.make("mosquitto", algorithm, link={"rules": rules})
    there = await sites.make(sites.shared_broker("mosquitto", 1), algorithm)
    await join(here, there)
    at = {site: await site.connect() for site in (here, there)}
    for client in at.values():
        await client.subscribe((f"{topic_root}/#", 2))  # answered when the other site knows
    for qos in (0, 1, 2):
        await at[here].publish_all(f"{topic_root}/open", [b"x"] * 5, qos)
        await at[there].publish_all(f"{topic_root}/open", [b"x"] * 2, qos)
    await at[here].publish_all(f"{topic_root}/secret", [b"x"] * 5, 1)
    for client in at.values():
        await client.receive_all(26 if client is at[here] else 21)
        assert client.waiting == 0
    assert hits(here)["link.rules.1"] == (15, 6)
    assert hits(here)["link.rules.0"] == (1, 0)  # asked about once, not message by message
    families: list[Any] = []
    here.server.admin.view.metrics(families.extend)
    scraped = expose(families).decode()
    assert 'ildm_link_rule_hits_total{rule="link.rules.1",direction="out"} 15' in scraped
    _, listed = await here.shell("rules")
    assert [row["rule"] for row in listed] == ["link.rules.0", "link.rules.1", "link.rules.rest"]


async def test_other_rules_of_a_site_hold_from_the_moment_they_are_taken_up(
    sites: Sites, topic_root: str
) -> None:
    """Other sites are told of what may enter now, and no longer of what may not."""
    here = await sites.make("mosquitto", "sg_tbps")
    there = await sites.make(sites.shared_broker("mosquitto", 1), "sg_tbps")
    await join(here, there)
    at_here, at_there = await here.connect(), await there.connect()
    await at_here.subscribe((f"{topic_root}/a/#", 1), (f"{topic_root}/b/#", 1))
    await settled(here, there)

    async def crosses(*wanted: str) -> None:
        for part in ("a", "b"):
            await at_there.publish(f"{topic_root}/{part}/x", b"x", 1)
        got = {(await at_here.receive()).topic for _ in wanted}
        assert got == {f"{topic_root}/{part}/x" for part in wanted}
        await settled(here, there)
        assert at_here.waiting == 0

    async def follow(*rules: dict[str, Any]) -> None:
        config = here.node.config
        config.site.__dict__["rules"] = SiteConfig(rules=list(rules)).rules  # as a reload does
        here.node.settings_changed()
        await settled(here, there)

    await crosses("a", "b")
    await follow({"allow": [f"{topic_root}/a/#"]})
    assert set(here.node.site_rules.advertised) == {f"{topic_root}/a/#"}
    await crosses("a")
    assert hits(here)["site.rules.0"][1] == 1
    await follow({"allow": [f"{topic_root}/b/#"], "direction": "in"})
    assert set(here.node.site_rules.advertised) == {f"{topic_root}/b/#"}
    await crosses("b")
    await follow()
    assert set(here.node.site_rules.advertised) == {f"{topic_root}/a/#", f"{topic_root}/b/#"}
    await crosses("a", "b")
