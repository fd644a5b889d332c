"""Admission: a client may subscribe to what the token in its SUBSCRIBE is for, and nothing else."""

from __future__ import annotations

from hashlib import sha256

from ildm.api import Filter, PluginConfig, Reject, Session
from ildm.mqtt import Property, ReasonCode, Subscribe, Subscription, covers, split_shared


class Options(PluginConfig):
    """The keys beside ``name`` in the configuration file."""

    tokens: dict[str, tuple[str, ...]]
    """SHA-256 of a token, in hex, as ``printf TOKEN | sha256sum`` gives it -> filters it allows."""
    without: tuple[str, ...] = ()
    """Filters allowed to everybody."""
    property: str = "token"
    """Name of the user property of SUBSCRIBE. Of several all count."""


class Admission(Filter[Options]):
    """A subscription is admitted if an allowed filter covers it: ``a/#`` allows ``a/+/b``, not ``#``.

    Entries of a SUBSCRIBE are judged one by one; of a shared subscription its filter. The SUBACK has 0x87
    for what is not allowed, and for clients before MQTT 5, which can show no token, 0x80. ``refused`` counts.
    A subscription once admitted lasts, also in a session that is kept while the client is away.
    """

    on_error = "reject"

    def admit_subscription(
        self, session: Session, subscription: Subscription, packet: Subscribe
    ) -> Subscription | Reject:
        allowed = list(self.config.without)
        for name, value in packet.properties.get(Property.USER_PROPERTY, []):
            if name == self.config.property:
                allowed += self.config.tokens.get(sha256(value.encode()).hexdigest(), ())
        _, wanted = split_shared(subscription.topic_filter)
        if any(covers(one, wanted) for one in allowed):
            return subscription
        self.api.count("refused")
        return Reject(ReasonCode.NOT_AUTHORIZED, f"{wanted} is not allowed")

    def on_config_changed(self) -> None:
        """Other tokens hold from the next SUBSCRIBE on."""
