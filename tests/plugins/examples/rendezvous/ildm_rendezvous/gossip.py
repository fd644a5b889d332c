"""Gossip: all nodes come to have the same table of members, over any topology of introducers."""

from __future__ import annotations

from ildm.api import Link, NodeApi, Peer, Unreachable

from .base import Base, Options
from .members import Member, Members, written

DIGEST, TABLE, ROWS = b"d", b"t", b"w"
SOON, SOME = 0.2, 2  # s, nodes


class Gossip(Base):
    """News goes to some others soon; tables that differ all the same are found by their digests. Who cannot
    be reached is gone, but called at times: so what was cut finds together. The living contradict."""

    def __init__(self, api: NodeApi, config: Options) -> None:
        super().__init__(api, config)
        self.members = Members(config.most)
        self.me = Member("", 0, False, "")
        self.news: list[Member] = []
        self.due = False

    def on_ildm_start(self) -> None:
        self.say(Member(self.api.node_id, int(self.api.wall() * 1000), False, self.api.peer.address))
        self.tick()

    def on_link_up(self, link: Link) -> None:
        if link.introducer:
            self.send(link.peer, DIGEST + b"%d" % self.members.digest)

    def on_unreachable(self, node_id: str, reason: Unreachable) -> None:
        if row := self.members.rows.get(node_id):
            self.learn([row._replace(gone=True)])

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        kind, body = data[:1], data[1:]
        if kind == DIGEST and int(body) != self.members.digest:
            self.send(sender, TABLE + self.members.lacking(b""))
        if kind == TABLE and (lacking := self.members.lacking(body)):
            self.send(sender, ROWS + lacking)
        if kind in (TABLE, ROWS):
            self.learn(self.members.newer(body))

    def say(self, row: Member) -> None:
        self.me = row
        self.learn([row])

    def learn(self, rows: list[Member]) -> list[Member]:
        """Take rows over; answers what was news, which is told soon."""
        if news := [row for row in rows if self.members.learn(row)]:
            self.news += news
            self.soon()
        return news

    def soon(self) -> None:
        if not self.due:
            self.due = True
            self.api.call_later(SOON, self.tell)

    def tell(self) -> None:
        self.due = False
        if (mine := self.members.rows[self.me.node_id]) != self.me:  # others take this node for gone
            self.say(self.me._replace(life=mine.life + 1))
        news, self.news = self.news, []
        if news:
            self.call(ROWS + b"\n".join(written(row) for row in news))

    def tick(self) -> None:
        self.api.gauge("members", len(self.members.alive()))
        self.call(DIGEST + b"%d" % self.members.digest)
        self.api.call_later(self.config.interval * self.api.random.uniform(0.5, 1.5), self.tick)

    def call(self, data: bytes) -> None:
        known = list(self.members.rows)
        for node_id in self.api.random.sample(known, min(SOME, len(known))):
            self.send(self.members.peer(node_id), data)
