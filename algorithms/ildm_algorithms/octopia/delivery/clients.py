"""Local clients as far as expressions concern them: who may subscribe to one, and to how many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ildm.api import Reject
from ildm.mqtt import Property, ReasonCode, Version
from ildm_algorithms.octopia.delivery.local import NoAccess
from ildm_algorithms.octopia.tables.holders import Holders

if TYPE_CHECKING:
    from ildm.api import Session
    from ildm.mqtt import Connect
    from ildm_algorithms.octopia.config import OctopiaConfig
    from ildm_algorithms.octopia.delivery.local import LocalFilters

__all__ = ["Clients"]


class Clients:
    """Follows the sessions of clients, and admits their subscriptions."""

    def __init__(self, config: OctopiaConfig, local: LocalFilters, count: Callable[[str], None]) -> None:
        self.config = config
        self.local = local
        self.count = count
        self.holders = Holders()
        self._users: dict[int, str] = {}
        """User names by session, for the rules of access."""
        self._lasting: set[int] = set()
        """Connections whose MQTT session outlives them."""
        self._subscribers: dict[int, str] = {}
        """Client, as :attr:`holders` names it, by the session that has subscribed with an expression."""
        self._latest: dict[str, int] = {}
        """Latest session by client."""

    def connecting(self, session: Session, packet: Connect) -> None:
        """A client connects."""
        if self.config.access and packet.username is not None:
            self._users[session.id] = packet.username
        if packet.version is Version.V5:
            lasting = packet.properties.get(Property.SESSION_EXPIRY_INTERVAL, 0) != 0
        else:
            lasting = not packet.clean_start
        if lasting:
            self._lasting.add(session.id)

    def closed(self, session: Session) -> None:
        """A client's connection has ended."""
        self._users.pop(session.id, None)
        lasting = session.id in self._lasting
        self._lasting.discard(session.id)
        client = self._subscribers.pop(session.id, None)
        if client is None or self._latest.get(client) != session.id:
            return  # another connection has taken the client's session over
        del self._latest[client]
        if lasting:
            self.holders.away(client)
        else:
            self.holders.ended(client)

    def unsubscribed(self, session: Session, topic_filters: Iterable[str]) -> None:
        """A client unsubscribes: its filters do not count any more."""
        client = self._subscribers.get(session.id) or _client(session)
        for topic_filter in topic_filters:
            self.holders.release(client, topic_filter)

    def refusal(self, session: Session, topic_filter: str) -> Reject | None:
        """Why a subscription is refused: its expression is wrong, not allowed, or one too many."""
        error = self.local.admit(topic_filter, self._users.get(session.id), session.client_id)
        if error is None:
            if self._holds(session, topic_filter):
                return None
            self.count("expressions_over_client_limit")
            most = self.config.max_client_expressions
            code = ReasonCode.QUOTA_EXCEEDED
            error = f"this client has {most} filters with expressions already"
        elif isinstance(error, NoAccess):
            code = ReasonCode.NOT_AUTHORIZED
        else:
            code = ReasonCode.TOPIC_FILTER_INVALID
        self.count("subscriptions_refused")
        return Reject(code, error)

    def _holds(self, session: Session, topic_filter: str) -> bool:
        """Count a client's filter, if it has an expression; False: the client has too many."""
        if not self.local.has_expression(topic_filter):
            return True
        client = self._subscribers.setdefault(session.id, _client(session))
        self._latest[client] = session.id
        return self.holders.hold(client, topic_filter, self.config.max_client_expressions)


def _client(session: Session) -> str:
    """The client of a session; one whose identifier only the broker knows is identified by its connection."""
    return session.client_id or f"\0{session.id}"
