"""What a link knows of the connections that are its sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ildm.api import Session
from ildm.core.driver import Endpoint

if TYPE_CHECKING:
    from ildm.config import Address
    from ildm.core.link.compression import CompressedTransport
    from ildm.core.link.hello import Refusal
    from ildm.mqtt import ReasonCode


class Dialed(Protocol):
    """A neighbour that this node has dialed."""

    @property
    def address(self) -> Address: ...

    @property
    def found(self) -> bool:
        """DNS has named it, and nobody else."""


class Dialing(Endpoint, Protocol):
    """What a dial is made for."""

    @property
    def link(self) -> object | None:
        """The link that it is a session of; None: of none yet."""

    def abort(self) -> None: ...


class Connection(Session, Protocol):
    """One TCP connection with a neighbour."""

    refusal: Refusal | None

    @property
    def index(self) -> int:
        """Which session of its link it is."""

    @property
    def neighbor(self) -> Dialed | None:
        """None: the neighbour has dialed."""

    @property
    def far(self) -> str:
        """The node that the other end has said it is; empty: it has said nothing."""

    @property
    def protocol(self) -> int:
        """The one that both ends have."""

    @property
    def features(self) -> frozenset[str]:
        """Those that both ends have named in the handshake."""

    @property
    def encrypted(self) -> bool: ...

    @property
    def coded(self) -> CompressedTransport | None:
        """The connection as it takes plain bytes; None: what crosses is not compressed."""

    @property
    def last_heard(self) -> float: ...

    @property
    def paused(self) -> bool: ...

    def ping(self) -> None: ...

    def check_unread(self) -> None: ...

    def follow_rules(self) -> None: ...

    def follow_budget(self) -> None: ...

    def follow_window(self) -> None: ...

    def unbind(self) -> None: ...

    def abort(self) -> None: ...

    def give_up(self, kind: str, text: str) -> None: ...

    def disconnect(self, reason: ReasonCode, text: str) -> None: ...

    def part(self, reason: ReasonCode, text: str) -> None: ...

    def refuse(self, refusal: Refusal, number: int) -> None: ...
