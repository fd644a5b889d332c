"""Schema: what clients publish on certain topics must be JSON that matches a JSON Schema."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import fastjsonschema
from pydantic import field_validator

from ildm.api import Filter, NodeApi, PluginConfig, Reject, Session, Source
from ildm.mqtt import Connect, PacketType, PublishView, ReasonCode, topic_matches


class Options(PluginConfig):
    """The keys beside ``name`` in the configuration file."""

    schemas: dict[str, dict[str, Any]]
    """Topic filter -> JSON Schema (drafts 4 to 7). Where several match a topic, the payload must meet all."""

    @field_validator("schemas")
    @classmethod
    def _are_schemas(cls, schemas: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for topic_filter, schema in schemas.items():
            try:
                fastjsonschema.compile(schema)
            except Exception as error:  # of many types: what a schema can get wrong
                raise ValueError(f"{topic_filter}: {error}") from error
        return schemas


class Schema(Filter[Options]):
    """The publisher hears what is wrong (MQTT 5: 0x99 and a text, from QoS 1 on), nobody gets the message.

    A client whose will does not match is refused. What other sites send was checked there, if they run
    this filter. ``not_json`` and ``not_matching`` count what was rejected.
    """

    wants = frozenset({(Source.CLIENT, PacketType.PUBLISH)})
    on_error = "reject"

    def __init__(self, api: NodeApi, config: Options) -> None:
        super().__init__(api, config)
        self.on_config_changed()

    def on_config_changed(self) -> None:
        schemas = self.config.schemas.items()
        self.checks = [(topic_filter, fastjsonschema.compile(schema)) for topic_filter, schema in schemas]

    def filter(self, session: Session, message: bytes) -> bytes | Reject:
        publish = PublishView(message, session.version)
        return self._fault(publish.topic, publish.payload, publish.retain) or message

    def admit_client(self, session: Session, packet: Connect) -> Connect | Reject:
        will = packet.will
        fault = self._fault(will.topic, will.payload, will.retain) if will else None
        return Reject(ReasonCode.NOT_AUTHORIZED, f"will: {fault.text}") if fault else packet

    def _fault(self, topic: str, payload: bytes, retain: bool) -> Reject | None:
        checks = [check for topic_filter, check in self.checks if topic_matches(topic_filter, topic)]
        if not checks or (retain and not payload):  # nothing, retained: deletes the retained message
            return None
        try:
            document = json.loads(payload, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            self.api.count("not_json")
            return Reject(ReasonCode.PAYLOAD_FORMAT_INVALID, f"not JSON: {error}")
        try:
            for check in checks:
                check(document)
        except fastjsonschema.JsonSchemaValueException as error:
            self.api.count("not_matching")
            return Reject(ReasonCode.PAYLOAD_FORMAT_INVALID, error.message)
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is none")  # Python's reader would let NaN and Infinity through
