"""The server of the dashboard. Files are for everybody; what they show, for who has shown the token.

======= ======================= =========================================== ==================================
GET     /                                                                   the page, and its files
GET     /login                                                              ``{logged_in}``
POST    /login                  ``{"token"}``                               204 and a cookie
POST    /logout                                                             204
GET     /events                                                             server-sent events, each second
GET     /api/snapshot                                                       the same, once
GET     /api/clients            ``?q=&cursor=&limit=``                      ``{total, items, cursor}``
GET     /api/subscriptions      ``?q=&topic=&cursor=&limit=``               ``{total, items, cursor}``
GET     /api/retained           ``?filter=&cursor=&limit=``                 ``{total, items, cursor}``
GET     /api/neighbors          ``?q=&cursor=&limit=``                      ``{total, items, cursor}``
GET     /api/history            ``?q=&before=&limit=``                      ``{items, cursor}``
GET     /api/overlay            ``?q=&cursor=&limit=``                      keys with their neighbours
POST    /api/traces             ``{"topic"}``                               202, the trace
GET     /api/traces/ID                                                      the trace
POST    /api/kick               ``{"client_id"}``                           with ``write`` only
POST    /api/neighbors          ``{"address", "save": true}``               with ``write`` only
POST    /api/neighbors/remove   ``{"target", "save": true, "force": false}``  with ``write`` only
======= ======================= =========================================== ==================================

A request that is no GET has to come from a page of this server (``Origin``) and to carry a header of its own.
An error is ``{"error": text}``: 400 not understood, 401 log in, 403 not from there, 404 unknown, 409 not
possible now, 421 by another name, 429 too many, 503 no room.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ildm.admin.connections import Connections
from ildm.admin.not_http import LOGGER
from ildm.admin.requests import AddNeighbor, RequestError, parsed, saved
from ildm.admin.view import AdminError, UnknownError
from ildm.log import get_logger
from ildm.mqtt import MqttError, validate_topic_filter, validate_topic_name
from ildm.net.dashboard import search
from ildm.net.dashboard.auth import HEADER, Attempts, Names, Sessions
from ildm.net.dashboard.files import File, read_files
from ildm.net.dashboard.requests import Kick, Login, RemoveNeighbor, Topic, number, origin_is
from ildm.net.dashboard.stream import Stream, TooManyReadersError
from ildm.net.dashboard.traces import TooManyTracesError, Traces
from ildm.net.transport import Listener

if TYPE_CHECKING:
    from ildm.admin.view import Row
    from ildm.api import OverlayView
    from ildm.config import DashboardConfig
    from ildm.core.counters import Counters
    from ildm.net.transport.inherited import Inherited
    from ildm.net.transport.tls import LiveContext
    from ildm.net.view import LiveView

BODY_LIMIT = 16 << 10
PATIENCE = 10.0
"""Seconds that a browser has for sending a request's body, or taking an event."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
OPEN = {"/login", "/logout"}
"""Paths besides the files that need no login."""
OVERLAY_FOR = 2.0
"""Seconds that an answer on the overlay is good for: to ask the algorithm is work for it."""
TABLE_ROWS = 100
"""Rows of one of the overlay's tables that are shown."""
CONNECTIONS = 128
"""Of browsers, at a time."""
IDLE = 20.0
"""Seconds that one may have without a whole request."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class DashboardServer:
    """Serves the pages from :meth:`start` to :meth:`stop`.

    Args:
        token: what a browser has to show once.
        tls: for who is not on this machine.
        inherited: sockets that are taken in place of new ones.
    """

    def __init__(
        self,
        view: LiveView,
        config: DashboardConfig,
        token: str,
        counters: Counters,
        tls: LiveContext | None,
        inherited: Inherited | None = None,
    ) -> None:
        assert config.listen is not None
        self.view = view
        self.config = config
        self.stream = Stream(view, counters)
        self.traces = Traces(view.follow)
        self._counters = counters
        loop = asyncio.get_running_loop()
        self.sessions = Sessions(token, loop.time)
        self.attempts = Attempts(loop.time)
        self._names = Names([*config.hosts, config.listen.host])
        self._listener = Listener(
            config.listen, "dashboard.listen", lambda _: self._accept(), tls=tls, inherited=inherited
        )
        self._files: dict[str, File] = {}
        self._runner: web.AppRunner | None = None
        self._connections: Connections | None = None
        self._overlay: tuple[float, OverlayView] | None = None

    @property
    def port(self) -> int:
        return self._listener.port

    def follow(self, tls: LiveContext | None) -> None:
        """Show another certificate from now on."""
        self._listener.follow(self._listener.key, tls, None)

    async def start(self, patience: float = 0.0) -> None:
        """Listen.

        Raises:
            ListenError: the address cannot be listened on.
        """
        self._files = await asyncio.to_thread(read_files)
        app = web.Application(middlewares=[self._guarded], client_max_size=BODY_LIMIT)
        app.add_routes(
            [
                web.get("/login", self._logged_in),
                web.post("/login", self._login),
                web.post("/logout", self._logout),
                web.get("/events", self._events),
                web.get("/api/snapshot", self._snapshot),
                web.get("/api/clients", self._clients),
                web.get("/api/subscriptions", self._subscriptions),
                web.get("/api/retained", self._retained),
                web.get("/api/neighbors", self._neighbors),
                web.get("/api/history", self._history),
                web.get("/api/overlay", self._overlay_keys),
                web.post("/api/traces", self._begin_trace),
                web.get("/api/traces/{number}", self._trace),
                web.post("/api/kick", self._kick),
                web.post("/api/neighbors", self._add_neighbor),
                web.post("/api/neighbors/remove", self._remove_neighbor),
                web.get("/{path:.*}", self._file),
            ]
        )
        runner = web.AppRunner(
            app,
            logger=LOGGER,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=1.0,
            keepalive_timeout=30.0,
        )
        self._runner = runner
        try:
            await runner.setup()
            assert runner.server is not None  # made by setup
            self._connections = Connections(runner.server, self._counters, "dashboard", CONNECTIONS, IDLE)
            await self._listener.open(patience)
            await self._listener.serve()
            self.stream.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close; without a start nothing happens."""
        self._listener.close()
        self.stream.stop()
        self.traces.stop()
        if self._connections is not None:
            self._connections.stop()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def _accept(self) -> asyncio.BaseProtocol:
        assert self._connections is not None
        return self._connections.accept()

    # who may ask ------------------------------------------------------------------------------------

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        assert self._connections is not None
        self._connections.begins(request)
        try:
            return await self._answered(request, handler)
        finally:
            self._connections.ended(request)

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            refused = self._refusal(request)
            answer = refused if refused is not None else await handler(request)
        except RequestError as error:
            answer = _error(400, str(error))
        except UnknownError as error:
            answer = _error(404, str(error))
        except AdminError as error:
            answer = _error(409, str(error))
        except TimeoutError:
            answer = _error(408, f"the request was not there within {PATIENCE:g} s")
        except web.HTTPException as error:
            answer = _error(error.status, f"{request.method} {request.path}: {error.reason}")
        except (ConnectionError, asyncio.CancelledError):
            raise  # whoever asked has gone
        except Exception as error:
            get_logger("ildm.dashboard").exception("request failed", method=request.method, path=request.path)
            answer = _error(500, f"internal error: {type(error).__name__}; see the node's log")
        if not answer.prepared:
            answer.headers.extend(HEADERS)
            answer.headers.setdefault("Cache-Control", "no-store")
        return answer

    def _refusal(self, request: web.Request) -> web.Response | None:
        """Why a request is not answered: before anything of it is looked at."""
        if not self._names.allow(request.host):
            self._counters["dashboard_requests_refused"] += 1
            return _error(
                421, f"this server is not called {request.host[:100]!r}; names it has are in dashboard.hosts"
            )
        if request.method not in ("GET", "HEAD") and not (
            origin_is(request.headers.get("Origin"), request.host) and HEADER in request.headers
        ):
            self._counters["dashboard_requests_refused"] += 1
            return _error(403, "this is for the pages of this server")
        if request.path in OPEN or request.path in self._files:
            return None
        if not self.sessions.knows(self._cookie(request)):
            self._counters["dashboard_requests_refused"] += 1
            return _error(401, "log in with the token of the dashboard")
        return None

    @property
    def _cookie_name(self) -> str:
        """Cookies do not heed ports, and one browser may look at several nodes of a machine."""
        return f"{'__Host-' if self.config.tls is not None else ''}ildm-{self.port}"

    def _cookie(self, request: web.Request) -> str | None:
        return request.cookies.get(self._cookie_name)

    async def _logged_in(self, request: web.Request) -> web.Response:
        return _answer({"logged_in": self.sessions.knows(self._cookie(request))})

    async def _login(self, request: web.Request) -> web.Response:
        address = request.remote or ""
        wait = self.attempts.wait(address)
        if wait > 0:
            self._counters["dashboard_logins_refused"] += 1
            refused = _error(429, f"too many wrong tokens; try again in {wait:.0f} s")
            refused.headers["Retry-After"] = str(int(wait) + 1)
            return refused
        given = parsed(await self._body(request), Login)
        if not self.sessions.is_token(given.token.get_secret_value()):
            self._counters["dashboard_logins_refused"] += 1
            self.attempts.failed(address)
            get_logger("ildm.dashboard").warning("login refused: wrong token", address=address)
            return _error(401, "this is not the token")
        answer = web.Response(status=204)
        answer.set_cookie(
            self._cookie_name,
            self.sessions.begin(),
            path="/",
            httponly=True,
            samesite="Strict",
            secure=self.config.tls is not None,
        )
        get_logger("ildm.dashboard").info("logged in", address=address)
        return answer

    async def _logout(self, request: web.Request) -> web.Response:
        self.sessions.end(self._cookie(request))
        answer = web.Response(status=204)
        answer.del_cookie(
            self._cookie_name,
            path="/",
            httponly=True,
            samesite="Strict",
            secure=self.config.tls is not None,
        )
        return answer

    # what is asked ----------------------------------------------------------------------------------

    async def _file(self, request: web.Request) -> web.Response:
        file = self._files.get(request.path)
        if file is None:
            return _error(404, f"there is no {request.path}")
        headers = {"Content-Type": file.kind, "ETag": file.tag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == file.tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=file.content, headers=headers)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        try:
            reader = self.stream.join()
        except TooManyReadersError:
            full = _error(503, "as many pages are open as the node serves")
            full.headers["Retry-After"] = "10"
            return full
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", **HEADERS}
        )
        cookie = self._cookie(request)
        try:
            await response.prepare(request)
            while (event := await reader.next()) is not None and self.sessions.knows(cookie):
                async with asyncio.timeout(PATIENCE):
                    await response.write(event.encode())
        except (ConnectionError, TimeoutError):
            request.protocol.force_close()  # it has gone, or reads no more
        finally:
            self.stream.leave(reader)
        return response

    async def _snapshot(self, _: web.Request) -> web.Response:
        return _answer({**self.stream.now(), "write": self.config.write})

    async def _clients(self, request: web.Request) -> web.Response:
        query = request.query
        return _answer(
            await search.clients(self.view.node, query.get("q", ""), _cursor(request), _limit(request))
        )

    async def _subscriptions(self, request: web.Request) -> web.Response:
        topic = _valid_topic(request.query["topic"]) if request.query.get("topic") else ""
        text = request.query.get("q", "")
        return _answer(
            await search.subscriptions(self.view.node, text, topic, _cursor(request), _limit(request))
        )

    async def _retained(self, request: web.Request) -> web.Response:
        wanted = request.query.get("filter") or "#"
        try:
            validate_topic_filter(wanted)
        except MqttError as error:
            raise RequestError(f"filter: {error}") from None
        return _answer(await search.retained(self.view.node, wanted, _cursor(request), _limit(request)))

    async def _neighbors(self, request: web.Request) -> web.Response:
        return _answer(
            search.among(
                self.view.neighbors(),
                ("node_id", "address"),
                request.query.get("q", ""),
                _cursor(request),
                _limit(request),
            )
        )

    async def _history(self, request: web.Request) -> web.Response:
        before = number(request.query, "before", 0, None) or None
        return _answer(
            await search.events(self.view.history, request.query.get("q", ""), before, _limit(request))
        )

    async def _overlay_keys(self, request: web.Request) -> web.Response:
        now = asyncio.get_running_loop().time()
        if self._overlay is None or now - self._overlay[0] > OVERLAY_FOR:
            self._overlay = now, self.view.overlay()
        found = self._overlay[1]
        names = [{"key": each.key, "place": place} for place, each in enumerate(found.keys)]
        page = search.among(names, ("key",), request.query.get("q", ""), _cursor(request), _limit(request))
        # only what is shown becomes plain data
        page["items"] = [
            search.shortened(found.keys[item["place"]].model_dump(mode="json")) for item in page["items"]
        ]
        rest = found.model_dump(mode="json", exclude={"keys"})
        rest["tables"] = {
            title: {"total": len(rows), "items": rows[:TABLE_ROWS]} for title, rows in rest["tables"].items()
        }
        return _answer({**page, **rest})

    async def _begin_trace(self, request: web.Request) -> web.Response:
        topic = _valid_topic(parsed(await self._body(request), Topic).topic)
        try:
            return _answer(self.traces.begin(topic), 202)
        except TooManyTracesError:
            return _error(429, "other traces are under way; try again")

    async def _trace(self, request: web.Request) -> web.Response:
        found = self.traces.find(request.match_info["number"])
        if found is None:
            raise UnknownError("there is no such trace, or no more")
        return _answer(found)

    # what is changed --------------------------------------------------------------------------------

    def _may_write(self) -> None:
        if not self.config.write:
            raise web.HTTPForbidden(reason="dashboard.write is false")

    async def _kick(self, request: web.Request) -> web.Response:
        self._may_write()
        return _answer(self.view.kick(parsed(await self._body(request), Kick).client_id))

    async def _add_neighbor(self, request: web.Request) -> web.Response:
        self._may_write()
        body = parsed(await self._body(request), AddNeighbor)
        row = self.view.add_neighbor(body.address, body.save)
        if body.save:
            await saved(self.view, "added")
        get_logger("ildm.dashboard").info("neighbour added", address=str(body.address), saved=body.save)
        return _answer(row, 201)

    async def _remove_neighbor(self, request: web.Request) -> web.Response:
        self._may_write()
        body = parsed(await self._body(request), RemoveNeighbor)
        row = self.view.remove_neighbor(body.target, body.save, body.force)
        if body.save:
            await saved(self.view, "removed")
        get_logger("ildm.dashboard").info("neighbour removed", target=body.target, saved=body.save)
        return _answer(row)

    async def _body(self, request: web.Request) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await request.read()


def _answer(row: Row, status: int = 200) -> web.Response:
    return web.json_response(row, status=status, dumps=_dumps)


def _dumps(row: Any) -> str:
    return json.dumps(row, separators=(",", ":"))


def _error(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)


def _cursor(request: web.Request) -> search.Cursor:
    try:
        return search.Cursor.parse(request.query.get("cursor"))
    except ValueError as error:
        raise RequestError(f"cursor: {error}") from None


def _limit(request: web.Request) -> int:
    return max(1, number(request.query, "limit", 50, search.LARGEST_PAGE))


def _valid_topic(topic: str) -> str:
    try:
        validate_topic_name(topic)
    except MqttError as error:
        raise RequestError(f"topic: {error}") from None
    return topic
