"""Options that several commands of ``ildm`` have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SOCKET_VARIABLE = "ILDM_SOCKET"

SocketOption = Annotated[
    Path | None,
    typer.Option("--socket", metavar="PATH", help=f"Admin socket of the node [env: {SOCKET_VARIABLE}]."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Configuration of the node, to find its admin socket."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
