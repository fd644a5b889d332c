"""A page of the dashboard in a real browser, and what it must never do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import async_playwright

from tests.dashboard.chromium import QUIET
from tests.dashboard.visitor import dashboard, token_of
from tests.sites.site import Site
from tests.support.ports import LOOPBACK
from tests.support.programs import need

AXE = Path(__file__).parent / "axe" / "axe.min.js"
WIDE, NARROW = (1280, 900), (390, 844)
PATIENCE = 120_000
"""Milliseconds."""


@asynccontextmanager
async def browsing() -> AsyncIterator[Any]:
    """A browser."""
    program = need("chromium", "chromium-browser", "google-chrome")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox", *QUIET])
        try:
            yield browser
        finally:
            await browser.close()


class Window:
    """One page; everything it asks for, and what it complains of."""

    def __init__(self, page: Any, site: Site) -> None:
        self.page = page
        self.base = f"http://{LOOPBACK}:{dashboard(site).port}"
        self.token = token_of(site)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))

    async def log_in(self) -> None:
        """By the address that the command prints."""
        await self.page.goto(f"{self.base}/#token={self.token}")
        await self.page.wait_for_selector("#page:not([hidden])")

    async def choose(self, tab: str) -> Any:
        """Open a tab; gives its panel."""
        await self.page.get_by_role("tab", name=tab, exact=True).click()
        return self.page.get_by_role("tabpanel")

    async def shows(self, text: str, where: str = "body") -> None:
        await self.page.locator(where).get_by_text(text).first.wait_for()

    async def clipped(self, *selectors: str) -> list[str]:
        """Which of these have to be moved sideways for what is in them to be seen."""
        found = "each => [...document.querySelectorAll(each)].some(one => one.scrollWidth > one.clientWidth)"
        return [each for each in selectors if await self.page.evaluate(found, each)]

    async def overflow(self) -> int:
        """Pixels that the page is wider than its window."""
        width = "document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"
        return int(await self.page.evaluate(width))

    async def accessibility(self) -> list[str]:
        """What axe-core finds wrong. It comes past the policy of the page, as only a debugger can."""
        if not await self.page.evaluate("typeof axe === 'object'"):
            await self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = await self.page.evaluate(
            "axe.run().then((told) => told.violations.map((each) => "
            "`${each.id}: ${each.nodes.map((node) => node.target + ' ' + node.failureSummary)}`))"
        )
        return list(found)

    def check(self) -> None:
        """It has asked nobody else, and complained of nothing."""
        assert self.complaints == [], self.complaints
        assert self.requests
        assert [url for url in self.requests if not url.startswith(f"{self.base}/")] == []


@asynccontextmanager
async def looking(
    browser: Any, site: Site, size: tuple[int, int] = WIDE, colours: str = "light"
) -> AsyncIterator[Window]:
    """A window on the dashboard of a site, in a profile of its own."""
    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=colours, reduced_motion="reduce"
    )
    try:
        yield Window(await context.new_page(), site)
    finally:
        await context.close()
