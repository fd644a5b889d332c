"""An amqtt broker for machines without another one: ``python -m ildm.demo.broker PORT``."""

from __future__ import annotations

import asyncio
import signal
import sys

from amqtt.broker import Broker  # type: ignore[import-untyped]


async def serve(port: int) -> None:
    """Serve anonymous clients on 127.0.0.1 until SIGTERM."""
    asked_to_go = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_go.set)
    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
    )
    await broker.start()
    await asked_to_go.wait()
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
