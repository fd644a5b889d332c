"""What a node is asked about itself and whoever is connected to it."""

from __future__ import annotations

from ildm.admin.client import AdminClient, Neighbors, Page
from ildm.admin.commands.kinds import (
    EVERYTHING,
    FOR_EVER,
    ROWS,
    SHOWN,
    AddressText,
    BanKind,
    ClientName,
    Duration,
    Filter,
    Limit,
    NeighborTarget,
)
from ildm.admin.commands.registry import NotDone, command, confirmed
from ildm.admin.view import AdminError, Row, UnknownError
from ildm.text import printable


@command("status")
def status(node: AdminClient) -> Row:
    """Broker, links and counters of the node."""
    return node.status()


@command("neighbor list")
def neighbor_list(node: AdminClient) -> Neighbors:
    """Neighbour nodes and the state of the links; nodes that were refused."""
    page = node.neighbors()
    return Neighbors(page.total, page.items, node.refused_neighbors().items)


@command("neighbor add")
def neighbor_add(node: AdminClient, address: AddressText, *, save: bool = True) -> Row:
    """Add a neighbour node, also for the next start."""
    return node.add_neighbor(address, save)


@command("neighbor remove")
def neighbor_remove(
    node: AdminClient, target: NeighborTarget, *, save: bool = True, force: bool = False
) -> Row:
    """Remove a neighbour node, also for the next start."""
    try:
        return node.remove_neighbor(target, save, force)
    except UnknownError:
        raise
    except AdminError as error:
        if force or not confirmed(str(error)):
            raise
    return node.remove_neighbor(target, save, True)


@command("clients")
def clients(node: AdminClient, *, limit: Limit = ROWS) -> Page:
    """Local clients and their sessions."""
    return node.clients(limit)


@command("client kick")
def client_kick(node: AdminClient, client: ClientName) -> Row:
    """End the connection of a client; it may come again."""
    return node.kick(client)


@command("client ban")
def client_ban(node: AdminClient, kind: BanKind, name: ClientName, *, seconds: Duration = FOR_EVER) -> Row:
    """Keep clients out, by client identifier, user name or address."""
    return node.ban(kind, name, seconds or None)


@command("client allow")
def client_allow(node: AdminClient, kind: BanKind, name: ClientName) -> Row:
    """Lift a ban."""
    return node.lift_ban(kind, name)


@command("client bans")
def client_bans(node: AdminClient, *, limit: Limit = ROWS) -> Page:
    """Who is kept out."""
    return node.bans(limit)


@command("rules")
def rules(node: AdminClient, *, limit: Limit = ROWS) -> Page:
    """Rules for what crosses, and their hits."""
    return node.rules(limit)


@command("events")
def events(node: AdminClient, *, limit: Limit = SHOWN) -> Page:
    """The latest events of the node, the newest last."""
    page = node.events(limit)
    return Page(page.total, page.items[::-1])


@command("retained")
def retained(node: AdminClient, *, filter: Filter = EVERYTHING, limit: Limit = ROWS) -> Page:
    """The retained messages that the node remembers."""
    return node.retained(filter, limit)


@command("health")
def health(node: AdminClient) -> Row:
    """Whether it serves: exit status 0, else 1 and why not."""
    answer = node.health()
    if not answer["ready"]:
        raise NotDone("\n".join(f"not ready: {printable(problem)}" for problem in answer["problems"]), answer)
    return answer


@command("subscriptions")
def subscriptions(node: AdminClient, *, limit: Limit = ROWS) -> Page:
    """Topic filters of local clients and of neighbours."""
    return node.subscriptions(limit)


@command("algorithm")
def algorithm(node: AdminClient) -> Row:
    """The algorithm and the filters: options, counters."""
    return node.algorithm()


@command("reload")
def reload(node: AdminClient, *, dry_run: bool = False) -> Row:
    """Take up the configuration file as it is now."""
    return node.reload(dry_run)


@command("plugin reload")
def plugin_reload(node: AdminClient) -> Row:
    """Give plugins their options of the file again."""
    answer = node.reload_plugins()
    if any(row["error"] is not None for row in answer["plugins"]):
        raise NotDone("\n".join(map(_reloaded, answer["plugins"])), answer)
    return answer


def _reloaded(row: Row) -> str:
    what = f"{row['kind']} {row['name']!r}"
    if row["error"] is not None:
        return f"{what} has its former options: {printable(row['error'])}"
    return f"{what}: {row['result']}" + (f" ({', '.join(row['options'])})" if row["options"] else "")
