"""Options of the overlay, all bounds among them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ildm_algorithms.overlay.casts.routing import ROUTINGS

__all__ = ["OverlayConfig"]


_SAFE = tuple(name for name in ROUTINGS if name != "sequential")
"""Along the list of level 0 alone a cast misses keys while that list changes: for studies only."""


def _known(routing: str) -> str:
    if routing not in _SAFE:
        raise ValueError(f"must be one of {', '.join(_SAFE)}")
    return routing


class OverlayConfig(BaseModel):
    """How a node keeps its part of the Skip Graph; times in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base: int = Field(default=2, ge=2, le=256)
    """Base of the digits of membership vectors; the same at all nodes."""
    routing: Annotated[str, AfterValidator(_known)] = "sfb"
    """How casts spread unless another way is named (thesis 4.1)."""
    ping_interval: float = Field(default=2.0, gt=0)
    """Between two rounds of pings to the left neighbours."""
    ping_timeout: float = Field(default=1.0, gt=0)
    """A pinged node from which nothing came for so long is asked for nothing others can do."""
    patience: float = Field(default=2.0, gt=0)
    """A pinged node from which nothing came for so long is suspected. What takes less, a stall of a process
    as well, costs no repair."""
    check_interval: float = Field(default=10.0, gt=0)
    """Within this time each key is looked for from elsewhere, at a node with up to ``checks`` links."""
    checks: int = Field(default=64, ge=1)
    """Links to other nodes checked at once. With more of them checks come so much more often that all have
    had one within ``check_round``. A check takes about log N messages at level 0, and 3 above."""
    check_round: float = Field(default=600.0, gt=0)
    claims: int = Field(default=64, ge=1, le=1024)
    """Links confirmed with one ping at most."""
    ack_timeout: float = Field(default=1.5, gt=0)
    """For the answer to a request. The request is sent again within it, as often as the time-outs of its
    receiver allow. These may lengthen it."""
    timeout_min: float = Field(default=0.25, gt=0)
    """Shortest time until a request is sent once more; a part of a cast has twice as long."""
    timeout_max: float = Field(default=8.0, gt=0)
    """Longest time until a request, or a part of a cast, is sent once more."""
    peers: int = Field(default=8_192, ge=1)
    """Nodes of which it is known when their last messages came and how long they take to answer."""
    retry: float = Field(default=0.5, gt=0)
    """First back-off before something is tried again; doubled up to 16 times as much, times 0.5 to 1.5."""
    suspect_time: float = Field(default=30.0, gt=0)
    """A suspected node is avoided for so long, or until a message of it comes."""
    leave_timeout: float = Field(default=5.0, gt=0)
    """A key that cannot leave in agreement with its neighbours for so long leaves without."""
    grace: float = Field(default=1.0, ge=0)
    """A node that stops goes on answering for so long after its keys have left."""
    cast_deadline: float = Field(default=30.0, gt=0, le=600)
    """A reliable cast that is not complete by then is reported as incomplete."""
    pending_casts: int = Field(default=10_000, ge=1)
    """Reliable casts under way at this node, its own and those it forwards."""
    cast_bytes: int = Field(default=256 * 1024 * 1024, ge=1)
    """For what is kept of reliable casts: under way, and for as long as one may be sent again (half as long
    again as ``cast_deadline``). At the bound new ones are refused."""
    held_bytes: int = Field(default=32 * 1024 * 1024, ge=1)
    """Of copies that wait for own keys to find their place."""
    seen: int = Field(default=65_536, ge=1)
    """Unreliable casts remembered so that none is delivered twice."""
    way_bytes: int = Field(default=8 * 1024 * 1024, ge=1)
    """For what is known of the ways of casts through this node, about 1,500 for each; the oldest goes."""
    trace_nodes: int = Field(default=1_000, ge=1)
    """Nodes in the tree that a trace reports."""
    requests: int = Field(default=100_000, ge=1)
    """Requests of this node that wait for an answer."""
    suspects: int = Field(default=4_096, ge=1)
    """Nodes remembered as suspected."""
    contacts: int = Field(default=64, ge=1)
    """Other nodes remembered, to look for keys from elsewhere."""
    max_keys: int = Field(default=100_000, ge=1)
    """Keys of this node."""
    max_hops: int = Field(default=512, ge=1, le=65_000)
    """Of a lookup or a walk along a list."""
    max_depth: int = Field(default=20_000, ge=1, le=65_000)
    """Hops of a cast; one that goes along the list of level 0 takes one for each key."""
