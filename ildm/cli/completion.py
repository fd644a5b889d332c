"""Completion for shells: scripts that ask ``ildm`` itself, which may ask the node."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script

from ildm.admin.client import AdminClient
from ildm.admin.commands import Kind
from ildm.mqtt import IldmError

PATIENCE = 1.0
"""Seconds: a person waits."""
MOST = 200
"""Values that are offered."""
SAFE = re.compile(r"[A-Za-z0-9._:/@+-]+")
"""What clients and nodes call themselves is offered only if no shell could take it for more than a word."""
_REGISTER = "compdef _ildm_completion ildm"
_AUTOLOADED = (
    _REGISTER,
    f"""if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _ildm_completion "$@"
else
  {_REGISTER}
fi""",
)
"""zsh runs a file ``_ildm`` of its path when completion is first asked for, and it is to complete then."""
FindNode = Callable[[Path | None, Path | None], AdminClient]


def script(shell: str) -> str:
    """What a shell is to read, such as ``source <(ildm completion bash)``."""
    text = get_completion_script(prog_name="ildm", complete_var="_ILDM_COMPLETE", shell=shell)
    return text.replace(*_AUTOLOADED) if shell == "zsh" else text


def prepare() -> None:
    """To be called before the command line is read when a shell asks."""
    completion_init()


def values(kind: Kind, find_node: FindNode) -> Callable[[typer.Context, str], list[str]] | None:
    """What offers the values of one kind; None: there is nothing to offer."""
    if not kind.choices and kind.complete is None:
        return None

    def offer(context: typer.Context, incomplete: str) -> list[str]:
        found = list(kind.choices)
        if kind.complete is not None:
            given: dict[str, Any] = context.params
            try:
                node = find_node(given.get("socket"), given.get("config"))
                node.timeout = PATIENCE
                found += map(str, kind.complete(node))
            except IldmError:
                pass  # without a node nothing is known; whoever runs the command will be told
        return [value for value in found if value.startswith(incomplete) and SAFE.fullmatch(value)][:MOST]

    return offer
