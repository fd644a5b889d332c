"""What the parts of the overlay share: sending, requests, timers and suspicion."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from algorithms.overlay.config import OverlayConfig
from algorithms.overlay.messages import Ping
from algorithms.overlay.wire import Codec, OverlayError
from ildm.api import Peer, SendResult, Timer

if TYPE_CHECKING:
    from random import Random

__all__ = ["Context", "Env"]


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
Done = Callable[[Any], None]
"""Gets the answer to a request, or None when there was none."""
STALLS = 5
"""How often a request whose time-out comes late itself is sent once more."""


class _Request:
    __slots__ = ("done", "due", "forwarded", "left", "message", "stalls", "timer", "to", "wait")

    def __init__(self, to: Peer, message: Record, done: Done, forwarded: bool) -> None:
        self.to = to
        self.message = message
        self.done = done
        self.forwarded = forwarded
        self.left = 1
        self.stalls = 0
        self.wait = 0.0
        self.due = 0.0
        self.timer: Timer | None = None


class Context:
    """Messages to this node itself go through the same handlers, from a queue, never recursively."""

    def __init__(self, env: Env, config: OverlayConfig, codec: Codec) -> None:
        self.env = env
        self.config = config
        self.codec = codec
        self.peer = env.peer
        self.node_id = env.node_id
        self.random = env.random
        self.closed = False
        self.counters: dict[str, int] = {}
        self.local: deque[Record] = deque()
        self.handle: Callable[[Record], None] = lambda message: None
        self._busy = False
        self.merging: Callable[[], None] = lambda: None
        """Called at each sign that this graph is becoming one with another."""
        self.suspected: Callable[[str], None] = lambda node_id: None
        """Called when a node has become suspected."""
        # Numbers of an earlier life of this node must not meet those of this one.
        self._number = env.random.getrandbits(48)
        self._requests: dict[int, _Request] = {}
        self._suspects: dict[str, float] = {}
        self._heard: dict[str, float] = {}
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
        self.counters["sent"] = self.counters.get("sent", 0) + 1
        try:
            data = self.codec.encode(message)
        except OverlayError as error:
            self.count("unsendable")
            self.env.log("overlay message dropped", reason=str(error))
            return
        if not self.env.send(to, data, turn):
            self.count("send_queue_full")

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

        It is sent three times; the node that gave no answer is suspected. A request that others pass on
        (``forwarded``) is sent once, and nobody is suspected.
        """
        if len(self._requests) >= self.config.requests:
            self.count("requests_full")
            self.later(self.config.ack_timeout, done, None)
            return
        request = self._requests[number] = _Request(to, message, done, forwarded)
        request.wait = self.config.ack_timeout
        if isinstance(message, Ping):
            request.left, request.wait = 3, self.config.ping_timeout * 2 / 3
        elif not forwarded and to.node_id != self.node_id:
            request.left, request.wait = 3, self.config.ack_timeout / 3
        self._send_request(number, request)

    def _send_request(self, number: int, request: _Request) -> None:
        request.left -= 1
        request.due = self.env.now() + request.wait
        request.timer = self.later(request.wait, self._no_answer, number)
        self.send(request.to, request.message)

    def _no_answer(self, number: int) -> None:
        request = self._requests[number]
        if self.env.now() - request.due > request.wait / 2 and request.stalls < STALLS:
            # This process has stood still: the answer may lie in its sockets, unread.
            request.stalls += 1
            request.left += 1
            self.count("stalls")
        if request.left:
            self._send_request(number, request)
            return
        del self._requests[number]
        if not request.forwarded and request.to.node_id != self.node_id:
            self.suspect(request.to.node_id)
        request.done(None)

    def answered(self, number: int, answer: Record) -> None:
        """An answer has come; one to no open request is late or doubled, and of no use."""
        request = self._requests.pop(number, None)
        if request is not None:
            self.cancel(request.timer)
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
        waiting = [n for n, request in self._requests.items() if request.to.node_id == node_id]
        for number in waiting:
            request = self._requests.pop(number, None)
            if request is not None:
                self.cancel(request.timer)
                # Not at once: who asks may be in the middle of something.
                self.later(0.0, request.done, None)
        self.suspected(node_id)

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

    def heard_of(self, node_id: str) -> None:
        self._heard[node_id] = self.env.now()
        if self._suspects:
            self._suspects.pop(node_id, None)

    def silent(self, seconds: float) -> Callable[[str], bool]:
        """A test for nodes that have not been heard of for so long; older records are dropped."""
        since = self.env.now() - seconds
        self._heard = {node_id: at for node_id, at in self._heard.items() if at >= since}
        return lambda node_id: node_id not in self._heard

    @property
    def suspects(self) -> list[str]:
        return sorted(node_id for node_id in list(self._suspects) if self.avoid(node_id))

    def request(self, to: Peer, make: Callable[[int], Record], done: Done, forwarded: bool = False) -> None:
        """:meth:`ask` with a message made from its number."""
        number = self.number()
        self.ask(to, make(number), number, done, forwarded)
