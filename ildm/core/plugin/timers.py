"""Timers of one plugin: bounded in number, and called some at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.core.driver import Driver
    from ildm.core.plugin.account import Account

TURN = 0.005
"""Seconds that callbacks which are due may take until clients and other plugins have their turn."""


class PluginTimer:
    """Implements :class:`ildm.api.Timer`."""

    __slots__ = ("_timers", "args", "callback", "driven", "waiting")

    def __init__(self, timers: Timers, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._timers = timers
        self.callback = callback
        self.args = args
        self.waiting = True
        """It has neither been called nor cancelled."""
        self.driven: Timer | None = None

    def cancel(self) -> None:
        if self.waiting:
            self._timers.settle(self)
            if self.driven is not None:
                self.driven.cancel()


class Timers:
    """Calls back a plugin, one callback after the other, in the order they are due.

    Those that are due before the node has started wait for its start, and after its end none is called.

    Args:
        call: calls a callback of the plugin, and counts what it does.
    """

    def __init__(
        self, driver: Driver, account: Account, call: Callable[[Callable[..., None], tuple[Any, ...]], None]
    ) -> None:
        self._driver = driver
        self._account = account
        self._call = call
        self._due: deque[PluginTimer] = deque()
        self._scheduled = False
        self._runs = False
        self._ended = False
        self.waiting = 0
        """Neither called nor cancelled."""
        self.results = 0
        """Those of them that were to be called at once."""

    def start(self) -> None:
        self._runs = True
        self._go_on()

    def stop(self) -> None:
        self._runs = False
        self._ended = True
        while self._due:
            self._due.popleft().cancel()

    def call_now(self, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Call back as soon as it is its turn, without a bound: what is handed in is bounded elsewhere."""
        self.waiting += 1
        self.results += 1
        self._is_due(PluginTimer(self, callback, args))

    def call_later(self, delay: float, callback: Callable[..., None], args: tuple[Any, ...]) -> PluginTimer:
        """See :meth:`ildm.api.NodeApi.call_later`."""
        limit = self._account.limits.plugin_timers
        if self.waiting >= limit:
            raise self._account.refuse("timers", f"{limit} timers are waiting (limits.plugin_timers)")
        timer = PluginTimer(self, callback, args)
        self.waiting += 1
        timer.driven = self._driver.call_later(delay, self._is_due, timer)
        return timer

    def settle(self, timer: PluginTimer) -> None:
        """It waits no more; what it holds is let go."""
        timer.waiting = False
        timer.callback, timer.args = _nothing, ()
        self.waiting -= 1
        if timer.driven is None:
            self.results -= 1

    def _is_due(self, timer: PluginTimer) -> None:
        if self._ended:
            timer.cancel()
            return
        self._due.append(timer)
        self._go_on()

    def _go_on(self) -> None:
        if self._due and self._runs and not self._scheduled:
            self._scheduled = True
            self._driver.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        until = self._driver.now() + TURN
        while self._due:
            timer = self._due.popleft()
            if not timer.waiting:
                continue
            callback, args = timer.callback, timer.args
            self.settle(timer)
            self._call(callback, args)
            if self._driver.now() >= until:
                break
        self._go_on()


def _nothing() -> None:
    """What a timer that is over would call."""
