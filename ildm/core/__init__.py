"""The node without sockets: sessions and pairs, links, status machines, plugin dispatch.

Nothing here imports asyncio, a socket, a clock or a logger. Sessions have the methods of an
``asyncio.Protocol`` and write to whatever has those of an ``asyncio.Transport``; the rest of the
world is a :class:`ildm.core.driver.Driver`.
"""
