"""What the parts of the overlay share: sending, requests, timers and suspicion."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ildm.api import Peer, SendResult, Timer
from ildm_algorithms.overlay.config import OverlayConfig
from ildm_algorithms.overlay.peers import Peers
from ildm_algorithms.overlay.wire.codec import Codec, OverlayError
from ildm_algorithms.overlay.wire.messages import (
    Lookup,
    LookupReply,
    Ping,
    Pong,
    SetR,
    SetRAck,
    SetRNak,
    Walk,
    WalkReply,
)

if TYPE_CHECKING:
    from random import Random

    from ildm_algorithms.overlay.events import Events, Hooks

__all__ = ["Context", "Env", "Handlers"]


class Env(Protocol):
    """What the overlay needs of the world; :class:`ildm.api.NodeApi` is one."""

    @property
    def node_id(self) -> str: ...

    @property
    def peer(self) -> Peer: ...

    @property
    def random(self) -> Random: ...

    def now(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer: ...

    def send(self, to: Peer, data: bytes, turn: int = 0) -> SendResult: ...

    def count(self, name: str, by: int = 1) -> None: ...

    def log(self, event: str, **fields: object) -> None: ...


Record = tuple[Any, ...]
"""A message of any format, a named tuple."""
Handlers = Mapping[type[Record], Callable[[Any], None]]
Done = Callable[[Any], None]
"""Gets the answer to a request, or None when there was none."""
STALLS = 5
"""How often a request whose time-out comes late itself is sent once more."""
ANSWERS: dict[type[Record], tuple[type[Record], ...]] = {
    Lookup: (LookupReply,),
    Walk: (WalkReply,),
    SetR: (SetRAck, SetRNak),
    Ping: (Pong,),
}
"""What a request can be answered with."""
MOMENT = 0.001
"""Seconds not worth waiting for."""
PROLONGED = 3
"""So many times the usual time a node has to answer whose messages come meanwhile."""


class _Request:
    __slots__ = (
        "again",
        "done",
        "due",
        "first",
        "forwarded",
        "message",
        "patience",
        "sent",
        "stalls",
        "timer",
        "to",
        "wait",
    )

    def __init__(self, to: Peer, message: Record, done: Done, forwarded: bool, now: float) -> None:
        self.to = to
        self.message = message
        self.done = done
        self.forwarded = forwarded
        self.first = now
        self.sent: dict[int, float] = {}
        """When it was sent under which number; pings have a new one each time."""
        self.again = False
        self.stalls = 0
        self.patience = 0.0
        """Seconds after the first sending until it is given up."""
        self.wait = 0.0
        self.due = 0.0
        self.timer: Timer | None = None


class Context:
    """Messages to this node itself go through the same handlers, from a queue, never recursively."""

    def __init__(
        self,
        env: Env,
        config: OverlayConfig,
        codec: Codec,
        terms: int,
        handlers: Handlers,
        hooks: Hooks,
        events: Events,
    ) -> None:
        """``terms``: checksum of what all nodes must have alike. ``handlers``: of messages, by their type."""
        self.env = env
        self.config = config
        self.codec = codec
        self.terms = terms
        self.handlers = handlers
        self.hooks = hooks
        self.events = events
        self.peer = env.peer
        self.node_id = env.node_id
        self.random = env.random
        self.closed = False
        self.counters: dict[str, int] = {}
        self.local: deque[Record] = deque()
        self._busy = False
        # Numbers of an earlier incarnation of this node must not meet those of this one.
        self._number = env.random.getrandbits(48)
        self._requests: dict[int, _Request] = {}
        self.late = 0
        """Time-outs of requests that have passed in vain."""
        self.in_time = 0
        """Answers to requests."""
        self._suspects: dict[str, float] = {}
        self._unresponsive: dict[str, float] = {}
        self._passed: dict[str, float] = {}
        """Nodes that a link was repaired past, each since when."""
        self.peers = Peers(config)
        self._timers: set[Timer] = set()

    def number(self) -> int:
        self._number += 1
        return self._number

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by
        self.env.count(name, by)

    def send(self, to: Peer, message: Record, turn: int = 0) -> None:
        if to.node_id == self.node_id:
            self.local.append(message)
            return
        try:
            data = self.codec.encode(message)
        except OverlayError as error:
            self.count("unsendable")
            self.env.log("overlay message dropped", reason=str(error))
            return
        self.post(to, data, turn)

    def post(self, to: Peer, data: bytes, turn: int = 0) -> None:
        """Send an encoded message to another node."""
        self.counters["sent"] = self.counters.get("sent", 0) + 1
        if not self.env.send(to, data, turn):
            self.count("send_queue_full")

    def handle(self, message: Record) -> None:
        self.handlers[type(message)](message)

    def run(self, callback: Callable[..., None], *args: object) -> None:
        """Call, and then handle what is for this node itself; within another call that one does it."""
        if self._busy:
            callback(*args)
            return
        self._busy = True
        try:
            callback(*args)
            local = self.local
            while local:
                self.handle(local.popleft())
        finally:
            self._busy = False

    # timers -------------------------------------------------------------------------------------

    def later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer:
        """Like ``call_later``; what it leaves in the local queue is handled, and stop() ends it."""
        timer: Timer

        def fire() -> None:
            self._timers.discard(timer)
            if not self.closed:
                self.run(callback, *args)

        timer = self.env.call_later(delay, fire)
        self._timers.add(timer)
        return timer

    def cancel(self, timer: Timer | None) -> None:
        if timer is not None:
            timer.cancel()
            self._timers.discard(timer)

    def back_off(self, attempt: int) -> float:
        """Random waiting time before the attempt after ``attempt`` failed ones."""
        wait: float = self.config.retry * 2 ** min(attempt, 4) * (0.5 + self.random.random())
        return wait

    def close(self) -> None:
        self.closed = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._requests.clear()
        self.local.clear()

    # requests -----------------------------------------------------------------------------------

    def ask(self, to: Peer, message: Record, number: int, done: Done, forwarded: bool = False) -> None:
        """Send a request and call ``done`` with its answer, or with None after ``ack_timeout``.

        It is sent again whenever it should have been answered. A node that gives no answer, and no
        other message, is suspected: after a ping (``patience``) or after another request. A request
        that others pass on (``forwarded``) is sent once, and nobody is suspected.
        """
        if len(self._requests) >= self.config.requests:
            self.count("requests_full")
            self.later(self.config.ack_timeout, done, None)
            return
        once = forwarded or to.node_id == self.node_id
        request = self._requests[number] = _Request(to, message, done, once, self.env.now())
        timeout = self.peers.timeout(to.node_id)
        ping = isinstance(message, Ping)
        request.patience = max(self.config.patience if ping else self.config.ack_timeout, 2 * timeout)
        request.wait = self.peers.routed_timeout if once else min(timeout, request.patience)
        self._send_request(number, request)

    def _send_request(self, number: int, request: _Request) -> None:
        now = self.env.now()
        request.due = now + request.wait
        request.sent[number] = now
        request.timer = self.later(request.wait, self._no_answer, number)
        self.send(request.to, request.message)

    def _no_answer(self, number: int) -> None:
        request, now = self._requests[number], self.env.now()
        self.late += 1
        node_id = request.to.node_id
        if now - request.due > request.wait / 2 and request.stalls < STALLS:
            # This process has stood still: the answer may lie in its sockets, unread.
            request.stalls += 1
            request.first += now - request.due
            self.count("stalls")
            self._send_again(number, request)
            return
        if request.forwarded:
            self._forget(request)
            request.done(None)
            return
        self.peers.back_off(node_id)
        passed = now - request.first
        received = self.peers.last_received(node_id) > request.first
        if isinstance(request.message, Ping) and not received and passed >= self.config.ping_timeout:
            self.mark_unresponsive(node_id)
        # An answer may be late or lost; a node whose messages come later than that lives.
        alive = self.peers.last_received(node_id) > request.first + request.patience / 2
        left = request.patience * (PROLONGED if alive else 1) - passed
        if left > MOMENT:
            request.wait = min(2 * request.wait, left)
            self._send_again(number, request)
            return
        self._forget(request)
        if alive:
            self.count("unanswered")
        else:
            self.suspect(node_id)
        request.done(None)

    def _send_again(self, number: int, request: _Request) -> None:
        request.again = True
        if isinstance(request.message, Ping):
            number = self.number()
            request.message = request.message._replace(id=number)
            self._requests[number] = request
        self._send_request(number, request)

    def _forget(self, request: _Request) -> None:
        self.cancel(request.timer)
        for number in request.sent:
            del self._requests[number]

    def answered(self, number: int, answer: Record) -> None:
        """An answer has come; one to no open request is late or doubled, and of no use.

        Raises OverlayError for one of another kind than the request has.
        """
        request = self._requests.get(number)
        if request is None:
            return
        if not isinstance(answer, ANSWERS[type(request.message)]):
            kinds = type(answer).__name__, type(request.message).__name__
            raise OverlayError("a {} answers a {}".format(*kinds))
        self.in_time += 1
        took = self.env.now() - request.sent[number]
        if request.forwarded:
            self.peers.routed.measured(took)
        elif isinstance(request.message, Ping) or not request.again:
            # An answer to what was sent twice under one number tells nothing (Karn).
            self.peers.measured(request.to.node_id, took)
        self._forget(request)
        request.done(answer)

    # suspicion ----------------------------------------------------------------------------------

    def suspect(self, node_id: str) -> None:
        """Avoid a node for some time, and repair what leads to it."""
        if self.closed or self.avoid(node_id) or node_id == self.node_id:
            return
        if len(self._suspects) >= self.config.suspects:
            del self._suspects[next(iter(self._suspects))]
            self.count("suspects_full")
        self._suspects[node_id] = self.env.now() + self.config.suspect_time
        self.count("suspected")
        self.env.log("node suspected", suspect=node_id)
        waiting = {id(r): r for r in self._requests.values() if r.to.node_id == node_id}
        for request in waiting.values():
            self._forget(request)
            # Not at once: who asks may be in the middle of something.
            self.later(0.0, request.done, None)
        self.events.suspected(node_id)

    def avoid(self, node_id: str) -> bool:
        """Whether a node is suspected."""
        if not self._suspects:
            return False
        until = self._suspects.get(node_id)
        if until is None:
            return False
        if until <= self.env.now():
            del self._suspects[node_id]
            return False
        return True

    def mark_unresponsive(self, node_id: str) -> None:
        """A node does not answer: what others can do is not asked of it until a message of it comes."""
        if self.is_unresponsive(node_id):
            return
        if len(self._unresponsive) >= self.config.suspects:
            del self._unresponsive[next(iter(self._unresponsive))]
            self.count("suspects_full")
        self._unresponsive[node_id] = self.env.now() + self.config.suspect_time
        self.events.unresponsive(node_id)

    def is_unresponsive(self, node_id: str) -> bool:
        """Whether a node is suspected, or may be soon."""
        if not self._unresponsive:
            return self.avoid(node_id)
        until = self._unresponsive.get(node_id)
        if until is not None and until <= self.env.now():
            del self._unresponsive[node_id]
            until = None
        return until is not None or self.avoid(node_id)

    def received_from(self, node_id: str) -> None:
        self.peers.received(node_id, self.env.now())
        if self._suspects:
            self._suspects.pop(node_id, None)
        if self._unresponsive:
            self._unresponsive.pop(node_id, None)
        if self._passed:
            since = self._passed.pop(node_id, None)
            if since is not None:
                self.hooks.passed_over(since)

    def pass_over(self, node_id: str) -> None:
        """A link is repaired past a node that is taken for dead."""
        if len(self._passed) >= self.config.suspects:
            del self._passed[next(iter(self._passed))]
        # what was under way to it by then goes another way
        self._passed.setdefault(node_id, self.env.now() - self.config.patience)

    @property
    def troubled(self) -> bool:
        """Whether some node may be unresponsive or suspected."""
        return bool(self._suspects or self._unresponsive)

    def silent(self, seconds: float) -> Callable[[str], bool]:
        """A test for nodes from which nothing was received for so long."""
        return self.peers.silent(self.env.now() - seconds)

    @property
    def suspects(self) -> list[str]:
        return sorted(node_id for node_id in list(self._suspects) if self.avoid(node_id))

    def request(self, to: Peer, make: Callable[[int], Record], done: Done, forwarded: bool = False) -> None:
        """:meth:`ask` with a message made from its number."""
        number = self.number()
        self.ask(to, make(number), number, done, forwarded)
