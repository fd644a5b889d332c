"""Attributes of a message: from its topic, its user properties and its payload."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, field_validator

from ildm.api import STAMP_PROPERTY, PluginConfig
from ildm.mqtt import MqttError, Property, Publish, topic_matches, validate_topic_filter
from ildm_algorithms.octopia.content.content import Value, parse_scalar

__all__ = ["AttributeConfig", "AttributeReader"]

Levels = Annotated[list[str], Field(min_length=1)]


class AttributeConfig(PluginConfig):
    """Where attributes come from. Of one name the first source counts that has it, in this order."""

    levels: dict[str, Levels] = {}
    """Topic filter -> names of the levels of topics that it matches; an empty name passes one over. Of
    several filters that match the first one has precedence."""
    user_properties: bool = True
    """The user properties of MQTT 5; of several with one name the first."""
    json_payload: bool = Field(default=True, alias="json")
    """A payload that is a JSON object: its numbers, texts and truth values, ``a.b`` for those of objects in
    it. Lists and nulls are left out."""
    payload_bytes: int = Field(default=64 * 1024, ge=0)
    """Larger payloads are not looked into."""
    depth: int = Field(default=8, ge=1, le=100)
    """Objects within each other; what lies deeper is left out."""
    most: int = Field(default=256, ge=1)
    """Attributes of a message; more are left out."""

    @field_validator("levels")
    @classmethod
    def _filters(cls, levels: dict[str, list[str]]) -> dict[str, list[str]]:
        for topic_filter, names in levels.items():
            try:
                validate_topic_filter(topic_filter)
            except MqttError as error:
                raise ValueError(f"{topic_filter!r} is no topic filter: {error}") from None
            if not topic_filter.endswith("#") and len(names) > len(topic_filter.split("/")):
                raise ValueError(f"{topic_filter!r} has fewer levels than the {len(names)} names for them")
        return levels


class AttributeReader:
    """Reads the attributes of messages.

    Texts of topic levels and user properties are read as in an expression, so some are numbers or truth
    values (:func:`~ildm_algorithms.octopia.content.content.parse_scalar`). Texts of JSON stay texts. Numbers
    that are too large or not finite are left out.
    """

    def __init__(self, config: AttributeConfig, count: Callable[[str], None]) -> None:
        self._config = config
        self._count = count

    def read(self, message: Publish) -> dict[str, Value]:
        """The attributes of a message; a payload that is no JSON object has none.

        Counts ``attributes_left_out``: messages that go beyond a bound.
        """
        found: dict[str, Value] = {}
        complete = self._levels(message.topic, found)
        if complete and self._config.user_properties:
            complete = self._properties(message, found)
        if complete and self._config.json_payload:
            complete = self._payload(message.payload, found)
        if not complete:
            self._count("attributes_left_out")
        return found

    def _levels(self, topic: str, found: dict[str, Value]) -> bool:
        for topic_filter, names in self._config.levels.items():
            if topic_matches(topic_filter, topic):
                for name, level in zip(names, topic.split("/"), strict=False):
                    if name and not self._add(name, parse_scalar(level), found):
                        return False
        return True

    def _properties(self, message: Publish, found: dict[str, Value]) -> bool:
        return all(
            self._add(name, parse_scalar(value), found)
            for name, value in message.properties.get(Property.USER_PROPERTY, ())
            if name and name != STAMP_PROPERTY
        )

    def _payload(self, payload: bytes, found: dict[str, Value]) -> bool:
        if not payload.lstrip(b" \t\r\n").startswith(b"{"):
            return True
        if len(payload) > self._config.payload_bytes:
            return False
        try:
            document = json.loads(str(payload, "utf-8"), parse_int=float, parse_constant=_no_number)
        except ValueError:
            return True  # whatever it is, it is not JSON: nothing is known of it
        except RecursionError:
            return False
        complete = True
        waiting: list[tuple[str, int, Any]] = [("", 1, document)]
        while waiting:
            prefix, depth, members = waiting.pop()
            within: list[tuple[str, int, Any]] = []
            for key, value in members.items():
                name = prefix + key
                if isinstance(value, dict):
                    if depth < self._config.depth:
                        within.append((f"{name}.", depth + 1, value))
                    else:
                        complete = False
                elif name and _is_value(value) and not self._add(name, value, found):
                    return False
            waiting.extend(reversed(within))
        return complete

    def _add(self, name: str, value: Value, found: dict[str, Value]) -> bool:
        """False: there is no room."""
        if name not in found:
            if len(found) >= self._config.most:
                return False
            found[name] = value
        return True


def _is_value(value: object) -> bool:
    return isinstance(value, str | bool) or (isinstance(value, float) and math.isfinite(value))


def _no_number(_: str) -> None:
    """NaN and infinities, which Python reads though JSON has none of them."""
