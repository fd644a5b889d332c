"""CPU time to split and to scan 32-byte PUBLISH frames, in pure Python, in chunks of 64 KiB."""

from __future__ import annotations

import json

from ildm.core.frames import HeaderScanner, publish_run
from ildm.core.local.actions import broker_wanted
from ildm.mqtt import Framer, Publish, PublishView, Version, decode, decode_varint
from ildm_bench.micro.measure import Column, cpu_per_call, heading, line, machine

CHUNK = 64 << 10


def chunk(topics: int) -> tuple[bytes, int]:
    """A chunk of frames whose topics take turns; also how many frames."""
    frames = [Publish(topic=f"sensor/{i:04}", payload=b"x" * 32).encode(Version.V311) for i in range(topics)]
    count = CHUNK // len(frames[0])
    return b"".join(frames[i % topics] for i in range(count)), count


def split_runs(data: bytes) -> int:
    """What the relay does with a client's chunk: runs of like frames."""
    pos = runs = 0
    while pos < len(data):
        length = decode_varint(data, pos + 1)
        assert length is not None
        run = publish_run(data, pos, length[1], length[1] + length[0], False)
        assert run is not None
        pos = run[0]
        runs += 1
    return runs


def main() -> None:
    wanted = broker_wanted(frozenset())
    figures: dict[str, float] = {}
    for name, topics in (("one_topic", 1), ("topic_changes_each_frame", 100)):
        data, count = chunk(topics)
        scanner = HeaderScanner(wanted, 1 << 20)
        frame = data[: len(data) // count]
        figures[f"scan_headers_{name}"] = cpu_per_call(lambda s=scanner, d=data: s.feed(d)) / count  # type: ignore[misc]
        figures[f"split_runs_{name}"] = cpu_per_call(lambda d=data: split_runs(d)) / count  # type: ignore[misc]
        figures[f"frame_by_frame_{name}"] = cpu_per_call(lambda d=data: Framer(1 << 20).feed(d)) / count  # type: ignore[misc]
    figures["decode_publish"] = cpu_per_call(lambda: decode(frame, Version.V311))
    figures["view_topic"] = cpu_per_call(lambda: PublishView(frame, Version.V311).topic)
    print(machine())
    columns = (Column("ns/frame", 9, ".0f"), Column("frames per CPU second", 22, ",.0f"))
    print(heading("what", 42, columns))
    for name, seconds in figures.items():
        print(line(name, 42, columns, (seconds * 1e9, 1 / seconds)))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
