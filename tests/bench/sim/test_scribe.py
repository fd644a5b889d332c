"""Scribe over converged tables against routing by numeric id, written out step by step."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm_algorithms.overlay.keys import common_digits as shared_digits
from ildm_bench.sim.scribe import Scribe, common_digits
from ildm_bench.sim.tables import build, random_vectors, table_sizes

IDS = st.integers(0, 2**64 - 1)


@st.composite
def scribes(draw: st.DrawFn) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Numeric ids of the nodes, ids of topics, subscriptions (node, topic)."""
    digits = draw(st.sampled_from([5, 64]))
    ids = st.integers(0, 2**digits - 1).map(lambda number: number << (64 - digits))
    vectors = draw(st.lists(ids, min_size=1, max_size=20, unique=True))
    topics = draw(st.lists(st.one_of(ids, IDS), min_size=1, max_size=4))
    pair = st.tuples(st.integers(0, len(vectors) - 1), st.integers(0, len(topics) - 1))
    return vectors, topics, draw(st.lists(pair, max_size=15))


def root(vectors: list[int], topic: int) -> int:
    longest = max(shared_digits(vector, topic) for vector in vectors)
    closest = [node for node, vector in enumerate(vectors) if shared_digits(vector, topic) == longest]
    return min(closest, key=lambda node: abs(vectors[node] - topic))


def route(vectors: list[int], node: int, topic: int) -> list[int]:
    """Nodes a message passes, the first and the root among them."""
    path = [node]
    end = root(vectors, topic)
    while node != end:
        level = shared_digits(vectors[node], topic)
        node = (node + 1) % len(vectors)
        while shared_digits(vectors[node], topic) < level:
            node = (node + 1) % len(vectors)
        path.append(node)
        assert len(path) < 70 * len(vectors)
    return path


@settings(deadline=None)
@given(scribes())
def test_trees_are_the_reversed_routes(case: tuple[list[int], list[int], list[tuple[int, int]]]) -> None:
    vectors, topics, pairs = case
    scribe = Scribe(np.array(vectors, np.uint64))
    forest = scribe.forest(np.array(topics, np.uint64), [n for n, _ in pairs], [t for _, t in pairs])
    assert forest.roots.tolist() == [root(vectors, topic) for topic in topics]
    routes = [(topic, route(vectors, node, topics[topic])) for node, topic in pairs]
    assert forest.depth.tolist() == [len(path) - 1 for _, path in routes]
    edges = {(topic, up, down) for topic, path in routes for down, up in pairwise(path)}
    found = zip(forest.edge_topic.tolist(), forest.parent.tolist(), forest.child.tolist(), strict=True)
    assert Counter(found) == Counter(edges)
    nodes = range(len(vectors))
    children = Counter(up for _, up, _ in edges)
    assert forest.children().tolist() == [children[node] for node in nodes]
    distinct = Counter(up for up, _ in {(up, down) for _, up, down in edges})
    assert forest.child_nodes().tolist() == [distinct[node] for node in nodes]
    per_topic = Counter(topic for topic, _, _ in edges)
    assert forest.messages.tolist() == [per_topic[topic] for topic in range(len(topics))]
    published = [3 * topic + 1 for topic in range(len(topics))]
    sent: Counter[int] = Counter()
    for topic, up, _ in edges:
        sent[up] += published[topic]
    assert forest.forwarding(published).tolist() == [sent[node] for node in nodes]


@given(st.lists(st.tuples(IDS, IDS | st.integers(0, 3))))
def test_common_digits(pairs: list[tuple[int, int]]) -> None:
    first, second = (np.array([pair[side] for pair in pairs], np.uint64) for side in (0, 1))
    assert common_digits(first, second).tolist() == [shared_digits(a, b) for a, b in pairs]
    assert common_digits(first, first).tolist() == [64] * len(pairs)
    beside = first ^ np.uint64(1)
    assert common_digits(first, beside).tolist() == [63] * len(pairs)


def test_publishers_send_to_the_root_even_without_subscribers() -> None:
    scribe = Scribe(random_vectors(np.random.default_rng(1), 50))
    topics = random_vectors(np.random.default_rng(2), 2)
    forest = scribe.forest(topics, [], [])
    other = (int(forest.roots[0]) + 1) % 50
    assert forest.messages.tolist() == [0, 0]
    assert forest.messages_from([other, int(forest.roots[1])], [0, 1]).tolist() == [1, 0]
    assert forest.path_lengths([other], [0]).tolist() == [0]


def test_path_lengths_count_every_pair() -> None:
    generator = np.random.default_rng(4)
    scribe = Scribe(random_vectors(generator, 200))
    topics = random_vectors(generator, 3)
    subscribers, subscribed = generator.integers(0, 200, 60), generator.integers(0, 3, 60)
    forest = scribe.forest(topics, subscribers, subscribed)
    publishers = np.append(generator.integers(0, 200, 10), forest.roots[0])
    published = np.append(generator.integers(0, 3, 10), 0)
    expected: Counter[int] = Counter()
    for publisher, topic in zip(publishers.tolist(), published.tolist(), strict=True):
        first = int(publisher != forest.roots[topic])
        expected.update((forest.depth[subscribed == topic] + first).tolist())
    lengths = forest.path_lengths(publishers, published).tolist()
    assert lengths == [expected[hops] for hops in range(max(expected) + 1)]


def test_own_tables_of_the_dht() -> None:
    vectors = random_vectors(np.random.default_rng(6), 300)
    assert Scribe(vectors).table_sizes().tolist() == table_sizes(build(np.arange(300), vectors)).tolist()


def test_one_node_is_the_root_of_everything() -> None:
    scribe = Scribe(np.array([7], np.uint64))
    forest = scribe.forest(np.array([0, 2**63], np.uint64), [0, 0], [0, 1])
    assert forest.depth.tolist() == [0, 0]
    assert forest.children().tolist() == [0]


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match="vectors"):
        Scribe(np.array([], np.uint64))
    scribe = Scribe(np.array([1, 2], np.uint64))
    with pytest.raises(ValueError, match="length"):
        scribe.forest([1], [0, 1], [0])
    with pytest.raises(ValueError, match="subscriber"):
        scribe.forest([1], [2], [0])
    with pytest.raises(ValueError, match="topic"):
        scribe.forest([1], [0], [1])
