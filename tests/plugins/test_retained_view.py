"""Digests of retained values: which differences they find, and the bytes that go between nodes."""

from __future__ import annotations

import pytest

from ildm.api import RetainedView, Stamp

PART = 28
"""Of the topic ``a/b``."""
FIRST, SECOND = Stamp(1_700_000_000_000, "a1"), Stamp(1_700_000_000_001, "b2")


def view(values: dict[str, Stamp | None], *, topic_first: bool = False) -> RetainedView:
    made = RetainedView(topic_first=topic_first)
    for topic, stamp in values.items():
        made.put(topic, stamp)
    return made


@pytest.mark.parametrize(("topic_first", "digest"), [(False, "9d302059e1674b7e"), (True, "f9156e3630673b41")])
def test_the_digest_of_a_value_is_the_same_in_all_versions(topic_first: bool, digest: str) -> None:
    made = view({"a/b": FIRST}, topic_first=topic_first)
    assert made.digest.hex() == digest
    assert made.buckets().hex() == "00" * 8 * PART + digest + "00" * 8 * (255 - PART)


@pytest.mark.parametrize("topic_first", [False, True])
def test_topics_that_differ_are_found_in_their_parts(topic_first: bool) -> None:
    here = view({"a/b": FIRST, "c": SECOND, "gone": None}, topic_first=topic_first)
    there = view({"c": SECOND, "a/b": SECOND}, topic_first=topic_first)
    assert here.digest != there.digest
    assert here.topics_that_differ(there.buckets()) == ["a/b"]
    assert there.topics_that_differ(here.buckets()) == ["a/b"]


def test_a_value_that_is_removed_leaves_no_trace() -> None:
    made = view({"a/b": FIRST, "gone": None})
    made.remove("a/b", FIRST)
    made.remove("gone", None)
    made.remove("never there", None)
    assert (made.buckets(), list(made.topics())) == (RetainedView().buckets(), [])


def test_names_on_a_link_make_the_digest_and_what_does_not_cross_is_left_out() -> None:
    made = RetainedView({"inside/a": "a", "inside/b": None}.get)
    made.put("inside/a", FIRST)
    made.put("inside/b", SECOND)
    assert made.digest == view({"a": FIRST}).digest
    assert list(made.topics()) == ["inside/a"]
    made.remove("inside/b", SECOND)
    made.remove("inside/a", FIRST)
    assert made.digest == RetainedView().digest
