"""A filter: what clients publish on certain topics must be JSON."""

import json
from typing import NoReturn

from ildm.api import Filter, PluginConfig, Session, Source
from ildm.mqtt import PacketType, PublishView, topic_matches


class Options(PluginConfig):
    """The topic filters to watch."""

    topics: list[str]


class JsonOnly(Filter[Options]):
    """Drops PUBLISH messages whose payload is not JSON in UTF-8; works in every MQTT version."""

    wants = frozenset({(Source.CLIENT, PacketType.PUBLISH)})

    def filter(self, session: Session, message: bytes) -> bytes | None:
        publish = PublishView(message, session.version)
        topic = publish.topic
        if not any(topic_matches(watched, topic) for watched in self.config.topics):
            return message
        try:
            json.loads(publish.payload.decode(), parse_int=str, parse_constant=_refuse)
        except (ValueError, RecursionError):  # RecursionError: nested thousands of levels deep
            self.api.count("not_json")
            return None
        return message


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")  # Python's reader would let NaN and Infinity through
