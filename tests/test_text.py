"""Text for people."""

from __future__ import annotations

import pytest

from ildm.text import reason


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
