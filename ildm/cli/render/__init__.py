"""What the admin API answers, as tables for people. JSON for programs does not come through here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from ildm.cli.render import node, peers, spool, ways
from ildm.cli.render.node import installed_plugins
from ildm.cli.terminal import cell

__all__ = ["SHOW", "installed_plugins", "show"]


def show(name: str, data: Any) -> RenderableType:
    """The answer to the command with this name."""
    return SHOW[name](data)


SHOW: dict[str, Callable[[Any], RenderableType]] = {
    "status": node.status,
    "neighbor list": peers.neighbors,
    "neighbor add": peers.neighbor,
    "neighbor remove": peers.neighbor,
    "clients": peers.clients,
    "client kick": lambda data: Text(f"{cell(data['client_id'])}: {data['ended']} connection ended"),
    "client ban": peers.ban,
    "client allow": lambda data: Text(f"{data['kind']} {cell(data['name'])} may come again"),
    "client bans": peers.bans,
    "rules": peers.rules,
    "events": node.events,
    "retained": peers.retained,
    "health": node.health,
    "subscriptions": peers.subscriptions,
    "algorithm": node.algorithm,
    "plugin reload": node.reloaded,
    "reload": node.reread,
    "overlay": ways.overlay,
    "overlay trace": ways.trace,
    "trace": ways.traced,
    "spool": spool.spool,
    "spool show": spool.spooled,
    "spool export": lambda data: Text(f"{data['messages']:,} messages written to {cell(data['file'])}"),
    "spool drop": lambda data: Text(f"{cell(data['receiver'])}: {spool.thrown_away(data)}"),
    "sessions import": peers.imported,
    "sessions adopted": peers.adopted,
    "log-level": lambda data: Text(f"log level is {data['level']}"),
    "upgrade": lambda data: Text(
        f"process {data['pid']} runs the node: {data['clients']:,} clients have stayed,"
        f" {data['sent_away']:,} were sent away, nobody was served for {data['pause']:g} s"
    ),
    "stop": lambda data: Text("stopped" if data["stopped"] else "stopping"),
}
"""By name in :data:`ildm.admin.commands.COMMANDS`."""
