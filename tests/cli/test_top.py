"""`ildm top`: rates between two looks at a node."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from ildm.admin.client import AdminClient
from ildm.cli.terminal import make_console
from ildm.cli.top import CLIENTS, RATES, Look, look, picture
from tests.admin.fake_node import NEIGHBOR, FakeView
from tests.cli.test_cli import Run, run

__all__ = ["run"]


def drawn(before: Look, now: Look) -> str:
    stream = io.StringIO()
    make_console(stream).print(picture(before, now))
    return stream.getvalue()


def at(moment: float, view: FakeView, messages: int, **more: Any) -> Look:
    status = view.status()
    status["counters"] = {"messages_in": messages}
    return Look(moment, {**status, **more}, [{**NEIGHBOR, "transferred_out": messages}], view.clients())


def test_rates_are_those_of_the_time_between() -> None:
    text = drawn(at(10.0, FakeView(), 1000), at(12.0, FakeView(), 4000))
    lines = {line.split("  ")[0].strip(): line.rstrip() for line in text.splitlines() if line.strip()}
    assert lines["from clients"].endswith("1,500/s")
    assert lines["to clients"].endswith("0/s")
    assert "1,500/s" in lines["north"]


def test_counters_that_begin_anew_are_no_negative_rates() -> None:
    assert (
        "-"
        not in drawn(at(10.0, FakeView(), 1000), at(12.0, FakeView(), 3))
        .split("from clients")[1]
        .split("\n")[0]
    )


def test_the_busiest_clients_come_first_and_the_rest_is_counted() -> None:
    client = {**FakeView().clients()[0], "messages_out": 0}

    def looked(moment: float, factor: int) -> Look:
        rows = [{**client, "client_id": f"c{n}", "messages_in": n * factor} for n in range(CLIENTS + 5)]
        return at(moment, FakeView(), 0)._replace(clients=rows)

    text = drawn(looked(1.0, 0), looked(2.0, 10))
    order = [word for word in text.split() if word[0] == "c" and word[1:].isdecimal()]
    assert order == [f"c{n}" for n in range(CLIENTS + 4, 4, -1)]
    assert "5 more clients" in text


def test_another_client_in_the_node_s_place_is_named() -> None:
    view = FakeView()
    broker = {**view.status()["broker"], "connected": True, "contested": "another client uses its id"}
    assert "another client uses its id" in drawn(at(1.0, view, 0), at(2.0, view, 0, broker=broker))


def test_hostile_names_stay_text() -> None:
    view = FakeView()
    view.client_id = "\x1b[2J[red]x"
    text = drawn(at(1.0, view, 0), at(2.0, view, 0))
    assert "\x1b" not in text
    assert "[red]x" in text


def test_a_node_is_asked(node: AdminClient, view: FakeView) -> None:
    found = look(node)
    assert (found.status["node_id"], len(found.clients), len(found.neighbors)) == ("south", 2, 1)


def test_so_many_pictures(run: Run, view: FakeView, socket_path: Path) -> None:
    status, out, err = run("top", "--count", "2", "--interval", "0.1", "--socket", str(socket_path))
    assert (status, out.count("from other sites"), err) == (0, 2, "")


def test_a_line_of_json_each_for_programs(run: Run, view: FakeView, socket_path: Path) -> None:
    status, out, err = run("top", "--json", "--count", "2", "--interval", "0.1", "--socket", str(socket_path))
    assert (status, err) == (0, "")
    for line in out.splitlines():
        found = json.loads(line)
        assert found["seconds"] > 0
        assert set(found["rates"]) == set(RATES.values())
        assert found["status"] == view.status()
        assert found["neighbors"][0]["rates"] == {"transferred_out": 0, "transferred_in": 0}
        assert all(row["connected"] and set(row["rates"]) for row in found["clients"])
    assert len(out.splitlines()) == 2


def test_without_a_node(run: Run, tmp_path: Path) -> None:
    status, out, err = run("top", "--count", "1", "--socket", str(tmp_path / "x.sock"))
    assert (status, out) == (1, "")
    assert "no node runs" in err


@pytest.mark.parametrize("wrong", [["--interval", "0"], ["--count", "-1"]])
def test_wrong_use(run: Run, wrong: list[str]) -> None:
    assert run("top", *wrong)[0] == 2
