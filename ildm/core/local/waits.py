"""What a client's CONNACK, SUBSCRIBE and SUBACK wait for beside its broker: the disk and other sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.local.ack_gate import Told
from ildm.core.local.record import interest_of
from ildm.core.plugin.filtering import Awaited

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ildm.config import LinkConfig
    from ildm.core.broker.injection import Injector
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Store
    from ildm.core.link.manager import LinkManager
    from ildm.core.local.site_rules import SiteRules
    from ildm.core.plugin.dispatch import Dispatch
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.router import Router

INJECTION_LOOK = 0.002
"""Seconds between two looks at whether the broker has taken the messages that a SUBSCRIBE waits for."""
SAVE_WAIT = 5.0
"""Seconds that an answer to a client waits for a disk at most, where it is not about a message."""


class Waits:
    """One per node."""

    def __init__(
        self,
        *,
        config: LinkConfig,
        driver: Driver,
        store: Store,
        counters: Counters,
        dispatch: Dispatch,
        router: Router,
        injector: Injector,
        custody: Custody | None,
        links: LinkManager,
        site_rules: SiteRules,
    ) -> None:
        self._config = config
        self._driver = driver
        self._store = store
        self._counters = counters
        self._dispatch = dispatch
        self._router = router
        self._injector = injector
        self._custody = custody
        self._links = links
        self._site_rules = site_rules

    def when_advertised(
        self, callback: Callable[[], None], persistent: bool, topic_filters: Sequence[str]
    ) -> bool:
        """Whether the neighbours know all local interest, the overlay knows these filters of it and, with
        ``persistent``, what belongs to sessions is saved; if not, ``callback`` is called when that is so.

        For other nodes nothing waits longer than ``link.subscribe_wait``; nor, without a spool, for the
        disk. With one it is promised, as for a message, and waits while nothing can be written.
        """
        wait = self._config.subscribe_wait
        if not (wait and self._router.active):
            return True
        custody = self._custody if persistent else None
        lsn = 0 if custody is None else custody.last
        durable = custody is None or custody.covers(lsn)

        def when_durable() -> None:
            if custody is None or custody.covers(lsn):
                callback()
            else:
                custody.when(lsn, callback)

        unwritten = persistent and custody is None
        told = Told(self._counters, when_durable, 2 + unwritten)
        if unwritten:
            self._store.when_written(lambda _: told.one())
        if self._links.when_advertised(told.one):
            told.one()
        known = [name for each in topic_filters if (name := interest_of(each)) is not None]
        if self._dispatch.when_known(known, told.heard):
            told.one()
        if not told.complete:
            told.wait(self._driver, wait)
        elif durable:
            return True
        else:
            when_durable()
        return False

    def before_subscribe(self, topic_filters: Sequence[str], wait: float) -> Awaited[None] | None:
        """Whether a SUBSCRIBE is to wait, for so many seconds at most, for retained messages of other sites;
        None: it goes to the broker at once."""
        if wait <= 0 or not self._router.active:
            return None
        names = [name for each in topic_filters if (name := interest_of(each)) is not None]
        names = [name for name in names if self._site_rules.admits(name)]
        awaited: Awaited[None] = Awaited()
        until = self._driver.now() + wait
        told = Told(
            self._counters,
            lambda: self._when_injected(awaited, self._injector.injections.given, until),
            1,
            "retained_waits_expired",
        )
        if not names or self._dispatch.before_subscribe(names, told.heard):
            return None
        told.wait(self._driver, wait)
        return awaited

    def _when_injected(self, awaited: Awaited[None], given: int, until: float) -> None:
        """Go on when the broker has what is given by now. A plugin must not be called back from within."""
        if awaited.ended:
            return
        if self._injector.injections.taken >= given or self._driver.now() >= until:
            self._driver.call_soon(awaited.tell, None)
        else:
            self._driver.call_later(INJECTION_LOOK, self._when_injected, awaited, given, until)

    def when_saved(self, callback: Callable[[], None]) -> bool:
        """Whether all that belongs to sessions is durable; if not, ``callback`` is called when that is so, or
        after :data:`SAVE_WAIT`. Without a spool nothing is promised and nobody waits."""
        custody = self._custody
        if custody is None or custody.covers(custody.last):
            return True
        told = Told(self._counters, callback, 1, "save_waits_expired")
        custody.when(custody.last, told.one)
        told.wait(self._driver, SAVE_WAIT)
        return False
