"""What is told of wills whose DISCONNECT may not have been read."""

from __future__ import annotations

import pytest

from ildm_bench.chaos.history import History
from ildm_bench.chaos.recording import Recorder


@pytest.mark.parametrize(
    ("fault", "phase"), [("node/a", "info"), ("broker/a", "info"), ("node/b", "fail"), (None, "fail")]
)
def test_a_will_is_withdrawn_where_the_server_has_lived_on(fault: str | None, phase: str) -> None:
    history = History("r")
    now = [1.0]
    recorder = Recorder(history, lambda: now[0])
    recorder.teller("c", "a")("will", "fail", session="c/1", topic="w", payload=b"r/c.will/1/")
    now[0] = 2.0
    if fault is not None:
        recorder.note("nemesis", "fault", "info", topic="kill", session=fault, value="1")
    now[0] = 4.0
    recorder.teller("c", "a")("publish", "invoke", session="c/1", topic="t", seq=0, payload=b"r/c/0/")
    recorder.finish()
    (will,) = [event for event in history.events if event.op == "will"]
    assert (will.phase, will.t, will.publisher, will.seq) == (phase, 1.0, "c.will", 1)


def test_nothing_is_told_once_the_run_is_over() -> None:
    history = History("r")
    recorder = Recorder(history, lambda: 1.0)
    recorder.finish()
    recorder.teller("c", "a")("connect", "info", session="c/1")
    assert history.length == 0
