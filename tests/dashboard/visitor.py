"""Who talks with a dashboard as its pages do, or as a stranger would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from ildm.net.dashboard.auth import HEADER
from ildm.net.dashboard.server import DashboardServer
from tests.sites.site import Site
from tests.support.ports import LOOPBACK

LISTENING = {"dashboard": {"listen": f"{LOOPBACK}:0"}}
WRITING = {"dashboard": {"listen": f"{LOOPBACK}:0", "write": True}}
PATIENCE = aiohttp.ClientTimeout(total=20)


def dashboard(site: Site) -> DashboardServer:
    assert site.server.dashboard is not None
    return site.server.dashboard


def token_of(site: Site) -> str:
    return site.config.dashboard_token.read_text().strip()


class Visitor:
    """One browser: keeps cookies."""

    def __init__(self, http: aiohttp.ClientSession, port: int, scheme: str = "http") -> None:
        self.http = http
        self.base = f"{scheme}://{LOOPBACK}:{port}"

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.http.get(self.base + path, headers=headers) as response:
            return response.status, await _content(response)

    async def post(
        self, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """With the headers that a page's script would send, unless told otherwise."""
        if headers is None:
            headers = {"Origin": self.base, HEADER: "1"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.http.post(self.base + path, data=data, headers=headers) as response:
            return response.status, await _content(response)

    async def wait_for(self, path: str, good: Callable[[Any], object]) -> Any:
        """What is there, once it is so."""
        async with asyncio.timeout(120):
            while True:
                _, answer = await self.get(path)
                if good(answer):
                    return answer
                await asyncio.sleep(0.03)

    async def log_in(self, token: str) -> None:
        assert await self.post("/login", {"token": token}) == (204, "")

    async def events(self, number: int) -> list[tuple[str, Any]]:
        """The first of the stream."""
        found = []
        async with self.http.get(f"{self.base}/events") as response:
            assert (response.status, response.content_type) == (200, "text/event-stream")
            async with asyncio.timeout(120):
                while len(found) < number:
                    name = (await response.content.readline()).decode().removeprefix("event: ").strip()
                    data = (await response.content.readuntil(b"\n\n")).decode().removeprefix("data: ")
                    found.append((name, json.loads(data)))
        return found


async def _content(response: aiohttp.ClientResponse) -> Any:
    return await (response.json() if response.content_type == "application/json" else response.text())


@asynccontextmanager
async def stranger(site: Site) -> AsyncIterator[Visitor]:
    jar = aiohttp.CookieJar(unsafe=True)  # cookies of an IP address, too
    async with aiohttp.ClientSession(cookie_jar=jar, timeout=PATIENCE) as http:
        yield Visitor(http, dashboard(site).port)


@asynccontextmanager
async def visitor(site: Site) -> AsyncIterator[Visitor]:
    """Logged in."""
    async with stranger(site) as visitor:
        await visitor.log_in(token_of(site))
        yield visitor
