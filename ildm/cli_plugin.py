"""``ildm plugin``: what plugins are installed on this machine; no node is needed."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def list_plugins(as_json: JsonOption = False) -> None:
    """Algorithms and filters installed here, and what is wrong with them.

    They are imported and checked; none is made, nothing is started.
    """
    from ildm.core.plugin.loading import installed  # noqa: PLC0415 - slow to import

    rows: list[dict[str, Any]] = [each._asdict() for each in installed()]
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    from ildm.render import make_console, show  # noqa: PLC0415 - only where tables are wanted

    make_console().print(show("plugin list", rows))


def add_to(family: typer.Typer) -> None:
    """Register the commands that need no node."""
    family.command("list")(list_plugins)
