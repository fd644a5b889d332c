"""What may leave and enter a site in an overlay (``site.rules``), and what of its interest is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ildm.core.transfer.rules import Hits, LinkRules

if TYPE_CHECKING:
    from ildm.core.transfer.rules import Rule


class SiteRules:
    """Rules of one site; without any, all goes on.

    Args:
        interest: what local clients want, filter -> most QoS; looked at again as the rules change.
        flushed: called when the memory of verdicts was full.
    """

    def __init__(self, interest: Mapping[str, int], flushed: Callable[[], None]) -> None:
        self._interest = interest
        self._flushed = flushed
        self._rules: Sequence[Rule] = ()
        self._advertised: dict[str, int] | None = None
        """None: all of it."""
        self.hits = Hits(0)
        self.verdicts: LinkRules | None = None

    @property
    def advertised(self) -> Mapping[str, int]:
        """What other sites are told of: filter -> most QoS."""
        return self._interest if self._advertised is None else self._advertised

    def follow(self, rules: Sequence[Rule]) -> dict[str, int | None]:
        """Use other rules from now on; answers what changes in what is told, as :meth:`allowed`."""
        if rules == self._rules:
            return {}
        before = dict(self.advertised)
        self._rules = rules
        self.hits = Hits(len(rules))
        self.verdicts = LinkRules(rules, self._flushed, self.hits) if rules else None
        self._advertised = {} if rules else None
        self.allowed(self._interest)
        # what is wanted now comes first: nobody is to leave a part of the overlay and join it again
        changes: dict[str, int | None] = {
            each: qos for each, qos in self.advertised.items() if before.get(each) != qos
        }
        changes.update((each, None) for each in before if each not in self.advertised)
        return changes

    def admits(self, topic_filter: str) -> bool:
        """Whether anything a filter matches may enter the site."""
        return self.verdicts is None or bool(self.verdicts.interest(topic_filter))

    def allowed(self, changes: Mapping[str, int | None]) -> Mapping[str, int | None]:
        """Of changed interest (None: there is none any more) what may enter the site, at least in part."""
        if self._advertised is None or self.verdicts is None:
            return changes
        found: dict[str, int | None] = {}
        for topic_filter, qos in changes.items():
            if qos is None:
                if self._advertised.pop(topic_filter, None) is not None:
                    found[topic_filter] = None
                continue
            allowed = self.verdicts.interest(topic_filter)
            if allowed:
                self._advertised[topic_filter] = found[topic_filter] = min(qos, max(allowed.values()))
        return found
