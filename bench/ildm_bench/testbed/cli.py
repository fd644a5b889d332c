"""``ildm-bench testbed``: sites of broker and node on this machine until Ctrl-C, and what it allows."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from ildm.api import PluginError
from ildm.cli.terminal import make_console, table
from ildm.config import ConfigError
from ildm.mqtt import IldmError
from ildm_bench.testbed.distance import load_distances
from ildm_bench.testbed.joining import Kind
from ildm_bench.testbed.machine import abilities
from ildm_bench.testbed.patterns import PATTERNS, find_pattern, site_makes
from ildm_bench.testbed.spec import Front, Quota, QuotaModel, SpecError, TestbedSpec, Topology
from ildm_bench.testbed.testbed import Testbed

CHECK_INTERVAL = 0.5
"""Seconds between two looks at the processes."""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Brokers and nodes on this machine.")


@app.command()
def up(
    pattern: Annotated[
        str | None, typer.Option(metavar="|".join(PATTERNS), help="Sites of a pattern of the thesis (5.6.2).")
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(help="pf, sf, sg_tbps or another plugin; none: nodes only relay.", show_default="sf"),
    ] = None,
    brokers: Annotated[
        str, typer.Option(metavar="MAKE[,MAKE...]", help="Makes of the brokers, which take turns.")
    ] = "mosquitto",
    sites: Annotated[
        int | None,
        typer.Option(min=1, help="Number of sites.", show_default="of pattern, matrix or makes"),
    ] = None,
    front: Annotated[
        str, typer.Option(metavar="node|haproxy|none", help="What stands before each broker.")
    ] = "node",
    topology: Annotated[
        str, typer.Option(metavar="row|star|tree|mesh", help="How the sites are joined.")
    ] = "row",
    sessions: Annotated[int, typer.Option(min=1, max=64, help="TCP connections per link.")] = 1,
    link_qos: Annotated[int, typer.Option(min=0, max=2, help="Highest QoS between nodes.")] = 0,
    quota: Annotated[
        float | None, typer.Option(metavar="CORES", help="CPU time of each process or pair: 0.15 is 15 %.")
    ] = None,
    quota_model: Annotated[
        str, typer.Option(metavar="per-process|shared", help="A quota each, or one for broker and node.")
    ] = "per-process",
    node_quota: Annotated[
        float | None, typer.Option(metavar="CORES", help="Of the nodes, if not that of the brokers.")
    ] = None,
    delay: Annotated[float, typer.Option(metavar="MS", help="Between sites, one way.")] = 0.0,
    delay_matrix: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Between each two sites: a table (.csv) or regions (.yaml)."),
    ] = None,
    loss: Annotated[float, typer.Option(metavar="SHARE", help="Between sites: 0.01 is 1 %.")] = 0.0,
    isolate: Annotated[bool, typer.Option("--isolate", help="A network namespace for each site.")] = False,
    bridge: Annotated[bool, typer.Option("--bridge", help="Mosquitto's bridges instead of nodes.")] = False,
    directory: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep configurations and logs there.", show_default="removed"),
    ] = None,
) -> None:
    """Start brokers and nodes and keep them until Ctrl-C."""
    try:
        makes = [make.strip() for make in brokers.split(",") if make.strip()]
        if pattern is not None:
            known = find_pattern(pattern)
            if sites not in {None, known.sites}:
                raise SpecError(f"sites: pattern {known.name} has {known.sites}, not {sites}")
            sites = known.sites
        if algorithm is None and front == "node" and not bridge:
            algorithm = "sf"
        if quota is None and node_quota is not None:
            raise SpecError("quota of the node: give --quota, too")
        distances = None if delay_matrix is None else load_distances(delay_matrix)
        if sites is None and distances is not None:
            sites = len(distances.names)
        spec = TestbedSpec(
            brokers=site_makes(makes, sites or len(makes)),
            algorithm=None if algorithm == "none" else algorithm,
            front=cast("Front", front),
            topology=cast("Topology", topology),
            sessions=sessions,
            link_qos=link_qos,
            quota=None if quota is None else Quota(quota, cast("QuotaModel", quota_model), node_quota),
            delay_ms=delay,
            distances=distances,
            loss=loss,
            isolate=isolate,
            bridge=bridge,
        )
        bed = Testbed(spec, directory)
        with interruptible():
            _keep(bed)
    except (SpecError, ConfigError, PluginError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    except IldmError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


@app.command()
def check() -> None:
    """Show what this machine allows: CPU quotas, network namespaces, delay, and the brokers found."""
    shown = table(("what", "", "detail"))
    for ability in abilities():
        shown.add_row(ability.name, "yes" if ability.there else "no", ability.detail)
    make_console().print(shown)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does; further ones do not disturb the clearing up."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(*_: Any) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _keep(bed: Testbed) -> None:
    print(f"Starting {len(bed.spec.brokers)} sites", file=sys.stderr, flush=True)
    with bed:
        try:
            show(bed)
            while True:
                bed.check()
                time.sleep(CHECK_INTERVAL)
        except KeyboardInterrupt:
            print("Stopping", file=sys.stderr, flush=True)


def show(bed: Testbed) -> None:
    """Print the sites, what could not be had, and what to try."""
    distances = bed.spec.distances
    place = () if distances is None else ("place",)
    quota = () if bed.spec.quota is None else (bed.quota_text(),)
    shown = table(
        (
            "site",
            *place,
            "clients at",
            "broker",
            "at",
            "process",
            "front",
            "process",
            *("quota" for _ in quota),
        )
    )
    shown.box, shown.pad_edge, shown.padding = None, False, (0, 1, 0, 0)  # as a rule within 80 columns
    for column in shown.columns:
        column.no_wrap = column.header not in {"place", "broker", "front"}  # addresses stay whole
    pids = {entry.process.name: entry.pid for entry in bed.processes}
    for server in bed.servers:
        front = server.front
        shown.add_row(
            server.name,
            *(() if distances is None else (distances.place(server.index),)),
            server.address,
            server.broker.name,
            server.broker_address,
            str(pids[f"broker-{server.index}"]),
            "-" if front is None else bed.spec.algorithm_name or front.name,
            "-" if front is None else str(pids[f"{front.name}-{server.index}"]),
            *quota,
        )
    make_console().print(shown)
    for note in bed.notes:
        print(f"note: {note}")
    print(f"directory: {bed.directory}")
    first, last = (bed.servers[i].front or bed.servers[i].broker for i in (0, -1))
    print(f"try: ildm sub -h {last.host} -p {last.port} -t '#'")
    print(f"     ildm pub -h {first.host} -p {first.port} -t greeting -m hello")
    if (node := bed.servers[0].node) is not None and Kind.of(bed.spec.algorithm_name).overlay:
        print(f"     ildm overlay trace greeting --config {node.directory / 'node.yaml'}")
    print("Ctrl-C ends it.", flush=True)
