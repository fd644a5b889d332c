"""Histories made by hand: a small correct one to alter, and random correct ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from ildm_bench.chaos.history import Event, History, Run, digest, payload

SETTLE = 1.0


def published(
    t: float,
    seq: int = 0,
    qos: int = 1,
    *,
    publisher: str = "p",
    topic: str = "t",
    site: str = "a",
    ok: bool = True,
) -> list[Event]:
    """A PUBLISH and its acknowledgement."""
    common = {
        "site": site,
        "topic": topic,
        "qos": qos,
        "publisher": publisher,
        "seq": seq,
        "value": value(publisher, seq),
    }
    rows = [Event(t, publisher, "publish", "invoke", **common)]  # type: ignore[arg-type]
    if ok and qos:
        rows.append(Event(t + 0.01, publisher, "publish", "ok", site=site, publisher=publisher, seq=seq))
    return rows


def value(publisher: str, seq: int) -> str:
    return digest(payload("1", publisher, seq))


def got(
    t: float,
    seq: int = 0,
    qos: int = 1,
    *,
    publisher: str = "p",
    topic: str = "t",
    session: str = "s/0",
    site: str = "b",
    incarnation: int = 0,
    retain: bool = False,
    content: str | None = None,
) -> Event:
    """A PUBLISH received."""
    return Event(
        t,
        session.partition("/")[0],
        "receive",
        "ok",
        site,
        incarnation,
        session,
        topic,
        qos,
        retain=retain,
        publisher=publisher,
        seq=seq,
        value=value(publisher, seq) if content is None else content,
    )


def connected(t: float, session: str = "s/0", kind: str = "resume", site: str = "b") -> Event:
    return Event(t, session.partition("/")[0], "connect", "ok", site, session=session, value=kind)


def ended(t: float, session: str = "s/0", site: str = "b") -> Event:
    return Event(t, session.partition("/")[0], "connect", "info", site, session=session)


def subscribed(
    t: float, filter_: str = "t", qos: int = 2, session: str = "s/0", site: str = "b"
) -> list[Event]:
    common = {"site": site, "session": session, "topic": filter_}
    name = session.partition("/")[0]
    return [
        Event(t, name, "subscribe", "invoke", **common),  # type: ignore[arg-type]
        Event(t, name, "subscribe", "ok", qos=qos, **common),  # type: ignore[arg-type]
    ]


def unsubscribed(t: float, filter_: str = "t", session: str = "s/0", site: str = "b") -> list[Event]:
    name = session.partition("/")[0]
    return [
        Event(t, name, "unsubscribe", phase, site, session=session, topic=filter_)
        for phase in ("invoke", "ok")
    ]


def fault(
    t: float, until: float | None, kind: str = "kill", target: str = "node/b", name: str = "0"
) -> list[Event]:
    rows = [Event(t, "nemesis", "fault", "info", session=target, topic=kind, value=name)]
    if until is not None:
        rows.append(Event(until, "nemesis", "heal", "info", session=target, topic=kind, value=name))
    return rows


def read(site: str, kept: dict[str, str], t: float = 90.0) -> list[Event]:
    """What a site has retained after quiet: topic -> value."""
    rows = [Event(t, f"reader.{site}", "retained", "invoke", site)]
    return rows + [
        Event(t, f"reader.{site}", "retained", "ok", site, topic=topic, value=content)
        for topic, content in kept.items()
    ]


def history(events: Iterable[Event | list[Event]], run: str = "1", **about: object) -> History:
    """Of one run, events in the order of their times."""
    rows: list[Event] = []
    for each in events:
        rows += each if isinstance(each, list) else [each]
    made = History(run)
    for row in sorted(rows, key=lambda row: row.t):
        made.add(row)
    known: dict[str, object] = {
        "algorithm": "pf",
        "broker": "mosquitto",
        "sites": 2,
        "settle": SETTLE,
        "seconds": 99.0,
    }
    made.finish(Run(run, **(known | about)))  # type: ignore[arg-type]
    return made


BASE: list[Event | list[Event]] = [connected(0.0), subscribed(0.1)]
"""A subscriber at site b, entitled from 1.1 s on."""


def random_history(seed: int) -> list[Event]:
    """A correct one: three sites, all QoS, sessions kept and clean, faults, repeats that are allowed."""
    chance = random.Random(seed)
    sites = "abc"
    rows: list[Event] = []
    sessions: list[tuple[str, str, str, int]] = []
    for number in range(4):
        site, name = chance.choice(sites), f"s{number}"
        session, filter_, qos = f"{name}/0", chance.choice(["#", "t/+", "t/0"]), chance.randrange(3)
        rows.append(connected(0.0, session, chance.choice(["resume", "clean", "new"]), site))
        rows += subscribed(chance.uniform(0.1, 0.5), filter_, qos, session, site)
        sessions.append((session, site, filter_, qos))
    for number in range(chance.randrange(4)):
        begins = chance.uniform(2.0, 15.0)
        target = chance.choice(["node/a", "broker/b", "link/a/b"])
        kind = "cut" if target.startswith("link") else chance.choice(["kill", "pause"])
        rows += fault(begins, begins + chance.uniform(0.1, 5.0), kind, target, str(number))
    newest: dict[str, str] = {}
    for number in range(3):
        publisher, qos, site = f"p{number}", number, sites[number]
        last = dict.fromkeys([session for session, *_ in sessions], 0.0)
        t = 2.0
        for seq in range(30):
            t += chance.uniform(0.0, 1.0)
            topic, known = f"t/{chance.randrange(2)}", chance.random() < 0.9
            sent = published(t, seq, qos, publisher=publisher, topic=topic, site=site, ok=known)
            if chance.random() < 0.2:
                own = f"r/{publisher}"
                sent = published(t, seq, qos, publisher=publisher, topic=own, site=site, ok=known)
                sent = [row._replace(retain=True) if row.phase == "invoke" else row for row in sent]
                topic = own
                if known or chance.random() < 0.5:
                    newest[own] = value(publisher, seq)
            rows += sent
            for session, where, filter_, granted in sessions:
                matches = filter_ == "#" or (topic.startswith("t/") and filter_ in {"t/+", topic})
                effective = min(qos, granted)
                if not matches or (effective == 0 and chance.random() < 0.3):
                    continue
                last[session] = max(last[session], t) + chance.uniform(0.001, 0.2)
                receipt = got(
                    last[session],
                    seq,
                    effective,
                    publisher=publisher,
                    topic=topic,
                    session=session,
                    site=where,
                )
                rows.append(receipt)
                if effective == 1 and chance.random() < 0.1:
                    rows.append(receipt._replace(t=receipt.t + 3.0, dup=True))
    for site in sites:
        rows += read(site, newest, t=200.0)
    return sorted(rows, key=lambda row: row.t)


Mutation = Callable[[list[Event], random.Random], list[Event] | None]
"""Makes a correct history wrong; None where there is nothing to be made so."""


def _receipts(rows: list[Event], lowest_qos: int = 0) -> list[Event]:
    return [row for row in rows if row.op == "receive" and row.qos >= lowest_qos and not row.retain]


def lose(rows: list[Event], chance: random.Random) -> list[Event] | None:
    """A message of QoS 1 or 2 that was acknowledged does not come."""
    calm = max((row.t for row in rows if row.op == "heal"), default=2.0) + 2 * SETTLE
    sent = {(row.publisher, row.seq): row.t for row in rows if row.op == "publish" and row.phase == "invoke"}
    known = {(row.publisher, row.seq) for row in rows if row.op == "publish" and row.phase == "ok"}
    kept = known & {key for key, t in sent.items() if t > calm}
    fit = [row for row in _receipts(rows, 1) if (row.publisher, row.seq) in kept]
    if not fit:
        return None
    gone = chance.choice(fit)
    return [
        row
        for row in rows
        if (row.op, row.session, row.publisher, row.seq)
        != ("receive", gone.session, gone.publisher, gone.seq)
    ]


def double(rows: list[Event], chance: random.Random) -> list[Event] | None:
    """One of QoS 2 comes twice."""
    fit = _receipts(rows, 2)
    return [*rows, (one := chance.choice(fit))._replace(t=one.t + 1.0)] if fit else None


def invent(rows: list[Event], chance: random.Random) -> list[Event] | None:
    """One comes that nobody has sent."""
    fit = _receipts(rows)
    return [*rows, chance.choice(fit)._replace(seq=10_000, t=300.0)] if fit else None


def overtake(rows: list[Event], chance: random.Random) -> list[Event] | None:
    """A message comes after all others of its publisher, some of which are on its topic; one not retained, as
    those are told again when nodes meet."""
    retained = {(row.publisher, row.seq) for row in rows if row.op == "publish" and row.retain}
    fit = [row for row in _receipts(rows, 1) if (row.publisher, row.seq) not in retained]
    for one in chance.sample(fit, len(fit)):
        stream = (one.session, one.publisher, one.topic)
        if any((row.session, row.publisher, row.topic) == stream and row.seq > one.seq for row in fit):
            same = ("receive", one.session, one.publisher, one.seq)
            rest = [row for row in rows if (row.op, row.session, row.publisher, row.seq) != same]
            return [*rest, one._replace(t=300.0)]
    return None


def differ(rows: list[Event], chance: random.Random) -> list[Event] | None:
    """A site keeps another value."""
    fit = [row for row in rows if row.op == "retained" and row.phase == "ok"]
    if not fit:
        return None
    one = chance.choice(fit)
    return [row._replace(value=digest(b"other")) if row is one else row for row in rows]


MUTATIONS: dict[str, Mutation] = {
    "lost": lose,
    "twice": double,
    "unexpected": invent,
    "order": overtake,
    "retained": differ,
}
