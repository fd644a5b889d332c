"""Files that say how far sites are from each other: both kinds, and each fault with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ildm_bench.testbed.distance import Distances, load_distances
from ildm_bench.testbed.spec import SpecError

TABLE = """site,region,paris,lyon,tokyo
paris,eu/fr,0,4,40

lyon,eu/fr,5,0,41.5
tokyo,asia,42,43,
"""


def read(directory: Path, name: str, text: str) -> Distances:
    path = directory / name
    path.write_text(text)
    return load_distances(path)


def test_a_table_need_not_be_symmetric(tmp_path: Path) -> None:
    found = read(tmp_path, "far.csv", TABLE.replace("43,", "43,0"))
    assert found.names == ("paris", "lyon", "tokyo")
    assert found.regions == (("eu", "fr"), ("eu", "fr"), ("asia",))
    assert found.delays_ms == ((0, 4, 40), (5, 0, 41.5), (42, 43, 0))
    assert (found.crosses(0, 1), found.crosses(1, 2)) == (False, True)


def test_regions_give_the_same_delays_within_and_between(tmp_path: Path) -> None:
    found = read(tmp_path, "far.yaml", "within: 4\nbetween: 40\nregions: {eu: 2, asia/jp: 1}\n")
    assert found.names == ("eu-0", "eu-1", "asia/jp-0")
    assert found.regions == (("eu",), ("eu",), ("asia", "jp"))
    assert found.delays_ms == ((0, 4, 40), (4, 0, 40), (40, 40, 0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "far.csv:1: the heading is not site,region,NAME,NAME..."),
        ("site,paris\n", "far.csv:1: the heading is not"),
        ("site,region,a,a\n", "far.csv:1: site 'a' stands there twice"),
        (TABLE, "far.csv:5: tokyo: '' is no delay (0 to 60000 ms)"),
        (TABLE.replace("41.5", "-1"), "far.csv:4: tokyo: '-1' is no delay"),
        (TABLE.replace("41.5", "nan"), "far.csv:4: tokyo: 'nan' is no delay"),
        (TABLE.replace(",41.5", ""), "far.csv:4: site 'lyon': 2 delays for 3 sites"),
        (TABLE.replace("0,41.5", "1,41.5"), "far.csv:4: site 'lyon': the delay to itself is not 0"),
        (TABLE.replace("lyon,eu/fr", "lyon,eu//fr"), "far.csv:4: site 'lyon': 'eu//fr' is no region"),
        (TABLE.replace("lyon,eu", "tours,eu"), "far.csv:4: site 'tours': lyon comes here"),
        ("site,region,a\na,eu,0\nb,eu,0\n", "far.csv:3: site 'b': nothing more comes here"),
        ("site,region,a,b\na,eu,0,1\n", "far.csv:2: no row of site 'b'"),
        ('site,region,a\na,"e"u,0\n', "far.csv:2: "),
    ],
)
def test_a_fault_of_a_table_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SpecError) as refusal:
        read(tmp_path, "far.csv", text)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "far.yaml:1: a mapping is needed: the keys within, between, regions"),
        ("within: 4\nbetween: [\n", "far.yaml:3: "),
        ("within: 4\nbetween: 40\n", "far.yaml:1: regions is missing"),
        ("within: 4\nbetween: 40\nregion: {}\n", "far.yaml:3: region: unknown key"),
        ("within: 4\nbetween: 40\nwithin: 4\n", "far.yaml:3: within stands there twice"),
        ("within: 4\nbetween: far\nregions: {a: 1}\n", "far.yaml:2: between: 'far' is no delay"),
        ("within: 4\nbetween: 40\nregions:\n  a: 1\n  b: 0\n", "far.yaml:5: b: '0' is no number of sites"),
        ("within: 4\nbetween: 40\nregions: [a]\n", "far.yaml:3: a mapping is needed: regions with"),
        ("within: 4\nbetween: 40\nregions: {a: 600, b: 600}\n", "far.yaml:3: 1200 sites (1 to 1000"),
        ("within: 4\nbetween: 40\nregions: {}\n", "far.yaml:3: 0 sites (1 to 1000"),
    ],
)
def test_a_fault_of_regions_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SpecError) as refusal:
        read(tmp_path, "far.yaml", text)
    assert said in str(refusal.value)


def test_the_committed_files_can_be_read() -> None:
    for path in sorted((Path(__file__).parents[3] / "configs/distance").iterdir()):
        assert load_distances(path).names


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"none\.csv: .*No such file"):
        load_distances(tmp_path / "none.csv")
