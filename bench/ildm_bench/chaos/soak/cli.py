"""``ildm-bench soak``."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ildm_bench.chaos.soak.run import Count


def soak(
    messages: Annotated[
        int, typer.Option(min=1000, help="To be published; connects, cuts and kills come with them.")
    ] = 200_000,
    algorithm: Annotated[str, typer.Option(help="Cooperation algorithm.")] = "sf",
    broker: Annotated[str, typer.Option(metavar="MAKE", help="mosquitto, amqtt, activemq ...")] = "mosquitto",
    mode: Annotated[
        str, typer.Option(metavar="off|process|power", help="spool.mode of the nodes.")
    ] = "process",
    interval: Annotated[
        float, typer.Option(min=0.1, help="Seconds from one look at the nodes to the next.")
    ] = 5.0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where soak.json and the report go.")] = Path(
        "bench-results/soak"
    ),
) -> None:
    """Many events instead of many hours: does anything in a node grow? Exit status 1 if so."""
    from ildm_bench.chaos.report.soak import write_soak  # noqa: PLC0415 - slow to import
    from ildm_bench.chaos.soak.run import soak as run  # noqa: PLC0415

    def progress(count: Count, seconds: float) -> None:
        share = count.messages / messages
        typer.echo(
            f"{share:4.0%}  {seconds:6.0f} s  {count.messages:,} messages, {count.connects:,} connects, "
            f"{count.cuts:,} cuts, {count.kills:,} kills",
            err=True,
        )

    with tempfile.TemporaryDirectory(prefix="ildm-soak-", ignore_cleanup_errors=True) as work:
        done = asyncio.run(
            run(
                messages,
                Path(work),
                algorithm=algorithm,
                broker=broker,
                mode=mode,
                interval=interval,
                progress=progress,
            )
        )
    done.write(out)
    page = write_soak(done, out, f"ildm-bench soak --messages {messages}")
    typer.echo(done.title)
    for node in done.nodes:
        slope = done.slope(node, "rss_bytes")
        life = done.life(node)
        sizes = f"{life[0].rss_bytes / 1e6:.1f} to {life[-1].rss_bytes / 1e6:.1f} MB"
        typer.echo(f"node {node}: {sizes}, {'no slope yet' if slope is None else f'{slope:+.3f} B an event'}")
    for problem in done.problems():
        typer.echo(f"  {problem}")
    typer.echo(page)
    if done.problems():
        raise typer.Exit(1)
