"""Messages of neighbours to each other: PUBLISH of QoS 0 below ``$ildm/`` on a link's first session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.mqtt import Publish, Version

if TYPE_CHECKING:
    from ildm.core.transfer.ports import Neighbor

CONTROL = "$ildm/"
"""Topics of messages between neighbours themselves; nothing below ``$`` ever crosses otherwise."""
ADVERTISEMENT = CONTROL + "topology"
WEIGHT = CONTROL + "weight"
"""What links of a node weigh; see :mod:`ildm.core.link.weights`. The feature ``weights``."""
BUDGET = CONTROL + "budget"
"""Bytes a second that the sender wants to get; see :mod:`ildm.core.link.budgets`. The feature ``budget``."""
READY = CONTROL + "ready"
"""``1 N``: the sender takes the link for part of the cooperation; ``0 N``: no longer. ``N`` counts up."""
ALGORITHM = CONTROL + "algorithm"
"""Data of the algorithm's own."""
DATA = len(ALGORITHM).to_bytes(2) + ALGORITHM.encode() + b"\0"
"""What stands between the fixed header of a PUBLISH with those and the data: topic, no properties."""
BYE = CONTROL + "bye"
"""Nothing more is sent on this link; the other side is to end it when it has sent everything."""
SYNCED = CONTROL + "synced"
"""All interest has been repeated; with the digest of the retained messages remembered there."""
DIGEST = CONTROL + "digest"
"""The same digest, now and then."""
BUCKETS = CONTROL + "buckets"
"""The answer to another digest than one's own: digests of parts."""
SCOPE = CONTROL + "scope"
"""Which names cross by the sender's rules; see :mod:`ildm.core.link.scope`. Without rules it is not said."""
TOLD = CONTROL + "told"
"""So many packets of interest, in digits, are known to all behind the sender, too."""

TRACE = CONTROL + "trace"
"""Where does a message on a topic go from here? See :mod:`ildm.core.link.tracing`."""
TRACED = CONTROL + "traced"
"""The answer."""
WATCH = CONTROL + "watch"
"""Note what becomes of messages on these topics; see :mod:`ildm.core.link.watching`."""
WATCHING = CONTROL + "watching"
"""The answer."""
SEEN = CONTROL + "seen"
"""What was noted."""
CLOCK = CONTROL + "clock"
"""What the sender's clock shows since it was set; see :mod:`ildm.core.link.clocks`."""
SWAP = CONTROL + "swap"
"""An end of a link has let it go for another; see :mod:`ildm.core.link.swapping`. The feature ``swap``."""
PATH = CONTROL + "path"
"""Whether a node is reached; see :mod:`ildm.core.link.paths`."""


def send_control(link: Neighbor, topic: str, payload: bytes, session: int = 0) -> None:
    """Send a message between neighbours themselves."""
    link.senders[session].wire.write(Publish(topic=topic, payload=payload).encode(Version.V5))
