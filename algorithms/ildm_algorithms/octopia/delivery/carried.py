"""A client's message as it crosses from node to node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from ildm.mqtt import Publish, Version, decode
from ildm_algorithms.octopia.messages import OverlayError

if TYPE_CHECKING:
    from ildm_algorithms.octopia.content.content import Value

__all__ = ["Carried", "Reader"]

Reader = Callable[[Publish], Mapping[str, "Value"]]
"""Finds the attributes of a message."""


class Carried:
    """A message of some node's client, as it crosses."""

    def __init__(
        self,
        origin: int,
        number: int,
        turn: int,
        frame: bytes,
        reader: Reader,
        published: float,
        everywhere: bool = False,
        reliable: bool = False,
        publish: Publish | None = None,
    ) -> None:
        self.origin = origin
        self.number = number
        self.turn = turn
        self.frame = frame
        self.published = published
        """When, by this node's clock; later, if anything."""
        self.everywhere = everywhere
        self.reliable = reliable
        self._reader = reader
        message = decode(frame, Version.V5) if publish is None else publish
        if not isinstance(message, Publish) or not message.topic:
            raise OverlayError("a message that is no PUBLISH with a topic")
        self.publish = message

    @cached_property
    def _attributes(self) -> Mapping[str, Value]:
        return self._reader(self.publish)

    def attributes(self) -> Mapping[str, Value]:
        """Read when first needed."""
        return self._attributes
