"""The manifest of a run: what was asked for, who took part, how the generator itself did."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ildm_bench.load.scenario import Scenario
from ildm_bench.measure.quiet import Disturbance
from ildm_bench.measure.schema import MANIFEST

Verdict = Literal["ok", "void", "refused"]
"""``void``: the generator missed its target, the run says nothing. ``refused``: what it sent to did not take
the load from its sockets, which is a result: the load is over the limit."""


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


def why_void(verdict: Verdict, reason: str, disturbance: Disturbance) -> str:
    """Why a run says nothing about the target: the generator missed it, or others disturbed; else empty."""
    return "; ".join(filter(None, (reason if verdict == "void" else "", disturbance.reason)))


class Client(Record):
    """A client of the load; its number in the logs is its place in the manifest's list."""

    client_id: str
    topic: int
    site: int
    publisher: bool
    worker: str


class Worker(Record):
    """One process of the generator."""

    name: str
    host: str
    clock_offset_ns: int = Field(description="Added to the worker's clock to get the coordinator's.")
    clock_error_ns: int = Field(description="Half of the quickest round trip, the bound of its error.")
    clock_drift_ns: int = Field(default=0, description="Offset measured after the run minus that before it.")
    cpu_seconds: float = Field(description="User and system time within the window.")


class Process(Record):
    """A process whose use of resources was sampled."""

    name: str = Field(description="Unique in the run: broker-0, node-3, haproxy, worker-0.")
    role: Literal["broker", "node", "proxy", "generator"]
    site: int | None = None
    label: str = Field(default="", description="Make of the broker, algorithm of the node.")
    quota: float | None = Field(default=None, description="Cores it may use, None without a bound.")


class Generator(Record):
    """How the generator did within the window. Intended is what the schedule wanted sent there."""

    intended: int
    sent: int
    late: int = Field(description="Intended but not handed to the socket within the window.")
    blocked: int = Field(description="Of those that were late: the socket took no more (TCP flow control).")
    lag_p50_us: float = Field(description="From the intended to the real time, where the socket was open.")
    lag_p99_us: float
    lag_max_us: float
    verdict: Verdict
    reason: str = ""


class Summary(Record):
    """Counted by the generator while it ran, for the limit search; the pipeline gives the same."""

    ingress: float = Field(description="Messages per second sent within the window, t-clients.")
    egress: float = Field(description="Messages per second received within the window, t-clients.")
    ratio: float = Field(description="egress / (ingress x sp-ratio), Definition 1.")
    expected: int = Field(description="Deliveries due for what was sent in the whole run, t-clients.")
    received: int = Field(description="Deliveries of the whole run, t-clients.")
    queued: int = Field(
        default=0, description="Deliveries due for what was sent before the window's end that were not made."
    )


class Manifest(Record):
    """The file ``run.json``."""

    run: str
    label: str = Field(default="", description="What stands in a legend: the target in a few words.")
    scenario: Scenario
    interval_ms: float = Field(description="Between two messages of one t-publisher.")
    targets: list[str] = Field(description="host:port of each site.")
    began_ns: int = Field(description="Start of the load, coordinator's clock.")
    window_begin_ns: int = Field(description="Measurement begins: warm-up is over.")
    window_end_ns: int = Field(description="Measurement ends: the cool-down begins.")
    ended_ns: int = Field(description="The last message was due.")
    wall_time: str = Field(description="Start of the load, ISO 8601 with zone.")
    clients: list[Client]
    workers: list[Worker]
    processes: list[Process]
    generator: Generator
    summary: Summary
    machine: str
    disturbance: Disturbance = Field(
        default_factory=Disturbance, description="What others did on this machine within the window."
    )
    notes: list[str] = Field(default_factory=list, description="What the reader of the figures has to know.")

    @property
    def void(self) -> str:
        """Why the run says nothing about the target, empty if it does."""
        return why_void(self.generator.verdict, self.generator.reason, self.disturbance)

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return (self.window_end_ns - self.window_begin_ns) / 1e9

    def write(self, directory: Path) -> None:
        (directory / MANIFEST).write_text(self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """The manifest in the directory of a run.

        Raises:
            FileNotFoundError: there is none.
            pydantic.ValidationError: it is not one.
        """
        return cls.model_validate_json((directory / MANIFEST).read_text())
