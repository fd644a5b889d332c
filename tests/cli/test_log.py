from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from ildm.log import LEVELS, MASK, configure_logging, get_logger, set_log_level


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    configure_logging()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    out, err = capsys.readouterr()
    assert out == ""
    return [json.loads(line) for line in err.splitlines()]


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()  # auto: what pytest captures is no terminal
    get_logger("ildm.x").info("client connected", client_id="a\x1bb", port=1883)
    (line,) = lines(capsys)
    assert list(line)[:4] == ["timestamp", "level", "logger", "event"]
    assert line["timestamp"].endswith("Z")
    del line["timestamp"]
    assert line == {
        "level": "info",
        "logger": "ildm.x",
        "event": "client connected",
        "client_id": "a\x1bb",
        "port": 1883,
    }


@pytest.mark.parametrize("format", ["console", "json"])
def test_tracebacks_cannot_command_the_terminal(format: Any, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(format=format)
    try:
        raise ValueError("topic \x1b[31m\x9b31m\u202ered")
    except ValueError:
        get_logger("ildm").exception("failed")
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert "topic" in text
    assert all(c.isprintable() or c in "\n\t" for c in text)


def test_console_lines_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(format="console")
    get_logger("ildm").warning("client \x1b[31mred", client_id="a\x1b]0;x\x07")
    text = capsys.readouterr().err
    assert "\x1b" not in text
    assert r"client \x1b[31mred" in text
    assert r"a\x1b]0;x\x07" in text
    assert "warning" in text


@pytest.mark.parametrize("level", LEVELS)
def test_the_level_holds_for_all_loggers_at_once(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("error")
    logger = get_logger("early").bind(x=1)
    set_log_level(level)
    for name in LEVELS:
        getattr(logger, name)(name)
    expected = list(LEVELS)[list(LEVELS).index(level) :]
    assert [line["event"] for line in lines(capsys)] == expected


def test_an_unknown_level() -> None:
    with pytest.raises(ValueError, match="unknown log level 'loud'; allowed: debug, info, warning, error"):
        set_log_level("loud")


def test_secrets_are_masked_at_any_depth(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    get_logger("ildm").info(
        "x",
        password="p1",
        link_secret=b"p2",
        config={"broker": {"Password": "p3", "user": "u"}, "rows": [{"auth_data": "p4"}, ("p5-kept",)]},
        authentication_data="p6",
        secret_file=None,
        value=SecretStr("p7"),
    )
    (line,) = lines(capsys)
    assert line["password"] == line["link_secret"] == line["authentication_data"] == MASK
    assert line["config"] == {
        "broker": {"Password": MASK, "user": "u"},
        "rows": [{"auth_data": MASK}, ["p5-kept"]],
    }
    assert line["secret_file"] is None
    assert "p7" not in line["value"]


@pytest.mark.parametrize("format", ["json", "console"])
def test_tracebacks_show_no_variables(format: Any, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(format=format)

    def fail() -> None:
        hidden = "local" + "-value"
        raise RuntimeError(str(len(hidden)))

    try:
        fail()
    except RuntimeError:
        get_logger("ildm").exception("failed")
    text = capsys.readouterr().err
    assert "RuntimeError: 11" in text
    assert "local-value" not in text
    assert "error" in text


def test_records_of_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    configure_logging("info")  # twice, still one line each
    logging.getLogger("asyncio").error("task %s failed", 7)
    logging.getLogger("asyncio").info("chatter")
    (line,) = lines(capsys)
    assert (line["logger"], line["level"], line["event"]) == ("asyncio", "error", "task 7 failed")


class Gone:
    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise AssertionError("nothing to flush")


def test_lost_lines_are_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(format="json")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", Gone())
        get_logger("ildm").info("one")
        get_logger("ildm").info("two")
    get_logger("ildm").info("three")
    get_logger("ildm").info("four")
    first, *others = capsys.readouterr().err.splitlines()
    assert first == "(2 lines of the log were lost)"
    assert [json.loads(line)["event"] for line in others] == ["three", "four"]
