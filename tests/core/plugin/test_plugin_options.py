"""New options for plugins at work: who takes them, who needs a restart, and what is refused as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import Filter, PluginConfig, PluginError, TreeAlgorithm
from ildm.config import Config
from ildm.core.host.reloading import differing_keys, reload_options
from ildm.core.node import Node
from ildm.core.plugin.loading import PluginSpec, PluginSpecs
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import make_node
from ildm.testing.virtual.world import World


class Options(PluginConfig):
    size: int = 1
    color: str = "red"


class Changing(Filter[Options]):
    """Takes other options unless they are too large."""

    def on_config_changed(self) -> None:
        if self.config.size > 9:
            raise ValueError("too large")
        if self.config.size > 5:
            raise PluginError("larger than 5")


class Fixed(Filter[Options]):
    """Keeps its options."""


class Algorithm(TreeAlgorithm[Options]):
    """Takes anything, and tells of it."""

    def on_config_changed(self) -> None:
        self.api.count(f"size_{self.config.size}")


def config(*filters: dict[str, Any] | str, algorithm: Any = "algorithm", **rest: Any) -> Config:
    return Config.model_validate({"filters": list(filters), "algorithm": algorithm, **rest})


@pytest.fixture
def node() -> Node:
    specs = PluginSpecs(
        PluginSpec("algorithm", Algorithm, Options()),
        [PluginSpec("changing", Changing, Options(color="blue")), PluginSpec("fixed", Fixed, Options())],
    )
    made = make_node(World(), "a", specs)
    made.start({})
    return made


def options(node: Node) -> list[tuple[int, str]]:
    found: list[Any] = [loaded.plugin for loaded in node.dispatch.loaded]
    assert [plugin.config for plugin in found] == [loaded.options for loaded in node.dispatch.loaded]
    return [(plugin.config.size, plugin.config.color) for plugin in found]


def test_who_takes_new_options(node: Node) -> None:
    """The order is that of the configuration, the algorithm last; the values are told to nobody."""
    found = reload_options(
        node.dispatch,
        config(
            {"name": "changing", "size": 2},
            {"name": "fixed", "size": 3, "color": "green"},
            algorithm={"name": "algorithm", "size": 4},
        ),
    )
    assert found == [
        ("filter", "changing", "changed", ["size", "color"], None),
        ("filter", "fixed", "needs a restart", ["size", "color"], None),
        ("algorithm", "algorithm", "changed", ["size"], None),
    ]
    assert options(node) == [(2, "red"), (1, "red"), (4, "red")]
    again = reload_options(
        node.dispatch,
        config({"name": "changing", "size": 2}, "fixed", algorithm={"name": "algorithm", "size": 4}),
    )
    assert [each.result for each in again] == ["unchanged"] * 3
    assert node.dispatch.loaded[2].counters == {"size_4": 1}


@pytest.mark.parametrize(
    ("size", "error", "text"),
    [(10, ValueError, "ValueError('too large')"), (6, PluginError, "larger than 5")],
)
def test_one_that_raises_has_its_former_options(
    node: Node, size: int, error: type[Exception], text: str
) -> None:
    """It is a failure of the plugin; the others have theirs."""
    found = reload_options(
        node.dispatch,
        config({"name": "changing", "size": size}, "fixed", algorithm={"name": "algorithm", "size": 4}),
    )
    assert found[0] == ("filter", "changing", "failed", ["size", "color"], text)
    assert found[2].result == "changed"
    assert options(node) == [(1, "blue"), (1, "red"), (4, "red")]
    loaded = node.dispatch.loaded[0]
    assert (loaded.errors, loaded.calls) == (1, 1)
    assert isinstance(node.driver, WorldDriver)
    _, event, fields = node.driver.logged[-1]
    assert (event, fields["hook"]) == ("plugin failed", "on_config_changed")
    assert isinstance(fields["exc_info"], error)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (config("fixed", "changing"), "that needs a restart"),
        (config("changing", "fixed", algorithm=None), "that needs a restart"),
        (config("changing", "fixed", "fixed"), "that needs a restart"),
        (config("changing", "fixed", algorithm="other"), "configuration filter 'changing', filter 'fix"),
        (config({"name": "changing", "size": 2}, {"name": "fixed", "sise": 3}), "filter 'fixed': sise: unkn"),
        (config("changing", "fixed", algorithm={"name": "algorithm", "size": "x"}), "'algorithm': size: "),
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_be_taken_changes_nothing(node: Node, wanted: Config, text: str) -> None:
    with pytest.raises(PluginError, match=text):
        reload_options(node.dispatch, wanted)
    assert options(node) == [(1, "blue"), (1, "red"), (1, "red")]


def test_the_rest_that_differs_is_named_by_its_keys() -> None:
    one = config(link={"secret": "a" * 20})
    other = config(
        "changing",
        algorithm=None,
        listen="127.0.0.1:9",
        link={"secret": "b" * 20, "sessions": 2},
        publish=[{"allow": ["#"]}],
    )
    assert differing_keys(one, other) == ["link.secret", "link.sessions", "listen", "publish"]
    assert differing_keys(one, config(link={"secret": "a" * 20})) == []
