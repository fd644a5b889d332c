"""Pictures of experiments."""

from __future__ import annotations

import pytest

from ildm_bench.report.style import drawing
from ildm_bench.sim.experiments.drawing import Words, panels


@pytest.mark.parametrize(
    "labels",
    [
        ["SF, line", "SF, star", "SF, tree", "SG-TBPS", "ATM-TBPS", "STLA", "Scribe"],
        ["SG-TBPS", "SG-TBPS, w/o redundancy", "Scribe", "Scribe, w/o redundancy", "Scribe with DHT"],
        [f"{n}" for n in range(12)],
    ],
)
def test_a_legend_is_not_wider_than_its_picture(labels: list[str]) -> None:
    series = dict.fromkeys(labels, ((1.0, 2.0), (2.0, 3.0)))
    with drawing():
        figure = panels(Words("name", "Title", "x", "y", ""), {"left": series, "right": series}).figure
        figure.draw_without_rendering()
    (legend,) = figure.legends
    extent = legend.get_window_extent()
    assert extent.x0 >= 0
    assert extent.x1 <= figure.bbox.x1
