"""Topic filters as they stand in the configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ildm.mqtt import MqttError, split_shared, validate_topic_filter


def check_filters(filters: Sequence[str], example: Callable[[str], str] = str) -> None:
    """Refuse what matches no topic.

    Args:
        example: a filter with something in the place of what is filled in later.

    Raises:
        ValueError: there is none, or one is no topic filter, or is shared.
    """
    if not filters:
        raise ValueError("expected at least one topic filter")
    for topic_filter in filters:
        try:
            validate_topic_filter(example(topic_filter))
        except MqttError as error:
            raise ValueError(f"{topic_filter!r} is no topic filter: {error}") from None
        if split_shared(topic_filter)[0] is not None:
            raise ValueError(f"{topic_filter!r}: a shared subscription matches no topic")


def check_crossing(filters: Sequence[str]) -> None:
    """Raises: ValueError, a filter is of topics that stay within a site."""
    for topic_filter in filters:
        if topic_filter.startswith("$"):
            raise ValueError(f"{topic_filter!r}: topics that begin with $ do not cross")
