"""Text for people."""

from __future__ import annotations

import json

import pytest

from ildm.text import json_text, printable, reason


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (ConnectionResetError("[Errno 104] Connection reset by peer"), "Connection reset by peer"),
        (FileNotFoundError(2, "No such file or directory", "node.yaml"), "No such file or directory"),
        (OSError("closed by the peer"), "closed by the peer"),
        (ValueError("[Errno 104] is no error here"), "[Errno 104] is no error here"),
    ],
)
def test_a_reason_has_words_and_no_number(error: Exception, words: str) -> None:
    assert reason(error) == words


@pytest.mark.parametrize("character", ["\x1b", "\x9b", "\x7f", "\x00", "\u202e", "\u2028"])
def test_json_commands_no_terminal_and_says_the_same(character: str) -> None:
    value = {"topic": f"gr\u00f6\u00dfe{character}[2J"}
    text = json_text(value)
    assert printable(text) == text
    assert json.loads(text) == value


def test_json_keeps_letters_as_they_are() -> None:
    assert json_text({"topic": "größe"}, indent=2) == '{\n  "topic": "größe"\n}'
