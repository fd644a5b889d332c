"""What the clients and the nemesis of a run tell, as events of its history."""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

from ildm_bench.chaos import classed
from ildm_bench.chaos.client import Teller
from ildm_bench.chaos.history import Event, History, digest, origin
from ildm_bench.chaos.schedule import Setting

HEEDED = 2.0
"""Seconds after which a server that has lived on has read what was sent to it."""
TREE_CHANGES = frozenset(
    {"link active", "link left the cooperation", "messages wait for a reroute", "messages are rerouted"}
)
"""What a node logs when the links change that it uses for messages, here or where these go."""
_STIRRING = frozenset({"publish", "receive", "retained", "connect", "heal"})
"""What is followed by messages, as those that come once more when somebody is there again."""


class Recorder:
    """Puts events into a history. ``clock``: seconds, the same for all of the run."""

    def __init__(self, history: History, clock: Callable[[], float]) -> None:
        self.history = history
        self.clock = clock
        self.lives: Counter[str] = Counter()
        """Of each process, how often it has begun again."""
        self.last_stir = 0.0
        """When a message was last sent, acknowledged or received by anybody, or somebody came back."""
        self._over = False
        self._withdrawn: deque[Event] = deque()
        """Wills whose DISCONNECT has been sent, and perhaps not been read."""

    def teller(self, client_id: str, site: str) -> Teller:
        """For a client at a site."""

        def tell(op: str, phase: str, **columns: Any) -> None:
            self._add(client_id, op, phase, site, columns)

        return tell

    def reader(self, client_id: str, site: str) -> Teller:
        """For a client that reads what is retained at a site, and of which nothing else is told."""

        def tell(op: str, phase: str, **columns: Any) -> None:
            if op == "receive":
                columns.pop("session")
                self._add(client_id, "retained", phase, site, columns)

        return tell

    def began(self, process: str) -> None:
        """A new life of ``broker/SITE`` or ``node/SITE`` begins."""
        self.lives[process] += 1

    def finish(self) -> None:
        """The run is over: what comes now goes nowhere."""
        self._heed(math.inf)
        self._over = True

    def note(self, process: str, op: str, phase: str, *, site: str = "", **columns: Any) -> None:
        """An event of anybody; see `ildm_bench.chaos.history` for what each column means.

        ``t``: when it was, if not now.
        """
        self._add(process, op, phase, site, columns)

    def classes(self, setting: Setting) -> None:
        """Say what classes the links of a setting have."""
        for each in classed.rows(setting.options.get("link", {}).get("classes", ())):
            detail = {"conflate": each.conflates, "expire": each.expires, "after_live": each.after_live}
            self.note("nodes", "class", "info", topic=each.filter, seq=each.number, detail=detail)

    def struck(self, kind: str, target: str, number: str) -> None:
        """A fault begins."""
        life = self.lives[target]
        self.note("nemesis", "fault", "info", topic=kind, session=target, value=number, incarnation=life)

    def _add(self, process: str, op: str, phase: str, site: str, columns: dict[str, Any]) -> None:
        if self._over:
            return
        now = columns.pop("t", None) or self.clock()
        payload: bytes | None = columns.pop("payload", None)
        detail: Mapping[str, Any] | None = columns.pop("detail", None)
        if payload is not None:
            columns["value"] = digest(payload)
            if (found := origin(payload)) is not None and "seq" not in columns:
                ours = found.run == self.history.run
                publisher = found.publisher if ours else f"{found.run}/{found.publisher}"
                columns |= {"publisher": publisher, "seq": found.seq}
        if op == "publish":
            columns["publisher"] = process
        if op in _STIRRING:
            self.last_stir = now
        columns.setdefault("incarnation", self.lives[f"broker/{site}" if site else process])
        text = "" if detail is None else json.dumps(detail)
        event = Event(t=now, process=process, op=op, phase=phase, site=site, detail=text, **columns)
        self._heed(now)
        if op == "fault":
            hit = [
                each
                for each in self._withdrawn
                if event.session in {f"node/{each.site}", f"broker/{each.site}"}
            ]
            for each in hit:  # whether the will is withdrawn is not known
                self._withdrawn.remove(each)
                self.history.add(each._replace(phase="info"))
        if (op, phase) == ("will", "fail"):
            self._withdrawn.append(event)
        else:
            self.history.add(event)

    def _heed(self, now: float) -> None:
        """What was sent to a server that has lived on has been read."""
        while self._withdrawn and now - self._withdrawn[0].t > HEEDED:
            self.history.add(self._withdrawn.popleft())
