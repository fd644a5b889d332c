"""The network between sites that reach each other by gates: a test cuts any two off from each other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ildm_bench.testbed.delay_proxy import source_of
from tests.sites.proxy import Proxy
from tests.support.ports import LOOPBACK, free_port


class Gate(Proxy):
    """Before the link listener of one node; knows who dials by the first packet."""

    def __init__(self, mesh: Mesh, name: str) -> None:
        super().__init__((LOOPBACK, free_port()))
        self.name = name
        self.connections: dict[str, set[asyncio.StreamWriter]] = {}
        """By the node that dials."""
        self._mesh = mesh

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = b""
        while (source := source_of(first)) is None:
            data = await reader.read(65536)
            if not data:
                writer.close()
                return
            first += data
        if self._mesh.are_apart(source, self.name):
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        far_writer.write(first)
        both = {writer, far_writer}
        mine = self.connections.setdefault(source, set())
        mine |= both
        self._writers |= both
        try:
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        finally:
            mine -= both
            self._writers -= both


class Mesh:
    """The gates of all nodes; who is not cut off from whom reaches him."""

    def __init__(self) -> None:
        self.gates: dict[str, Gate] = {}
        self._apart: set[frozenset[str]] = set()

    async def link(self, name: str) -> dict[str, str]:
        """The keys ``listen`` and ``advertise`` of the section ``link`` of a node with that name."""
        gate = self.gates[name] = Gate(self, name)
        await gate.start()
        host, port = gate.address
        return {"listen": f"{LOOPBACK}:{gate.target[1]}", "advertise": f"{host}:{port}"}

    def are_apart(self, one: str, other: str) -> bool:
        return frozenset({one, other}) in self._apart

    def cut(self, ones: Iterable[str], others: Iterable[str]) -> None:
        """Break all connections between two groups, and let no new one be made."""
        others = list(others)
        for one in ones:
            for other in others:
                self._apart.add(frozenset({one, other}))
                for here, there in ((one, other), (other, one)):
                    for writer in list(self.gates[here].connections.get(there, ())):
                        writer.transport.abort()

    def mend(self) -> None:
        """All reach each other again."""
        self._apart.clear()

    async def close(self) -> None:
        for gate in self.gates.values():
            await gate.close()
