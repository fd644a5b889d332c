"""Sites with a pair of nodes each: what befalls a node befalls the member that owns the site.

Clients come back at the other member each time."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ildm.admin.client import AdminClient
from ildm.testing.live.node import NodeProcess, merge
from ildm.testing.live.process import ManagedProcess
from ildm_bench.chaos.processes import IldmSites
from ildm_bench.chaos.proxies import Address

MEMBERS = "a", "b"


class PairNode(NodeProcess):
    """Two members of a site as one node: one address for links, and the state directory that they share.

    Its :attr:`document` is that of both. :meth:`kill` ends the owner while both run. :meth:`launch` starts
    the members that do not run.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.members = {name: self._member(name) for name in MEMBERS}

    def _member(self, name: str) -> NodeProcess:
        member = NodeProcess(
            self.directory / name, self.address, None, node_id=self.node_id, place=self.place
        )
        if name == MEMBERS[0]:
            member.port = self.port
        member.link_address = self.link_address
        return member

    @property
    def owner(self) -> NodeProcess:
        """As the state directory says; the first one while it says nothing."""
        try:
            said = (Path(self.document["state_dir"]) / "owner").read_text().split()[2]
        except (OSError, IndexError, UnicodeDecodeError):
            said = MEMBERS[0]
        return self.members.get(said, self.members[MEMBERS[0]])

    @property
    def admin(self) -> AdminClient:
        return self.owner.admin

    @property
    def running(self) -> bool:
        """Whether both do."""
        return all(member.running for member in self.members.values())

    def launch(self) -> None:
        for name, member in self.members.items():
            if member.running:
                continue
            member.kill()
            document = copy.deepcopy(self.document)
            site = {"id": document.pop("node_id", self.node_id), "members": list(MEMBERS), "member": name}
            site["serve"] = "all"
            listen = f"{member.host}:{member.port}"
            merge(document, {"site": site, "admin": {"socket": str(member.admin_socket)}, "listen": listen})
            member.document = document
            member.launch()

    def wait_ready(self) -> None:
        """Return when one of them owns the site, and the other one stands by."""
        self.wait_until(self.ready, "no owner")
        self.wait_until(self._is_guarded, "nobody stands by")

    def _is_guarded(self) -> bool:
        found = [member.status() for member in self.members.values()]
        return sorted(each["pair"]["state"] for each in found if each is not None) == ["owner", "standby"]

    def kill(self) -> None:
        if self.running:
            self.owner.kill()

    def kill_both(self) -> None:
        for member in self.members.values():
            member.kill()

    def pids(self) -> list[int]:
        """Of the owner."""
        return self.owner.pids()

    def log(self) -> str:
        return "".join(member.log() for member in self.members.values())

    def logged(self) -> Iterator[dict[str, Any]]:
        for member in self.members.values():
            yield from member.logged()


class PairedSites(IldmSites):
    """A pair beside each broker."""

    node_class = PairNode

    def addresses(self, site: str) -> Sequence[Address]:
        node = self.nodes[site]
        assert isinstance(node, PairNode)
        return [member.address for member in node.members.values()]

    async def close(self) -> None:
        for node in self.nodes.values():
            assert isinstance(node, PairNode)
            await asyncio.to_thread(node.kill_both)
        await super().close()


def ends_by_others(process: ManagedProcess) -> bool:
    """Whether it is no fault if it ends: the member that follows ends an owner that stands still."""
    return isinstance(process, PairNode)
