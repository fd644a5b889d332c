"""What makes of broker do differently with what they have acknowledged, as measured.

Each was asked with a subscriber's session away: messages acknowledged, kill -9, started again.
"""

from __future__ import annotations

from typing import NamedTuple


class Make(NamedTuple):
    """One make, with one configuration."""

    name: str
    speaks_5: bool = False
    largest_qos: int = 2
    """Granted to subscribers. Where it is 1, PUBLISH of QoS 2 is answered by PUBACK, too."""
    delivers_at_release: bool = False
    """A message of QoS 2 reaches subscribers when PUBREL comes; otherwise with PUBLISH."""
    once: bool = True
    """A message of QoS 2 that is sent again before its PUBREL is not delivered again."""
    says_present: bool = True
    """CONNACK tells of a session that was kept."""
    writing: float = 0.0
    """Seconds until a message of QoS 1 is acknowledged which waits for a session that lasts; what goes to
    none is acknowledged at once, and so before it."""
    keeps_messages: bool = False
    """What waits for sessions survives a crash, and so do the sessions."""
    keeps_unreleased: bool = False
    """And so does what was answered with PUBREC alone."""
    keeps_retained: bool = False

    @property
    def lossy(self) -> bool:
        """It loses in a crash what it has acknowledged."""
        return not self.keeps_messages


PLAIN = Make(
    "plain",
    speaks_5=True,
    delivers_at_release=True,
    keeps_messages=True,
    keeps_unreleased=True,
    keeps_retained=True,
)
"""A good one, for tests."""

MAKES = {
    make.name: make
    for make in (
        # 2.0.11 with persistence, autosave_on_changes true, autosave_interval 1
        Make(
            "mosquitto",
            speaks_5=True,
            delivers_at_release=True,
            keeps_messages=True,
            keeps_retained=True,
        ),
        # 2.0.11 without persistence, or with its default of 1,800 s
        Make("mosquitto-default", speaks_5=True, delivers_at_release=True),
        # 3.10.8
        Make("rabbitmq", largest_qos=1, writing=0.05, keeps_messages=True),
        # 5.17.2 with KahaDB
        Make("activemq", once=False, says_present=False, keeps_messages=True, keeps_unreleased=True),
        # 0.17 with H2
        Make("moquette"),
    )
}
