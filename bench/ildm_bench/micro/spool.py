"""What the spool costs: CPU per message, time until it is durable, opening, beside SQLite in WAL mode.

Messages of 100 bytes in records of 1, 10 and 100, one record each commit and 10: appended for one consumer,
held, committed, freed. SQLite does less: it inserts a row for each record and commits (synchronous NORMAL for
``process``, FULL for ``power``).
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ildm.config import SpoolConfig
from ildm.core.spool import Delivery, Identity, Record
from ildm.state.spool import FileSpool, OsDisk
from ildm_bench.micro.measure import machine, median, options

SIZE = 100
RUNS = (1, 10, 100)
TO = (Delivery("link/far/0", 1),)
HELD = (Delivery("link/far/0", 1, held=True),)


def opened(directory: Path, mode: str, loop: asyncio.AbstractEventLoop) -> FileSpool:
    config = SpoolConfig(mode=mode, bytes=1 << 32, delay=0)  # type: ignore[arg-type]
    spool = FileSpool(
        OsDisk(directory, loop.call_soon_threadsafe),
        config,
        wall=time.time,
        call_later=loop.call_later,
        log=lambda *args, **fields: None,
        expiry=1e9,
    )
    spool.snapshot = bytes
    return spool


async def spooled(directory: Path, mode: str, messages: int, together: int, count: int) -> dict[str, float]:
    """CPU microseconds of a message, and milliseconds of a commit until it is durable."""
    loop = asyncio.get_running_loop()
    spool = opened(directory, mode, loop)
    consumer = spool.consumer(TO[0].consumer)
    frames = b"x" * SIZE * messages
    waiter: asyncio.Future[None] | None = None

    def told() -> None:
        if waiter is not None and not waiter.done() and spool.durable >= lsn:
            waiter.set_result(None)

    spool.on_durable = told
    number, lsn, waits = 0, 0, []
    begun = time.process_time()
    for _ in range(count):
        held = []
        for _ in range(together):
            lsn = spool.append(Record(frames, messages, Identity("here", number)), HELD)
            held.append(lsn)
            number += messages
        before = time.perf_counter()
        waiter = loop.create_future()
        spool.commit()
        if spool.durable < lsn:
            await waiter
        waits.append(time.perf_counter() - before)
        for each in held:
            consumer.free(each, 0, messages)
    used = time.process_time() - begun
    spool.close()
    waits.sort()
    return {
        "us": 1e6 * used / number,
        "ms_p50": 1e3 * median(waits),
        "ms_p99": 1e3 * waits[len(waits) * 99 // 100],
    }


def in_spool(directory: Path, mode: str, messages: int, together: int, count: int) -> dict[str, float]:
    return asyncio.run(spooled(directory, mode, messages, together, count))


def in_sqlite(path: Path, mode: str, messages: int, together: int, count: int) -> dict[str, float]:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'process' else 'FULL'}")
    database.execute("CREATE TABLE records (lsn INTEGER PRIMARY KEY, frames BLOB)")
    frames = b"x" * SIZE * messages
    lsn, waits = 0, []
    begun = time.process_time()
    for _ in range(count):
        before = time.perf_counter()
        database.execute("BEGIN")
        for _ in range(together):
            lsn += 1
            database.execute("INSERT INTO records VALUES (?, ?)", (lsn, frames))
        database.execute("COMMIT")
        waits.append(time.perf_counter() - before)
    used = time.process_time() - begun
    database.close()
    waits.sort()
    return {
        "us": 1e6 * used / (lsn * messages),
        "ms_p50": 1e3 * median(waits),
        "ms_p99": 1e3 * waits[len(waits) * 99 // 100],
    }


def reopening(directory: Path, messages: int, count: int) -> dict[str, float]:
    """Millions of messages per second: at opening, and when they are read back in pages of 1 MiB."""
    loop = asyncio.new_event_loop()
    spool = opened(directory, "process", loop)
    for number in range(count):
        spool.append(Record(b"x" * SIZE * messages, messages, Identity("here", number)), TO)
        if number % 100 == 0:
            spool.commit()
    spool.close()
    before = time.perf_counter()
    spool = opened(directory, "process", loop)
    seconds = time.perf_counter() - before
    consumer = spool.consumer(TO[0].consumer)
    before, read = time.perf_counter(), 0
    while page := consumer.read(1 << 20):
        for stored in page:
            read += stored.record.messages
            consumer.free(stored.lsn, 0, stored.record.messages)
    paging = time.perf_counter() - before
    assert read == count * messages
    spool.close()
    loop.close()
    return {"opened": 1e-6 * read / seconds, "paged": 1e-6 * read / paging}


def best(measure: Callable[..., dict[str, float]], rounds: int, *work: object) -> dict[str, float]:
    """Of several rounds, each in a directory of its own, the one with the least CPU."""
    results = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            results.append(measure(Path(name) / "spool", *work))
    return min(results, key=lambda result: result["us"])


def main() -> None:
    parser = options(__doc__, rounds=3)
    parser.add_argument("--count", type=int, default=2000, help="commits in a round")
    given = parser.parse_args()
    print(machine())
    print(f"{'':24}{'spool':>27}{'SQLite WAL':>30}")
    print(f"{'mode, record, together':24}" + f"{'us/message':>11}{'p50 ms':>8}{'p99 ms':>8}   " * 2)
    results: dict[str, Any] = {}
    for mode in ("process", "power"):
        for messages in RUNS:
            for together in (1, 10):
                work = (mode, messages, together, given.count)
                pair = (
                    best(in_spool, given.rounds, *work),
                    best(in_sqlite, given.rounds, *work),
                )
                name = f"{mode} {messages} x {together}"
                results[name] = pair
                line = "".join(f"{r['us']:11.2f}{r['ms_p50']:8.3f}{r['ms_p99']:8.3f}   " for r in pair)
                print(f"{name:24}{line}", flush=True)
    for messages in RUNS:
        with tempfile.TemporaryDirectory() as directory:
            rate = reopening(Path(directory) / "spool", messages, 100_000 // messages)
        results[f"reopening {messages}"] = rate
        opened_rate, paged_rate = rate["opened"], rate["paged"]
        print(f"records of {messages}: {opened_rate:.2f} M messages/s opened, {paged_rate:.2f} M read back")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
