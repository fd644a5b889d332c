"""The commands of the shell and of the command line, each written once.

A command is a function of an :class:`AdminClient` and of typed parameters: positional ones are
arguments, keyword-only ones are options. Types are checked at registration; an unknown one is a
:class:`TypeError` at import, not a surprise for the user.
"""

from __future__ import annotations

# each registers its commands, in the order of help texts
from ildm.admin.commands import node  # noqa: F401

# isort: split
from ildm.admin.commands import messages  # noqa: F401

# isort: split
from ildm.admin.commands import sessions  # noqa: F401

# isort: split
from ildm.admin.commands import process  # noqa: F401

# isort: split
from ildm.admin.commands.kinds import KINDS, Kind, Limit
from ildm.admin.commands.node import plugin_reload
from ildm.admin.commands.registry import (
    COMMANDS,
    Command,
    NotDone,
    Parameter,
    UsageError,
    command,
    split_name,
)

__all__ = [
    "COMMANDS",
    "KINDS",
    "Command",
    "Kind",
    "Limit",
    "NotDone",
    "Parameter",
    "UsageError",
    "command",
    "plugin_reload",
    "split_name",
]
