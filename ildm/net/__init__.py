"""The node on asyncio: sockets, time, signals."""
