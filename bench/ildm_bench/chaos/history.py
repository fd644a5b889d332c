"""The history of runs under faults: what each process asked for and saw, one row an event.

A directory holds the histories of any number of runs. While they are made these are JSON lines, afterwards
Parquet with the schemas of `ildm_bench.chaos.tables`; both by the names of whoever writes them, as several
may::

    DIR/history-NAME.jsonl, .parquet         events, `EVENTS`
    DIR/runs-NAME.jsonl, .parquet            one row for each run, `RUNS`

What the rows of each ``op`` mean (columns not named are empty):

``publish``  ``process`` is the client, ``publisher`` its name in payloads, ``site`` where it is connected.
    invoke: the PUBLISH is handed to the socket for the first time; topic, qos, retain, seq, value.
    ok: PUBACK, or PUBCOMP, of it had come; of QoS 0 there is none.
    fail: refused with a reason code of 0x80 or more; it may not arrive, and may.
    info: anything between, such as its first PUBREC (``detail``) or its being sent again (``dup``).
    Without ok or fail the outcome is unknown: the message may arrive or not, but not twice at QoS 2. For
    that, a publisher whose session was not present any more gives up what was under way rather than sending
    it as new.
``receive``  ok: a PUBLISH was handed to the application of the client ``process``, after what QoS 2 asks of
    a receiver (MQTT 4.3.3). ``publisher`` and ``seq`` are from the payload (``RUN/PUBLISHER`` if it is of
    another run, empty if it is none of ours), ``value`` is its digest, ``qos``, ``retain`` and ``dup``
    those of the packet, ``incarnation`` the life of the broker of ``site``.
    info: it was not, as its identifier (QoS 2) was not released, though DUP says that it is sent first.
    fail, of ``broker/x``: it had acknowledged the message ``seq`` of ``publisher``, and has lost it in a
    crash; of ``node/x``: it was still to give it to somebody, and has lost its state directory. info, of
    ``node/x``: not all sites of an overlay had acknowledged its message when a node lost that directory.
``connect``  ok: CONNACK of success; ``session`` is the one it has from here on. ``value`` is what was
    asked: ``resume`` the session there was, to be kept after the connection, ``new`` one, to be kept
    likewise, or a ``clean`` one, which ends with the connection. info: the connection of ``session`` has
    ended. A session is a life of the broker's state of a client: ``CLIENT/N``, with a new N whenever
    CONNACK says that none was present.
``subscribe``, ``unsubscribe``  ``topic`` is the filter. invoke: sent; ok: SUBACK, with the ``qos`` granted,
    or UNSUBACK. Filters of one session do not overlap, and none is shared: brokers may then send one
    message twice, or to another.
``fault``, ``heal``  of ``nemesis``, info: ``topic`` is what is done (``kill``, ``pause``, ``cut``, ...),
    ``session`` to whom (``node/a``, ``broker/b``, ``link/a/b``), ``incarnation`` in which life of it;
    ``value`` is the same in the two rows of one fault, and for no other of the run.
``handover``  of ``nemesis``: ``ildm upgrade`` of the node ``session``. ok: a new process has it; fail: it has
    stayed in the old one, or was killed amid it; ``detail`` says why.
``tree``  info: the links that the node ``process`` uses for messages have changed.
``retained``  after quiet; ``process`` is any reader. invoke: what ``site`` has is about to be read. ok: one
    of the retained messages there, topic, value, publisher, seq.
``will``  as ``publish``; ``publisher`` is a name for the wills of this client alone. info: its CONNECT with
    this will is sent. invoke: it has connected. ok: its connection was broken, so that the will is due;
    fail: DISCONNECT, so that it is not.
``counters``  of ``node/x`` or ``broker/x``; ``topic`` is the name of a counter or gauge, ``seq`` its value,
    ``incarnation`` the life of that process. ok: what it was at that time. info: no reading may exceed it.
``class``  info: ``topic`` is a filter of a class of all links, ``seq`` the number of the class, and
    ``detail`` what nodes may do with its messages that wait: ``conflate``, ``expire``, ``after_live``. The
    first decides.

A client that is connected when the history ends is taken to have had its time to get all that waited for it;
what a session that is not has not got is not judged.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

BUFFERED = 4096
"""Events that are kept in memory before they are written; what a killed writer loses."""

OPS = frozenset(
    {"publish", "receive", "connect", "subscribe", "unsubscribe", "fault", "heal", "tree", "retained"}
    | {"will", "counters", "class", "handover"}
)
PHASES = frozenset({"invoke", "ok", "fail", "info"})


class Event(NamedTuple):
    """One row but for ``run`` and ``n``, which the history adds; see the module."""

    t: float
    process: str
    op: str
    phase: str
    site: str = ""
    incarnation: int = 0
    session: str = ""
    topic: str = ""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    publisher: str = ""
    seq: int = -1
    value: str = ""
    detail: str = ""


class Run(NamedTuple):
    """What a run was; one row of `ildm_bench.chaos.tables.RUNS`."""

    run: str
    engine: str = "virtual"
    target: str = "ildm"
    algorithm: str = ""
    broker: str = ""
    store: str = "kept"
    mode: str = "process"
    sites: int = 0
    seed: int = 0
    fault: str = "none"
    began: str = ""
    seconds: float = 0.0
    settle: float = 0.0
    complete: bool = True
    note: str = ""


class History:
    """The history of one run, as it grows.

    In memory only, or into a directory; there, at most `BUFFERED` events wait to be written. As a context it
    is closed at the end. A run of which `finish` was not called is not among the runs::

        with History("7", directory) as history:
            history.add(Event(0.1, "c1", "connect", "ok", "a", session="c1/0"))
            history.finish(Run("7", algorithm="pf", sites=3))
    """

    def __init__(self, run: str, directory: Path | None = None, name: str = "") -> None:
        """``name``: of the writer, if several write into the directory at the same time.

        Raises:
            OSError: the directory cannot be made or written.
        """
        self.run = run
        self.length = 0
        self.events: list[Event] = []
        """Those not written yet; in memory, all."""
        self.about: Run | None = None
        self._directory = directory
        self._name = name or "0"
        self._file = None
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = (directory / f"history-{self._name}.jsonl").open("a", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, event: Event) -> None:
        self.events.append(event)
        self.length += 1
        if self._file is not None and len(self.events) >= BUFFERED:
            self.flush()

    def finish(self, about: Run) -> None:
        """Say what the run was; its last word.

        Raises:
            ValueError: it is about another run.
        """
        if about.run != self.run:
            raise ValueError(f"run {about.run!r} is not {self.run!r}")
        self.about = about
        if self._directory is not None:
            self.flush()
            with (self._directory / f"runs-{self._name}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(about._asdict()) + "\n")

    def flush(self) -> None:
        """Write what waits; nothing in memory only."""
        if self._file is None:
            return
        first = self.length - len(self.events)
        self._file.writelines(_line(self.run, n, event) for n, event in enumerate(self.events, first))
        self._file.flush()
        self.events.clear()

    def close(self) -> None:
        """Write what waits. It can be asked for again."""
        if self._file is not None:
            self.flush()
            self._file.close()
            self._file = None


_DEFAULTS = Event(0.0, "", "", "")._asdict()


def _line(run: str, n: int, event: Event) -> str:
    row: dict[str, Any] = {"run": run, "n": n}
    row |= {key: value for key, value in event._asdict().items() if value != _DEFAULTS[key] or key == "t"}
    return json.dumps(row, separators=(",", ":")) + "\n"


def payload(run: str, publisher: str, seq: int, size: int = 0) -> bytes:
    """Of a message of the workload: ``RUN/PUBLISHER/SEQ/``, filled up to ``size`` bytes if it is shorter.

    Names of runs and publishers have no ``/``.
    """
    return f"{run}/{publisher}/{seq}/".encode().ljust(size, b".")


class Origin(NamedTuple):
    """What the payload of a message of the workload says."""

    run: str
    publisher: str
    seq: int


def origin(data: bytes) -> Origin | None:
    """Of a payload; None if it is no such, as that of another application or a damaged one."""
    parts = data.split(b"/", 3)
    if len(parts) != 4 or not parts[2].isdigit():
        return None
    try:
        return Origin(parts[0].decode(), parts[1].decode(), int(parts[2]))
    except UnicodeDecodeError:
        return None


def digest(data: bytes) -> str:
    """Of a payload, 16 characters; empty for an empty one, which deletes what is retained."""
    return hashlib.blake2b(data, digest_size=8).hexdigest() if data else ""
