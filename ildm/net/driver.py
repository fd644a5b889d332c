"""The :class:`ildm.core.driver.Driver` of a running node."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, cast

from ildm.api import Unreachable
from ildm.core.driver import NO_DESCRIPTOR
from ildm.core.link.session import LinkSession
from ildm.core.timer_queue import TimerQueue
from ildm.log import get_logger, is_logged
from ildm.net.history import History
from ildm.net.transport import Dialing
from ildm.net.transport.dialing import tls_reason
from ildm.net.workers import Workers

if TYPE_CHECKING:
    from ildm.config import Address
    from ildm.core.driver import Endpoint


REFUSALS = (errno.ECONNREFUSED, errno.ECONNRESET)


class AsyncioDriver:
    """Carries out on an event loop what the core decides."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        unsent_bytes: int | None = None,
        dialing: Dialing | None = None,
    ) -> None:
        """``unsent_bytes`` is for links, see :attr:`ildm.config.LinkConfig.unsent_bytes`."""
        self._loop = loop
        self._unsent = unsent_bytes
        self._dialing = dialing or Dialing()
        self._dials: set[asyncio.Task[None]] = set()
        self._workers: dict[str, Workers] = {}
        self._logger = get_logger("ildm")
        self.history = History()
        self.random: Random = SystemRandom()
        self.call_soon = loop.call_soon
        self.call_later = TimerQueue(loop.time, loop.call_later).call_later
        self.now = loop.time
        self.wall = time.time
        self.token = secrets.token_bytes

    def dial(self, address: Address, endpoint: Endpoint, timeout: float) -> None:
        self._dials.add(self._loop.create_task(self._dial(address, endpoint, timeout), name="dial"))

    async def _dial(self, address: Address, endpoint: Endpoint, limit: float) -> None:
        task = asyncio.current_task(self._loop)
        assert task is not None
        expired = False

        def give_up() -> None:
            nonlocal expired
            expired = True
            task.cancel()

        # asyncio.timeout() costs as much as the rest of a dial
        timer = self.call_later(limit, give_up)
        # the core's sessions have the methods of asyncio.Protocol without being its subclass
        factory = cast("Callable[[], asyncio.Protocol]", lambda: endpoint)
        try:
            transport, _ = await self._dialing.connect(
                self._loop, factory, address, limit, getattr(endpoint, "paired", None)
            )
            if isinstance(endpoint, LinkSession):
                self.bound_unsent(transport.get_extra_info("socket"))
        except asyncio.CancelledError:
            if not expired:
                raise
            endpoint.dial_failed(f"no answer from {address} within {limit:g} s")
        except OSError as error:
            endpoint.dial_failed(_reason(error), _why(error))
        except (ValueError, OverflowError) as error:  # two dots in a row, U+0000, a port of six digits
            endpoint.dial_failed(f"{address.host} is no host name: {error}", Unreachable.NO_ADDRESS)
        finally:
            timer.cancel()
            self._dials.discard(task)

    def bound_unsent(self, link: socket.socket) -> None:
        """Let the system take no more than asked for before it has sent it; of a listening socket, for each
        connection that it accepts."""
        option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
        if self._unsent is not None and option is not None:
            link.setsockopt(socket.IPPROTO_TCP, option, self._unsent)

    def offload(self, owner: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        workers = self._workers.get(owner)
        if workers is None:
            workers = self._workers[owner] = Workers(self._loop.call_soon_threadsafe, f"work of {owner}")
        workers.submit(work, done)

    async def close(self) -> None:
        """Give up the dials under way, and the threads."""
        for workers in self._workers.values():
            workers.stop()
        for task in list(self._dials):
            task.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)

    def log(self, level: str, event: str, **fields: Any) -> None:
        self.history.add(self.wall(), level, event, fields)
        if is_logged(level):
            getattr(self._logger, level)(event, **fields)


def _why(error: OSError) -> Unreachable:
    """What that says of the far end; nothing if the fault is on the way or here."""
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
