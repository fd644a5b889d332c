from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest

from ildm.admin.client import AdminClient, Neighbors, Page
from ildm.admin.commands import COMMANDS, Limit, UsageError, command, split_name
from ildm.admin.view import AdminError
from ildm.api import MessageTrace, OverlayKey, OverlayView
from ildm.cli import render, terminal
from ildm.text import printable
from tests.admin.fake_node import (
    EVENT,
    HOPS,
    KEPT_VALUE,
    MESSAGES,
    NEIGHBOR,
    REFUSED,
    RULE,
    SPOOLED,
    FakeView,
)

STATUS = FakeView().status()
RELOADED = FakeView().reload_plugins(FakeView().read_config())
REREAD = asyncio.run(FakeView().reload(True))


def traced(topic: str = "a/b") -> dict[str, Any]:
    answers: list[dict[str, Any] | AdminError] = []
    FakeView().trace(topic, answers.append)
    assert isinstance(answers[0], dict)
    return answers[0]


KEPT = {
    "receiver": "link/north",
    "messages": 1200,
    "bytes": 64_000,
    "on_disk": 200,
    "oldest": 1_700_000_000.0,
}
ANSWERS: dict[str, list[Any]] = {
    "status": [STATUS, {**STATUS, "counters": {}, "filters": [], "algorithm": None}],
    "neighbor list": [
        Neighbors(
            9,
            [NEIGHBOR, {**NEIGHBOR, "state": "refused", "reason": "another algorithm", "node_id": None}],
            [],
        ),
        Neighbors(0, [], [REFUSED]),
    ],
    "neighbor add": [{**NEIGHBOR, "state": "down", "reason": "connection refused"}],
    "neighbor remove": [{"address": None, "node_id": "north", "state": "removed"}],
    "clients": [Page(2, FakeView().clients()), Page(0, [])],
    "subscriptions": [Page(5, FakeView().subscriptions()), Page(0, [])],
    "algorithm": [
        FakeView().algorithm(),
        {**FakeView().algorithm(), "counters": {}, "gauges": {}, "refused": {}, "calls": 0, "filters": []},
        {"name": None, "filters": FakeView().algorithm()["filters"]},
        {"name": None, "filters": []},
    ],
    "plugin reload": [RELOADED, {**RELOADED, "not_applied": [], "plugins": []}],
    "reload": [REREAD, {**REREAD, "dry_run": False}, {**REREAD, "changes": [], "warnings": []}],
    "overlay": [
        FakeView().overlay().model_dump(),
        OverlayView(node="south", keys=[OverlayKey(key="default south", status="joining")]).model_dump(),
        OverlayView(node="south", tables={"members": []}).model_dump(),
    ],
    "overlay trace": [traced(), traced("cut off"), MessageTrace(topic="a").model_dump()],
    "client kick": [{"client_id": "sensor-1", "ended": 1}],
    "client ban": [
        {"kind": "client", "name": "sensor-1", "until": None, "ended": 0},
        {"kind": "address", "name": "192.0.2.1", "until": 4_000_000_000.0, "ended": 2},
    ],
    "client allow": [{"kind": "user", "name": "x"}],
    "client bans": [
        Page(
            2,
            [
                {"kind": "user", "name": "x", "until": None, "why": "administrator"},
                {"kind": "address", "name": "192.0.2.1", "until": 4e9, "why": "authentication"},
            ],
        ),
        Page(0, []),
    ],
    "rules": [Page(2, [RULE, {**RULE, "action": "deny", "qos": None, "neighbor": "north"}]), Page(0, [])],
    "events": [Page(9, [EVENT]), Page(0, [])],
    "retained": [Page(1, [KEPT_VALUE]), Page(0, [])],
    "health": [{"ready": True, "problems": [], "warnings": []}],
    "trace": [
        {"topic": "a/b", "hops": HOPS, "kept": []},
        {"topic": "a/b", "hops": HOPS[:1], "kept": FakeView().kept("a/b", "")},
        {**traced(), "kept": [{"neighbor": None, "why": "the rules of publish keep it here"}]},
        {"topic": "a/#", "messages": MESSAGES, "left_out": 0, "over": True, "filters": ["a/#"]},
        {"topic": "a/#", "messages": [], "left_out": 7, "over": True, "filters": ["a/#"]},
    ],
    "spool": [
        {**FakeView().spool(), "receivers": [KEPT]},
        {**FakeView().spool(), "messages": 0},
        {**FakeView().spool(), "full": True},
        {**FakeView().spool(), "failure": "No space left on device"},
        {**STATUS["spool"], "mode": "off"},
    ],
    "spool show": [Page(9, [SPOOLED]), Page(0, [])],
    "spool export": [{"receiver": "link/north", "file": "kept.json", "messages": 3}],
    "spool drop": [{"receiver": "link/north", "messages": 3, "bytes": 900, "oldest": None}],
    "sessions import": [
        {"sessions": 3, "filters": 9, "skipped": 0, "unknown": 0},
        {"sessions": 3, "filters": 9, "skipped": 1, "unknown": 2},
    ],
    "sessions adopted": [{"unknown": 0}, {"unknown": 2}],
    "log-level": [{"level": "debug"}],
    "upgrade": [{"pid": 4711, "clients": 10_000, "sent_away": 3, "pause": 0.12}],
    "stop": [{"stopping": True, "stopped": True}, {"stopping": True, "stopped": False}],
}


def shown(name: str, answer: Any) -> str:
    stream = io.StringIO()
    terminal.make_console(stream).print(render.show(name, answer))
    return stream.getvalue()


def test_another_client_in_the_node_s_place_is_named_while_the_broker_is_there() -> None:
    broker = {**STATUS["broker"], "connected": True, "contested": "another client uses its id"}
    assert "another client uses its id" in shown("status", {**STATUS, "broker": broker})


def test_sessions_older_than_the_node_are_told_of() -> None:
    text = shown("status", {**STATUS, "sessions_unknown": 3, "sessions_adopted_for": 7200.0})
    assert "2 with a session older than the node" in text
    assert "of clients that are away: 2h" in text
    assert "older" not in shown("status", STATUS)


def test_neighbours_with_the_same_broker_are_named() -> None:
    broker = {**STATUS["broker"], "shared_with": ["site-b", "site-c"]}
    assert "also the broker of site-b, site-c" in shown("status", {**STATUS, "broker": broker})


def test_that_none_would_be_noticed_is_said_where_there_are_neighbours() -> None:
    broker = {**STATUS["broker"], "sharing_unknown": "it cannot be found out"}
    assert "it cannot be found out" in shown("status", {**STATUS, "broker": broker})
    links = dict.fromkeys(STATUS["links"], 0)
    assert "it cannot be found out" not in shown("status", {**STATUS, "broker": broker, "links": links})


def test_where_else_the_broker_may_be_and_how_often_the_node_had_to_go_there() -> None:
    addresses = ["127.0.0.1:1884", "127.0.0.1:1886"]
    broker = {**STATUS["broker"], "addresses": addresses, "failovers": 1, "in_use_for": 2.0}
    text = shown("status", {**STATUS, "broker": broker})
    assert "or at 127.0.0.1:1886  (failovers: 1, the last 2s ago)" in text


def test_clocks_that_are_apart_are_shown() -> None:
    lines = ["the clock of b is 400 d behind this node's", "the clock of c is 2 h ahead of this node's"]
    status = shown("status", {**STATUS, "clock": lines})
    health = shown("health", {"ready": True, "problems": [], "warnings": lines})
    assert all(line in status and line in health for line in lines)
    assert health.startswith("ready")


def test_every_command_can_be_shown() -> None:
    assert set(render.SHOW) == set(COMMANDS) == set(ANSWERS)


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_can_be_shown(name: str) -> None:
    for answer in ANSWERS[name]:
        assert shown(name, answer).strip()


def test_what_became_of_a_message_is_told_node_by_node() -> None:
    text = shown("trace", ANSWERS["trace"][3])
    assert "a/b  QoS 1  12 B" in text
    assert "south  received 0.0 ms  to north 1.2 ms" in text
    assert "    └── north  received 2.3 ms  to its broker 2.5 ms, acknowledged 4.2 ms" in text


def test_where_no_message_was_followed_it_is_said_what_else_to_ask() -> None:
    text = shown("trace", {"topic": "a/#", "messages": [], "left_out": 0})
    assert text.startswith("no message on a/# was seen that any other site wants\n")
    assert "ildm trace TOPIC, without --for, says who would get one" in text


def test_a_node_stands_below_the_one_it_has_the_message_from_whatever_its_clock_says() -> None:
    (message,) = MESSAGES
    steps = [dict(step) for step in message["steps"]]
    steps = [{**step, "seconds": -0.5} if step["node"] == "north" else step for step in steps]
    late = {**message, "node": "north", "steps": sorted(steps, key=lambda step: step["seconds"])}
    lines = shown("trace", {"topic": "a/#", "messages": [late], "left_out": 0}).splitlines()
    assert [line.index(name) for line, name in zip(lines[1:], ("south", "north"), strict=True)] == [4, 8]


def test_a_time_may_have_a_unit() -> None:
    command = COMMANDS["trace"]
    for said, seconds in (("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400)):
        assert command.bind(["a/#", "--for", said])["for_"] == seconds
    for wrong in ("", "s", "5x", "-1", "nan", "1e99d"):
        with pytest.raises(UsageError):
            command.bind(["a/#", "--for", wrong])


def test_what_a_neighbour_looks_like() -> None:
    text = shown("neighbor list", ANSWERS["neighbor list"][0])
    for part in (
        "north",
        "127.0.0.1:1885",
        "● active",
        "2/2",
        "12,345",
        "7 (8.0 kB)",
        "✕ refused  another algorithm",
    ):
        assert part in text
    assert "7 more of 9; see --limit" in text
    assert "refused here" not in text


def test_how_a_link_is_compressed_is_shown_where_one_is() -> None:
    assert "compression" not in shown("neighbor list", Neighbors(1, [NEIGHBOR], []))
    rows = [{**NEIGHBOR, "compression": found} for found in ({"codec": "zstd", "ratio": 4.26}, None)]
    text = shown("neighbor list", Neighbors(2, rows, []))
    assert "zstd 4.3" in text
    idle = {**NEIGHBOR, "compression": {"codec": "deflate", "ratio": None}}
    assert "deflate -" in shown("neighbor list", Neighbors(1, [idle], []))


def test_the_rate_of_a_link_is_shown_where_one_has_it() -> None:
    assert "waited" not in shown("neighbor list", Neighbors(1, [NEIGHBOR], []))
    rate = {"bytes": 8000, "burst": 2000, "used": 0.954, "waited": 12_345}
    text = shown("neighbor list", Neighbors(2, [{**NEIGHBOR, "rate": rate}, {**NEIGHBOR, "rate": None}], []))
    for part in ("8.0 kB/s 95%", "12.3 kB"):
        assert part in text


def test_classes_are_shown_where_there_are_some() -> None:
    assert "priority" not in shown("neighbor list", Neighbors(1, [NEIGHBOR], []))
    rows = [{"topics": ["alarm/#", "x"], "priority": 7, "late": 1234, "expired": 0, "conflated": 5}]
    text = shown("neighbor list", Neighbors(1, [{**NEIGHBOR, "classes": rows}], []))
    assert ["north", "alarm/#,", "x", "7", "1,234", "0", "5"] in [line.split() for line in text.splitlines()]


def test_neighbours_that_were_refused_are_listed_where_there_are_no_others() -> None:
    text = shown("neighbor list", Neighbors(0, [], [REFUSED, {**REFUSED, "node_id": None}]))
    for part in ("no neighbours", "192.0.2.7", "west", "wrong link secret", "1,234"):
        assert part in text
    assert "refused here" in shown("neighbor list", Neighbors(1, [NEIGHBOR], [REFUSED]))


def test_what_the_spool_looks_like() -> None:
    text = shown("spool", ANSWERS["spool"][0])
    assert "3 messages (900 B), the oldest for " in text
    assert ["link/north", "1,200", "64.0", "kB", "200"] in [line.split()[:5] for line in text.splitlines()]
    assert "nothing is acknowledged: No space left on device" in shown("spool", ANSWERS["spool"][3])
    assert "off: " in shown("status", {**STATUS, "spool": {**STATUS["spool"], "mode": "off"}})
    assert "8 more of 9; see --limit" in shown("spool show", ANSWERS["spool show"][0])
    row = {**ANSWERS["neighbor remove"][0], "thrown_away": {"messages": 3, "bytes": 900, "oldest": None}}
    assert "3 messages (900 B) thrown away" in shown("neighbor remove", row)


def test_what_a_link_made_on_demand_looks_like() -> None:
    assert "out, on demand" in shown("neighbor list", Neighbors(1, [{**NEIGHBOR, "on_demand": True}], []))
    links = {"active": 1200, "blocked": 0, "down": 0, "refused": 0, "on_demand": 1100}
    assert "1200 active, 0 blocked, 0 down  (1,100 of them on demand)" in shown(
        "status", {**STATUS, "links": links}
    )
    assert "on demand" not in shown("status", STATUS)
    assert "0 down, 2 refused" in shown("status", {**STATUS, "links": {**links, "refused": 2}})


@pytest.mark.parametrize(
    ("calls", "seconds", "text"),
    [
        (0, 0, "0"),
        (2000, 0.5, "2,000 in 500 ms, 250 µs each"),
        (1_234_567, 0.0123, "1,234,567 in 12.3 ms, 10 ns each"),
        (3, 7200.4, "3 in 7,200 s, 2,400 s each"),
        (2, 99.9, "2 in 99.9 s, 50 s each"),
    ],
)
def test_what_a_plugin_costs(calls: int, seconds: float, text: str) -> None:
    answer = {**FakeView().algorithm(), "calls": calls, "seconds": seconds, "filters": []}
    (line,) = (line for line in shown("algorithm", answer).splitlines() if line.startswith("calls"))
    assert line.split(maxsplit=1)[1].rstrip() == text


def test_what_plugins_look_like() -> None:
    lines = [line.split() for line in shown("algorithm", FakeView().algorithm()).splitlines()]
    assert [line[1] for line in lines if line[:1] in (["algorithm"], ["filter"])] == ["sf", "validate"]
    assert ["refused", "log:", "17", "(beyond", "limits.plugin_*)"] in lines
    assert ["load", "0.25"] in lines
    text = shown("plugin reload", RELOADED)
    assert "not applied, these need a restart: log.level" in text


def test_many_options_take_several_lines() -> None:
    options = {"qos": 2, "overlay": {"base": 2, **{f"number_of_{i}": i for i in range(20)}}}
    text = shown("algorithm", {**FakeView().algorithm(), "options": options, "filters": []})
    assert "qos: 2, overlay.base: 2, overlay.number_of_0: 0," in text
    assert max(map(len, text.splitlines())) < 120
    assert all(line.rstrip()[-1] != ":" for line in text.splitlines() if line.strip())


def test_what_an_overlay_looks_like() -> None:
    lines = [line.split() for line in shown("overlay", ANSWERS["overlay"][0]).splitlines()]
    assert [" ".join(line) for line in lines] == [
        "node south",
        "members 4",
        "keys 2",
        "suspended 1",
        "",
        "a/b subscriber south in role subscriber",
        "0 ◂ a/# publisher north ▸ default east",
        "1 ◂ default west ▸ -",
        "a/# publisher south in role publisher, rendezvous, suspended, epoch 3 south",
        "0 ◂ a/# publisher north ▸ default east",
        "1 ◂ default west ▸ -",
        "",
        "members",
        "node rtt hops",
        "north 0.25 1",
        "east - 12,345",
    ]


@pytest.mark.parametrize("width", [60, 80])
def test_an_overlay_in_a_narrow_terminal_is_shown_whole(width: int) -> None:
    far = "sensors/+/temperature subscriber site-berlin-1"
    keys = [OverlayKey(key=far, status="in", levels=[(far, far)], facts={"role": "subscriber"})]
    console = terminal.make_console(io.StringIO())
    console.width = width
    console.print(render.show("overlay", OverlayView(node="n", keys=keys).model_dump()))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert text.count("site-berlin-1") == text.count("sensors/+/temperature") == 3


def test_an_overlay_without_keys_shows_no_table_of_them() -> None:
    view = OverlayView(node="south", members=3, facts={"seen": 1.5, "whole": True}, tables={"none here": []})
    lines = [" ".join(line.split()) for line in shown("overlay", view.model_dump()).splitlines()]
    assert lines == ["node south", "members 3", "seen 1.5", "whole yes", "", "none here", "none"]


def test_what_a_trace_looks_like() -> None:
    assert [line.rstrip() for line in shown("overlay trace", ANSWERS["overlay trace"][0]).splitlines()] == [
        "a/b  nodes 4, messages 3, depth 2",
        "a/b  epoch 3",
        "└── south  depth 0",
        "    ├── north  depth 1  a/b subscriber north",
        "    │   └── east  depth 2  a/b subscriber east",
        "    └── west  depth 1  a/b subscriber west",
        "nobody else is reached by a/# (suspended)",
        "nobody else is reached by #",
    ]
    assert "incomplete: some nodes gave no answer" in shown("overlay trace", traced("cut off"))
    assert "goes nowhere" in shown("overlay trace", MessageTrace(topic="a").model_dump())


def test_trees_that_reach_nobody_are_one_line_for_each_reason() -> None:
    suspended = [{"name": name, "facts": {"suspended": True}, "tree": None} for name in ("a/b/#", "a/#", "#")]
    tree = {"node": "south", "keys": [], "depth": 0}
    reaching = {"name": "a/b", "facts": {"suspended": False}, "tree": tree}
    answer = {**MessageTrace(topic="a/b").model_dump(), "trees": [reaching, *suspended]}
    lines = [line.rstrip() for line in shown("overlay trace", answer).splitlines()]
    assert lines[1:] == [
        "a/b",
        "└── south  depth 0",
        "nobody else is reached by a/b/#, a/#, # (suspended)",
    ]
    lines = [line.rstrip() for line in shown("overlay trace", {**answer, "trees": suspended}).splitlines()]
    assert lines[1:] == ["nobody is reached by a/b/#, a/#, # (suspended)"]


def test_a_row_of_many_nodes_can_be_shown() -> None:
    tree: dict[str, Any] = {"node": "last", "keys": [], "depth": 400}
    for depth in reversed(range(400)):
        tree = {"node": f"n{depth}", "keys": [], "depth": depth, "children": [tree]}
    answer = {**MessageTrace(topic="t").model_dump(), "trees": [{"name": "t", "facts": {}, "tree": tree}]}
    assert len(shown("overlay trace", answer).splitlines()) == 403


def test_a_status_says_what_cannot_be_saved() -> None:
    assert "not saved" not in shown("status", STATUS)
    failing = {"waiting_rows": 12, "waiting_bytes": 5000, "failure": "database or disk is full"}
    text = " ".join(shown("status", {**STATUS, "state": failing}).split())
    assert "not saved database or disk is full: 12 rows wait (5.0 kB)" in text


def test_a_relay_is_not_said_to_lose_what_its_broker_acknowledges() -> None:
    spool = {**STATUS["spool"], "mode": "off"}
    assert "lost with the node" in shown("status", {**STATUS, "algorithm": "sf", "spool": spool})
    text = shown("status", {**STATUS, "algorithm": None, "spool": spool})
    assert "lost with the node" not in text
    assert "the broker has what it acknowledges" in text


def test_what_a_status_looks_like() -> None:
    text = shown("status", STATUS)
    for part in (
        "south",
        "● running  for 3m 12s",
        "○ 127.0.0.1:1884  connection refused",
        "validate",
        "1,234,567",
        "to the broker 1,200 (64.0 kB), to neighbours 0, 3 dropped since the start",
    ):
        assert part in text


@pytest.mark.parametrize(
    "name",
    [
        "clients",
        "subscriptions",
        "neighbor list",
        "neighbor add",
        "status",
        "overlay",
        "overlay trace",
        "spool",
        "spool show",
    ],
)
def test_strangers_cannot_command_the_terminal(name: str) -> None:
    evil = "\x1b]0;owned\x07[bold]x[/bold]"

    def poisoned(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: value[key]
                if key in ("state", "direction") or (key, value[key]) == ("tree", None)
                else poisoned(value[key])
                for key in value
            }
        if isinstance(value, list):
            return [poisoned(item) for item in value]
        return evil if isinstance(value, str) or value is None else value

    answer = ANSWERS[name][0]
    if isinstance(answer, Neighbors):
        answer = Neighbors(answer.total, poisoned(answer.items), poisoned([REFUSED]))
    else:
        answer = Page(answer.total, poisoned(answer.items)) if isinstance(answer, Page) else poisoned(answer)
    rows = [{**row, "since": 0.0} for row in answer.items] if name == "clients" else None
    text = shown(name, Page(2, rows) if rows else answer)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert r"\x1b]0;owned\x07[bold]x[/bold]" in text


def test_printable() -> None:
    assert printable("grün ✓") == "grün ✓"
    assert printable("a\tb\nc\x00\u202e") == r"a\tb\nc\x00\u202e"
    assert printable("a\tb\nc\r", keep="\t\n") == "a\tb\nc\\r"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (59.9, "59s"),
        (192, "3m 12s"),
        (3600, "1h"),
        (86400 * 5 + 3600 * 4 + 60, "5d 4h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert terminal.duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (812, "812 B"), (1234, "1.2 kB"), (5_000_000, "5.0 MB"), (10**12, "1000.0 GB")],
)
def test_sizes(number: int, text: str) -> None:
    assert terminal.size(number) == text


@pytest.mark.parametrize(
    ("words", "name", "values"),
    [
        ("status", "status", {}),
        ("neighbor add 127.0.0.1:1 --no-save", "neighbor add", {"address": "127.0.0.1:1", "save": False}),
        ("neighbor add --no-save [::1]:1", "neighbor add", {"address": "[::1]:1", "save": False}),
        ("neighbor remove north", "neighbor remove", {"target": "north"}),
        ("clients --limit 7", "clients", {"limit": 7}),
        ("clients --limit=7", "clients", {"limit": 7}),
        ("log-level debug", "log-level", {"level": "debug"}),
        ("upgrade --timeout 2m", "upgrade", {"timeout": 120.0}),
        ("stop --no-wait", "stop", {"wait": False}),
    ],
)
def test_words_become_values(words: str, name: str, values: dict[str, Any]) -> None:
    found, rest = split_name(words.split())
    assert found.name == name
    assert found.bind(rest) == values


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("fly", "unknown command 'fly'; help lists all"),
        ("statsu", "unknown command 'statsu'; did you mean status"),
        ("neighbour list", "unknown command 'neighbour'; did you mean neighbor list"),
        ("neighbor", "neighbor: expected one of: neighbor list, neighbor add, neighbor remove"),
        ("neighbor fly", "neighbor: expected one of"),
        ("overlay trace", "overlay trace: TOPIC is missing; usage: overlay trace TOPIC"),
        ("overlay trace a/+", "overlay trace: "),
        ("overlay fly", "overlay: 'fly' is one word too many; usage: overlay"),
        ("status now", "status: 'now' is one word too many; usage: status"),
        ("neighbor add", "neighbor add: HOST:PORT is missing; usage: neighbor add HOST:PORT [--no-save]"),
        ("neighbor add x", "neighbor add: 'x': expected HOST:PORT with a port from 0 to 65535"),
        ("neighbor add h:1 --save-not", "neighbor add: unknown option --save-not"),
        ("clients --limit", "clients: --limit needs a value"),
        ("clients --limit 0", "clients: '0': expected a number from 1 to 100000"),
        ("log-level loud", "log-level: 'loud': expected one of debug, info, warning, error"),
    ],
)
def test_words_that_are_not_understood(words: str, text: str) -> None:
    def understand() -> None:
        found, rest = split_name(words.split())
        found.bind(rest)

    with pytest.raises(UsageError) as caught:
        understand()
    assert str(caught.value).startswith(text)


def no_type(node: AdminClient, how: complex) -> None:
    """Something."""


def no_node(how: Limit) -> None:
    """Something."""


def no_text(node: AdminClient) -> None: ...


def no_default(node: AdminClient, *, how: Limit) -> None:
    """Something."""


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (no_type, "type of parameter 'how' is not understood"),
        (no_node, "first parameter must be an AdminClient"),
        (no_text, "no docstring"),
        (no_default, "option 'how' has no default"),
    ],
)
def test_registration_refuses(function: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        command("wrong")(function)
    assert "wrong" not in COMMANDS


def test_what_the_disk_has_lost_is_shown_with_whose_it_was() -> None:
    kept = FakeView().spool()
    receivers = {"link/north": 1200, "broker": 5}
    lost = {"places": 2, "ends": 1, "messages": 1205, "entries": 30, "receivers": receivers}
    assert "lost" not in shown("spool", kept)
    text = " ".join(shown("spool", {**kept, "lost": lost}).split())
    assert (
        "1,205 messages are known, 5 of broker, 1,200 of link/north, at most 30 more, and what stood" in text
    )
    assert "damaged places: 2" in text


def test_what_is_spoken_with_neighbours_is_shown_once_for_all_that_are_alike() -> None:
    alike = [{**NEIGHBOR, "node_id": name} for name in ("north", "east")]
    older = {**NEIGHBOR, "node_id": "west", "release": None, "protocol": 2, "features": []}
    away = {**NEIGHBOR, "node_id": "south", "release": None, "protocol": None, "features": []}
    lines = shown("neighbor list", Neighbors(4, [*alike, older, away], [])).splitlines()
    assert [line.split() for line in lines[lines.index("") + 1 :]] == [
        ["release", "protocol", "features", "neighbours"],
        ["0.3.0", "3", "deflate,", "weights", "north,", "east"],
        ["-", "2", "-", "west"],
    ]
    rows = [
        {"release": "0.3.0", "protocol": 3, "features": ["deflate"], "neighbors": 1200},
        {"release": None, "protocol": 2, "features": [], "neighbors": 1},
    ]
    status = shown("status", {**STATUS, "releases": rows})
    assert "1,200 of 0.3.0: protocol 3, deflate" in status
    assert "1 of release 0.2 or older: protocol 2" in status
