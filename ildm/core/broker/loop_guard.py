"""Noticing that the way to the broker leads back to the node itself.

Then each CONNECT that the node passes on comes in again as that of a new client, until no descriptor is
left. Nothing in the CONNECT says so, as the node relays it byte for byte; but many equal ones that nobody
has answered are a reason to ask: the node sends a CONNECT with a client identifier that only it can know,
and if that one arrives, by whatever detour (a proxy, another node that takes this one for its broker),
there is no broker. Clients are told that it is unavailable until such a question stays away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ildm.api import Role, Unreachable
from ildm.core.session import BaseSession
from ildm.mqtt import Connect, Disconnect, PacketType, Version

if TYPE_CHECKING:
    from ildm.core.broker.broker_choice import BrokerChoice
    from ildm.core.broker.reach import Reach
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver

SUSPICIOUS = 16
"""Equal CONNECTs without an answer; clients that all have no identifier may well send as many."""
INTERVAL = 10.0
"""Seconds between two questions."""


class LoopGuard:
    """One per node."""

    def __init__(
        self,
        driver: Driver,
        brokers: BrokerChoice,
        connect_timeout: float,
        counters: Counters,
        reach: Reach,
    ) -> None:
        self.driver = driver
        self.brokers = brokers
        self.connect_timeout = connect_timeout
        self.counters = counters
        self.reach = reach
        self._unanswered: dict[int, int] = {}
        self._question: Question | None = None
        self._next = 0.0
        self._stopped = False

    def asked(self, connect: bytes) -> int:
        """A client's CONNECT is about to be passed on; answers what :meth:`answered` is to be given."""
        key = hash(connect)
        count = self._unanswered[key] = self._unanswered.get(key, 0) + 1
        if count >= SUSPICIOUS:
            self.suspect()
        return key

    def answered(self, key: int) -> None:
        """The broker has answered a client, or one of the two has gone."""
        left = self._unanswered[key] - 1
        if left:
            self._unanswered[key] = left
        else:
            del self._unanswered[key]

    def is_own(self, client_id: str) -> bool:
        """Whether a CONNECT that has come in is the node's own question."""
        question = self._question
        if question is None or client_id != question.client_id:
            return False
        question.came_back = True
        if self.reach.loop is None:
            self.counters["broker_loops"] += 1
            self.reach.looped(f"{self.brokers.current} leads back to this node: see broker.address")
        return True

    def suspect(self) -> None:
        """Ask, unless that was done a moment ago."""
        if self._question is None and not self._stopped and self.driver.now() >= self._next:
            self._next = self.driver.now() + INTERVAL
            self._question = Question(self.driver, self._told)
            self.driver.dial(self.brokers.current, self._question, self.connect_timeout)

    def _told(self, came_back: bool) -> None:
        self._question = None
        if self.reach.loop is None:
            return
        if not came_back:
            self.reach.looped(None)
            return
        self.driver.call_later(INTERVAL, self.suspect)

    def stop(self) -> None:
        self._stopped = True
        if self._question is not None:
            self._question.abort()


class Question(BaseSession):
    """A CONNECT nobody else would send; the session ends with the first answer, whatever it is."""

    __slots__ = ("_limit", "_told", "came_back")
    role = Role.INJECTION
    TIMEOUT = 5.0

    def __init__(self, driver: Driver, told: Callable[[bool], None]) -> None:
        super().__init__(driver)
        self.client_id = f"ildm-loop-{driver.token(12).hex()}"
        self.came_back = False
        self._told = told
        self._limit: Any = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.write(Connect(client_id=self.client_id, version=Version.V311, clean_start=True).encode())
        self._limit = self.driver.call_later(self.TIMEOUT, self.abort)

    def data_received(self, data: bytes) -> None:
        if data[0] >> 4 == PacketType.CONNACK:  # it may have accepted
            self.write(Disconnect().encode(Version.V311))
        self.close()

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        super().dial_failed(reason)
        self._told(self.came_back)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._limit is not None:
            self._limit.cancel()
        self._told(self.came_back)
