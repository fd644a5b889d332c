"""A perfect overlay: one sorted list that all nodes see. It takes the place of the Skip Graph in tests.

Messages of SG-TBPS take time and can be lost; the list itself is always right.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ildm.api import Peer
from ildm.mqtt import Publish, Version, decode
from ildm_algorithms.exchange.messages import Message
from ildm_algorithms.overlay.graph import Arrival, CastResult
from ildm_algorithms.overlay.keys import Range, Ref
from ildm_algorithms.tbps.keys.encoding import key_text
from ildm_algorithms.tbps.messages import (
    Answer,
    Ask,
    Filters,
    Late,
    Merged,
    Missed,
    Needed,
    Newer,
    Offer,
    Query,
    Report,
    Signal,
    Statuses,
    Survey,
    Want,
    decode_payload,
)

if TYPE_CHECKING:
    from ildm_algorithms.sg_tbps import SgTbps
    from tests.algorithms.tbps.world import World

DELAY = 0.001


class Line:
    """All keys of all nodes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.keys: list[bytes] = []
        self.owners: dict[bytes, PerfectGraph] = {}
        self.lines: list[str] = []
        """What happened, for transcripts."""
        self.messages = 0
        self.lose: Callable[[str, str], bool] = lambda node, text: False
        """Whether a payload, shown as text, is lost on its way to a node."""

    def note(self, line: str) -> None:
        self.lines.append(line)

    def ref(self, at: int) -> Ref | None:
        if not 0 <= at < len(self.keys):
            return None
        key = self.keys[at]
        return Ref(key, self.owners[key].peer, 0)

    def around(self, key: bytes) -> tuple[Ref | None, Ref | None]:
        at = bisect_left(self.keys, key)
        return self.ref(at - 1), self.ref(at + 1)

    def enter(self, graph: PerfectGraph, key: bytes) -> None:
        if key in self.owners:
            return
        insort(self.keys, key)
        self.owners[key] = graph
        left, right = self.around(key)
        status = b""
        if left is not None:
            status = self.owners[left.key].hooks.status_for(left.key, Ref(key, graph.peer, 0))
        rode = f"  with {payload_text(status)}" if status else ""
        self.note(f"{key_text(key)} IN right of {'-' if left is None else key_text(left.key)}{rode}")
        self.world.kernel.post(DELAY, graph.joined, key, left, status)
        self.changed(left, right)

    def leave(self, graph: PerfectGraph, key: bytes) -> None:
        if self.owners.get(key) is not graph:
            return
        left, right = self.around(key)
        self.keys.remove(key)
        del self.owners[key]
        self.note(f"{key_text(key)} OUT")
        self.world.kernel.post(DELAY, graph.gone, key)
        self.changed(left, right)

    def crash(self, graph: PerfectGraph) -> None:
        graph.dead = True
        for key in [key for key, owner in self.owners.items() if owner is graph]:
            left, right = self.around(key)
            self.keys.remove(key)
            del self.owners[key]
            self.changed(left, right)

    def changed(self, *refs: Ref | None) -> None:
        for ref in refs:
            if ref is not None:
                self.world.kernel.post(DELAY, self.owners[ref.key].notice, ref.key)


class PerfectGraph:
    """One node's view of the list, with the methods of ``SkipGraph``."""

    def __init__(self, line: Line, hooks: SgTbps, peer: Peer) -> None:
        self.line = line
        self.hooks = hooks
        self.peer = peer
        self.dead = False
        self.refused: dict[str, tuple[Any, ...]] = {}
        """Nobody is."""
        self._number = 0

    def start(self, home: bytes) -> None:
        self.line.enter(self, home)

    def join(self, introducer: Peer) -> None:
        """All share one list anyway."""

    def stop(self, done: Callable[[], None]) -> None:
        for key in self.keys():
            self.line.leave(self, key)
        self.line.world.kernel.post(DELAY, done)

    def receive(self, sender: str, data: bytes) -> None:
        raise AssertionError("the list is told everything directly")

    def unreachable(self, node_id: str) -> None:
        pass

    def last_received(self, node_id: str) -> float | None:
        return None

    def insert(self, key: bytes) -> None:
        self.line.world.kernel.post(DELAY, self.line.enter, self, key)

    def remove(self, key: bytes) -> None:
        self.line.world.kernel.post(DELAY, self.line.leave, self, key)

    def keys(self) -> list[bytes]:
        return [key for key in self.line.keys if self.line.owners[key] is self]

    @property
    def alone(self) -> bool:
        return all(owner is self for owner in self.line.owners.values())

    def neighbors(self, key: bytes) -> list[tuple[Ref | None, Ref | None]]:
        return [self.line.around(key)] if key in self.line.owners else []

    def joined(self, key: bytes, left: Ref | None, status: bytes) -> None:
        if not self.dead:
            self.hooks.joined(key, left, status)

    def gone(self, key: bytes) -> None:
        if not self.dead:
            self.hooks.left(key)

    def notice(self, key: bytes) -> None:
        if self.line.owners.get(key) is self:
            self.hooks.neighbors_changed(key)

    def cast(
        self,
        target: Range,
        payload: bytes,
        *,
        routing: str | None = None,
        reliable: bool = False,
        trace: bool = False,
        deliver: bool = True,
        done: Callable[[CastResult], None] | None = None,
        turn: int = 0,
        entry: Ref | None = None,
    ) -> None:
        line = self.line
        self._number += 1
        first, last = bisect_left(line.keys, target.low), bisect_left(line.keys, target.high)
        reached: dict[PerfectGraph, list[bytes]] = {}
        for key in line.keys[first:last]:
            reached.setdefault(line.owners[key], []).append(key)
        own = reached.pop(self, [])
        number = (self.peer.node_id, self._number)
        if deliver and own:
            line.world.kernel.post(0, self.hooks.delivered, Arrival(number, self.peer, own, payload, 0))
        if trace:
            tree: dict[str, Any] = {"node": self.peer.node_id, "keys": own, "depth": 0, "children": []}
            for graph, keys in reached.items():
                tree["children"].append(
                    {"node": graph.peer.node_id, "keys": keys, "depth": 1, "children": []}
                )
        else:
            text = payload_text(payload)
            for graph, keys in reached.items():
                line.messages += 1
                lost = line.lose(graph.peer.node_id, text)
                line.note(f"{self.peer.node_id} => {graph.peer.node_id}  {text}{'  LOST' if lost else ''}")
                if not lost and deliver:
                    arrival = Arrival(number, self.peer, keys, payload, 1)
                    line.world.kernel.post(DELAY, graph.take, graph.hooks.delivered, arrival)
        if done is not None:
            keys_reached = sum(map(len, reached.values())) + len(own)
            result = CastResult(
                True, len(reached), keys_reached, len(reached), bool(reached), tree if trace else None
            )
            line.world.kernel.post(2 * DELAY, done, result)

    def take(self, hook: Callable[..., None], *args: object) -> None:
        if not self.dead:
            hook(*args)

    def tell(self, to: Peer, payload: bytes, turn: int = 0) -> None:
        line = self.line
        text = payload_text(payload)
        lost = line.lose(to.node_id, text)
        line.messages += 1
        line.note(f"{self.peer.node_id} -> {to.node_id}  {text}{'  LOST' if lost else ''}")
        node = line.world.nodes.get(to.node_id)
        if node is not None and node.alive and not lost:
            line.world.kernel.post(DELAY, node.algorithm.received, self.peer, payload)

    def lookup(self, key: bytes, done: Callable[[Ref | None, Ref | None, int], None]) -> None:
        at = bisect_right(self.line.keys, key)
        self.line.world.kernel.post(DELAY, done, self.line.ref(at - 1), self.line.ref(at), 1)


def payload_text(payload: bytes) -> str:
    """A payload of SG-TBPS in words."""
    if not payload:
        return "PROBE"
    match decode_payload(payload):
        case Message(frame=frame):
            message = decode(frame, Version.V5)
            assert isinstance(message, Publish)
            return _publish_text(message)
        case Signal(segment, status):
            return f"{'SUSPEND' if status.suspended else 'RESUME'} {segment.text} epoch {_epoch(status)}"
        case Report(segment, status):
            return f"REPORT {segment.text} {_status(status)}"
        case Query(topic_filter):
            return f"QUERY {topic_filter}"
        case Merged():
            return "MERGED"
        case Filters(topic_filters):
            return f"FILTERS {' '.join(map(bytes.decode, topic_filters))}"
        case Newer(frames):
            messages = [decode(frame, Version.V5) for frame in frames]
            return f"NEWER {', '.join(_publish_text(m) for m in messages if isinstance(m, Publish))}"
        case Survey(key):
            return f"SURVEY {key_text(key)}"
        case Needed(segments):
            return f"NEEDED {' '.join(segment.text for segment in segments) or 'all'}"
        case Ask(segments):
            return f"ASK {' '.join(segment.text for segment in segments)}"
        case Statuses(entries):
            return f"STATUS {' '.join(f'{segment.text} {_status(status)}' for segment, status in entries)}"
        case Missed(filters):
            return f"MISSED {' '.join(name for name, _ in filters)}"
        case Offer(_, topics):
            return f"OFFER {' '.join(f'{topic} {len(messages)}' for topic, messages in topics)}"
        case Want(_, numbers):
            return f"WANT {len(numbers)}"
        case Late(_, gone, messages):
            return f"LATE {len(messages)}, {len(gone)} gone"
        case Answer(topic_filter, complete, frames):
            messages = [decode(frame, Version.V5) for frame in frames]
            what = {True: "all", False: "unknown", None: "part"}[complete]
            shown = "".join(f", {_publish_text(m)}" for m in messages if isinstance(m, Publish))
            return f"ANSWER {topic_filter} {what}{shown}"


def _publish_text(message: Publish) -> str:
    flags = f" qos {message.qos}" if message.qos else ""
    return f"PUBLISH {message.topic} {message.payload.decode()!r}{flags}{' retain' if message.retain else ''}"


def _status(status: Any) -> str:
    return f"{'suspended' if status.suspended else 'active'} epoch {_epoch(status)}"


def _epoch(status: Any) -> str:
    return f"{status.epoch.number} {status.epoch.node_id}".rstrip()
