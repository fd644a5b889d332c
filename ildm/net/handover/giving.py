"""The side of an upgrade that has the clients: it starts the next process, and gives them to it.

Until that process is ready nothing changes. From then on there is one way back for every fault: this process
makes its node anew of what it would have handed over.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ildm.admin.view import AdminError
from ildm.core.link.session import LinkSession
from ildm.core.local.handover import VERSION
from ildm.log import get_logger
from ildm.net.handover.channel import CLIENTS, Channel, ChannelError, Message
from ildm.net.handover.estate import Estate, Left, busy, described, obstacle, streams, take_apart

if TYPE_CHECKING:
    from ildm.core.local.client_session import ClientSession
    from ildm.net.handover.ports import Host

DESCRIPTOR = "ILDM_UPGRADE_FD"
"""Variable of the environment: the descriptor of the next process's end of the channel."""
SETTLE = 2.0
"""Seconds that clients which cannot be described have to come to a state in which they can."""
AT_ONCE = 50
"""Clients described in a turn of the loop while they are served."""
LOOK = 0.005
"""Seconds between two looks at whether all are settled."""
FLUSHED = 0.05
"""Seconds that queues in memory have to go out, while nobody is read."""
ANSWERED = 1.0
"""Seconds that the broker has to answer what it was given of other sites: else it gets that again. They count
only if no more waits for it."""
TAKEN = 60.0
"""Seconds that the next process has to open the state, and to say that it has taken all."""


class UpgradeError(AdminError):
    """The node goes on in the process that it has."""


class Upgrade:
    """One upgrade of a node.

    Args:
        python: the interpreter of the next process.
        timeout: seconds until that has to be ready.
    """

    def __init__(self, server: Host, python: str | None, timeout: float) -> None:
        self._server = server
        self._python = python or sys.executable
        self._timeout = timeout
        self.estate: Estate | None = None
        """What was to be handed over, once this process's node has ended."""
        self.leaving = False
        """It is too late to stop it; it ends by itself, well or not."""
        self.ended = asyncio.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self.pid = 0
        self.taken = False
        """The next process has it."""
        self._broken: ChannelError | None = None

    def check(self) -> None:
        """Raises: UpgradeError, this node cannot be upgraded now."""
        server = self._server
        config = server.config
        if server.source is None:
            raise UpgradeError("the node was not started from a file")
        if server.reactor is None:
            raise UpgradeError("connections can be handed over under Linux alone")
        if os.getpid() == 1:
            raise UpgradeError("the node is process 1 of its container, which would end with it")
        if server.stop_requested.is_set():
            raise UpgradeError("the node is stopping")
        if config.site.members:
            raise UpgradeError("the node is a member of a pair: stop it, and the other one takes over")
        if config.algorithm is not None and config.spool.mode == "off":
            raise UpgradeError(
                "spool.mode is off: messages for other sites would be lost; stop and start the node"
            )

    async def run(self) -> dict[str, Any]:
        """Carry it out; answers ``pid``, ``clients``, ``sent_away`` and ``pause`` in seconds.

        Raises:
            UpgradeError: it has failed. If :attr:`estate` is set, the node has to be made anew of it.
        """
        self.check()
        channel, other = Channel.pair()
        try:
            process = self._start(other)
        except OSError as error:
            channel.close()
            raise UpgradeError(f"{self._python} cannot be started: {error.strerror or error}") from error
        finally:
            other.close()
        self._process, self.pid = process, process.pid
        try:
            try:
                await self._ready(channel)
            except (ChannelError, UpgradeError) as error:
                status = await self._end(process)
                raise UpgradeError(f"{error}{status}; the node goes on as before") from error
            self.leaving = True
            try:
                estate = await self._leave(channel)
                answer = await asyncio.to_thread(channel.receive, TAKEN)
                self._expect(answer, "took")
            except (ChannelError, UpgradeError) as error:
                status = await self._end(process)
                if not self._took_after_all(channel):
                    assert self.estate is not None
                    self.estate.failed = True
                    gc.enable()
                    raise UpgradeError(
                        f"{error}{status}; the process before has taken its clients back"
                    ) from error
                get_logger("ildm").error("the next process has ended with the clients", error=str(error))
                estate = self.estate or Estate(time.monotonic())
            self.taken = True
            pause = time.monotonic() - estate.since
            with suppress(ChannelError):  # how it goes there is that process's own affair
                await asyncio.to_thread(channel.receive, TAKEN)
            return {
                "pid": self.pid,
                "clients": len(estate.clients),
                "sent_away": estate.sent_away,
                "pause": round(pause, 3),
            }
        finally:
            channel.close()
            self.ended.set()

    def give_up(self) -> None:
        """The node stops: the next process is not to begin."""
        if self._process is not None and not self.leaving:
            self._process.kill()

    def _start(self, other: socket.socket) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **self._server.environment, DESCRIPTOR: str(other.fileno())}
        return subprocess.Popen(  # noqa: S603 - what the owner of the node has asked for
            [self._python, "-m", "ildm", "run", "--config", str(self._server.source)],
            env=environment,
            pass_fds=[other.fileno()],
            stdin=subprocess.DEVNULL,
        )

    async def _ready(self, channel: Channel) -> None:
        message = await asyncio.to_thread(channel.receive, self._timeout)
        about = self._expect(message, "ready")
        if VERSION not in about["reads"]:
            raise UpgradeError(
                f"release {about['release']} cannot read what this one hands over (format {VERSION})"
            )
        here = (
            str(self._server.config.state_dir.absolute()),
            str(self._server.config.spool_directory.absolute()),
        )
        if [*here] != about["directories"]:
            raise UpgradeError(f"state_dir or spool.directory is another: {', '.join(about['directories'])}")
        self.check()

    def _expect(self, message: Message | None, word: str) -> Any:
        if message is None:
            raise UpgradeError("the next process has ended")
        for descriptor in message.descriptors:
            os.close(descriptor)
        if message.word == "failed":
            raise UpgradeError(str(message.about))
        if message.word != word:
            raise UpgradeError(f"the next process says {message.word!r}, expected {word!r}")
        return message.about

    async def _end(self, process: subprocess.Popen[bytes]) -> str:
        """The next process is not to go on; answers how it has ended, for people."""
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, 0.5)
        if process.poll() is None:
            process.kill()
            await asyncio.to_thread(process.wait)
            return ""
        status = process.returncode
        return f" (signal {signal.Signals(-status).name})" if status < 0 else f" (status {status})"

    def _took_after_all(self, channel: Channel) -> bool:
        """The word may have been on its way when this process has given up waiting."""
        try:
            message = channel.receive(0.01)
        except ChannelError:
            return False
        return message is not None and message.word == "took"

    # giving -------------------------------------------------------------------------------------

    async def _leave(self, channel: Channel) -> Estate:
        """End the node, but not its clients, and hand over what it had."""
        server = self._server
        get_logger("ildm").info("upgrade: the next process is ready", pid=self.pid)
        assert server.for_clients is not None
        listeners = [*server.for_clients, *server.for_neighbors]
        for listener in listeners:
            listener.hold()
        await server.stop_serving_people()
        sent_away = await self._send_away()
        known = await self._known(channel)
        gc.disable()  # it would look at all that is made and described; this process ends, or begins anew
        estate = self.estate = Estate(time.monotonic())
        estate.listening += [sock.dup() for listener in listeners for sock in listener.sockets]
        self._give_listening(channel, estate)
        others = await self._take(channel, estate, known)
        for session in others:
            session.move_off()
        estate.sent_away = sent_away + len(others)
        store = server.part()
        await asyncio.get_running_loop().run_in_executor(None, store)
        self._give(channel, "yours", {"sent_away": estate.sent_away, "since": estate.since})
        await server.give_back()
        if self._broken is not None:
            raise self._broken
        return estate

    def _give(self, channel: Channel, word: str, about: Any = None, descriptors: Sequence[int] = ()) -> None:
        """Say something. If that fails, nothing more is said, and the end of all is told why."""
        if self._broken is None:
            try:
                channel.send(word, about, descriptors)
            except ChannelError as error:
                self._broken = error

    def _give_listening(self, channel: Channel, estate: Estate) -> None:
        shared = self._server.inherited.share()
        names = [name for _, name in shared]
        descriptors = [number for number, _ in shared] + [sock.fileno() for sock in estate.listening]
        self._give(channel, "listening", {"version": VERSION, "inherited": names}, descriptors)

    def _give_clients(self, channel: Channel, batch: list[Left]) -> None:
        descriptors = [half.descriptor for left in batch for half in (left.client, left.broker)]
        self._give(channel, "clients", [left.row for left in batch], descriptors)

    async def _send_away(self) -> int:
        """Those who cannot be handed over go as in a drain; answers how many."""
        node = self._server.node
        leaving = [session for session in node.sessions if obstacle(session) is not None]
        if not leaving:
            return 0
        get_logger("ildm").info(
            "upgrade: clients that cannot be handed over are sent away", clients=len(leaving)
        )
        count, limits = len(leaving), node.limits
        give_up = time.monotonic() + count / limits.drain_rate + limits.drain_timeout
        node.send_away(list(leaving))
        while any(session in node.sessions for session in leaving):
            if time.monotonic() >= give_up:
                break
            await asyncio.sleep(LOOK)
        for session in leaving:
            if session in node.sessions:
                session.abort()
        await asyncio.sleep(0)
        return count

    async def _known(self, channel: Channel) -> dict[int, str]:
        """Tell, while all are served, what never changes of them, a few in each turn of the loop.

        Then wait for those who are not connected for good yet, or are just leaving.
        """
        known: dict[int, str] = {}
        node = self._server.node
        waiting: list[ClientSession] = []
        sessions = list(node.sessions)
        for begin in range(0, len(sessions), AT_ONCE):
            told: dict[int, str] = {}
            for session in sessions[begin : begin + AT_ONCE]:
                text = described(session)
                if text is not None:
                    told[session.id] = text
                if busy(session):
                    waiting.append(session)
            self._give(channel, "known", list(told.items()))
            known |= told
            await asyncio.sleep(0)
        give_up = time.monotonic() + SETTLE
        while waiting := [session for session in waiting if session.is_open and busy(session)]:
            if time.monotonic() >= give_up:
                break
            await asyncio.sleep(LOOK)
        return known

    async def _take(self, channel: Channel, estate: Estate, known: Mapping[int, str]) -> list[ClientSession]:
        """Take all clients from the node, and let out what is queued; answers whom nobody can describe."""
        node = self._server.node
        begun = time.monotonic()
        waiting = list(node.sessions)
        assert self._server.reactor is not None
        self._server.reactor.leave(streams(waiting))
        for link in node.links.links.values():
            for connection in link.sessions:  # what has not come is sent again to the next process
                if isinstance(connection, LinkSession):
                    connection.pause("upgrade")
        while True:
            if node.custody is not None:
                node.custody.flush()
            others: list[ClientSession] = []
            for begin in range(0, len(waiting), CLIENTS):
                taken = len(estate.clients)
                others += take_apart(waiting[begin : begin + CLIENTS], estate, known)
                self._give_clients(channel, estate.clients[taken:])
            for stream in streams(others):
                stream.follow()
            passed = time.monotonic() - begun
            if passed >= SETTLE or (not others and self._at_rest(passed)):
                return others
            for session in others:
                session.pause("upgrade")
            await asyncio.sleep(LOOK)
            waiting = [session for session in others if session in node.sessions]

    def _at_rest(self, passed: float) -> bool:
        """Whether nothing more is to go out, ``passed`` seconds after clients and links were read last."""
        links, injector = self._server.node.links, self._server.node.injector
        if not (links.idle and injector.idle):
            return passed >= FLUSHED
        if any(sender.inflight for sender in injector.senders):
            return passed >= (FLUSHED if injector.queued_messages else ANSWERED)
        return True
