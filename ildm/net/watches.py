"""Traces of real messages, for an administrator: what all nodes tell, put together by message."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ildm.admin.view import AdminError, UnknownError
from ildm.core.transfer.watch import LOCAL
from ildm.mqtt import IldmError

if TYPE_CHECKING:
    from ildm.core.link.watching import Asked
    from ildm.core.node import Node
    from ildm.core.transfer.watch import Event

KEPT = 4
"""Traces that have ended and can be looked at."""
KEPT_FOR = 300.0
"""Seconds, of these."""

Row = dict[str, Any]
ORDER = {"received": 0, "sent": 1, "acknowledged": 2}
"""Of what happens within one tick of a clock."""


class _Trace:
    def __init__(self, filters: list[str]) -> None:
        self.filters = filters
        self.events: list[Event] = []
        self.left_out = 0
        self.over = False


class MessageTraces:
    """All of a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.ended: Callable[[list[Row]], None] | None = None
        """Gets the messages of each trace at its end, as :func:`messages_of` has them."""
        self._traces: OrderedDict[str, _Trace] = OrderedDict()

    def begin(self, asked: Asked) -> Row:
        """See :meth:`ildm.admin.view.NodeView.watch`."""
        if self._node.algorithm_name is None:
            raise AdminError("this node runs without an algorithm: nothing crosses")
        trace = _Trace(asked.filters)

        def told(events: list[Event], left_out: int, over: bool) -> None:
            trace.events += events
            trace.left_out += left_out
            if over:
                self._over(trace)

        try:
            name = self._node.links.cooperation.watching.begin(asked, told)
        except IldmError as error:
            raise AdminError(str(error)) from error
        self._traces[name] = trace
        self._bound()
        return {"name": name}

    def find(self, name: str) -> Row:
        """See :meth:`ildm.admin.view.NodeView.watched`."""
        trace = self._of(name)
        return {
            "filters": trace.filters,
            "over": trace.over,
            "left_out": trace.left_out,
            "messages": messages_of(trace.events),
        }

    def end(self, name: str) -> Row:
        """See :meth:`ildm.admin.view.NodeView.unwatch`."""
        trace = self._of(name)
        self._node.links.cooperation.watching.end(name)
        if not trace.over:
            self._over(trace)
        return self.find(name)

    def _of(self, name: str) -> _Trace:
        try:
            return self._traces[name]
        except KeyError:
            raise UnknownError(f"there is no trace {name!r} (any more)") from None

    def _over(self, trace: _Trace) -> None:
        trace.over = True
        if self.ended is not None:
            self.ended(messages_of(trace.events))
        self._bound()
        self._node.driver.call_later(KEPT_FOR, self._forget, trace)

    def _forget(self, trace: _Trace) -> None:
        for name in [name for name, each in self._traces.items() if each is trace]:
            del self._traces[name]

    def _bound(self) -> None:
        """Those under way are bounded where they are begun."""
        ended = [name for name, trace in self._traces.items() if trace.over]
        for name in ended[:-KEPT]:
            del self._traces[name]


def messages_of(events: Iterable[Event]) -> list[Row]:
    """Each message with what has happened to it, the oldest first: ``topic, size, qos, node`` (which had it
    from its client; if none tells of that, where it was seen first), ``at`` (Unix time) and ``steps``, each
    with ``node, what, peer, topic, seconds`` since then.

    That node is not the one with the earliest step: the clocks of neighbours are only known to half a round
    trip, in which a message may cross the link.

    Messages of the same payload are told apart by their order: the second one that a node sends to another
    is taken for the second one that was received.
    """
    found: dict[tuple[str, int], list[Event]] = defaultdict(list)
    seen: Counter[tuple[str, ...]] = Counter()
    for event in sorted(events, key=lambda each: (each.at, ORDER[each.what])):
        place = (event.key, event.node, event.what, event.peer)
        found[event.key, seen[place]].append(event)
        seen[place] += 1
    return [_message(steps) for steps in sorted(found.values(), key=lambda steps: steps[0].at)]


def _message(steps: list[Event]) -> Row:
    source = next((each for each in steps if each.what == "received" and each.peer == LOCAL), steps[0])
    began = steps[0].at
    return {
        "topic": source.topic,
        "size": source.size,
        "qos": source.qos,
        "node": source.node,
        "at": began,
        "steps": [
            {
                "node": each.node,
                "what": each.what,
                "peer": each.peer or None,
                "topic": each.topic,
                "seconds": each.at - began,
            }
            for each in steps
        ],
    }
