"""``ildm plugin``: plugins installed on this machine, and new ones; no node is needed."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ildm.cli.options import JsonOption
from ildm.text import json_text


class Kind(StrEnum):
    """What a new plugin is: :data:`ildm.scaffold.KINDS`."""

    tree = "tree"
    overlay = "overlay"
    filter = "filter"


def new_plugin(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="As configurations will say it, e.g. rate-limit.")
    ],
    kind: Annotated[
        Kind, typer.Option("--kind", help="An algorithm of one kind or the other, or a filter.")
    ] = Kind.tree,
    directory: Annotated[
        Path | None, typer.Option("--directory", metavar="DIR", help="Of the package; NAME by default.")
    ] = None,
) -> None:
    """Write a package with a plugin that works, and its tests, to begin with."""
    from ildm.scaffold import create_package  # noqa: PLC0415 - slow to import

    made = create_package(name, kind.value, directory)
    print(f"{made}: written. Next:")
    print(f"  cd {shlex.quote(str(made))}")
    print("  pip install -e '.[test]'")
    print("  pytest")
    print("  ildm run --config node.yaml")


def list_plugins(as_json: JsonOption = False) -> None:
    """Algorithms and filters installed here, and what is wrong with them.

    They are imported and checked; none is made, nothing is started.
    """
    from ildm.core.plugin.loading import installed  # noqa: PLC0415 - slow to import

    rows: list[dict[str, Any]] = [each._asdict() for each in installed()]
    if as_json:
        print(json_text(rows, indent=2))
        return
    from ildm.cli.render import installed_plugins  # noqa: PLC0415 - only where tables are wanted
    from ildm.cli.terminal import make_console  # noqa: PLC0415

    make_console().print(installed_plugins(rows))


def add_to(family: typer.Typer) -> None:
    """Register the commands that need no node."""
    family.command("list")(list_plugins)
    family.command("new")(new_plugin)
