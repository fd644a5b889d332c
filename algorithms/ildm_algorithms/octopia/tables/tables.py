"""The routing tables of a node: subscriptions of its cluster (PRT), advertisements of its region (CLT).

They are those of OctopiA, sections 6 to 8. Nothing is sent here: methods answer what has to be sent.

A row of the PRT has the *home* of a subscription: the node of its client. The hop towards the home follows
from the grid (`scot.View.next_hop`). So a repair of the tree changes no row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from ildm_algorithms.octopia.content.content import ContentFilter
from ildm_algorithms.octopia.content.index import Attributes, ContentIndex
from ildm_algorithms.octopia.content.relations import covers

KEPT = 10
"""Overlapping subscriptions are kept for an advertisement up to this many times ``summary``."""
SUMMARY_LENGTH = 32_768
"""Characters of the filters that are sent for an advertisement; they go in one message."""


class CivSet(NamedTuple):
    """To an advertiser's node: what the sender's cluster wants of these advertisements."""

    uids: tuple[int, ...]
    filters: tuple[ContentFilter, ...] | None = None
    """These, too; None: all of it, until other filters are named."""


class CivUnset(NamedTuple):
    """To an advertiser's node: what the sender's cluster does not want any more."""

    uids: tuple[int, ...]
    filters: tuple[ContentFilter, ...] | None = None
    """These; None: it subscribes to nothing."""


Civ = CivSet | CivUnset
AddressedCivs = list[tuple[str, Civ]]
"""To which nodes what has to be sent, in this order."""


class Home:
    """The subscriptions of one node's clients."""

    __slots__ = ("filters", "version")

    def __init__(self) -> None:
        self.version = 0
        self.filters: dict[ContentFilter, int] = {}


class Change(NamedTuple):
    """Filters that a change has brought to the table or taken out of it; one of several homes counts once."""

    added: list[ContentFilter]
    removed: list[ContentFilter]


class Prt:
    """Publication routing table: what is subscribed to in this node's cluster, and at which nodes.

    Attributes:
        index: filters, each with the homes that have it as owners.
    """

    def __init__(self) -> None:
        self.index: ContentIndex[str] = ContentIndex()
        self._homes: dict[str, Home] = {}
        self._shared: Counter[ContentFilter] = Counter()

    def __len__(self) -> int:
        """Rows: a subscription at a home."""
        return sum(len(home.filters) for home in self._homes.values())

    def __contains__(self, content: ContentFilter) -> bool:
        return content in self._shared

    def at(self, node_id: str) -> Mapping[ContentFilter, int]:
        """The filters of a home, with their QoS."""
        home = self._homes.get(node_id)
        return {} if home is None else home.filters

    def version(self, node_id: str) -> int:
        """0: this home is not known."""
        home = self._homes.get(node_id)
        return 0 if home is None else home.version

    def change(
        self,
        node_id: str,
        version: int,
        added: Mapping[ContentFilter, int],
        removed: Iterable[ContentFilter] = (),
    ) -> Change:
        """A home has changed its set, which makes it this version of it."""
        home = self._homes.setdefault(node_id, Home())
        home.version = version
        found = Change([], [])
        for content, qos in added.items():
            if content not in home.filters:
                self._shared[content] += 1
                if self._shared[content] == 1:
                    found.added.append(content)
            if home.filters.get(content) != qos:
                home.filters[content] = qos
                self.index.add(content, node_id, qos)
        for content in removed:
            if home.filters.pop(content, None) is not None:
                self._forget(content, node_id, found)
        return found

    def drop(self, node_id: str) -> Change:
        """A home is no more."""
        home = self._homes.pop(node_id, None)
        found = Change([], [])
        for content in () if home is None else home.filters:
            self._forget(content, node_id, found)
        return found

    def match(self, topic: str, attributes: Attributes) -> dict[str, int]:
        """The homes that want a message, each with the highest QoS."""
        return self.index.match(topic, attributes)

    def overlapping(self, advertised: ContentFilter) -> Iterator[ContentFilter]:
        """Filters that may match something of what is advertised."""
        for content, _ in self.index.overlapping(advertised):
            yield content

    def _forget(self, content: ContentFilter, node_id: str, found: Change) -> None:
        self.index.remove(content, node_id)
        self._shared[content] -= 1
        if not self._shared[content]:
            del self._shared[content]
            found.removed.append(content)


class Row:
    """Another node's advertisement: how much of it this node's cluster wants.

    ``count`` subscriptions overlap it (m). Its node receives those that no other covers, if there are at most
    ``summary``; else it is asked to send all.
    """

    __slots__ = ("advertised", "count", "filters", "sent")

    def __init__(self, advertised: ContentFilter) -> None:
        self.advertised = advertised
        self.count = 0
        self.filters: dict[ContentFilter, None] | None = None
        """All that overlap; None: too many, or there is no summary."""
        self.sent: dict[ContentFilter, None] = {}
        """Those of ``filters`` that were sent to its node."""


class Own:
    """An advertisement of this node's: which clusters want something of it."""

    __slots__ = ("advertised", "answers")

    def __init__(self, advertised: ContentFilter) -> None:
        self.advertised = advertised
        self.answers: dict[int, set[ContentFilter] | None] = {}
        """By cluster: the filters it has sent; None: it wants all; empty: nothing. A cluster that is not
        here has not answered."""


class Clt:
    """Cluster link table: what is advertised in this node's region, and the bits of its own advertisements.

    Args:
        prt: of this node; whoever changes it says so here (:meth:`subscribed`, :meth:`unsubscribed`).
        clusters: indices of the clusters besides its own.
        summary: filters sent for an advertisement; 0: bits alone, as in the paper.
    """

    def __init__(self, prt: Prt, clusters: Iterable[int], summary: int = 0) -> None:
        self.prt = prt
        self.clusters = frozenset(clusters)
        self.summary = summary
        self._own: dict[int, Own] = {}
        self._own_index: ContentIndex[int] = ContentIndex()
        self._rows: dict[str, dict[int, Row]] = {}
        self._row_index: ContentIndex[tuple[str, int]] = ContentIndex()
        self._filters: ContentIndex[int] = ContentIndex()  # of all own advertisements, by cluster
        self._mentions: Counter[tuple[int, ContentFilter]] = Counter()

    def __len__(self) -> int:
        return len(self._own) + sum(map(len, self._rows.values()))

    # advertisements of this node ----------------------------------------------------------------

    @property
    def own(self) -> Mapping[int, ContentFilter]:
        """By uid."""
        return {uid: own.advertised for uid, own in self._own.items()}

    def advertise(self, uid: int, advertised: ContentFilter) -> None:
        """Until they answer all clusters may want all of it."""
        self.unadvertise(uid)
        self._own[uid] = Own(advertised)
        self._own_index.add(advertised, uid)

    def unadvertise(self, uid: int) -> ContentFilter | None:
        """Withdraw an advertisement; answers its content, None: there was none."""
        own = self._own.pop(uid, None)
        if own is None:
            return None
        self._own_index.remove(own.advertised, uid)
        for cluster in list(own.answers):
            self._answer(own, cluster, None)
        return own.advertised

    def answered(self, cluster: int, civ: Civ) -> list[int]:
        """A cluster has sent what it subscribes to; answers the uids among it that are not advertised.

        Whoever advertises anew to a cluster forgets what that has sent first (:meth:`forget_cluster`).
        """
        unknown = []
        for uid in civ.uids:
            own = self._own.get(uid)
            if own is None:
                unknown.append(uid)
            elif civ.filters is None:
                self._answer(own, cluster, None if isinstance(civ, CivSet) else set())
            else:
                known = own.answers.get(cluster) or set()
                if isinstance(civ, CivSet):
                    self._answer(own, cluster, known.union(civ.filters))
                elif own.answers.get(cluster) is not None:
                    self._answer(own, cluster, known.difference(civ.filters))
        return unknown

    def forget_cluster(self, cluster: int) -> None:
        """Its node in this region cannot be asked any more: it may want all."""
        for own in self._own.values():
            self._answer(own, cluster, None)
            own.answers.pop(cluster, None)

    def _answer(self, own: Own, cluster: int, filters: set[ContentFilter] | None) -> None:
        before = own.answers.get(cluster) or set()
        now = filters or set()
        for content in before - now:
            self._mentions[cluster, content] -= 1
            if not self._mentions[cluster, content]:
                del self._mentions[cluster, content]
                self._filters.remove(content, cluster)
        for content in now - before:
            self._mentions[cluster, content] += 1
            if self._mentions[cluster, content] == 1:
                self._filters.add(content, cluster)
        own.answers[cluster] = filters

    def clusters_of(self, topic: str, attributes: Attributes) -> frozenset[int] | None:
        """The clusters that a message of this node's clients goes to (bits of CIV_a); None: it has not
        advertised any such."""
        uids = self._own_index.match(topic, attributes)
        if not uids:
            return None
        found = set()
        precise = False
        for uid in uids:
            answers = self._own[uid].answers
            for cluster in self.clusters:
                answer = answers.get(cluster)
                if answer is None:
                    found.add(cluster)
                elif answer:
                    precise = True
        if precise and len(found) < len(self.clusters):
            found.update(self._filters.match(topic, attributes))
        return frozenset(found)

    def bits(self, uid: int) -> dict[int, bool | None]:
        """Of an advertisement of this node's, by cluster: subscribed, not subscribed, or not answered.

        Raises:
            KeyError: it is not advertised.
        """
        answers = self._own[uid].answers
        return {
            cluster: answers[cluster] is None or bool(answers[cluster]) if cluster in answers else None
            for cluster in sorted(self.clusters)
        }

    # advertisements of secondary neighbours -------------------------------------------------------

    def rows(self, node_id: str) -> Mapping[int, Row]:
        """The advertisements of a neighbour, by uid."""
        return self._rows.get(node_id, {})

    def advertised(self, node_id: str, uid: int, advertised: ContentFilter) -> Civ:
        """A neighbour advertises; the answer is for it."""
        self.unadvertised(node_id, uid)
        row = self._rows.setdefault(node_id, {})[uid] = Row(advertised)
        self._row_index.add(advertised, (node_id, uid))
        return self._counted(uid, row)

    def unadvertised(self, node_id: str, uid: int) -> bool:
        """Whether it was advertised. Its subscriptions stay as they are."""
        rows = self._rows.get(node_id, {})
        row = rows.pop(uid, None)
        if row is None:
            return False
        if not rows:
            del self._rows[node_id]
        self._row_index.remove(row.advertised, (node_id, uid))
        return True

    def forget(self, node_id: str) -> None:
        """A neighbour is no more."""
        for uid in list(self.rows(node_id)):
            self.unadvertised(node_id, uid)

    # changes of subscriptions -----------------------------------------------------------------------

    def subscribed(self, content: ContentFilter) -> AddressedCivs:
        """A filter is new in the PRT."""
        wholly: dict[str, list[int]] = {}
        more: dict[str, list[int]] = {}
        covered: dict[str, dict[int, list[ContentFilter]]] = {}
        for node_id, uid, row in self._overlapping(content):
            all_sent, filter_sent, gone = self._enter(row, content)
            if all_sent:
                wholly.setdefault(node_id, []).append(uid)
            if filter_sent:
                more.setdefault(node_id, []).append(uid)
            if gone:
                covered.setdefault(node_id, {})[uid] = gone
        civs: AddressedCivs = [(node_id, CivSet(tuple(uids))) for node_id, uids in wholly.items()]
        civs += [(node_id, CivSet(tuple(uids), (content,))) for node_id, uids in more.items()]
        civs += [
            (node_id, CivUnset((uid,), tuple(gone)))
            for node_id, rows in covered.items()
            for uid, gone in rows.items()
        ]
        return civs

    def _enter(self, row: Row, content: ContentFilter) -> tuple[bool, bool, list[ContentFilter]]:
        """Add a filter to a row. Answers what its node receives: it subscribes to all, to this filter, and
        these, which it covers, need not be known any more."""
        row.count += 1
        if row.filters is None:
            if row.count > 1:
                return False, False, []
            if not self.summary:
                return True, False, []
            row.filters, row.sent = {content: None}, {content: None}
            return False, True, []
        row.filters[content] = None
        gone: list[ContentFilter] = []
        uncovered = not any(covers(other, content) for other in row.sent)
        if uncovered:
            gone = [other for other in row.sent if covers(content, other)]
            row.sent[content] = None
            for other in gone:
                del row.sent[other]
        if not self._is_brief(row.sent) or len(row.filters) > KEPT * self.summary:
            row.filters, row.sent = None, {}
            return True, False, []
        return False, uncovered, gone

    def unsubscribed(self, content: ContentFilter) -> AddressedCivs:
        """A filter is in the PRT no more."""
        nothing: dict[str, list[int]] = {}
        less: dict[str, list[int]] = {}
        civs: AddressedCivs = []
        for node_id, uid, row in self._overlapping(content):
            row.count -= 1
            if row.count == 0:
                row.filters, row.sent = None, {}
                nothing.setdefault(node_id, []).append(uid)
            elif row.filters is None:
                if row.count <= self.summary // 2:
                    civs.append((node_id, self._counted(uid, row)))
            else:
                del row.filters[content]
                if content in row.sent:
                    del row.sent[content]
                    bare = _uncovered(
                        other
                        for other in row.filters
                        if other not in row.sent and not any(covers(one, other) for one in row.sent)
                    )
                    row.sent.update(bare)
                    if not self._is_brief(row.sent):
                        row.filters, row.sent = None, {}
                        civs.append((node_id, CivSet((uid,))))
                        continue
                    if bare:
                        civs.append((node_id, CivSet((uid,), tuple(bare))))
                    less.setdefault(node_id, []).append(uid)
        civs += [(node_id, CivUnset(tuple(uids), (content,))) for node_id, uids in less.items()]
        civs += [(node_id, CivUnset(tuple(uids))) for node_id, uids in nothing.items()]
        return civs

    def changed(self, change: Change) -> AddressedCivs:
        """All that a change of the PRT gives to send: what is new first, so that no bit goes in between."""
        civs = [each for content in change.added for each in self.subscribed(content)]
        return civs + [each for content in change.removed for each in self.unsubscribed(content)]

    def _overlapping(self, content: ContentFilter) -> Iterator[tuple[str, int, Row]]:
        for _, owners in self._row_index.overlapping(content):
            for node_id, uid in owners:
                yield node_id, uid, self._rows[node_id][uid]

    def _is_brief(self, filters: Collection[ContentFilter]) -> bool:
        """Whether these may be sent one by one: few, and not too long for one message."""
        return len(filters) <= self.summary and sum(one.length for one in filters) <= SUMMARY_LENGTH

    def _counted(self, uid: int, row: Row) -> Civ:
        """Look a row up in the PRT anew; what its node receives."""
        found = list(self.prt.overlapping(row.advertised))
        row.count = len(found)
        row.filters, row.sent = None, {}
        if not found:
            return CivUnset((uid,))
        if len(found) <= KEPT * self.summary:
            row.sent = dict.fromkeys(_uncovered(found))
            if self._is_brief(row.sent):
                row.filters = dict.fromkeys(found)
                return CivSet((uid,), tuple(row.sent))
            row.sent = {}
        return CivSet((uid,))


def _uncovered(filters: Iterable[ContentFilter]) -> dict[ContentFilter, None]:
    """Those that no other of them covers; of filters that cover each other, one."""
    found: dict[ContentFilter, None] = {}
    for content in filters:
        if not any(covers(other, content) for other in found):
            for other in [one for one in found if covers(content, one)]:
                del found[other]
            found[content] = None
    return found
