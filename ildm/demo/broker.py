"""An amqtt broker in a process of its own, until SIGTERM: ``python -m ildm.demo.broker HOST PORT``.

The demo uses it on machines without another broker, and the tests of algorithms use it as the embedded one.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from typing import Any

from amqtt.broker import Broker  # type: ignore[import-untyped]


class Subscriptions(dict[str, Any]):
    """Subscriptions of the broker by filter, which may change while somebody goes over them.

    amqtt 0.12 awaits within its loops over them, when a client connects and for each message.
    A filter that comes amid a loop would raise RuntimeError there and end the client's connection.
    """

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.keys()))

    def items(self) -> Any:
        return list(super().items())


def make(host: str, port: int) -> Broker:
    """A broker for anonymous clients that is not started yet."""
    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"{host}:{port}"}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
    )
    broker._subscriptions = Subscriptions()
    return broker


async def serve(host: str, port: int) -> None:
    """Serve anonymous clients; return when asked to go."""
    asked_to_go = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_go.set)
    broker = make(host, port)
    await broker.start()
    await asked_to_go.wait()
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
