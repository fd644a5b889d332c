"""Traces of messages at a collector: a real HTTP receiver, which holds them against the schema of OTLP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
from aiohttp import web

from ildm.config import Config, ConfigError, TraceConfig, parse_config
from ildm.core.counters import Counters
from ildm.net import otlp
from ildm.net.otlp import Exporter, read_headers
from ildm.net.run import NodeServer
from ildm.preflight import examine

ATTRIBUTES = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["key", "value"],
        "additionalProperties": False,
        "properties": {
            "key": {"type": "string"},
            "value": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": False,
                "properties": {
                    "stringValue": {"type": "string"},
                    "intValue": {"type": "string", "pattern": "^-?[0-9]+$"},
                },
            },
        },
    },
}
NANOSECONDS = {"type": "string", "pattern": "^[0-9]{19}$"}


def shape(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required,
        "additionalProperties": False,
        "properties": properties,
    }


def many(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": item}


EVENT = shape(
    ["timeUnixNano", "name"], timeUnixNano=NANOSECONDS, name={"type": "string"}, attributes=ATTRIBUTES
)
SPAN = shape(
    ["traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano"],
    traceId={"type": "string", "pattern": "^[0-9a-f]{32}$"},
    spanId={"type": "string", "pattern": "^[0-9a-f]{16}$"},
    parentSpanId={"type": "string", "pattern": "^[0-9a-f]{16}$"},
    name={"type": "string", "minLength": 1},
    kind={"enum": [1, 2, 3, 4, 5]},
    startTimeUnixNano=NANOSECONDS,
    endTimeUnixNano=NANOSECONDS,
    attributes=ATTRIBUTES,
    events=many(EVENT),
)
"""ExportTraceServiceRequest, as the specification of OTLP 1 maps protobuf to JSON."""
check = fastjsonschema.compile(
    shape(
        ["resourceSpans"],
        resourceSpans=many(
            shape(
                ["resource", "scopeSpans"],
                resource=shape(["attributes"], attributes=ATTRIBUTES),
                scopeSpans=many(
                    shape(["spans"], scope=shape(["name"], name={"type": "string"}), spans=many(SPAN))
                ),
            )
        ),
    )
)


class Collector:
    """Answers with what it is told to; 200 after that."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[int] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        self.bodies.append(json.loads(await request.read()))
        status = self.answers.pop(0) if self.answers else 200
        return web.json_response({}, status=status, headers={"Location": "/elsewhere"})

    def spans(self) -> dict[str, list[dict[str, Any]]]:
        """By node."""
        found: dict[str, list[dict[str, Any]]] = {}
        for body in self.bodies:
            check(body)
            for resource in body["resourceSpans"]:
                named = {each["key"]: each["value"] for each in resource["resource"]["attributes"]}
                node = named["service.instance.id"]["stringValue"]
                found.setdefault(node, []).extend(resource["scopeSpans"][0]["spans"])
        return found


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    app = web.Application()
    app.add_routes([web.post("/v1/traces", made.handle)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    made.url = f"http://{host}:{port}/v1/traces"
    yield made
    await runner.cleanup()


def message(topic: str = "t") -> dict[str, Any]:
    steps = [
        ("a", "received", None, 0.0),
        ("a", "sent", "b", 0.001),
        ("b", "received", "a", 0.002),
        ("b", "sent", None, 0.003),
        ("b", "acknowledged", None, 0.004),
        ("c", "sent", None, 0.005),
    ]
    rows = [
        {"node": node, "what": what, "peer": peer, "topic": topic, "seconds": at}
        for node, what, peer, at in steps
    ]
    return {"topic": topic, "size": 3, "qos": 1, "node": "a", "at": 1_700_000_000.5, "steps": rows}


def exporter_to(config: TraceConfig, counters: Counters) -> Exporter:
    to = otlp.Collector.of(config)
    assert to is not None
    return Exporter(to, counters)


async def sent(exporter: Exporter) -> None:
    async with asyncio.timeout(120):
        while exporter._task is not None:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.01)


async def test_a_message_is_a_trace_and_a_node_a_span_below_that_it_came_from(collector: Collector) -> None:
    counters = Counters()
    exporter = exporter_to(TraceConfig(otlp=collector.url), counters)
    exporter.export([message(), message("u")])
    await sent(exporter)
    spans = collector.spans()
    assert {node: len(found) for node, found in spans.items()} == {"a": 2, "b": 2, "c": 2}
    a, b, c = (spans[node][0] for node in "abc")
    assert "parentSpanId" not in a
    assert b["parentSpanId"] == c["parentSpanId"] == a["spanId"]
    assert len({each["traceId"] for each in (a, b, c)}) == 1
    assert spans["a"][1]["traceId"] != a["traceId"]
    assert (a["startTimeUnixNano"], b["endTimeUnixNano"]) == ("1700000000500000000", "1700000000504000000")
    assert [each["name"] for each in b["events"]] == ["received", "sent", "acknowledged"]
    assert (a["kind"], b["kind"]) == (4, 5)
    assert counters["trace_spans_exported"] == 6


async def test_what_is_refused_for_now_is_sent_again_and_for_good_it_is_counted(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(otlp, "pause", pause)
    counters = Counters()
    exporter = exporter_to(TraceConfig(otlp=collector.url), counters)
    collector.answers = [503, 429]
    exporter.export([message()])
    await sent(exporter)
    assert (len(collector.bodies), pauses, counters["trace_spans_exported"]) == (3, [1.0, 2.0], 3)
    collector.answers = [400]
    exporter.export([message()])
    await sent(exporter)
    assert (len(collector.bodies), counters["trace_spans_refused"]) == (4, 3)
    collector.answers = [307]  # the headers are not for anybody else
    exporter.export([message()])
    await sent(exporter)
    collector.answers = [502] * 9
    exporter.export([message()])
    await sent(exporter)
    assert (len(collector.bodies), counters["trace_spans_refused"]) == (5 + otlp.ATTEMPTS, 9)


async def test_so_much_waits_and_the_rest_is_counted(collector: Collector) -> None:
    counters = Counters()
    exporter = exporter_to(TraceConfig(otlp=collector.url, queue=4), counters)
    exporter.export([message(), message()])
    assert counters["trace_spans_dropped"] == 2
    await exporter.stop()
    assert counters["trace_spans_dropped"] + counters["trace_spans_exported"] == 6


async def test_what_is_being_sent_at_the_end_is_counted_as_what_waits(collector: Collector) -> None:
    counters = Counters()
    exporter = exporter_to(TraceConfig(otlp=collector.url), counters)
    collector.answers = [503]  # after which the request waits to be made again
    exporter.export([message()])
    async with asyncio.timeout(120):
        while not collector.bodies:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.01)
    exporter.export([message()])
    await exporter.stop()
    assert (counters["trace_spans_dropped"], counters["trace_spans_exported"]) == (6, 0)


async def test_headers_are_read_from_a_file_and_never_shown(collector: Collector, tmp_path: Path) -> None:
    path = tmp_path / "headers"
    path.write_text("Authorization: Bearer hidden\n\nX-Tenant: one\n")
    exporter = exporter_to(TraceConfig(otlp=collector.url, headers_file=path), Counters())
    exporter.export([message()])
    await sent(exporter)
    assert collector.headers[0]["Authorization"] == "Bearer hidden"
    assert collector.headers[0]["X-Tenant"] == "one"
    path.write_text("hidden without a colon")
    with pytest.raises(ConfigError) as error:
        read_headers(path)
    assert "line 1: expected NAME: VALUE" in str(error.value)
    assert "hidden" not in str(error.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_headers(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"otlp": "ftp://h/x"}, "trace.otlp"),
        ({"otlp": "http://user:hidden@h/x"}, "trace.otlp"),
        ({"otlp": "https://h/v1/traces"}, "ca and an otlp of https go together"),
        ({"otlp": "http://h/v1/traces", "ca": "ca.pem"}, "ca and an otlp of https go together"),
        ({"headers_file": "x"}, "without effect"),
        ({"queue": 0}, "trace.queue"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, section: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_config({"trace": section}, "f", tmp_path)


def configured(directory: Path, url: str) -> Config:
    document = {
        "state_dir": "state",
        "node_id": "a",
        "listen": "127.0.0.1:0",
        "link": {"listen": None},
        "algorithm": "pf",
        "broker": {"address": "127.0.0.1:1"},
        "limits": {"drain_timeout": 0.1},
        "trace": {"otlp": url},
    }
    return parse_config(document, "test", directory)


async def test_a_node_exports_the_traces_that_it_was_asked_for(collector: Collector, tmp_path: Path) -> None:
    server = NodeServer(configured(tmp_path, collector.url))
    await server.start()
    try:
        name = server.view.watch("t", 60.0, 10, 1)["name"]
        recorder = server.node.router.recorder
        assert recorder is not None
        recorder.run("received", "", b"\x30\x05\0\1t\0x", 7)
        await asyncio.sleep(0.5)
        assert collector.bodies == []
        (found,) = server.view.unwatch(name)["messages"]
        assert found["topic"] == "t"
        assert server.exporter is not None
        await sent(server.exporter)
        assert [each["name"] for each in collector.spans()["a"]] == ["publish t"]
    finally:
        await server.stop()


def test_files_that_cannot_be_used_are_found_before_the_start(tmp_path: Path) -> None:
    trace = {"otlp": "https://127.0.0.1/v1/traces", "ca": "ca.pem", "headers_file": "headers"}
    config = parse_config({"trace": trace}, "f", tmp_path)
    (tmp_path / "headers").write_text("Authorization: Bearer x\n")
    (tmp_path / "ca.pem").write_text("no certificate")
    (found,) = [each for each in examine(config, thorough=False) if each.key.startswith("trace")]
    assert (found.key, found.fatal) == ("trace.ca", True)
    (tmp_path / "headers").unlink()
    (found,) = [each for each in examine(config, thorough=False) if each.key.startswith("trace")]
    assert found.key == "trace.headers_file"
