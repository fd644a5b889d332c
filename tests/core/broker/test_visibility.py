"""What a broker's silence about a topic proves."""

import pytest

from ildm.core.broker import visibility
from ildm.core.broker.visibility import LOOKS, Unshown, Visibility


@pytest.fixture
def seen() -> Visibility:
    return Visibility()


def test_of_a_parent_that_was_shown_silence_means_that_the_value_is_missing(seen: Visibility) -> None:
    assert seen.unshown("a/1", was_given=False) is Unshown.UNKNOWN
    assert seen.shown("a/2")
    assert seen.unshown("a/1", was_given=False) is Unshown.MISSING
    assert seen.unshown("b/1", was_given=False) is Unshown.UNKNOWN


def test_one_value_of_a_parent_is_tried(seen: Visibility) -> None:
    assert seen.may_try("a/1")
    seen.tried("a/1")
    assert not seen.may_try("a/2")
    assert seen.may_try("b/1")
    assert seen.unshown("a/2", was_given=False) is Unshown.UNKNOWN
    assert seen.unshown("a/1", was_given=False) is Unshown.BUSY


def test_a_value_that_the_broker_has_got_and_never_shows_is_hidden(seen: Visibility) -> None:
    verdicts = [seen.unshown("a/1", was_given=True) for _ in range(LOOKS + 1)]
    assert verdicts == [Unshown.BUSY] * LOOKS + [Unshown.HIDDEN]
    assert seen.unshown("a/2", was_given=False) is Unshown.HIDDEN
    assert seen.is_known("a/2")
    assert not seen.is_readable("a/2")


def test_what_was_hidden_and_is_shown_is_readable(seen: Visibility) -> None:
    seen.hidden("a/1")
    seen.denied("b/1")
    assert not seen.shown("a/2")  # b is hidden yet
    assert seen.shown("b/2")
    assert seen.is_readable("a/1")
    seen.hidden("a/1")
    assert seen.is_readable("a/1"), "one value that was shown is proof enough"


def test_a_new_connection_forgets_trials_and_what_was_shown(seen: Visibility) -> None:
    seen.shown("a/1")
    seen.tried("b/1")
    seen.forget()
    assert not seen.has_shown("a/1")
    assert seen.is_readable("a/1")
    assert seen.may_try("b/1")


def test_marks_are_bounded(seen: Visibility, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visibility, "MARKS", 2)
    for parent in "abc":
        seen.shown(f"{parent}/1")
    assert [seen.is_readable(f"{parent}/2") for parent in "abc"] == [True, True, False]
    assert seen.is_known("c/2"), "there is no room for more"
