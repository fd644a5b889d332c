"""Corpora are the same each time, and what crosses is counted."""

from __future__ import annotations

import json
import socket
import statistics

import pytest

from ildm.testing.live.ports import LOOPBACK
from ildm_bench.micro.corpora import CORPORA, messages
from ildm_bench.micro.link_bytes import ALIAS, OFF, CountingProxy, bytes_of, opened, with_aliases
from tests.support.brokers import Mosquitto


@pytest.mark.parametrize(("corpus", "size"), [("readings", 120), ("sparkplug", 100), ("discovery", 600)])
def test_a_corpus_is_the_same_each_time_and_as_large_as_it_says(corpus: str, size: int) -> None:
    made = messages(corpus, 1000)
    assert made[:10] == messages(corpus, 10)
    assert made != messages(corpus, 1000, seed=2)
    assert len(set(made)) > 250
    assert statistics.mean(len(payload) for _, payload in made) == pytest.approx(size, rel=0.1)
    if corpus != "sparkplug":
        json.loads(made[-1][1])


def test_there_are_as_many_corpora_as_are_looked_at() -> None:
    assert set(CORPORA) == {"readings", "sparkplug", "discovery"}


def test_an_alias_takes_the_place_of_a_topic_that_has_crossed() -> None:
    corpus = [("a/topic/of/20/bytes/", b"x")] * 4
    assert with_aliases(30.0, corpus) == 30 - 15 + ALIAS + 1


def test_a_proxy_counts_both_ways() -> None:
    with socket.create_server((LOOPBACK, 0)) as server, CountingProxy(server.getsockname()) as proxy:
        with socket.create_connection((LOOPBACK, proxy.port)) as client, server.accept()[0] as far:
            client.sendall(b"there")
            assert far.recv(100) == b"there"
            far.sendall(b"back")
            assert client.recv(100) == b"back"
        assert proxy.bytes == 9


@pytest.mark.broker
def test_a_compressed_link_takes_fewer_bytes(mosquitto: Mosquitto) -> None:
    corpus = messages("readings", 200)
    found = {}
    for way in (OFF, "deflate"):
        with opened(way, 1, 0.0) as sites:
            found[way] = bytes_of(sites, corpus, 1000, 1)
    assert found[OFF] > 2 * found["deflate"]
