"""The size of a message is known without building its frame."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.mqtt import EncodeError, Property, Publish, Version, encoded_size

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


@settings(deadline=None, max_examples=100)
@given(
    TEXT.filter(lambda topic: bool(topic) and not {"+", "#"} & set(topic)),
    st.one_of(st.binary(max_size=200), st.integers(16_000, 17_000).map(bytes)),
    st.integers(0, 2),
    st.lists(st.tuples(TEXT, TEXT), max_size=5),
)
def test_it_is_that_of_the_frame(topic: str, payload: bytes, qos: int, users: list[tuple[str, str]]) -> None:
    properties = {Property.USER_PROPERTY: users, Property.CONTENT_TYPE: "x"} if users else {}
    message = Publish(
        topic=topic, payload=payload, qos=qos, packet_id=7 if qos else None, properties=properties
    )
    assert encoded_size(message) == len(message.encode(Version.V5))


def test_what_cannot_be_encoded_has_no_size() -> None:
    with pytest.raises(EncodeError):
        encoded_size(Publish(topic="t", properties={Property.CONTENT_TYPE: 7}))
