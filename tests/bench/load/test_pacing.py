"""The schedule: evenly spread over all publishers, whichever process they are in."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm_bench.load import pacing
from ildm_bench.load.coordinator import RunSpec, _Run, _Worker
from ildm_bench.load.pacing import Alarm, Schedule
from ildm_bench.load.scenario import Scenario
from ildm_bench.load.worker import Job, group_of
from tests.bench.load.support import scenario

intervals = st.integers(1, 10**9)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    interval = draw(intervals)
    start = draw(st.integers(0, 2**61))
    end = start + interval * draw(st.integers(0, 30)) + draw(st.integers(0, interval - 1))
    ours, before, after = draw(st.integers(1, 20)), draw(st.integers(0, 20)), draw(st.integers(0, 20))
    return Schedule(start, end, interval, ours, before, before + ours + after)


@given(schedules(), st.data())
def test_due_and_within_count_what_time_of_says(schedule: Schedule, data: st.DataObject) -> None:
    publisher = data.draw(st.integers(0, schedule.publishers - 1))
    times = [schedule.time_of(publisher, k) for k in range(schedule.total)]
    around = st.integers(schedule.start_ns - 5, schedule.end_ns + schedule.interval_ns + 5)
    some = around | st.sampled_from(times) | st.sampled_from([t - 1 for t in times])
    begin, end = sorted((data.draw(some), data.draw(some)))
    times = [t for t in times if t < schedule.end_ns]  # an interval may be longer than the load
    assert schedule.due(publisher, end) == sum(t <= end for t in times)
    assert schedule.within(publisher, begin, end) == sum(begin <= t < end for t in times)


@given(schedules())
def test_nothing_is_due_before_the_start_or_after_the_end(schedule: Schedule) -> None:
    publishers = range(schedule.publishers)
    times = [schedule.time_of(p, k) for p in publishers for k in range(schedule.total)]
    assert min(times) >= schedule.start_ns
    for publisher in publishers:
        due = schedule.due(publisher, schedule.end_ns + schedule.interval_ns)
        assert due <= schedule.total
        assert due == 0 or schedule.time_of(publisher, due - 1) < schedule.end_ns
    if schedule.end_ns - schedule.start_ns >= schedule.interval_ns:
        assert max(times) < schedule.end_ns


@given(intervals, st.integers(1, 40), st.integers(1, 10))
def test_messages_come_evenly(interval: int, publishers: int, rounds: int) -> None:
    schedule = Schedule(7, 7 + rounds * interval, interval, publishers)
    times = sorted(schedule.time_of(p, k) for k in range(rounds) for p in range(publishers))
    gaps = {b - a for a, b in zip(times, [*times[1:], 7 + rounds * interval], strict=True)}
    assert gaps <= {interval // publishers, -(-interval // publishers)}


def _jobs(load: Scenario, workers: int) -> tuple[_Run, list[Job]]:
    """The run as its coordinator deals it out, and what each worker makes of its part."""
    names = [f"worker-{n}" for n in range(workers)] + ["latency"]
    hands = [_Worker(name, None, local=True) for name in names]  # type: ignore[arg-type]
    run = _Run(RunSpec(load, ["h:1"] * load.sites, Path()), "run", Path(), hands)
    jobs = [Job(run._order(hand), Path()) for hand in hands]
    for job in jobs:
        job.schedule(0, int(load.duration * 1e9))
    return run, jobs


counts = st.lists(st.integers(0, 9), min_size=2, max_size=2)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(counts, counts), min_size=1, max_size=4), counts, st.integers(1, 5))
def test_no_client_and_no_message_is_lost_or_doubled_between_workers(
    throughput: list[tuple[list[int], list[int]]], latency: list[int], workers: int
) -> None:
    topics: list[dict[str, Any]] = [
        {"name": f"t{n}", "publishers": p, "subscribers": s} for n, (p, s) in enumerate(throughput)
    ]
    topics.append(
        {"name": "l", "clients": "latency", "interval": 70, "publishers": latency, "subscribers": latency}
    )
    load = scenario(sites=2, topics=topics)

    async def deal() -> tuple[_Run, list[Job]]:
        return _jobs(load, workers)

    run, jobs = asyncio.run(deal())
    numbers = [p.number for job in jobs for p in job.publishers]
    numbers += [s.number for job in jobs for s in job.subscribers]
    assert sorted(numbers) == list(range(len(run.clients)))
    assert len({client.client_id for client in run.clients}) == len(run.clients)
    found = Counter((c.topic, c.site, c.publisher) for c in run.clients)
    for index, topic in enumerate(load.topics):
        for site in range(2):
            assert found[index, site, True] == load.counts(topic, "publishers")[site]
            assert found[index, site, False] == load.counts(topic, "subscribers")[site]
    shares = [len([c for c in run.clients if c.worker == f"worker-{n}"]) for n in range(workers)]
    assert max(shares) - min(shares) <= 1

    for group, interval in (("throughput", 100_000_000), (str(len(throughput)), 70_000_000)):
        publishers = [p for job in jobs for p in job.publishers if group_of(load, p.topic_index) == group]
        times = sorted(p.schedule.time_of(p.place, k) for p in publishers for k in range(p.schedule.total))
        of = len(publishers)
        assert times == sorted(
            k * interval + place * interval // of
            for place in range(of)
            for k in range(1_000_000_000 // interval)
        )


@pytest.mark.parametrize(("interval", "late_ms", "late"), [(60_000, 99, 0), (60_000, 101, 2), (10, 19, 0)])
async def test_a_long_interval_excuses_no_lateness(interval: float, late_ms: int, late: int) -> None:
    load = scenario(interval=interval, warm_up=0.0, cool_down=0.0, duration=120.0 if interval > 10 else 0.02)
    _, (job, _) = _jobs(load, 1)
    job.window = (0, int(load.duration * 1e9))
    for publisher in job.publishers:
        times = [publisher.schedule.time_of(publisher.place, k) for k in range(2)]
        publisher.sent_ns.extend([times[0] + late_ms * 1_000_000, times[1]])
    found = job._own_performance()
    assert (found["intended"], found["late"], found["blocked"]) == (4, late, 0)


@pytest.mark.parametrize("timerfd", [True, False])
async def test_alarms_ring_in_the_order_of_their_times(
    timerfd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not timerfd:
        monkeypatch.setattr(pacing, "_LIBC", None)
    loop = asyncio.get_running_loop()
    rung: list[tuple[str, int]] = []
    done = asyncio.Event()

    def ring(name: str) -> None:
        rung.append((name, time.monotonic_ns()))
        if len(rung) == 3:
            done.set()

    alarms = {name: Alarm(loop, lambda name=name: ring(name)) for name in ("first", "second", "past")}  # type: ignore[misc]
    now = time.monotonic_ns()
    due = {"first": now + 250_000_000, "second": now + 750_000_000, "past": now - 1}
    alarms["second"].set(now + 5_000_000)
    for name, at in due.items():
        alarms[name].set(at)  # replaces the earlier time of one
    await done.wait()
    for alarm in alarms.values():
        alarm.close()
    assert [name for name, _ in rung] == ["past", "first", "second"]
    # the loop's own timers may be early by its resolution
    assert all(at >= due[name] - 2_000_000 for name, at in rung)


async def test_a_closed_alarm_is_silent_and_leaves_no_file_behind() -> None:
    open_before = set(os.listdir("/proc/self/fd"))
    loop = asyncio.get_running_loop()
    rung: list[str] = []
    closed = Alarm(loop, lambda: rung.append("closed"))
    closed.set(time.monotonic_ns() + 1_000_000)
    closed.close()
    later = asyncio.Event()
    witness = Alarm(loop, later.set)
    witness.set(time.monotonic_ns() + 10_000_000)
    await later.wait()
    witness.close()
    assert rung == []
    assert set(os.listdir("/proc/self/fd")) == open_before
