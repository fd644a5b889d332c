"""The page in a browser, before real nodes: what it shows, what it lets one do, and what it never does."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ildm.core.link.topology import Advertisement
from ildm.core.link.tree import TreeMembership
from ildm.core.pair.states import Member, MemberState
from tests.dashboard.conftest import Sites
from tests.dashboard.visitor import LISTENING, WRITING
from tests.dashboard.window import NARROW, WIDE, browsing, looking
from tests.sites.client import until
from tests.sites.site import Site

HOSTILE = '<img src=x onerror="document.title=1">\u202eevil\u2066'
"""No control character: those MQTT lets the broker refuse (1.5.4)."""


async def test_only_the_token_opens_it(sites: Sites) -> None:
    site = await sites.make("mosquitto", None, **LISTENING)
    async with browsing() as browser, looking(browser, site) as window:
        page = window.page
        await page.goto(window.base)
        await page.get_by_label("Token").fill("x" * 43)
        await page.get_by_role("button", name="Look").click()
        await window.shows("this is not the token", "#login")
        assert await window.accessibility() == []
        window.complaints = [line for line in window.complaints if "401" not in line]
        await page.get_by_label("Token").fill(window.token)
        await page.keyboard.press("Enter")
        await page.locator("#node", has_text=site.name).wait_for()
        assert not await page.locator("#sites").is_visible()  # it only relays
        assert await page.evaluate("document.cookie + localStorage.length + sessionStorage.length") == "00"
        await page.reload()
        await page.locator("#node", has_text=site.name).wait_for()
        await page.locator("#panel-clients").get_by_text("Nobody is connected.").wait_for()
        await page.get_by_label("Client or address").fill("nobody")
        await page.locator("#panel-clients").get_by_text("No such client.").wait_for()
        await page.get_by_role("button", name="Log out").click()
        await page.get_by_label("Token").wait_for()
        await page.goto(f"{window.base}/#token={window.token}")
        await page.locator("#node", has_text=site.name).wait_for()
        assert window.token not in page.url
        assert all(window.token not in url.partition("#")[0] for url in window.requests)
        window.check()


async def test_it_shows_who_is_down_what_waits_and_what_is_there(sites: Sites, topic_root: str) -> None:
    here, there = await sites.row(["mosquitto"] * 2, "sf", **LISTENING)
    far = await sites.make(sites.shared_broker("mosquitto", 2), "sf")
    there.add(far)
    await until(lambda: there.is_joined(far))
    client = await here.connect("Panel-1")
    await client.subscribe((f"{topic_root}/#", 1))
    await client.publish(f"{topic_root}/state", "läuft".encode(), 1, retain=True)
    away = await there.connect("Panel-2")
    await away.subscribe((f"{topic_root}-there/#", 1))
    async with browsing() as browser, looking(browser, here) as window:
        page = window.page
        await window.log_in()
        await window.shows("Nothing is wrong")
        assert await page.locator("#neighbors tr", has_text=there.name).get_by_text("active").is_visible()
        await page.locator("#graph text", has_text=far.name).wait_for()
        await page.locator("#sites-count", has_text="3 sites").wait_for()
        await page.locator("#rates-chart canvas").wait_for()
        await page.locator("#panel-clients tr", has_text="Panel-1").wait_for()

        panel = await window.choose("Subscriptions")
        await panel.get_by_label("Who gets a message on this topic").fill(f"{topic_root}/a/b")
        await panel.get_by_text("1 found among").wait_for()
        assert await panel.locator("tbody tr").all_inner_texts() == [f"{topic_root}/#\t1\tclient Panel-1"]
        await panel.get_by_label("Who gets a message on this topic").fill("")
        await panel.get_by_label("Filter or who has it").fill(f"neighbour {there.name}")
        await panel.locator("tbody tr", has_text=f"neighbour {there.name}").first.wait_for()
        panel = await window.choose("Retained")
        await panel.get_by_label("Topic filter").fill(f"{topic_root}/#")
        await panel.get_by_text("läuft").wait_for()
        await panel.get_by_label("Topic filter").fill("a/#/b")
        await panel.get_by_role("alert").filter(has_text="filter").wait_for()
        window.complaints = [line for line in window.complaints if "400" not in line]
        panel = await window.choose("Events")
        await panel.get_by_label("Words of an event").fill("client_id=panel-1")
        await panel.get_by_text("client connected").wait_for()
        panel = await window.choose("Trace")
        await panel.get_by_label("Topic").fill(f"{topic_root}/x")
        await panel.get_by_role("button", name="Trace").click()
        await panel.get_by_text("0 other sites").wait_for()
        assert await panel.locator("li").count() == 1

        assert await page.locator("#facts", has_text="Releases").count() == 0
        link_there = here.link(there)
        assert link_there.hello is not None
        link_there.hello = replace(link_there.hello, release="0.2.9")
        await window.shows("0.2.9: 1", "#facts")
        assert await page.locator("#facts", has_text="Pair").count() == 0
        member = Member("left")
        member.state, member.epoch = MemberState.OWNER, 7
        here.server.view.member = member
        await window.shows("member left owns the site, epoch 7", "#facts")

        await there.stop()
        problems = page.locator("#problems li")
        await problems.filter(has_text=far.name).filter(has_text="out of reach").wait_for()
        link = problems.filter(has_text=there.name)
        await link.filter(has_text="link down").wait_for()
        assert "for " in await link.locator(".since").inner_text()
        assert await link.locator(".reason").inner_text() not in ("", "no reason known")
        # what is beyond the link is still drawn, as gone
        assert await page.locator("#graph line.down").count() == 2
        assert await page.locator("#graph g.down", has_text=far.name).count() == 1
        assert "problems" in await page.locator("#verdict").inner_text()
        window.check()
        await here.stop()
        await window.shows("The node has not answered since", "#stale")
        assert await page.locator("#live").inner_text() == "no answer"


async def test_a_trace_over_several_trees_has_one_verdict(sites: Sites) -> None:
    """Trees of an overlay that reach nobody are named in one line beside those that do."""
    here = await sites.make("mosquitto", "sf", **LISTENING)
    suspended = [{"name": name, "facts": {"suspended": True}, "tree": None} for name in ("a/#", "#")]
    tree = {"node": here.name, "keys": ["a/b"], "depth": 0, "children": []}
    reaching = {"name": "a/b", "facts": {"suspended": False}, "tree": tree}
    lone = {"name": "<b>+</b>", "facts": {}, "tree": None}
    async with browsing() as browser, looking(browser, here) as window:
        await window.log_in()
        panel = await window.choose("Trace")
        await panel.get_by_label("Topic").fill("a/b")
        for messages, trees, headings, lines in (
            (2, [reaching, *suspended], 1, ["Nobody else is reached by a/#, # (suspended yes)."]),
            (
                3,
                [*suspended, lone],
                0,
                ["Nobody is reached by a/#, # (suspended yes).", "Nobody is reached by <b>+</b>."],
            ),
            (4, [reaching], 1, []),
            (5, [], 0, ["Such a message goes nowhere."]),
        ):
            result = {
                "topic": "a/b",
                "nodes": 1,
                "messages": messages,
                "depth": 1,
                "complete": True,
                "trees": trees,
            }
            answer = {"id": "1", "state": "done", "result": result}
            await window.page.route("**/api/traces", partial(answered, answer))
            await panel.get_by_role("button", name="Trace").click()
            await panel.get_by_text(f"reached by {messages} messages").wait_for()
            assert await panel.locator(".hops h3").count() == headings
            assert await panel.locator(".hops p").all_inner_texts() == lines
            await window.page.unroute("**/api/traces")
        window.check()


async def answered(answer: dict[str, Any], route: Any) -> None:
    await route.fulfill(json=answer)


async def test_it_changes_what_it_may(sites: Sites) -> None:
    here = await sites.make("mosquitto", "sf", **WRITING)
    there = await sites.make(sites.shared_broker("mosquitto", 1), "sf")
    client = await here.connect("Panel-1")
    async with browsing() as browser, looking(browser, here) as window:
        page = window.page
        await window.log_in()
        await page.get_by_role("button", name="End the connection of Panel-1").click()
        await page.get_by_role("button", name="Leave it").click()
        await page.get_by_role("button", name="End the connection of Panel-1").click()
        await page.get_by_role("dialog").get_by_role("button", name="End it").click()
        await client.wait_closed()
        await page.locator("#panel-clients").get_by_text("Nobody is connected.").wait_for()

        await page.get_by_label("Address of a neighbour").fill(str(there.link_address))
        await page.keyboard.press("Enter")
        await page.locator("#neighbors tr", has_text="active").wait_for()
        await page.get_by_role("button", name=f"Remove {there.name}").click()
        await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        await window.shows("This node has no neighbours.")
        assert not here.node.links.neighbors
        window.check()


@pytest.mark.parametrize(("size", "colours"), [(WIDE, "light"), (NARROW, "dark")])
async def test_everybody_can_use_it(
    sites: Sites, topic_root: str, size: tuple[int, int], colours: str
) -> None:
    """axe-core finds nothing, nothing is wider than the window, and the keyboard is enough."""
    there, here = await sites.row(["mosquitto"] * 2, "sg_tbps", **WRITING)
    client = await here.connect("a-rather-long-client-identifier-such-as-gateways-make-them-0123456789")
    await client.subscribe((f"{topic_root}/{'level/' * 20}#", 1))
    await client.publish(f"{topic_root}/{'level/' * 12}end", bytes(range(40)), 1, retain=True)
    async with browsing() as browser, looking(browser, here, size, colours) as window:
        page = window.page
        await window.log_in()
        await there.stop()
        await page.locator("#problems li", has_text=there.name).wait_for()
        await page.get_by_role("tab", name="Clients").focus()
        for name in ("Clients", "Subscriptions", "Retained", "Overlay", "Events", "Trace"):
            chosen = page.get_by_role("tab", selected=True)
            assert await chosen.inner_text() == name
            await page.get_by_role("tabpanel").locator("td, section, form").first.wait_for()
            assert (name, await window.accessibility()) == (name, [])
            assert (name, await window.overflow()) == (name, 0)
            assert (name, await window.clipped("#tabs", ".sites .scroll")) == (name, [])
            await page.keyboard.press("ArrowRight")
        assert await page.get_by_role("tab", selected=True).inner_text() == "Clients"
        await page.emulate_media(color_scheme="light" if colours == "dark" else "dark")
        assert await window.accessibility() == []
        window.check()


async def test_names_of_strangers_stay_text(sites: Sites, topic_root: str) -> None:
    site = await sites.make("mosquitto", "sf", **WRITING)
    client = await site.connect(HOSTILE)
    await client.subscribe((f"{topic_root}/{HOSTILE}", 1))
    await client.publish(f"{topic_root}/{HOSTILE}", f"{HOSTILE}\x1b[31m".encode(), 1, retain=True)
    async with browsing() as browser, looking(browser, site) as window:
        page = window.page
        await window.log_in()
        for tab in ("Clients", "Subscriptions", "Retained", "Events"):
            panel = await window.choose(tab)
            await panel.get_by_text(HOSTILE.partition("\u202e")[0]).first.wait_for()
            shown = await panel.inner_text()
            assert "\\u202eevil\\u2066" in shown
            assert not {"\u202e", "\u2066", "\x1b"} & set(shown)
        await page.get_by_role("tab", name="Clients").click()
        await page.get_by_role("button", name="End the connection of").click()
        assert "<img" in await page.get_by_role("dialog").inner_text()
        await page.get_by_role("dialog").get_by_role("button", name="End it").click()
        await client.wait_closed()
        assert await page.locator("img").count() == 0
        assert site.name in await page.title()
        window.check()


def far_sites(here: Site, there: Site, number: int) -> None:
    """More sites behind a neighbour, as their advertisements would make them known."""
    membership = here.node.links.membership
    assert isinstance(membership, TreeMembership)
    topology = membership.topology
    age = dict(topology.own.links)[there.name]
    links: dict[str, dict[str, int]] = {there.name: {here.name: age}}
    for index in range(number):
        name, above = f"far-{index:03}", there.name if index < 8 else f"far-{index // 8 - 1:03}"
        links.setdefault(name, {})[above] = links[above][name] = age + 1 + index
    newest = max(each.boot for each in topology.advertisements())
    for name, each in links.items():
        topology.receive(Advertisement(name, newest + 1, 0, each))


async def test_200_sites_and_100000_subscriptions_stay_fluid(sites: Sites) -> None:
    """What the page holds is bounded, whatever there is; long tasks take the smaller part of the time."""
    here, there = await sites.row(["mosquitto"] * 2, "sf", **LISTENING)
    await here.connect("holder")
    filters = here.node.clients.records["holder"].filters
    filters.update({f"plant/{number}/temperature": 1 for number in range(100_000)})
    far_sites(here, there, 198)
    async with browsing() as browser, looking(browser, here) as window:
        page = window.page
        await page.add_init_script(
            "window.long = []; new PerformanceObserver((list) => "
            "long.push(...list.getEntries().map((each) => each.duration))).observe({type: 'longtask'})"
        )
        await window.log_in()
        await page.locator("#sites-count", has_text="200 sites").wait_for()
        begun = await page.evaluate("performance.now()")
        panel = await window.choose("Subscriptions")
        await panel.get_by_text("50+ of 100,000").wait_for()
        await panel.get_by_label("Filter or who has it").fill("plant/99999/")
        await panel.get_by_text("1 found among 100,000").wait_for()
        await panel.get_by_label("Filter or who has it").fill("plant/")
        await panel.get_by_text("50+ found among").wait_for()
        for more in (100, 150):
            await panel.get_by_role("button", name="Show more").click()
            await panel.get_by_text(f"{more}+ found").wait_for()
        assert await page.locator("#graph circle").count() == 200
        assert await page.evaluate("document.querySelectorAll('*').length") < 5000
        busy, passed = await page.evaluate(f"[long.reduce((a, b) => a + b, 0), performance.now() - {begun}]")
        assert busy < passed / 2
        window.check()
    filters.clear()


async def test_as_many_pages_as_may_be(sites: Sites, monkeypatch: Any) -> None:
    """One page more gets no stream, and asks now and then."""
    site = await sites.make("mosquitto", "sf", **LISTENING)
    monkeypatch.setattr("ildm.net.dashboard.stream.READERS", 1)
    async with browsing() as browser, looking(browser, site) as one, looking(browser, site) as other:
        await one.log_in()
        await one.shows("live", "#live")
        await other.log_in()
        await until(lambda: site.node.counters["dashboard_readers_refused"] > 0)
        await until(lambda: sum("/api/snapshot" in url for url in other.requests) > 1)
        await other.shows("live", "#live")
        one.check()
