"""Advertisements between the nodes of a region, and what their clusters want of them.

They go to each secondary neighbour in a *session*: ADV and UNADV there, CIV_SET and CIV_UNSET back. The
messages of both directions are numbered. If one is missing, the session begins anew with all that is
advertised. Until that is answered, the neighbour's cluster counts as one that wants everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ildm_algorithms.octopia.messages import GONE, AdvertEntry, Adverts, Again, Civs, Hello, OverlayError
from ildm_algorithms.octopia.tables.pages import pages, size_of_civ, size_of_entry, whole_or_parts
from ildm_algorithms.octopia.tables.tables import AddressedCivs, Civ, CivSet, CivUnset, Clt

if TYPE_CHECKING:
    from ildm.api import NodeApi
    from ildm_algorithms.octopia.config import OctopiaConfig
    from ildm_algorithms.octopia.content.content import ContentFilter
    from ildm_algorithms.octopia.grid.members import Members

__all__ = ["Sessions"]

CALM = 1.0
"""Seconds between two attempts to begin the same session anew."""


class _Session:
    """Advertisements to one secondary neighbour, or from it."""

    __slots__ = ("begun", "filters", "number", "received", "sent", "unanswered")

    def __init__(self, number: int, begun: float) -> None:
        self.number = number
        self.begun = begun
        self.sent = 0
        self.received = 0
        self.filters = 0
        """Filters that its cluster has sent."""
        self.unanswered: set[int] = set()
        """Advertisements from it that cannot be answered yet: sets of this cluster are lacking."""


class Sessions:
    """Keeps the CLT of this node and those of its secondary neighbours the same.

    Args:
        lacking: nodes of this cluster whose subscriptions are not here; until they are nothing is answered.
    """

    def __init__(
        self,
        api: NodeApi,
        config: OctopiaConfig,
        members: Members,
        clt: Clt,
        lacking: Callable[[], list[str]],
        count: Callable[..., None],
    ) -> None:
        self.api = api
        self.config = config
        self.members = members
        self.clt = clt
        self.lacking = lacking
        self.count = count
        self._to: dict[str, _Session] = {}
        self._from: dict[str, _Session] = {}
        self._session = api.random.getrandbits(30)

    # what hellos say ----------------------------------------------------------------------------------

    def to(self, node_id: str) -> tuple[int, int]:
        """The session of own advertisements with a neighbour, and ADVERTS sent in it."""
        session = self._to.get(node_id)
        return (0, 0) if session is None else (session.number, session.sent)

    def of(self, node_id: str) -> tuple[int, int]:
        """The session of a neighbour's advertisements with this node, and CIVS sent in it."""
        session = self._from.get(node_id)
        return (0, 0) if session is None else (session.number, session.sent)

    def hello(self, node_id: str, hello: Hello) -> None:
        """Compare what a secondary neighbour says with what is here."""
        to = self._to.get(node_id)
        if to is None:
            self._begin(node_id)
        elif hello.civ_session != to.number or hello.civs != to.received:
            self._begin_again(node_id)
        there = self._from.get(node_id)
        if hello.session and (
            there is None or there.number != hello.session or there.received != hello.adverts
        ):
            self.members.send(node_id, Again(hello.session))

    # advertisements -------------------------------------------------------------------------------------

    def advertise(self, uid: int, content: ContentFilter) -> None:
        """Own clients publish this from now on."""
        self.clt.advertise(uid, content)
        self._advertised((AdvertEntry(uid, 0, content),))

    def unadvertise(self, uid: int) -> bool:
        """They do not any more. False: it was not advertised."""
        content = self.clt.unadvertise(uid)
        if content is None:
            return False
        self._advertised((AdvertEntry(uid, GONE, content),))
        return True

    def _advertised(self, entries: tuple[AdvertEntry, ...]) -> None:
        for node_id, session in self._to.items():
            session.sent += 1
            self.members.send(node_id, Adverts(session.number, session.sent, entries))

    def _begin(self, node_id: str) -> None:
        """Tell a neighbour all that is advertised here."""
        self._session = (self._session + 1) & 0xFFFF_FFFF or 1
        session = self._to[node_id] = _Session(self._session, self.api.now())
        self.clt.forget_cluster(self.members.grid.cluster(node_id))
        entries = [AdvertEntry(uid, 0, content) for uid, content in self.clt.own.items()]
        for some in list(pages(entries, size_of_entry)) or [[]]:
            session.sent += 1
            self.members.send(node_id, Adverts(session.number, session.sent, tuple(some)))

    def _begin_again(self, node_id: str) -> None:
        session = self._to.get(node_id)
        if session is not None and self.api.now() - session.begun >= CALM:
            self.count("sessions_again")
            self._begin(node_id)

    def on_again(self, sender: str, again: Again) -> None:
        """A neighbour lacks something of what was advertised to it."""
        session = self._to.get(sender)
        if session is not None and session.number == again.session:
            self._begin_again(sender)

    def on_adverts(self, sender: str, adverts: Adverts) -> None:
        """A neighbour advertises."""
        if sender not in self.members.peers:
            raise OverlayError(f"advertisements of {sender}, which is in another region")
        session = self._from.get(sender)
        if adverts.number == 1:
            self.clt.forget(sender)
            session = self._from[sender] = _Session(adverts.session, self.api.now())
        elif session is None or session.number != adverts.session or adverts.number != session.received + 1:
            self.members.send(sender, Again(adverts.session))
            return
        session.received = adverts.number
        lacking = self.lacking()
        answers: list[Civ] = []
        for uid, state, content in adverts.entries:
            if state == GONE:
                self.clt.unadvertised(sender, uid)
                session.unanswered.discard(uid)
                continue
            if len(self.clt.rows(sender)) >= self.config.max_filters:
                self.count("adverts_full")  # not answered: all of it comes here
                continue
            answer = self.clt.advertised(sender, uid, content)
            if lacking:
                session.unanswered.add(uid)
            else:
                answers.append(answer)
        self._send_civs(sender, session, _joined(answers))

    def answer_all(self) -> None:
        """Answer what could not be answered before."""
        if not any(session.unanswered for session in self._from.values()) or self.lacking():
            return
        for node_id, session in self._from.items():
            uids, session.unanswered = sorted(session.unanswered), set()
            rows = self.clt.rows(node_id)
            answers = [self.clt.advertised(node_id, uid, rows[uid].advertised) for uid in uids if uid in rows]
            self._send_civs(node_id, session, _joined(answers))

    def tell(self, civs: AddressedCivs) -> None:
        """Send what a change of the subscriptions here gives to send."""
        by_node: dict[str, list[Civ]] = {}
        for node_id, civ in civs:
            by_node.setdefault(node_id, []).append(civ)
        for node_id, some in by_node.items():
            session = self._from.get(node_id)
            if session is not None:
                self._send_civs(node_id, session, _without(some, session.unanswered))

    def _send_civs(self, node_id: str, session: _Session, civs: Sequence[Civ]) -> None:
        for some in pages(whole_or_parts(civs), size_of_civ):
            session.sent += 1
            self.members.send(node_id, Civs(session.number, session.sent, tuple(some)))

    def on_civs(self, sender: str, civs: Civs) -> None:
        """A cluster tells what it wants of the advertisements here."""
        session = self._to.get(sender)
        if session is None or civs.session != session.number:
            self.count("stale_civs")
            return
        if civs.number != session.received + 1:
            self._begin_again(sender)
            return
        session.received = civs.number
        cluster = self.members.grid.cluster(sender)
        for civ in civs.changes:
            session.filters += len(civ.filters or ()) * (1 if isinstance(civ, CivSet) else -1)
            if session.filters > self.config.max_filters:
                self.count("civs_full")
                self.clt.answered(cluster, CivSet(civ.uids))
            else:
                self.clt.answered(cluster, civ)

    def forget(self, node_id: str) -> None:
        """A neighbour has died, or begun a new incarnation."""
        self._from.pop(node_id, None)
        self.clt.forget(node_id)
        if self._to.pop(node_id, None) is not None:
            self.clt.forget_cluster(self.members.grid.cluster(node_id))


def _joined(answers: Iterable[Civ]) -> list[Civ]:
    """Those without filters in one each: all uids that are set, all that are not."""
    set_: list[int] = []
    unset: list[int] = []
    rest: list[Civ] = []
    for civ in answers:
        if civ.filters is not None:
            rest.append(civ)
        else:
            (set_ if isinstance(civ, CivSet) else unset).extend(civ.uids)
    if set_:
        rest.append(CivSet(tuple(set_)))
    if unset:
        rest.append(CivUnset(tuple(unset)))
    return rest


def _without(civs: Iterable[Civ], uids: set[int]) -> list[Civ]:
    """The same but for advertisements that will be answered as a whole."""
    if not uids:
        return list(civs)
    found = (civ._replace(uids=tuple(uid for uid in civ.uids if uid not in uids)) for civ in civs)
    return [civ for civ in found if civ.uids]
