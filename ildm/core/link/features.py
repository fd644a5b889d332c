"""What a node can do on a link beyond the protocol, by name.

Both ends name their features in the hello. A feature is on where both have named it. What needs the
feature is sent nowhere else. So a new frame, control topic or coding needs a row in the table here, and no
new number of the protocol: an older neighbour ignores a name that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from ildm.core.link.chunks import DEFLATE, ZSTD, codecs
from ildm.mqtt import ProtocolViolation

MOST = 64
"""Names in a hello."""
NAME = re.compile(r"[a-z0-9-]{1,32}", re.ASCII)
NONE: frozenset[str] = frozenset()


class Feature(NamedTuple):
    """A row of the table."""

    name: str
    release: str
    """The one that it came in. A feature becomes part of the protocol one release later at the earliest."""
    usable: Callable[[], bool] = lambda: True
    """Whether this machine has what it takes, such as a library that is no dependency."""


FEATURES: tuple[Feature, ...] = (
    Feature("weights", "0.3.0"),
    Feature("budget", "0.3.0"),
    Feature("skipped", "0.3.0"),
    Feature("swap", "0.3.0"),
    Feature(DEFLATE, "0.3.0"),
    Feature(ZSTD, "0.3.0", lambda: ZSTD in codecs()),
)
"""All that this code knows."""


def offered(disabled: Collection[str] = ()) -> frozenset[str]:
    """The features that a node names, without those that its administrator has disabled."""
    return frozenset(each.name for each in FEATURES if each.name not in disabled and each.usable())


def encoded(features: Collection[str]) -> str:
    """How a hello has them."""
    return ",".join(sorted(features))


def decoded(said: str) -> frozenset[str]:
    """What a neighbour names, whether this code knows it or not.

    Raises:
        ProtocolViolation: it is no list of names, or a longer one than any node sends.
    """
    if not said:
        return NONE
    names = said.split(",", MOST)
    if len(names) > MOST:
        raise ProtocolViolation(f"hello with more than {MOST} features", clause="MQTT-4.13")
    for name in names:
        if NAME.fullmatch(name) is None:
            raise ProtocolViolation(
                f"hello with a feature of no valid name: {name[:40]!r}", clause="MQTT-4.13"
            )
    return frozenset(names)
