"""Up to which message each other node has said that it has offered all. Next time it leaves those out.

What has come from a node does not tell that. Two parts of a network may meet for moments: in these a message
comes, and earlier ones do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ildm_algorithms.exchange.absence import save
from ildm_algorithms.tbps.presence import read_numbers, write_numbers

if TYPE_CHECKING:
    from ildm.api import NodeApi

__all__ = ["Confirmed"]

CONFIRMED = "tbps.confirmed"
"""Entry of the state."""


class Confirmed:
    """By node, ``most`` of them.

    A *round* is one or several questions, which together ask for all that local clients want. A node counts
    when it has answered all of them.
    """

    def __init__(self, api: NodeApi, most: int, count: Callable[..., None]) -> None:
        self._api = api
        self._most = most
        self._count = count
        self.numbers: dict[str, int] = {}
        """Of the last message that was offered."""
        self._round: set[int] = set()
        self._answers: dict[str, dict[int, int]] = {}
        """By node, and by question of the round."""
        self._fetching: dict[str, int] = {}
        """Nodes from which something is still to be fetched."""
        self._changed = False

    def load(self) -> None:
        """Take up what the earlier incarnation has saved."""
        self.numbers = read_numbers(self._api.state.get(CONFIRMED, b""))

    def begin(self, questions: Iterable[int]) -> None:
        """All is asked for."""
        self._round = set(questions)
        self._answers.clear()

    def leave(self) -> None:
        """More is subscribed to than the round asks for."""
        self._round = set()

    def answered(self, node_id: str, question: int, number: int, fetching: bool) -> None:
        """A node has offered all up to a message. ``fetching``: something of that is still to come."""
        if question not in self._round or len({*self._answers, *self._fetching, node_id}) > self._most:
            return
        answers = self._answers.setdefault(node_id, {})
        answers[question] = number
        if len(answers) < len(self._round):
            return
        del self._answers[node_id]
        self._fetching[node_id] = min(answers.values())
        if not fetching:
            self.fetched(node_id)

    def fetched(self, node_id: str) -> None:
        """All that a node has offered has come, or is counted as missed."""
        number = self._fetching.pop(node_id, None)
        if number is None:
            return
        self.numbers.pop(node_id, None)
        self.numbers[node_id] = number
        if len(self.numbers) > self._most:
            del self.numbers[next(iter(self.numbers))]
        self._changed = True

    def save(self) -> None:
        """Write what has changed."""
        if not self._changed:
            return
        self._changed = False
        lost = "after a crash more is offered than is missing"
        save(self._api, CONFIRMED, write_numbers(self.numbers), self._count, lost)
