"""Metrics and health over HTTP, for programs that watch: on the admin socket, and on a listener of its own.

=========== ==============================================================================================
/metrics    all metrics as text, in the format of Prometheus or, if asked for, OpenMetrics
/livez      200: the event loop turns
/readyz     200: the node serves, and what is to be looked after, a line each; 503 and why not, likewise
=========== ==============================================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

from ildm.admin.exposition import Family, expose, wanted_type

if TYPE_CHECKING:
    from ildm.admin.view import NodeView

PATIENCE = 5.0
"""Seconds that the node has for an answer; it may ask the broker for it."""
Found = TypeVar("Found")


def watch_routes(view: NodeView) -> list[web.RouteDef]:
    """What both listeners answer to."""

    async def metrics(request: web.Request) -> web.Response:
        kind = wanted_type(request.headers.get("Accept", ""))
        families: list[Family] = await told(view.metrics)
        return web.Response(body=expose(families, kind), headers={"Content-Type": kind})

    async def live(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        problems: list[str] = await told(view.problems)
        if problems:
            return web.Response(status=503, text="\n".join(problems) + "\n")
        return web.Response(text="".join(f"{line}\n" for line in ("ok", *view.warnings())))

    return [web.get("/metrics", metrics), web.get("/livez", live), web.get("/readyz", ready)]


async def told(ask: Callable[[Callable[[Found], None]], None]) -> Found:
    """What ``ask`` hands to its callback; 504 when that takes too long."""
    found: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
    ask(lambda answer: None if found.done() else found.set_result(answer))
    try:
        return await asyncio.wait_for(found, PATIENCE)
    except TimeoutError:
        raise web.HTTPGatewayTimeout(text=f"no answer within {PATIENCE:g} s\n") from None
