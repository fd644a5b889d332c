"""The Skip Graph as one physical node takes part in it (thesis 2.2.4, 2.2.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

from ildm.api import Peer
from ildm_algorithms.overlay.casts.casting import Arrival, Caster, CastResult
from ildm_algorithms.overlay.casts.plans import CAST
from ildm_algorithms.overlay.casts.routing import ROUTINGS, Forward, Routing
from ildm_algorithms.overlay.config import OverlayConfig
from ildm_algorithms.overlay.context import Context, Env
from ildm_algorithms.overlay.events import Hooks
from ildm_algorithms.overlay.keys import EVERYTHING, VECTOR_BITS, Range, Ref
from ildm_algorithms.overlay.lists.answers import Answers
from ildm_algorithms.overlay.lists.ddll import Lists
from ildm_algorithms.overlay.lists.finder import Finder
from ildm_algorithms.overlay.lists.joining import Joining
from ildm_algorithms.overlay.lists.leaving import Leaving
from ildm_algorithms.overlay.lists.tables import Table, VirtualNode
from ildm_algorithms.overlay.lists.watch import Watch
from ildm_algorithms.overlay.terms import NO_MESSAGES, Agreement, Difference, terms_of
from ildm_algorithms.overlay.wire.codec import Codec, Format, OverlayError
from ildm_algorithms.overlay.wire.messages import (
    CODEC,
    FORMATS,
    Cast,
    CastAck,
    CastBusy,
    Invite,
    Lookup,
    LookupReply,
    Ping,
    Pong,
    SetL,
    SetR,
    SetRAck,
    SetRNak,
    Tell,
    Terms,
    Walk,
    WalkReply,
    decode,
)

__all__ = ["Arrival", "CastResult", "Env", "Hooks", "OverlayConfig", "SkipGraph"]


_POLL = 0.05
"""Seconds between looks at whether a graph that is to stop may leave."""


class SkipGraph:
    """Keys of one physical node in a Skip Graph of many.

    Everything happens in the calls from outside and in timers of ``env``; nothing is ever raised by
    what other nodes send.
    """

    def __init__(
        self,
        env: Env,
        hooks: Hooks,
        config: OverlayConfig | None = None,
        vector: int | None = None,
        routings: Iterable[Routing] = (),
        messages: Iterable[tuple[Format, Callable[[Any], None]]] = (),
        first_messages: str = NO_MESSAGES,
    ) -> None:
        """All nodes of the graph must agree on what it has besides: ``routings`` that casts can be spread by,
        and ``first_messages``. A node that differs is refused (:mod:`ildm_algorithms.overlay.terms`).

        Args:
            messages: those of one's own, each with its handler.
            first_messages: the frozen text of those that are in version 1.
        """
        self.env = env
        self.hooks = hooks
        self.config = config or OverlayConfig()
        self.vector = env.random.getrandbits(VECTOR_BITS) if vector is None else vector
        more = dict(messages)
        codec = Codec((*FORMATS, *more)) if more else CODEC
        routings = tuple(routings)
        own_terms = terms_of(self.config.base, routings, first_messages)
        self._handlers: dict[type[tuple[Any, ...]], Callable[[Any], None]] = {}
        self._context = context = Context(
            env, self.config, codec, own_terms.check, self._handlers, hooks, _Events(self)
        )
        self._table = table = Table(
            env.peer, self.vector, self.config.base, self._neighbors_changed, self.learned
        )
        self._finder = finder = Finder(context, table)
        self._agreement = agreement = Agreement(context, own_terms, finder.forget)
        self._lists = lists = Lists(context, table, finder)
        self._leaving = Leaving(context, table, finder, lists)
        answers = Answers(context, table, lists)
        self._watch = watch = Watch(context, table, finder, lists)
        self._caster = caster = Caster(
            context,
            table,
            finder,
            (*ROUTINGS.values(), *routings),
            holds=lists.holds,
            notes=self.notes,
            strayed=self.strayed,
        )
        self._joining = joining = Joining(context, table, finder, lists, caster)
        self._stopped: Callable[[], None] | None = None
        self._handlers |= {
            Lookup: agreement.guarded(finder.on_lookup),
            Walk: finder.on_walk,
            SetR: agreement.guarded(answers.on_set_r),
            SetL: agreement.guarded(answers.on_set_l),
            Ping: watch.on_ping,
            Cast: caster.on_cast,
            CastAck: caster.parts.on_ack,
            CastBusy: caster.parts.on_busy,
            Tell: lambda message: hooks.received(message.origin, message.payload),
            Invite: lambda message: joining.join(message.peer),
            Terms: agreement.on_terms,
            **dict.fromkeys((LookupReply, WalkReply, SetRAck, SetRNak, Pong), self._answered),
            **{format.kind: handle for format, handle in more.items()},
        }

    # keys ---------------------------------------------------------------------------------------

    def start(self, home: bytes) -> None:
        """Found a graph of its own with one key, which is in it at once."""
        if self._table.nodes:
            raise OverlayError("the graph has been started before")
        self._watch.start()
        self._context.run(self._lists.found, self._table.add(home))

    def join(self, introducer: Peer) -> None:
        """Become part of the graph that ``introducer`` is in, with all that are in this node's.

        If it is the same graph already, nothing happens. Tried until the introducer answers.
        """
        self._context.run(self._joining.join, introducer)

    def insert(self, key: bytes) -> None:
        """Enter a key; ``hooks.joined`` follows. Nothing happens for one that is there or on its way.

        Raises OverlayError for a key out of range, before :meth:`start`, and at the bound ``max_keys``.
        """
        table = self._table
        if not EVERYTHING.low <= key < EVERYTHING.high or not key or len(key) > 0xF000:
            raise OverlayError("a key is from 1 to 61,440 bytes long and does not begin with eight 0xff")
        if not self.running:
            raise OverlayError("the graph has not been started")
        node = table.nodes.get(key)
        if node is not None:
            node.again = node.leaving
        elif len(table.nodes) >= self.config.max_keys:
            self._context.count("max_keys")
            raise OverlayError(f"this node has {self.config.max_keys} keys, the most it may have")
        else:
            self._context.run(self._lists.insert, table.add(key), 0)

    def remove(self, key: bytes) -> None:
        """Take a key out in agreement with its neighbours; ``hooks.left`` follows."""
        node = self._table.nodes.get(key)
        if node is not None:
            node.again = False
            if not node.leaving:
                self._context.run(self._remove, node)

    def _remove(self, node: VirtualNode) -> None:
        self.departing(node.key)
        self._leaving.remove(node)

    def stop(self, done: Callable[[], None]) -> None:
        """All keys leave; ``done`` follows within twice ``leave_timeout`` and ``grace``, even if they cannot.

        Reliable casts that are under way come first: nobody else would send them again.
        """
        if self._stopped is not None or self._context.closed:
            raise OverlayError("the graph is stopping or has stopped")
        self._stopped = done
        self._joining.stop()
        self._leave_when_idle(self._context.env.now() + self.config.leave_timeout)

    def _leave_when_idle(self, deadline: float) -> None:
        context, config = self._context, self.config
        if self._caster.parts.busy and context.env.now() < deadline:
            context.later(_POLL, self._leave_when_idle, deadline)
            return
        context.later(config.leave_timeout + config.grace, self._close)
        for node in list(self._table.nodes.values()):
            node.again = False
            if not node.leaving:
                context.run(self._remove, node)

    @property
    def running(self) -> bool:
        """Started and not stopping."""
        return bool(self._table.nodes) and self._stopped is None and not self._context.closed

    @property
    def parts(self) -> int:
        """Parts of reliable casts handed to other nodes that have not acknowledged them."""
        return self._caster.parts.open

    def _close(self) -> None:
        done, self._stopped = self._stopped, None
        self._context.close()
        if done is not None:
            done()

    # messages -----------------------------------------------------------------------------------

    def receive(self, sender: str, data: bytes) -> None:
        """Handle what another node has sent; what cannot be understood is dropped and counted."""
        if self._context.closed:
            return
        self._context.received_from(sender)
        try:
            if data[:1] == CAST and self._caster.plans.relay(data):
                return
            message = self._context.codec.decode(data)
            self._context.run(self._context.handle, message)
        except OverlayError as error:
            self._context.count("malformed")
            self.env.log("overlay message refused", sender=sender, reason=str(error))

    def unreachable(self, node_id: str) -> None:
        """A hint that a node is gone: it is avoided, and what leads to it repaired at once."""
        self._context.run(self._context.suspect, node_id)

    def cast(
        self,
        target: Range,
        payload: bytes,
        *,
        routing: Routing | None = None,
        reliable: bool = False,
        trace: bool = False,
        deliver: bool = True,
        done: Callable[[CastResult], None] | None = None,
        turn: int = 0,
        entry: Ref | None = None,
        note: bytes = b"",
    ) -> None:
        """Send ``payload`` to every key in ``target``, own keys included (``hooks.delivered``).

        ``reliable``: parts that are not acknowledged are sent again until ``cast_deadline``; ``done``
        then gets the result. ``trace``: nothing is delivered, the result has the tree. ``entry``: a key
        somewhere, best in ``target``, at which to begin instead of at own keys and neighbours; it need not be
        there any more. ``note``: for :meth:`notes`; with it and without ``deliver`` the cast goes only to
        where that divides it to. Casts of one ``turn`` reach a node in order as long as the tables on the
        way, and the entry, do not change.
        Raises OverlayError for ``done`` without one of both, and for a routing the graph does not know.
        """
        if done is not None and not (reliable or trace):
            raise OverlayError("nothing comes back from a cast that is not reliable")
        chosen = routing or ROUTINGS[self.config.routing]
        plain = deliver and not (reliable or trace or note)
        if plain and self._caster.plans.begin(target, payload, chosen, turn, entry):
            return
        self._context.run(
            partial(
                self._caster.cast,
                target,
                payload,
                chosen,
                reliable=reliable,
                trace=trace,
                deliver=deliver,
                turn=turn,
                done=done,
                entry=entry,
                note=note,
            )
        )

    def tell(self, to: Peer, payload: bytes, turn: int = 0) -> None:
        """Send one message to the application of another node; at most once."""
        self._context.run(self._context.send, to, Tell(self._context.peer, payload), turn)

    def send(self, to: Peer, message: tuple[Any, ...], turn: int = 0) -> None:
        """Send a message of one's own format; at most once. Raises OverlayError for one the graph lacks."""
        if type(message) not in self._handlers:
            raise OverlayError(f"the graph was not made with messages {type(message).__name__}")
        self._context.run(self._context.send, to, message, turn)

    def lookup(self, key: bytes, done: Callable[[Ref | None, Ref | None, int], None]) -> None:
        """Find the last key that is not greater, and its right neighbour.

        ``done`` gets both, None for one that there is not, and the hops; two Nones also where no answer
        came in time.
        """

        def found(pred: Ref | None, succ: Ref | None, hops: int, alone: bool) -> None:
            # The predecessor of the least key is the greatest around the ring.
            before = pred if pred is not None and pred.key <= key else None
            done(before, succ if succ is not None and succ.key > key else None, hops)

        self._context.run(partial(self._finder.lookup, key, strict=False, entry=None, done=found))

    # for graphs whose nodes know more -----------------------------------------------------------

    def learned(self, target: Range) -> Sequence[Ref]:
        """Keys of other nodes in a range that are known besides neighbours; routings see them as entries.

        When what it answers has changed, :meth:`Table.outdate` is to be called.
        """
        return ()

    def notes(
        self, message: Cast, own: Sequence[bytes], forwards: Sequence[Forward]
    ) -> Sequence[bytes | None]:
        """A cast with a note is about to be handed on: the note of each copy (see :meth:`cast`).

        ``own``: own keys it has reached here for the first time. Also called where nothing is handed on.
        """
        return [message.note] * len(forwards)

    def strayed(self, message: Cast) -> None:
        """A copy has come to a key that is not here; it is passed on."""

    def departing(self, key: bytes) -> None:
        """An own key is about to leave; it is still there."""

    # view ---------------------------------------------------------------------------------------

    def last_received(self, node_id: str) -> float | None:
        """When the last message of a node came; None: it is not known."""
        at = self._context.peers.last_received(node_id)
        return None if at == -inf else at

    def avoids(self, node_id: str) -> bool:
        """Whether a node is suspected of being gone, so that nothing is sent to it."""
        return self._context.avoid(node_id)

    def keys(self) -> Sequence[bytes]:
        """Own keys in the graph, ascending."""
        return self._table.keys()

    def neighbors(self, key: bytes) -> list[tuple[Ref | None, Ref | None]]:
        """Left and right neighbour of an own key at each level from 0."""
        return self._table.neighbors(key)

    @property
    def refused(self) -> Mapping[str, Sequence[Difference]]:
        """By id the nodes that were met and cannot be in one graph with this one, and why."""
        return self._agreement.refused

    @property
    def alone(self) -> bool:
        """No other node is known in this graph."""
        return self._table.alone()

    def describe(self) -> dict[str, Any]:
        """What this node knows, for people and tests; JSON-able, keys in hexadecimal."""

        def name(ref: Ref | None) -> dict[str, str] | None:
            return None if ref is None else {"key": ref.key.hex(), "node": ref.peer.node_id}

        return {
            "node": self._context.node_id,
            "vector": f"{self.vector:016x}",
            "keys": [
                {
                    "key": key.hex(),
                    "status": ("DEL" if node.leaving else node.links[0].status.name) if node.links else "OUT",
                    "levels": [[name(left), name(right)] for left, right in self.neighbors(key)],
                }
                for key, node in sorted(self._table.nodes.items())
            ],
            "suspected": self._context.suspects,
            "refused": {
                node_id: [str(difference) for difference in differences]
                for node_id, differences in self.refused.items()
            },
            "counters": dict(sorted(self._context.counters.items())),
        }

    # inside -------------------------------------------------------------------------------------

    def _answered(self, message: Any) -> None:
        self._context.answered(message.id, message)

    def _neighbors_changed(self, key: bytes) -> None:
        self.hooks.neighbors_changed(key)

    def _entered(self, node: VirtualNode, status: bytes) -> None:
        levels = self._table.neighbors(node.key)
        left = levels[0][0] if levels else None
        self.hooks.joined(node.key, left, status if left is not None else b"")

    def _departed(self, node: VirtualNode) -> None:
        self.hooks.left(node.key)
        if node.again and self.running:
            self.insert(node.key)
        if self._stopped is not None and not self._table.nodes:
            self._context.later(self.config.grace, self._close)

    def _suspected(self, node_id: str) -> None:
        self._watch.suspected(node_id)
        self._caster.parts.suspected(node_id)


class _Events:
    """Leads what a part tells to the parts that were made after it."""

    __slots__ = ("_graph",)

    def __init__(self, graph: SkipGraph) -> None:
        self._graph = graph

    def suspected(self, node_id: str) -> None:
        self._graph._suspected(node_id)

    def unresponsive(self, node_id: str) -> None:
        self._graph._caster.parts.unresponsive(node_id)

    def entered(self, node: VirtualNode, status: bytes) -> None:
        self._graph._entered(node, status)

    def departed(self, node: VirtualNode) -> None:
        self._graph._departed(node)

    def leave(self, node: VirtualNode) -> None:
        self._graph._leaving.leave(node)

    def repaired(self, node: VirtualNode, level: int) -> None:
        self._graph._watch.check(node, level + 1)

    def placed(self, key: bytes) -> None:
        self._graph._caster.release(key)

    def closed(self, key: bytes, right: bool) -> None:
        self._graph._caster.closed(key, right)

    def astray(self, peer: Peer) -> None:
        self._graph._joining.invited(peer)

    def control(self, payload: bytes) -> None:
        message = decode(payload)
        if isinstance(message, Invite):
            self._graph._joining.invited(message.peer)
