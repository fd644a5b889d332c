"""The admin API: JSON over HTTP on a unix socket.

======= ========================= =========================================== ======================
GET     /v1/status                                                            the view's object
GET     /v1/internals                                                         the view's object
GET     /v1/neighbors             ``?limit=&offset=``                         ``{total, items}``
GET     /v1/neighbors/refused     ``?limit=&offset=``                         ``{total, items}``
GET     /v1/clients               ``?limit=&offset=``                         ``{total, items}``
GET     /v1/subscriptions         ``?limit=&offset=``                         ``{total, items}``
POST    /v1/sessions              ``{"sessions": [...]}``                     what was taken
DELETE  /v1/sessions/adoption                                                 ``{unknown}``
DELETE  /v1/clients/ID                                                        ``{client_id, ended}``
GET     /v1/rules                 ``?limit=&offset=``                         ``{total, items}``
GET     /v1/bans                  ``?limit=&offset=``                         ``{total, items}``
POST    /v1/bans                  ``{"kind", "name", "seconds": null}``       201, the ban
DELETE  /v1/bans/KIND/NAME                                                    ``{kind, name}``
GET     /v1/events                ``?limit=&offset=``                         ``{total, items}``
GET     /v1/retained              ``?filter=&limit=&offset=``                 ``{total, items}``
GET     /v1/health                                                            ``{ready, problems, warnings}``
GET     /v1/algorithm                                                         the view's object
GET     /v1/overlay                                                           the view's object
GET     /v1/overlay/trace         ``?topic=``                                 the tree of a message
GET     /v1/trace                 ``?topic=``                                 its way over all sites
POST    /v1/traces                ``{"filter", "seconds", "messages": 100,    201, ``{name}``
                                  "one_in": 1}``
GET     /v1/traces/NAME                                                       messages noted up to now
DELETE  /v1/traces/NAME                                                       the same, and it ends
GET     /v1/kept                  ``?topic=&client=``                         ``{items}``
GET     /v1/spool                                                             the view's object
GET     /v1/spool/RECEIVER        ``?after=&limit=``                          ``{items}``
DELETE  /v1/spool/RECEIVER                                                    what was thrown away
POST    /v1/neighbors             ``{"address": "HOST:PORT", "save": true}``  201, the neighbour
DELETE  /v1/neighbors/TARGET      ``?save=true&force=false``                  the neighbour
POST    /v1/reload                ``{"dry_run": false}``                      the view's object
POST    /v1/plugins/reload                                                    the view's object
GET     /v1/log-level                                                         ``{level}``
PUT     /v1/log-level             ``{"level": "debug"}``                      ``{level}``
POST    /v1/upgrade               ``{"python": null, "timeout": 60}``         the view's object
POST    /v1/stop                                                              202, ``{"stopping": true}``
======= ========================= =========================================== ======================

``/metrics``, ``/livez`` and ``/readyz`` are here, too (``metrics.py``), as text.

An error is ``{"error": text}``: 400 not understood, 404 unknown, 408 not there in time, 409 not possible
now, 500 our fault, 504 no answer from the overlay in time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from aiohttp import web
from pydantic import AfterValidator, Field, StrictBool, StrictInt, model_validator

from ildm.admin.connections import Connections
from ildm.admin.metrics import told, watch_routes
from ildm.admin.not_http import LOGGER
from ildm.admin.overlay import as_json
from ildm.admin.requests import AddNeighbor, Body, Model, RequestError, number, parsed, saved
from ildm.admin.unix_socket import open_socket
from ildm.admin.view import AdminError, NodeView, Row, UnknownError
from ildm.core.link.watching import LONGEST, MESSAGES, ONE_IN
from ildm.core.local.bans import KINDS
from ildm.core.local.clients import NEVER
from ildm.core.local.session_import import MAX_FILTERS, MAX_SESSIONS
from ildm.log import get_logger, log_level
from ildm.mqtt import MqttError, validate_topic_filter, validate_topic_name
from ildm.unix_socket import close_socket, socket_inode

if TYPE_CHECKING:
    from ildm.config.watching import AdminConfig
    from ildm.core.counters import Counters

BODY_LIMIT = 16 << 10
SESSIONS_LIMIT = 64 << 20
"""Bytes of the body with sessions, as many as are taken at a time."""
DEFAULT_LIMIT = 1000
MAX_LIMIT = 100_000
TRACE_TIMEOUT = 8.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _any_filter(text: str) -> str:
    try:
        validate_topic_filter(text)
    except MqttError as error:
        raise ValueError(str(error)) from None
    return text


def _topic_filter(text: str) -> str:
    _any_filter(text)
    if text.startswith("$"):
        raise ValueError("topics that begin with $ do not cross")
    return text


class AddBan(Body):
    """Body of ``POST /v1/bans``."""

    kind: Literal["client", "user", "address"]
    name: Annotated[str, Field(min_length=1, max_length=65535)]
    seconds: Annotated[float, Field(gt=0, le=86400 * 3650)] | None = None


class ImportedSession(Body):
    """A session of ``POST /v1/sessions``."""

    client_id: Annotated[str, Field(min_length=1, max_length=65535)]
    filters: dict[Annotated[str, AfterValidator(_any_filter)], Annotated[StrictInt, Field(ge=0, le=2)]]
    expiry: Annotated[StrictInt, Field(ge=1, lt=NEVER)] | None = None


class ImportSessions(Body):
    """Body of ``POST /v1/sessions``."""

    sessions: Annotated[list[ImportedSession], Field(max_length=MAX_SESSIONS)]

    @model_validator(mode="after")
    def _bounded(self) -> ImportSessions:
        filters = sum(len(session.filters) for session in self.sessions)
        if filters > MAX_FILTERS:
            raise ValueError(f"{filters:,} filters; {MAX_FILTERS:,} at most")
        return self


class Watched(Body):
    """Body of ``POST /v1/traces``."""

    filter: Annotated[str, AfterValidator(_topic_filter)]
    seconds: Annotated[float, Field(gt=0, le=LONGEST)]
    messages: Annotated[int, Field(ge=1, le=MESSAGES)] = 100
    one_in: Annotated[int, Field(ge=1, le=ONE_IN)] = 1


class Reload(Body):
    """Body of ``POST /v1/reload``."""

    dry_run: StrictBool = False


class Upgrade(Body):
    """Body of ``POST /v1/upgrade``."""

    python: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    timeout: Annotated[float, Field(gt=0, le=3600)] = 60.0


class LogLevel(Body):
    """Body of ``PUT /v1/log-level``."""

    level: Literal["debug", "info", "warning", "error"]


class AdminServer:
    """Serves a :class:`NodeView` from :meth:`start` to :meth:`stop`.

    Args:
        config: of its connections; the socket is ``socket_path``.
        counters: the node's.
        trace_timeout: seconds until a trace through the overlay is given up; less than clients wait.
    """

    def __init__(
        self,
        view: NodeView,
        socket_path: Path,
        config: AdminConfig,
        counters: Counters,
        trace_timeout: float = TRACE_TIMEOUT,
    ) -> None:
        self.view = view
        self._config = config
        self._counters = counters
        self._connections: Connections | None = None
        self.trace_timeout = trace_timeout
        self.path = socket_path
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._inode: tuple[int, int] | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            AdminError: the socket is in use or cannot be made.
        """
        listener = open_socket(self.path)
        self._inode = socket_inode(self.path)
        try:
            runner = web.AppRunner(
                self._app(), logger=LOGGER, access_log=None, handle_signals=False, shutdown_timeout=1.0
            )
            self._runner = runner
            await runner.setup()
            assert runner.server is not None  # made by setup
            config = self._config
            self._connections = Connections(
                runner.server, self._counters, "admin", config.connections, config.idle
            )
            self._server = await asyncio.get_running_loop().create_unix_server(
                self._connections.accept, sock=listener
            )
        except BaseException:
            listener.close()
            await self.stop()
            raise

    def retire(self) -> None:
        """Give the socket up for another process; what is being asked is still answered."""
        inode, self._inode = self._inode, None
        if inode is not None:
            close_socket(self.path, inode)
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        """Answer what is being asked, close, remove the socket file. Without a start: nothing happens."""
        server, self._server = self._server, None
        runner, self._runner = self._runner, None
        inode, self._inode = self._inode, None
        if inode is not None:
            close_socket(self.path, inode)
        if server is not None:
            server.close()
        if self._connections is not None:
            self._connections.stop()
        if runner is not None:
            await runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._counted, _json_errors], client_max_size=BODY_LIMIT)
        view = self.view
        app.add_routes(
            [
                web.get("/v1/status", self._status),
                web.get("/v1/internals", _object(view.internals)),
                web.get("/v1/neighbors", _page(view.neighbors)),
                web.get("/v1/neighbors/refused", _page(view.refused_neighbors)),
                web.get("/v1/clients", _page(view.clients)),
                web.get("/v1/subscriptions", _page(view.subscriptions)),
                web.get("/v1/algorithm", _object(view.algorithm)),
                web.get("/v1/overlay", self._overlay),
                web.get("/v1/overlay/trace", self._answer_on(view.trace)),
                web.get("/v1/trace", self._answer_on(view.follow)),
                web.post("/v1/traces", self._watch),
                web.get("/v1/traces/{name}", self._watched),
                web.delete("/v1/traces/{name}", self._unwatch),
                web.get("/v1/kept", self._kept),
                web.get("/v1/spool", _object(view.spool)),
                web.get("/v1/spool/{receiver:.+}", self._spooled),
                web.delete("/v1/spool/{receiver:.+}", self._drop_spooled),
                web.get("/v1/health", self._health),
                web.get("/v1/events", _page(view.events)),
                web.get("/v1/retained", self._retained),
                web.post("/v1/sessions", self._import_sessions),
                web.delete("/v1/sessions/adoption", _object(view.end_adoption)),
                web.delete("/v1/clients/{client_id:.+}", self._kick),
                web.get("/v1/rules", _page(view.rules)),
                web.get("/v1/bans", _page(view.bans)),
                web.post("/v1/bans", self._ban),
                web.delete("/v1/bans/{kind}/{name:.+}", self._lift_ban),
                web.post("/v1/neighbors", self._add_neighbor),
                web.delete("/v1/neighbors/{target}", self._remove_neighbor),
                web.post("/v1/reload", self._reload),
                web.post("/v1/plugins/reload", self._reload_plugins),
                web.get("/v1/log-level", _object(lambda: {"level": log_level()})),
                web.put("/v1/log-level", self._set_log_level),
                web.post("/v1/upgrade", self._upgrade),
                web.post("/v1/stop", self._stop),
                *watch_routes(view),
            ]
        )
        return app

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        assert self._connections is not None
        self._connections.begins(request)
        try:
            return await handler(request)
        finally:
            self._connections.ended(request)

    async def _body(self, request: web.Request, model: type[Model]) -> Model:
        return parsed(await self._content(request), model)

    async def _content(self, request: web.Request) -> bytes:
        try:
            async with asyncio.timeout(self._config.idle):
                return await request.read()
        except ConnectionResetError as error:  # nobody is left to be told
            raise RequestError("it ended before its body did") from error
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(reason=f"no body within {self._config.idle:g} s") from error

    def _answer_on(self, ask: Callable[[str, Callable[[Row | AdminError], None]], None]) -> Handler:
        """Asks about a topic, and waits for what comes back."""

        async def handler(request: web.Request) -> web.Response:
            topic = request.query.get("topic")
            if not topic:
                raise RequestError("topic: is missing")
            found: asyncio.Future[Row] = asyncio.get_running_loop().create_future()

            def done(answer: Row | AdminError) -> None:
                if found.done():
                    return  # nobody waits any more for an answer that is late
                if isinstance(answer, AdminError):
                    found.set_exception(answer)
                else:
                    found.set_result(answer)

            ask(topic, done)
            try:
                return web.json_response(await asyncio.wait_for(found, self.trace_timeout))
            except TimeoutError:
                return _error(504, f"the overlay gave no answer on {topic!r} within {self.trace_timeout:g} s")

        return handler

    async def _overlay(self, _: web.Request) -> web.Response:
        return web.json_response(text=await as_json(self.view.overlay()))

    async def _status(self, _: web.Request) -> web.Response:
        with contextlib.suppress(web.HTTPGatewayTimeout):  # then as it was known before
            await told(self.view.problems)  # a node without sessions of its own asks the broker only now
        return web.json_response(self.view.status())

    async def _watch(self, request: web.Request) -> web.Response:
        body = await self._body(request, Watched)
        row = self.view.watch(body.filter, body.seconds, body.messages, body.one_in)
        get_logger("ildm.admin").info("trace of messages begun", filter=body.filter, seconds=body.seconds)
        return web.json_response(row, status=201)

    async def _watched(self, request: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(self.view.watched, request.match_info["name"]))

    async def _unwatch(self, request: web.Request) -> web.Response:
        return web.json_response(self.view.unwatch(request.match_info["name"]))

    async def _kept(self, request: web.Request) -> web.Response:
        topic = request.query.get("topic", "")
        try:
            validate_topic_name(topic)
        except MqttError as error:
            raise RequestError(f"topic: {error}") from error
        items = self.view.kept(topic, request.query.get("client", ""))
        return web.json_response({"items": items})

    async def _health(self, _: web.Request) -> web.Response:
        problems: list[str] = await told(self.view.problems)
        return web.json_response(
            {"ready": not problems, "problems": problems, "warnings": self.view.warnings()}
        )

    async def _retained(self, request: web.Request) -> web.Response:
        wanted = request.query.get("filter", "#")
        try:
            validate_topic_filter(wanted)
        except MqttError as error:
            raise RequestError(f"filter: {error}") from None
        limit = number(request.query, "limit", DEFAULT_LIMIT, MAX_LIMIT)
        return web.json_response(self.view.retained(wanted, limit, number(request.query, "offset", 0, None)))

    async def _import_sessions(self, request: web.Request) -> web.Response:
        content = await self._content(request.clone(client_max_size=SESSIONS_LIMIT))
        body = await asyncio.to_thread(parsed, content, ImportSessions)
        answer: asyncio.Future[Row] = asyncio.get_running_loop().create_future()
        self.view.import_sessions(
            [each.model_dump() for each in body.sessions],
            lambda row: None if answer.done() else answer.set_result(row),
        )
        row = await answer
        await saved(self.view, "imported")
        get_logger("ildm.admin").info("sessions imported", **row)
        return web.json_response(row)

    async def _kick(self, request: web.Request) -> web.Response:
        return web.json_response(self.view.kick(request.match_info["client_id"]))

    async def _ban(self, request: web.Request) -> web.Response:
        body = await self._body(request, AddBan)
        return web.json_response(self.view.ban(body.kind, body.name, body.seconds), status=201)

    async def _lift_ban(self, request: web.Request) -> web.Response:
        kind, name = request.match_info["kind"], request.match_info["name"]
        if kind not in KINDS:
            raise RequestError(f"kind: expected one of {', '.join(KINDS)}")
        return web.json_response(self.view.lift_ban(kind, name))

    async def _add_neighbor(self, request: web.Request) -> web.Response:
        body = await self._body(request, AddNeighbor)
        row = self.view.add_neighbor(body.address, body.save)
        if body.save:
            await saved(self.view, "added")
        get_logger("ildm.admin").info("neighbour added", address=str(body.address), saved=body.save)
        return web.json_response(row, status=201)

    async def _remove_neighbor(self, request: web.Request) -> web.Response:
        target = request.match_info["target"]
        save, force = _truth(request, "save", True), _truth(request, "force", False)
        row = self.view.remove_neighbor(target, save, force)
        if save:
            await saved(self.view, "removed")
        get_logger("ildm.admin").info(
            "neighbour removed", target=target, saved=save, thrown_away=row["thrown_away"]["messages"]
        )
        return web.json_response(row)

    async def _spooled(self, request: web.Request) -> web.Response:
        receiver = request.match_info["receiver"]
        after = number(request.query, "after", 0, None)
        limit = number(request.query, "limit", DEFAULT_LIMIT, MAX_LIMIT)
        return web.json_response(await asyncio.to_thread(self.view.spooled, receiver, after, limit))

    async def _drop_spooled(self, request: web.Request) -> web.Response:
        row = self.view.drop_spooled(request.match_info["receiver"])
        get_logger("ildm.admin").warning("messages of the spool thrown away", **row)
        return web.json_response(row)

    async def _reload(self, request: web.Request) -> web.Response:
        body = await self._body(request, Reload)
        # whoever asks may go away meanwhile; what has begun is done
        return web.json_response(await asyncio.shield(self.view.reload(body.dry_run)))

    async def _reload_plugins(self, request: web.Request) -> web.Response:
        config = await asyncio.to_thread(self.view.read_config)
        answer = self.view.reload_plugins(config)
        changed = [row["name"] for row in answer["plugins"] if row["result"] == "changed"]
        get_logger("ildm.admin").info("options of plugins reloaded", file=answer["file"], changed=changed)
        return web.json_response(answer)

    async def _set_log_level(self, request: web.Request) -> web.Response:
        body = await self._body(request, LogLevel)
        self.view.set_log_level(body.level)
        return web.json_response({"level": body.level})

    async def _upgrade(self, request: web.Request) -> web.Response:
        body = await self._body(request, Upgrade)
        get_logger("ildm.admin").info("upgrade asked for", python=body.python)
        # whoever asks may go away meanwhile; what has begun is done
        return web.json_response(await asyncio.shield(self.view.upgrade(body.python, body.timeout)))

    async def _stop(self, request: web.Request) -> web.Response:
        get_logger("ildm.admin").info("stop asked for")
        self.view.stop()
        return web.json_response({"stopping": True}, status=202)


def _object(read: Callable[[], Row]) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response(read())

    return handler


def _page(read: Callable[[], Sequence[Row]]) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        limit = number(request.query, "limit", DEFAULT_LIMIT, MAX_LIMIT)
        offset = number(request.query, "offset", 0, None)
        rows = read()
        return web.json_response({"total": len(rows), "items": rows[offset : offset + limit]})

    return handler


def _truth(request: web.Request, name: str, default: bool) -> bool:
    text = request.query.get(name, "true" if default else "false")
    if text not in ("true", "false"):
        raise RequestError(f"{name}: expected true or false, found {text!r}")
    return text == "true"


def _error(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)


@web.middleware
async def _json_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestError as error:
        return _error(400, str(error))
    except UnknownError as error:
        return _error(404, str(error))
    except AdminError as error:
        return _error(409, str(error))
    except web.HTTPException as error:
        return _error(error.status, f"{request.method} {request.path}: {error.reason}")
    except Exception as error:
        get_logger("ildm.admin").exception("admin request failed", method=request.method, path=request.path)
        return _error(500, f"internal error: {type(error).__name__}; see the node's log")
