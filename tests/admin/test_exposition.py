"""Metrics as text: what Prometheus reads."""

from __future__ import annotations

import math

from ildm.admin.exposition import OPENMETRICS, TEXT, Histogram, Sample, expose, wanted_type
from ildm.core.metrics import Metric

MESSAGES = Metric("messages_total", "counter", "messages", "All of them\nwith \\", ("way",))
LAG = Metric("lag_seconds", "histogram", "seconds", "How late")
EMPTY = Metric("nothing", "gauge", "things", "Never seen")


def test_the_text_format() -> None:
    hostile = 'a"b\\c\nd'
    families = [
        (MESSAGES, [Sample(("in",), 5), Sample((hostile,), 0)]),
        (EMPTY, []),
        (LAG, [Sample((), Histogram((0.1, 1.0), (3, 0, 2), 7.5))]),
    ]
    assert expose(families).decode() == (
        "# HELP ildm_messages_total All of them\\nwith \\\\\n"
        "# TYPE ildm_messages_total counter\n"
        'ildm_messages_total{way="in"} 5\n'
        'ildm_messages_total{way="a\\"b\\\\c\\nd"} 0\n'
        "# HELP ildm_lag_seconds How late\n"
        "# TYPE ildm_lag_seconds histogram\n"
        'ildm_lag_seconds_bucket{le="0.1"} 3\n'
        'ildm_lag_seconds_bucket{le="1.0"} 3\n'
        'ildm_lag_seconds_bucket{le="+Inf"} 5\n'
        "ildm_lag_seconds_sum 7.5\n"
        "ildm_lag_seconds_count 5\n"
    )


def test_openmetrics_names_families_without_the_suffix_and_ends() -> None:
    lines = expose([(MESSAGES, [Sample(("in",), 5)])], OPENMETRICS).decode().splitlines()
    assert lines[1:] == ["# TYPE ildm_messages counter", 'ildm_messages_total{way="in"} 5', "# EOF"]


def test_numbers_that_are_no_digits() -> None:
    gauge = [(EMPTY, [Sample((), value)]) for value in (math.inf, -math.inf, math.nan)]
    found = [line.split()[-1] for line in expose(gauge).decode().splitlines() if line[0] != "#"]
    assert found == ["+Inf", "-Inf", "NaN"]


def test_which_format_is_wanted() -> None:
    prometheus = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    assert wanted_type(prometheus) == OPENMETRICS
    assert wanted_type("*/*") == wanted_type("") == wanted_type("text/html") == TEXT
