"""The process of a node: its log, its end."""

from __future__ import annotations

from ildm.admin.client import AdminClient
from ildm.admin.commands.kinds import MINUTE, SAME, SHOW, Duration, Interpreter, LogLevelChoice
from ildm.admin.commands.registry import command
from ildm.admin.view import Row


@command("log-level")
def log_level(node: AdminClient, level: LogLevelChoice = SHOW) -> Row:
    """Show or change how much the node logs."""
    return node.log_level() if level == SHOW else node.set_log_level(level)


@command("stop")
def stop(node: AdminClient, *, wait: bool = True) -> Row:
    """Stop the node and wait until it has."""
    answer = node.stop()
    if wait:
        node.wait_stopped(60.0)
    return {**answer, "stopped": wait}


@command("upgrade")
def upgrade(node: AdminClient, *, python: Interpreter = SAME, timeout: Duration = MINUTE) -> Row:
    """Let a new process take the node over, with its clients."""
    return node.upgrade(python or None, timeout or MINUTE)
