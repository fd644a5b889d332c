"""What the admin API needs of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ildm.mqtt import IldmError

if TYPE_CHECKING:
    from ildm.admin.exposition import Family
    from ildm.api import OverlayView
    from ildm.config import Address, Config
    from ildm.core.local.bans import Kind

Row = dict[str, Any]
"""One JSON object."""


class AdminError(IldmError):
    """A request that cannot be carried out, such as adding a neighbour twice; the text is for people."""


class UnknownError(AdminError):
    """What is asked for is not there."""


class NodeView(Protocol):
    """The node as plain data, and what can be done to it.

    All times are Unix times or durations in seconds. Methods are called in the node's event loop
    and do not block.
    """

    def status(self) -> Row:
        """``node_id, version, algorithm, filters, status, uptime, listen, link_listen``, then

        ``broker: {address, protocol, connected, reason}`` (as :meth:`problems` has found it; the reason may
        be that for which it refuses messages), ``clients``, ``clients_wait_for`` (neighbours whose interest
        is not known since the start, as addresses), ``persistent_sessions``, ``sessions_unknown`` (of those
        the filters are not known), ``sessions_adopted_for`` (seconds in which the site still wants all
        topics, for older sessions whose clients are away),
        ``links: {active, blocked, down, refused, on_demand}`` (numbers, with neighbours that were never
        reached; those on demand are among the active),
        ``queues: {injection: {messages, bytes}, links: {messages, bytes}, dropped}`` (what waits for the
        broker and for neighbours, and messages dropped since the start), ``state: {waiting_rows,
        waiting_bytes, failure}`` (what waits to be saved, and why it cannot be), ``spool: {mode, messages,
        bytes, disk_bytes, oldest, failure, full}``, ``clock`` (as :meth:`warnings` says it) and ``counters``
        (name -> number).
        """

    def problems(self, done: Callable[[list[str]], None]) -> None:
        """``done`` gets what keeps the node from serving, a line each; nothing when it is ready.

        It is when it does not stop, its broker is there, clients do not wait for neighbours after its start,
        and publishers do not wait for room in the spool for longer than some seconds. Links do not count: a
        site cut off still serves.
        """

    def warnings(self) -> list[str]:
        """What does not keep the node from serving, but an operator has to know, a line each: clocks of this
        node and its neighbours that are apart."""

    def metrics(self, done: Callable[[list[Family]], None]) -> None:
        """``done`` gets all families of :mod:`ildm.admin.families` that there is something to say of."""

    def internals(self) -> Row:
        """``tasks`` and ``timers`` (callback -> number) of the event loop, ``objects`` that hold others,

        ``entries`` of all containers, ``classes``: name -> instances of those that have some, and ``tables``:
        CLASS.ATTRIBUTE -> entries of what is kept there. For whoever looks for what grows; the node stands
        still meanwhile, some 0.1 s for each 100,000 objects.
        """

    def neighbors(self) -> list[Row]:
        """Each with ``address, node_id, state, since, reason, sessions: {open, of}, direction``,

        ``transferred_out, transferred_in, queued_messages, queued_bytes, dropped``, ``interest``
        and ``announced`` (numbers of filters), ``rtt`` (seconds of a round trip) and ``clock_skew`` (seconds
        that the neighbour's clock is ahead), each None while it is not known, ``saved`` and ``on_demand``.
        ``release``, ``protocol`` and ``features`` are those of the last session; None, None and empty before.
        ``compression`` is None, or ``codec``, ``ratio`` (how many times fewer bytes crossed lately) and the
        bytes ``plain_in, plain_out, coded_in, coded_out``. ``rate`` is None, or ``bytes`` a second that go to
        the neighbour at most, ``burst``, the part ``used`` lately, and bytes that ``waited`` for it.
        ``backlog`` is None, or how many ``messages`` go after newer ones, at most, and the ``age`` of the
        oldest of them in memory in seconds.
        ``classes`` has a row for each class of the link: ``topics``, ``priority``, and the messages that were
        ``late``, ``expired`` or ``conflated``.
        ``state`` is active, blocked, connecting, down, refused or duplicate; ``direction`` is out where
        this node connects.
        """

    def refused_neighbors(self) -> list[Row]:
        """Nodes that have dialed this one and were refused, the last first; 64 at most, for a day.

        Each with ``address`` (the host), ``node_id`` (what it has called itself, or null), ``kind`` and
        ``reason``, ``since`` and ``last`` (its attempts), ``count``.
        """

    def clients(self) -> list[Row]:
        """Each with ``client_id, peer, version, connected, since, clean_start, subscriptions``,

        ``messages_in`` and ``messages_out``; persistent sessions whose client is away are included.
        """

    def import_sessions(self, sessions: list[Row], done: Callable[[Row], None]) -> None:
        """Take the filters of sessions that the broker has, each ``client_id, filters`` (filter -> QoS) and

        ``expiry`` (seconds after the client has gone, None: never). ``done`` gets how many ``sessions`` and
        ``filters`` were taken, ``skipped`` (the node's own) and ``unknown`` (filters still not known).

        Raises:
            AdminError: they exceed a limit, or nothing crosses here; none was taken.
        """

    def end_adoption(self) -> Row:
        """The site wants all topics no longer for sessions whose clients are away; ``unknown`` as above.

        Raises:
            UnknownError: it did not.
        """

    def kick(self, client_id: str) -> Row:
        """End the connection of a client, which may come again; ``client_id`` and how many were ``ended``.

        Raises:
            UnknownError: no such client is connected.
        """

    def rules(self) -> list[Row]:
        """The rules for what crosses, in their order, each set ended by one for what none of them matches.

        Each with ``rule`` (its key in the configuration), ``neighbor``, ``action``, ``filters``,
        ``direction``, ``qos``, ``local``, ``remote``, and the messages it has decided about, ``hits_in`` and
        ``hits_out``
        (see :class:`ildm.core.transfer.rules.Hits`).
        """

    def bans(self) -> list[Row]:
        """Each with ``kind, name, until`` (None: until it is lifted) and ``why``: ``administrator``, or
        ``authentication`` of an address from which too many clients were refused.
        """

    def ban(self, kind: Kind, name: str, seconds: float | None) -> Row:
        """Keep clients out, for some seconds or until that is lifted, and end those connected.

        ``kind`` is ``client`` (identifier), ``user`` or ``address``. Gives ``kind, name, until, ended``.

        Raises:
            AdminError: there are too many bans.
        """

    def lift_ban(self, kind: Kind, name: str) -> Row:
        """``kind, name``.

        Raises:
            UnknownError: there is no such ban.
        """

    def events(self) -> list[Row]:
        """The latest events, the newest first: ``number, time, level, event, fields``."""

    def retained(self, topic_filter: str, limit: int, offset: int) -> Row:
        """``total`` and ``items`` of the retained messages that the node remembers on topics of a filter:

        each with ``topic, qos, size, payload`` (base64 of its beginning), ``since``, ``origin`` (the node
        where it entered) and ``expires_in`` (seconds, or None).
        """

    def subscriptions(self) -> list[Row]:
        """Each with ``filter, qos, source``; source is ``client ID`` or ``neighbor ID``."""

    def algorithm(self) -> Row:
        """``name``, None on a node that only relays, and else also ``topology, options, counters, gauges``,

        ``errors``, ``slow_hooks``, ``calls`` and the ``seconds`` they took, ``refused`` (bound -> how often
        it was reached) and ``waiting``: ``{timers, sessions, offloads}``. ``filters`` has the same of each
        filter but for ``topology``.
        """

    def overlay(self) -> OverlayView:
        """What the node knows of its overlay; making plain data of thousands of keys is as much work again.

        Raises:
            AdminError: the algorithm has no overlay, nothing to show of it, or has failed.
        """

    def trace(self, topic: str, done: Callable[[Row | AdminError], None]) -> None:
        """Find the trees of a message on ``topic``.

        ``done`` gets the fields of :class:`ildm.api.MessageTrace`, or why there are none.

        Raises:
            AdminError: the algorithm has no overlay, or such a topic never crosses.
        """

    def follow(self, topic: str, done: Callable[[Row | AdminError], None]) -> None:
        """Find the way of a message on ``topic`` over all sites.

        ``done`` gets ``topic`` and ``hops``: the sites, this one first and each before those behind it, with
        ``depth, node, seconds`` (since it was sent here, None where unknown), ``queued`` (messages that wait
        for the link that leads there), ``injecting`` (that wait there for the broker) and ``note``. With an
        overlay it gets what :meth:`trace` gives.

        Raises:
            AdminError: nothing crosses here, or such a topic never does.
        """

    def watch(self, topic_filter: str, seconds: float, messages: int, one_in: int) -> Row:
        """Begin to note what becomes of real messages on topics of a filter, at all sites; its ``name``.

        ``messages``: so many different ones at each node; ``one_in``: of so many one.

        Raises:
            AdminError: nothing crosses here, or there are too many at a time.
        """

    def watched(self, name: str) -> Row:
        """``filters``, ``over`` (no more comes), ``left_out`` (events for which there was no room) and

        ``messages``: see :func:`ildm.net.watches.messages_of`. What has ended is there for some minutes. To
        put together what many sites have told takes its time, so it is called in a thread.

        Raises:
            UnknownError: no such trace.
        """

    def unwatch(self, name: str) -> Row:
        """End it before its time; gives the same. Raises: as :meth:`watched`."""

    def kept(self, topic: str, client_id: str) -> list[Row]:
        """Why a message on a topic would not leave this node, or not for a neighbour; with ``client_id`` one
        of that client. Each with ``neighbor`` (None: it stays whoever wants it) and ``why``, for people.
        """

    def add_neighbor(self, address: Address, save: bool) -> Row:
        """Begin to add a neighbour (thesis Fig. 5.4, ILDM_ADDING); gives its row.

        Raises:
            AdminError: it is one already, or there are too many.
        """

    def remove_neighbor(self, target: str, save: bool, force: bool) -> Row:
        """Begin to remove a neighbour (ILDM_REMOVING) by ``HOST:PORT`` or node id; gives its last row.

        ``thrown_away``: ``{messages, bytes, oldest}`` of QoS 1 and 2 that nobody else had.

        Raises:
            UnknownError: there is no such neighbour.
            AdminError: without ``force``, if something would be thrown away.
        """

    def spool(self) -> Row:
        """``mode``, ``directory, limit, disk_bytes, messages, bytes, oldest, failure, full``, ``receivers``:

        each with ``receiver, messages, bytes, on_disk`` (messages that are not in memory) and ``oldest``.
        With mode off only the first means something. What several are to get counts for each.
        """

    def spooled(self, receiver: str, after: int, limit: int) -> Row:
        """``items``: messages one receiver is to get, the oldest first, each with ``lsn, place, topic, qos,

        retain, since, expires_at, origin, number, size, properties`` (names) and ``payload`` (base64).
        ``after``: the ``lsn`` of the last one had; all messages of one ``lsn`` come together. Blocks, so it
        is called in a thread.

        Raises:
            UnknownError: no such receiver.
            AdminError: the files cannot be read.
        """

    def drop_spooled(self, receiver: str) -> Row:
        """Throw away all that one receiver is to get; ``receiver, messages, bytes, oldest``.

        Raises:
            UnknownError: no such receiver.
        """

    def when_saved(self, done: Callable[[str | None], None]) -> None:
        """``done`` gets None when all changes up to now are in the state file, else why they are not."""

    def read_config(self) -> Config:
        """Read the node's configuration file again. Blocks, so it is called in a thread.

        Raises:
            AdminError: it cannot be read, is wrong, or there is none.
        """

    def reload_plugins(self, config: Config) -> Row:
        """Give plugins the options of a configuration, as far as they can take them.

        ``file``, ``plugins``: each with ``kind, name, result, options`` (names of those that differ) and
        ``error``, and ``not_applied``: other keys that differ from those the node was started with.
        ``result`` is changed, unchanged, needs a restart, or failed.

        Raises:
            AdminError: it names other plugins, or an option is wrong; nothing was done then.
        """

    async def reload(self, dry_run: bool) -> Row:
        """Take up the configuration file as it is now, whole or not at all.

        ``dry_run``: only say what would change.

        ``file, dry_run``, and as lines of text ``changes`` and ``warnings``.

        Raises:
            AdminError: why not, a reason a line; nothing was changed then.
        """

    def set_log_level(self, level: str) -> None:
        """``level`` is debug, info, warning or error."""

    async def upgrade(self, python: str | None, seconds: float) -> Row:
        """Let a new process take the node over, with the clients; ``python`` is its interpreter; it has
        ``seconds`` to be ready.

        ``pid, clients, sent_away`` and ``pause`` in seconds.

        Raises:
            AdminError: why not; this process goes on.
        """

    def stop(self) -> None:
        """Begin to drain and stop; returns at once."""
