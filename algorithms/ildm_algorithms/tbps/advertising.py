"""Which filters are being announced to other nodes, and which SUBACKs wait for that.

A message that is published after SUBACK has to arrive. So SUBACK waits until all publishers know of the
filter. Messages they have published before belong to no subscription here. They are not fetched, because they
would come behind later ones of their publisher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.api import NodeApi

__all__ = ["APART", "LONGER", "MOST", "Advertising"]

APART = 0.005
"""Seconds from the last publisher's answer to SUBACK at least, because ages are sent in milliseconds."""
LONGER = 0.1
"""And at most: it is as long as the question has taken, because ages do not count the time on the way."""
MOST = 1_000
"""SUBACKs that wait for one filter; further ones do not."""


class _Question:
    """One filter that is being announced."""

    __slots__ = ("fresh", "name", "open", "since", "waits")

    def __init__(self, name: str, fresh: bool) -> None:
        self.name = name
        self.fresh = fresh
        """What was published before the end is of no subscription here."""
        self.since: float | None = None
        """When all knew."""
        self.waits: list[_Wait] = []
        self.open = 0
        """Those of them that still wait, perhaps for other filters."""


class _Wait:
    """One SUBACK."""

    __slots__ = ("done", "left", "questions")

    def __init__(self, questions: list[_Question], done: Callable[[], bool]) -> None:
        self.questions = questions
        self.left = len(questions)
        self.done = done


class Advertising:
    """Filters that are new here, from :meth:`begin` to :meth:`end`.

    Args:
        known: hears of a filter, and since when all publishers knew of it, if SUBACK has waited for that.
    """

    def __init__(
        self, api: NodeApi, known: Callable[[str, float], None], count: Callable[[str], None]
    ) -> None:
        self._api = api
        self._known = known
        self._count = count
        self._open: dict[str, _Question] = {}

    def begin(self, topic_filter: str, fresh: bool) -> None:
        """A filter is subscribed to. ``fresh``: by no session that has outlived a restart of the node."""
        self._open[topic_filter] = _Question(topic_filter, fresh)

    def wait(self, topic_filters: Iterable[str], done: Callable[[], bool]) -> bool:
        """Whether all know of these filters already. Else ``done`` is called when all do, and says whether
        anybody still waited."""
        questions = [question for name in topic_filters if (question := self._open.get(name)) is not None]
        if not questions:
            return True
        if any(len(question.waits) >= MOST for question in questions):
            self._count("tellings_full")
            for question in questions:
                question.fresh = False
            return True
        wait = _Wait(questions, done)
        for question in questions:
            question.waits.append(wait)
            question.open += 1
        return False

    def end(self, topic_filter: str, known: bool = False, took: float = 0.0) -> None:
        """The announcement is over. ``known``: it has reached all, which took so many seconds."""
        question = self._open.get(topic_filter)
        if question is None or (known and question.since is not None):
            return
        if known and question.fresh and question.waits:
            apart = min(max(took, APART), LONGER)
            # what is published with SUBACK is not to be too old by a rounding
            question.since = self._api.now() + apart - APART / 2
            self._api.call_later(apart, self._release, question)
        else:
            question.fresh = False
            self._release(question)

    def _release(self, question: _Question) -> None:
        if self._open.get(question.name) is question:
            del self._open[question.name]
        waits, question.waits = question.waits, []
        for wait in waits:
            wait.left -= 1
            if not wait.left:
                in_time = wait.done()
                for each in wait.questions:
                    self._close(each, in_time)

    def _close(self, question: _Question, in_time: bool) -> None:
        question.open -= 1
        question.fresh = question.fresh and in_time
        if not question.open and question.fresh and question.since is not None:
            self._known(question.name, question.since)
