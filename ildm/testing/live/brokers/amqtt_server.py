"""Runs an amqtt broker until SIGTERM: ``python amqtt_server.py HOST PORT``.

A process of its own rather than a task of the test's event loop, so that a test can kill it.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from amqtt.broker import Broker  # type: ignore[import-untyped]


async def serve(host: str, port: int) -> None:
    """Serve anonymous clients; return when asked to go."""
    asked_to_go = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_go.set)
    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"{host}:{port}"}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
    )
    await broker.start()
    await asked_to_go.wait()
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
