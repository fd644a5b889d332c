"""The :class:`ildm.core.driver.Driver` of a running node."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, cast

from ildm.api import Unreachable
from ildm.core.counters import Counters
from ildm.core.driver import NO_DESCRIPTOR
from ildm.core.link.session import LinkSession
from ildm.core.session import CLOSE_TIMEOUT
from ildm.core.timer_queue import TimerQueue
from ildm.log import get_logger, is_logged
from ildm.net.history import History
from ildm.net.names import addresses_of
from ildm.net.transport import Dialing
from ildm.net.transport.dialing import tls_reason
from ildm.net.transport.turns import Turns, pace_of
from ildm.net.workers import Workers

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.config import Address, LookupConfig
    from ildm.core.driver import Endpoint
    from ildm.net.transport.reactor import Dialed
    from ildm.net.transport.sockets import Connected
    from ildm.net.transport.stream import Stream


REFUSALS = (errno.ECONNREFUSED, errno.ECONNRESET)


class Dial:
    """A connection that is being made, by the reactor or by a coroutine, which this drives as a task would.

    A task costs more than the rest of the dial: it has a name, is entered in a set of all, and begins a turn
    later. This one begins at once.

    Args:
        ended: called with the transport, or with what went wrong; for a dial that was cancelled, with that.
    """

    __slots__ = (
        "_awaited",
        "_ended",
        "address",
        "connecting",
        "direct",
        "endpoint",
        "expired",
        "limit",
        "timer",
    )

    def __init__(
        self,
        address: Address,
        endpoint: Endpoint,
        limit: float,
        ended: Callable[[Dial, asyncio.Transport | None, BaseException | None], None],
    ) -> None:
        self.address = address
        self.endpoint = endpoint
        self.limit = limit
        """Seconds."""
        self.direct: Dialed | None = None
        self.connecting: Coroutine[Any, Any, Connected]
        """It awaits nothing but futures. Not there if the reactor makes the connection."""
        self.timer: Timer | None = None
        self.expired = False
        self._awaited: asyncio.Future[Any] | None = None
        self._ended = ended

    def step(self, _: object = None) -> None:
        """Run the coroutine to where it waits next, or to its end."""
        self._awaited = None
        try:
            awaited = self.connecting.send(None)
        except StopIteration as made:
            self._ended(self, made.value[0], None)
        except (Exception, asyncio.CancelledError) as error:
            self._ended(self, None, error)
        else:
            self._awaited = awaited
            awaited.add_done_callback(self.step)

    def made(self, transport: Stream | None, error: BaseException | None) -> None:
        """By the reactor."""
        self.direct = None
        self._ended(self, cast("asyncio.Transport | None", transport), error)

    def cancel(self) -> None:
        if self.direct is not None:
            self.direct.abort()
            self.made(None, asyncio.CancelledError())
        elif self._awaited is not None:
            self._awaited.cancel()

    def expire(self) -> None:
        self.expired = True
        self.cancel()


class AsyncioDriver:
    """Carries out on an event loop what the core decides."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        unsent_bytes: int | None = None,
        dialing: Dialing | None = None,
    ) -> None:
        """``unsent_bytes`` is for links, see :attr:`ildm.config.LinkConfig.most_unsent`."""
        self._loop = loop
        self._unsent = unsent_bytes
        self._dialing = dialing or Dialing()
        self._dials: set[Dial] = set()
        self._last: asyncio.Future[None] | None = None
        """Done when the last dial has ended."""
        self._workers: dict[str, Workers] = {}
        self._logger = get_logger("ildm")
        self.history = History()
        self.random: Random = SystemRandom()
        self.call_soon = loop.call_soon
        self.in_turn = (self._dialing.turns or Turns(loop.call_soon, Counters())).wait
        self.call_later = TimerQueue(loop.time, loop.call_later).call_later
        self.now = loop.time
        self.precise = time.perf_counter
        self.wall = time.time
        self.token = secrets.token_bytes

    def dial(self, address: Address, endpoint: Endpoint, timeout: float) -> None:
        dial = Dial(address, endpoint, timeout, self._dial_ended)
        self._dials.add(dial)
        dial.timer = self.call_later(timeout, dial.expire)
        dialing = self._dialing
        try:
            place = dialing.place(address)
            if place is not None and dialing.reactor is not None:
                dial.direct = dialing.reactor.dial(place, endpoint, dial.made)
                return
            # the core's sessions have the methods of asyncio.Protocol without being its subclass
            factory = cast("Callable[[], asyncio.Protocol]", lambda: endpoint)
            paired = getattr(endpoint, "paired", None)
            dial.connecting = dialing.connect(self._loop, factory, address, timeout, paired)
        except (OSError, ValueError, OverflowError) as error:
            self._dial_ended(dial, None, error)
        else:
            dial.step()

    def _dial_ended(
        self, dial: Dial, transport: asyncio.Transport | None, error: BaseException | None
    ) -> None:
        self._dials.discard(dial)
        if dial.timer is not None:
            dial.timer.cancel()
        if error is not None:
            self._loop.call_soon(_tell, dial, error)  # not within the call that has asked for the dial
        elif (
            transport is not None and not transport.is_closing()  # by the session, as soon as it was made
        ):
            if isinstance(dial.endpoint, LinkSession):
                self.bound_unsent(transport.get_extra_info("socket"))
            answers = getattr(transport, "answers", None)
            if answers is not None:
                answers(pace_of(getattr(dial.endpoint, "paired", None)))
        if self._last is not None and not self._dials and not self._last.done():
            self._last.set_result(None)

    def bound_unsent(self, link: socket.socket) -> None:
        """Let the system take no more than asked for before it has sent it; of a listening socket, for each
        connection that it accepts."""
        option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
        if self._unsent is not None and option is not None:
            link.setsockopt(socket.IPPROTO_TCP, option, self._unsent)

    def resolve(self, question: LookupConfig, done: Callable[[list[Address] | BaseException], None]) -> None:
        # each with a thread of its own, as a name server may let one question wait
        self.offload(f"discovery by {question}", partial(addresses_of, question), done)

    def offload(self, owner: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        workers = self._workers.get(owner)
        if workers is None:
            workers = self._workers[owner] = Workers(self._loop.call_soon_threadsafe, f"work of {owner}")
        workers.submit(work, done)

    async def close(self) -> None:
        """Give up the dials under way, and the threads."""
        for workers in self._workers.values():
            workers.stop()
        if self._dials:
            self._last = self._loop.create_future()
            for dial in list(self._dials):
                dial.cancel()
            await asyncio.wait((self._last,), timeout=CLOSE_TIMEOUT)

    def log(self, level: str, event: str, **fields: Any) -> None:
        self.history.add(self.wall(), level, event, fields)
        if is_logged(level):
            getattr(self._logger, level)(event, **fields)


def _tell(dial: Dial, error: BaseException) -> None:
    """Tell the endpoint why there is no connection, unless it was the driver that gave up."""
    endpoint, address = dial.endpoint, dial.address
    if isinstance(error, OSError):
        endpoint.dial_failed(_reason(error), _why(error))
    elif isinstance(error, ValueError | OverflowError):  # two dots in a row, U+0000, a port of six digits
        endpoint.dial_failed(f"{address.host} is no host name: {error}", Unreachable.NO_ADDRESS)
    elif not isinstance(error, asyncio.CancelledError):
        raise error
    elif dial.expired:
        endpoint.dial_failed(f"no answer from {address} within {dial.limit:g} s")


def _why(error: OSError) -> Unreachable:
    """What that says of the peer; nothing if the fault is on the way or here."""
    if isinstance(error, ssl.SSLError):
        return Unreachable.REJECTED
    if isinstance(error, socket.gaierror):
        known = error.errno != socket.EAI_AGAIN  # the name server has answered
        return Unreachable.NO_ADDRESS if known else Unreachable.NO_ANSWER
    # of a host with several addresses there is but one text for all of them
    refused = error.errno in REFUSALS if error.errno else any(f"[Errno {n}]" in str(error) for n in REFUSALS)
    return Unreachable.REFUSED if refused else Unreachable.NO_ANSWER


def _reason(error: OSError) -> str:
    """What went wrong, in the system's words; asyncio's own text repeats the address."""
    if isinstance(error, ssl.SSLError):
        return tls_reason(error)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return NO_DESCRIPTOR
    if error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error)
