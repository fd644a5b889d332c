"""Rules about the topics that a client may subscribe to with an expression.

The local broker's own rules see ``filter/EXPRESSION/TOPIC FILTER`` as any filter and hold besides. These are
about the topic filter behind the expression, and need not know its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from pydantic import field_validator, model_validator

from ildm.api import PluginConfig
from ildm.mqtt import MqttError, covers, intersects, validate_topic_filter

__all__ = ["AccessRule", "refusal"]


class AccessRule(PluginConfig):
    """One rule: either ``allow`` or ``deny``, for all clients or for those named."""

    allow: list[str] | None = None
    """Topic filters: what one of them covers is allowed."""
    deny: list[str] | None = None
    """Topic filters: what has topics in common with one of them is refused."""
    user: str | None = None
    """User names it is for, with ``*``, ``?`` and ``[...]`` as in file names; null: every client."""
    client_id: str | None = None
    """Client identifiers it is for, likewise."""

    @field_validator("allow", "deny")
    @classmethod
    def _filters(cls, filters: list[str] | None) -> list[str] | None:
        for topic_filter in filters or ():
            try:
                validate_topic_filter(topic_filter, shared=False)
            except MqttError as error:
                raise ValueError(f"{topic_filter!r} is no topic filter: {error}") from None
        if filters is not None and not filters:
            raise ValueError("expected at least one topic filter")
        return filters

    @model_validator(mode="after")
    def _either(self) -> AccessRule:
        if (self.allow is None) == (self.deny is None):
            raise ValueError("give either allow or deny")
        return self

    def is_for(self, user: str | None, client_id: str) -> bool:
        """Whether it says something about a client; one without user name has an empty one."""
        return (self.user is None or fnmatchcase(user or "", self.user)) and (
            self.client_id is None or fnmatchcase(client_id, self.client_id)
        )

    def decides(self, topic_filter: str) -> bool:
        """Whether it says something about a subscription to ``topic_filter``."""
        if self.allow is not None:
            return any(covers(allowed, topic_filter) for allowed in self.allow)
        return any(intersects(denied, topic_filter) for denied in self.deny or ())


def refusal(rules: Sequence[AccessRule], topic_filter: str, user: str | None, client_id: str) -> str | None:
    """Why a client may not subscribe so; None if it may. The first rule that says something decides."""
    for rule in rules:
        if rule.is_for(user, client_id) and rule.decides(topic_filter):
            return None if rule.deny is None else f"no access to {topic_filter}"
    return None
