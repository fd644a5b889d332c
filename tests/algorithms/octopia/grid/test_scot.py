"""The grid of regions and clusters, and what is left of it when nodes are dead."""

from __future__ import annotations

from random import Random

import pytest

from ildm_algorithms.octopia.grid.scot import Grid, GridError, Place, View, contracted

from .grids import grid_of


def test_neighbours_are_those_of_the_tree_and_those_of_the_region() -> None:
    grid = grid_of("a-b b-c", 3)
    middle, edge = View(grid, "b1"), View(grid, "a2")
    assert middle.primary == {"a": "a1", "c": "c1"}
    assert middle.secondary == {0: "b0", 2: "b2"}
    assert edge.primary == {"b": "b2"}
    assert edge.secondary == {0: "a0", 1: "a1"}
    assert edge.cluster_members == {"a": "a2", "b": "b2", "c": "c2"}


def test_links_of_the_paper_s_overlay() -> None:
    # section 10: 14 regions, 4 clusters: 52 aLinks and 84 iLinks
    grid = grid_of("a-f b-f c-f d-g e-g f-g g-h h-i j-h k-h l-i m-i n-i", 4)
    views = [View(grid, node_id) for node_id in grid.members]
    assert len(views) == 56
    assert sum(len(view.primary) for view in views) == 2 * 52
    assert sum(len(view.secondary) for view in views) == 2 * 84


def test_next_hop_is_known_in_the_own_cluster_only() -> None:
    view = View(grid_of("a-b b-c c-d", 2), "a0")
    assert [view.next_hop(home) for home in ("a0", "b0", "d0", "d1", "z")] == [None, "b0", "b0", None, None]


def test_places_that_nobody_fills_are_dead() -> None:
    grid = Grid(
        ["a-b", "b-c"], ["x", "y"], {"1": Place("a", "x"), "3": Place("c", "x"), "5": Place("b", "y")}
    )
    view = View(grid, "1")
    assert view.primary == {"c": "3"}
    assert view.secondary == {}
    assert view.next_hop("3") == "3"


def test_neighbours_of_the_dead_link_to_the_least_of_them() -> None:
    #   a   d        a - d
    #    \ / \       | \  \
    # b - x   f  ->  b  c  f
    #    /
    #   c
    tree = {"x": "abcd", "a": "x", "b": "x", "c": "x", "d": "xf", "f": "d"}
    assert contracted(tree, set("abcdf")) == {
        "a": ("b", "c", "d"), "b": ("a",), "c": ("a",), "d": ("a", "f"), "f": ("d",),
    }  # fmt: skip


def test_what_remains_is_a_tree_whatever_dies() -> None:
    random = Random(3)
    for _ in range(300):
        labels = [f"r{number}" for number in range(random.randint(1, 12))]
        random.shuffle(labels)
        edges = [f"{label}-{random.choice(labels[:at])}" for at, label in enumerate(labels) if at]
        grid = Grid(edges or labels, ["x"], {label: Place(label, "x") for label in labels})
        dead = set(random.sample(labels, random.randrange(len(labels))))
        live = set(labels) - dead
        left = contracted(grid.regions, live)
        assert sum(map(len, left.values())) == 2 * (len(live) - 1)
        for label in live:
            view = View(grid, label, dead)
            assert {view.next_hop(other) for other in live - {label}} == {*view.primary.values()}
            for region, neighbor in view.primary.items():
                assert label in left[region]
                assert View(grid, neighbor, dead).next_hop(label) == label


def test_the_digest_is_that_of_the_grid_not_of_its_spelling() -> None:
    members = {"1": Place("a", "x"), "2": Place("b", "y")}
    digest = Grid(["a-b", "b-c"], ["x", "y"], members).digest
    assert Grid(["c-b", "b-a"], ["x", "y"], dict(reversed(members.items()))).digest == digest
    others = [
        Grid(["a-b", "a-c"], ["x", "y"], members),
        Grid(["a-b", "b-c"], ["y", "x"], members),
        Grid(["a-b", "b-c"], ["x", "y"], {**members, "2": Place("c", "y")}),
        Grid(["a-b", "b-c"], ["x", "y"], {"1": Place("a", "x")}),
    ]
    assert digest not in {grid.digest for grid in others}
    assert len(digest) == 16


def test_a_region_may_be_alone() -> None:
    grid = Grid(["hall"], ["x", "y"], {"1": Place("hall", "x"), "2": Place("hall", "y")})
    view = View(grid, "1")
    assert (view.primary, view.secondary) == ({}, {1: "2"})


def test_a_place_is_written_region_and_cluster() -> None:
    assert Place.parse("a/tokyo") == Place("a", "tokyo")
    assert str(Place("a", "tokyo")) == "a/tokyo"
    for text in ("a", "a/", "/x", "a/b/c", ""):
        with pytest.raises(GridError, match="region/cluster"):
            Place.parse(text)


@pytest.mark.parametrize(
    ("regions", "clusters", "members", "error"),
    [
        ([], ["x"], {}, "no regions"),
        (["a-b"], [], {}, "no clusters"),
        (["a-b", "c-d"], ["x"], {}, "regions: no edges join 'a' and 'c'"),
        (["a-b", "b-c", "c-a"], ["x"], {}, "'c-a' closes a cycle"),
        (["a-b", "b-a"], ["x"], {}, "'b-a' closes a cycle"),
        (["a-a"], ["x"], {}, "closes a cycle"),
        (["a-b-c"], ["x"], {}, "not 'a-b-c'"),
        (["a-"], ["x"], {}, "not 'a-'"),
        (["a/b"], ["x"], {}, "not 'a/b'"),
        (["a-b"], ["x", "x"], {}, "'x' is listed twice"),
        (["a-b"], ["x/y"], {}, "none can be named 'x/y'"),
        (["a-b"], ["x"], {"1": Place("c", "x")}, "members: '1' is in region 'c'; regions has a, b"),
        (["a-b"], ["x"], {"1": Place("a", "y")}, "members: '1' is in cluster 'y'; clusters has x"),
        (["a-b"], ["x"], {"1": Place("a", "x"), "2": Place("a", "x")}, "'1' and '2' are both at a/x"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(
    regions: list[str], clusters: list[str], members: dict[str, Place], error: str
) -> None:
    with pytest.raises(GridError, match=error):
        Grid(regions, clusters, members)


def test_whoever_is_no_member_has_no_view() -> None:
    with pytest.raises(GridError, match="'z' is no member"):
        View(grid_of("a-b", 2), "z")
