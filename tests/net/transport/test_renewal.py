"""Files of certificates on a disk that does not answer: the node neither waits for it nor asks on and on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from ildm.config import parse_config
from ildm.core.counters import Counters
from ildm.core.driver import Driver
from ildm.net.transport import NodeTls, Renewal
from tests.net.transport.pki import Pki

Looked = Callable[[Any], None]


class Timer:
    def cancel(self) -> None:
        pass


class Hanging:
    """A driver whose threads come back when the test says so."""

    def __init__(self) -> None:
        self.timers: list[Callable[[], None]] = []
        self.work: list[tuple[Callable[[], Any], Looked]] = []
        self.logged: list[str] = []

    def call_later(self, delay: float, callback: Callable[..., None], *args: Any) -> Timer:
        self.timers.append(lambda: callback(*args))
        return Timer()

    def offload(self, owner: str, work: Callable[[], Any], done: Looked) -> None:
        self.work.append((work, done))

    def log(self, level: str, event: str, **fields: Any) -> None:
        self.logged.append(f"{level} {event}")

    def tick(self) -> None:
        due, self.timers = self.timers, []
        for timer in due:
            timer()


def test_a_disk_that_does_not_answer_is_asked_once_and_told_once(pki: Pki, tmp_path: Path) -> None:
    document = {"listeners": [{"url": "mqtts://127.0.0.1:1", "tls": pki.server()}]}
    tls = NodeTls(parse_config(document, "test", tmp_path))
    (each,) = tls
    before = each.context
    driver, counters = Hanging(), Counters()
    renewal = Renewal(tls, cast("Driver", driver), counters)
    for _ in range(5):
        driver.tick()
    assert len(driver.work) == 1
    assert driver.logged == [
        "error the files of certificates cannot be looked at: their disk does not answer"
    ]
    assert counters["certificates_unusable"] == 1
    assert each.context is before
    work, done = driver.work.pop()
    done(work())
    driver.tick()
    assert len(driver.work) == 1, "it is asked again when it has answered"
    renewal.stop()
    driver.work.pop()[1]((before, []))
    assert counters["certificates_renewed"] == 0, "nothing is taken up by what has been stopped"
