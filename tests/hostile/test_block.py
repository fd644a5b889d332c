"""``overflow: block`` over faults: whatever breaks for a while, sources wait and nobody waits for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ildm.testing.virtual.world import World
from tests.support.examples import examples
from tests.support.load import BLOCK, SHAPES, Load
from tests.support.site import Site

Fault = tuple[str, int, float]
"""What breaks, at which site, for how many seconds."""

KINDS = ["link cut", "link reset", "broker slow", "broker silent", "broker stops", "broker away"]
FAULTS = st.tuples(
    st.sampled_from(
        ["link cut", "link reset", "broker slow", "broker silent", "broker stops", "broker away"]
    ),
    st.integers(0, 4),
    st.sampled_from([0.1, 1.0, 5.0, 30.0]),
)


def begin(site: Site, kind: str) -> None:
    if kind.startswith("link"):
        for link in list(site.node.links.links.values()):
            for session in link.open_sessions[:1]:
                pipe = session.transport
                if pipe is not None and kind == "link cut":
                    pipe.cut = True  # type: ignore[attr-defined]
                elif pipe is not None:
                    pipe.reset()  # type: ignore[attr-defined]
    elif kind == "broker slow":
        site.broker.answer_delay = 0.5
    elif kind == "broker silent":
        site.broker.takes = lambda _, packet: False
    elif kind == "broker stops":
        site.broker.reads = False
    else:
        site.broker_down()


def end(site: Site, kind: str) -> None:
    for pipe in site.world.pipes:
        pipe.cut = False
    if kind.startswith("broker"):
        site.broker.answer_delay = 0.0
        site.broker.takes = lambda _, packet: True
        site.broker.reads = True
        if kind != "broker slow":
            site.broker_up()  # what was not answered is asked for again


@examples(12)
@given(
    shape=st.sampled_from(list(SHAPES)),
    names=st.sampled_from(["ab", "abc", "abcd"]),
    algorithm=st.sampled_from(["pf", "sf"]),
    qos=st.sampled_from([1, 2]),
    sessions=st.sampled_from([1, 2]),
    faults=st.lists(FAULTS, max_size=3),
)
def test_all_that_was_acknowledged_arrives_however_long_it_had_to_wait(
    shape: str, names: str, algorithm: str, qos: int, sessions: int, faults: list[Fault]
) -> None:
    world = World()
    link = {**BLOCK, "sessions": sessions, "keep_alive": 2, "reconnect_max": 2}
    sites = SHAPES["row" if len(names) == 2 else shape](world, names, algorithm, link=link)
    for site in sites:
        site.subscriber("load/#", f"watch{site.name}", 1)
    world.run(1)
    loads = [Load(site, qos, 150) for site in sites]
    for kind, where, seconds in faults:
        site = sites[where % len(sites)]
        begin(site, kind)
        world.run(seconds)
        end(site, kind)
    world.run(120)
    sent = {}
    for load, site in zip(loads, sites, strict=True):
        if not load.closed:  # its broker may have ended the connection with all it had not acknowledged
            assert load.acknowledged == 150, f"{site.name}: {load.acknowledged}"
            sent[site.name] = load.topics
    dropped = sum(n for site in sites for name, n in site.node.counters.items() if "_dropped" in name)
    for site in sites:
        arrived = {packet.topic for _, packet in site.broker.published}
        for name, topics in sent.items():
            missing = set(topics) - arrived
            assert len(missing) <= dropped, f"{name} to {site.name}: {len(missing)} of {len(topics)}"
        for one in site.node.links.cooperation.active:
            assert one.idle or not one.connected
