"""The pages: well formed, self-contained, escaped, and nothing shown that is not in the figures."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import matplotlib.image
import pytest
from typer.testing import CliRunner

from ildm_bench.cli import app
from ildm_bench.measure.figures import Comparison, Group, Histogram, Limit, RunFigures, Second
from ildm_bench.measure.quiet import Busy, Disturbance
from ildm_bench.report import ReportError, markdown_table, write_comparison, write_run
from ildm_bench.report.distribution import MOST_POINTS
from ildm_bench.report.entries import of_limit, of_run
from ildm_bench.report.pages import comparison_verdict, run_verdict
from tests.bench.report import samples
from tests.bench.report.pages import Page, read_page

ALL = ("run_report", "losing_report", "patterns_report", "latencies_report")


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Path:
    path = request.getfixturevalue(request.param)
    assert isinstance(path, Path)
    return path


@pytest.mark.parametrize("report", ALL, indirect=True)
def test_page_is_self_contained_and_well_formed(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>\n")
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    inside = [reference.removeprefix("#") for reference in page.references if reference.startswith("#")]
    assert inside
    assert set(inside) <= set(ids)
    assert [reference for reference in page.references if not reference.startswith("#")] == ["data:,"]
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)
    assert not re.search(r"https?:|//[a-z]|@import|<script|url\((?!#)", text)
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert len(text) < 400_000


@pytest.mark.parametrize("report", ALL, indirect=True)
def test_page_can_be_read_aloud(report: Path) -> None:
    page = read_page(report)
    (html,) = page.all("html")
    assert html["lang"] == "en"
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    pictures = page.all("svg")
    assert len(pictures) == len(page.all("figure")) == len(page.texts("figcaption"))
    for picture in pictures:
        assert picture["role"] == "img"
        assert set(picture["aria-labelledby"].split()) <= ids
    assert len(page.texts("desc")) == len(pictures)
    assert len(page.texts("title")) == len(pictures) + 1
    assert len(page.texts("caption")) == len(page.all("table"))
    assert {attributes.get("scope") for attributes in page.all("th")} == {"col", "row"}
    assert len(page.all("h1")) == 1


@pytest.mark.parametrize(
    ("report", "names"),
    [
        ("run_report", {"throughput", "latency", "resources", "limit"}),
        ("losing_report", {"throughput", "latency", "resources"}),
        ("patterns_report", {"ingress", "egress", "latency", "cdf", "cpu", "limit"}),
        ("latencies_report", {"cdf", "cpu"}),
    ],
    indirect=["report"],
)
def test_pictures_beside_the_page(report: Path, names: set[str]) -> None:
    found = sorted(report.parent.iterdir())
    assert {path.name for path in found} == {"report.html", *(f"{name}.png" for name in names)}
    for path in found:
        if path.suffix == ".png":
            pixels = matplotlib.image.imread(path)[..., :3]
            assert pixels.shape[1] == 1200
            assert pixels.shape[0] >= 300
            inked = float((pixels.min(axis=2) < 0.9).mean())
            assert 0.01 < inked < 0.6, f"{path.name}: {inked:.3f} of it is drawn on"


def test_order_of_the_page(run_report: Path) -> None:
    page = read_page(run_report)
    text = page.text
    marks = ["SF, 5 pairs", "Ingress", "Under the limit.", "Pictures", "Throughput in each second"]
    marks += ["Figures of the run", "Latency of what", samples.NOTE, "How the limit was found", "14 ms was"]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    assert page.texts("h2") == ["Pictures", "Figures", "Notes", "How the limit was found"]


def test_numbers_on_the_bars(patterns_report: Path) -> None:
    words = read_page(patterns_report).texts("text")
    for group in samples.patterns().groups:
        for limit in group.limits:
            assert limit.figures is not None
            for value in (limit.figures.ingress, limit.figures.egress):
                shown = f"{value / 1000:.3g}"
                assert shown in words or f"\N{GREATER-THAN OR EQUAL TO}{shown}" in words
            assert limit.label in words
        assert group.name in words
    assert "\N{MULTIPLICATION SIGN}4.18" in words


def test_same_figures_same_page(tmp_path: Path, losing_report: Path) -> None:
    again = write_run(samples.losing(), tmp_path)
    assert again.read_bytes() == losing_report.read_bytes()


def paths(page: Path, name: str) -> list[str]:
    """Outlines of what one picture draws."""
    text = page.read_text(encoding="utf-8")
    (svg,) = re.findall(rf'<svg [^>]*aria-labelledby="{name}-title.*?</svg>', text, re.S)
    return re.findall(r' d="([^"]*)"', svg)


def test_curves_follow_the_figures(tmp_path: Path, losing_report: Path) -> None:
    figures = samples.losing()
    seconds = [*figures.per_second]
    seconds[40] = Second(second=40, ingress=seconds[40].ingress, egress=0)
    used = figures.processes[0].model_copy(update={"cores": 0.11})
    key = "throughput.sent"
    changed = figures.model_copy(
        update={
            "per_second": seconds,
            "processes": [used, *figures.processes[1:]],
            "histograms": figures.histograms | {key: samples.histogram(9, 4000.0, 3000)},
        }
    )
    page = write_run(changed, tmp_path)
    for name in ("throughput", "latency", "resources"):
        assert paths(page, name) != paths(losing_report, name)


def test_curves_are_thin(tmp_path: Path) -> None:
    wide = Histogram(lower=sorted({samples.bin_of(int(1000 * 1.01**n)) for n in range(1500)}), counts=[])
    wide = Histogram(lower=wide.lower, counts=[3] * len(wide.lower))
    assert len(wide.lower) > 2 * MOST_POINTS
    figures = samples.losing().model_copy(
        update={"per_second": [], "processes": [], "histograms": {"latency.sent": wide}}
    )
    longest = max(paths(write_run(figures, tmp_path), "latency"), key=len)
    # Steps have two corners each.
    assert MOST_POINTS / 2 < longest.count("L") <= 2 * MOST_POINTS


HOSTILE = "<script>alert(1)</script> & \"quotes\" 'n' $x^2$ $ _under | 配信 \x01 \N{RIGHT-TO-LEFT OVERRIDE}"


def test_every_text_is_escaped(tmp_path: Path) -> None:
    figures = samples.losing()
    bad = figures.model_copy(
        update={
            **dict.fromkeys(("run", "label", "scenario", "reason", "machine"), HOSTILE),
            "notes": [HOSTILE],
            "network": {HOSTILE: {HOSTILE: 1}},
            "losses": [figures.losses[0].model_copy(update={"topic": HOSTILE, "subscriber": HOSTILE})],
            "processes": [
                p.model_copy(update={"name": HOSTILE, "label": HOSTILE}) for p in figures.processes[:2]
            ],
        }
    )
    limit = samples.limit("PF", 3000).model_copy(
        update={"label": HOSTILE, "scenario": HOSTILE, "notes": [HOSTILE], "figures": bad}
    )
    comparison = Comparison(
        title=HOSTILE,
        text=HOSTILE,
        command=HOSTILE,
        groups=[Group(name=HOSTILE, limits=[limit, samples.limit("_x", 2000)])],
        runs=[bad],
        table=[[HOSTILE, "n"], [HOSTILE, HOSTILE]],
        reference=HOSTILE,
    )
    for path in (write_run(bad, tmp_path / "run", limit), write_comparison(comparison, tmp_path / "both")):
        page = read_page(path)
        assert not page.all("script")
        assert page.texts("h1") == [HOSTILE]
        assert HOSTILE in page.texts("title")
        assert page.text.count(HOSTILE) > 8
        assert any(text.startswith("<script>") for text in page.texts("text"))


def bare(**changes: object) -> RunFigures:
    nothing: dict[str, object] = dict.fromkeys(("ingress", "egress", "ratio", "loss_rate"), 0.0)
    nothing |= {key: {} for key in ("latency", "histograms", "network")}
    nothing |= {key: [] for key in ("per_second", "processes", "losses", "notes")}
    return samples.losing().model_copy(update={**nothing, "expected": 0, "missing": 0, **changes})


def test_run_with_nothing_optional(tmp_path: Path) -> None:
    path = write_run(bare(), tmp_path)
    page = read_page(path)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    assert not page.all("svg")
    assert page.texts("h2") == ["Figures"]
    assert "0 /s" in page.texts("dd")


def test_run_where_all_is_zero(tmp_path: Path) -> None:
    idle = [Second(second=0, ingress=0, egress=0)]
    process = (
        samples.run()
        .processes[0]
        .model_copy(update={"cores": 0.0, "cpu_us_per_delivery": 0.0, "rss_bytes": 0, "quota": None})
    )
    zero = Histogram(lower=[0], counts=[1])
    figures = bare(
        per_second=idle,
        processes=[process],
        histograms={"latency.sent": zero},
        latency={"latency.sent": samples.latency(zero)},
    )
    path = write_run(figures, tmp_path / "run")
    assert len(read_page(path).all("svg")) == 3
    limit = Limit(label="x", scenario="y", interval_ms=4.0, bounded_by="schedule", points=[], figures=figures)
    comparison = Comparison(title="zero", text="", groups=[Group(name="g", limits=[limit])], reference="x")
    shown = read_page(write_comparison(comparison, tmp_path / "comparison"))
    assert {a["aria-labelledby"].split("-")[0] for a in shown.all("svg")} >= {"ingress", "latency", "cpu"}


def test_comparison_where_all_is_void(tmp_path: Path) -> None:
    points = [p.model_copy(update={"verdict": "void"}) for p in samples.limit("PF", 900).points]
    limit = samples.limit("PF", 900).model_copy(
        update={"points": points, "interval_ms": None, "figures": None, "bounded_by": "generator"}
    )
    run = samples.run("alone", 400.0, 1, verdict="void", reason="it was late")
    comparison = Comparison(
        title="void", text="", groups=[Group(name="none", limits=[limit])], runs=[run], reference="PF"
    )
    page = read_page(write_comparison(comparison, tmp_path, void=True))
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "limit.png"}
    assert "No interval that was measured is under the limit." in page.text
    assert "alone: void, says nothing about the brokers. it was late" in page.text


def test_empty_comparison(tmp_path: Path) -> None:
    page = read_page(write_comparison(Comparison(title="nothing", text="", reference="gone"), tmp_path))
    assert page.texts("h1") == ["nothing"]
    assert not page.all("table")


@pytest.mark.parametrize("count", [1, 29])
def test_any_number_of_bars(tmp_path: Path, count: int) -> None:
    lean = samples.run("PF", 2000.0, 1, processes=[], histograms={}, latency={})
    plain = samples.limit("PF", 2000, 1).model_copy(update={"figures": lean})
    names = [f"target number {n} with quite a long name" for n in range(count)]
    limits = [plain.model_copy(update={"label": name, "points": []}) for name in names]
    page = read_page(
        write_comparison(
            Comparison(title="many", text="", groups=[Group(name="all", limits=limits)], reference=""),
            tmp_path,
        )
    )
    rows = [row for row in page.texts("th") if row == "all"]
    assert len(rows) == count
    assert page.texts("text").count(f"{lean.egress / 1000:.3g}") == count


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Under the limit."),
        ({"under_limit": False, "ratio": 0.98999}, "Over the limit."),
        ({"verdict": "void", "under_limit": False}, "Void: this run says nothing about the brokers."),
        ({"verdict": "refused", "under_limit": False}, "Over the limit: the load was refused."),
    ],
)
def test_verdict_in_words(changes: dict[str, object], words: str) -> None:
    figures = samples.run(reason="because of <that>").model_copy(update=changes)
    page = Page(run_verdict(figures))
    assert page.texts("strong") == [words]
    assert "because of <that>" in page.texts("p")
    if not changes.get("under_limit", True) and figures.verdict == "ok":
        assert (
            "The ratio of Definition 1 is 0.9899; 0.99 to 1.01 is needed, "
            "and what waits at the end takes 0 µs of 0.2 s that are allowed."
        ) in page.texts("p")


NOISE = Disturbance(others=0.9, who=[Busy(name="pytest", pid=7, cores=0.8)])


def test_what_was_disturbed_is_void() -> None:
    page = Page(run_verdict(samples.run(disturbance=NOISE)))
    assert page.texts("strong") == ["Void: this run says nothing about the brokers."]
    assert any("pytest (7) 0.80" in line for line in page.texts("p"))
    both = [of_run(samples.run("quiet")), of_run(samples.run("noisy", disturbance=NOISE))]
    verdict = Page(comparison_verdict(both))
    assert verdict.texts("strong") == ["Void: some of this is no result."]
    assert [line for line in verdict.texts("p") if line.startswith("noisy: void")]
    assert not [line for line in verdict.texts("p") if line.startswith("quiet:")]
    limit = samples.limit("PF", 900)
    points = [limit.points[0].model_copy(update={"disturbed": "others"}), *limit.points[1:]]
    assert of_limit(limit.model_copy(update={"points": points})).void == "others"


def test_void_figures_are_not_written_unless_asked_for(tmp_path: Path) -> None:
    comparison = Comparison(title="T", runs=[samples.run("quiet"), samples.run("noisy", disturbance=NOISE)])
    with pytest.raises(ReportError, match=r"T: .*void.*\n  noisy: other programs used 0.90"):
        write_comparison(comparison, tmp_path)
    with pytest.raises(ReportError, match="noisy"):
        markdown_table(comparison)
    assert not list(tmp_path.iterdir())
    assert "noisy: void" in read_page(write_comparison(comparison, tmp_path, void=True)).text
    assert markdown_table(comparison, void=True).startswith("**Void, no result.** noisy: other programs")
    file = tmp_path / "comparison.json"
    file.write_text(comparison.model_dump_json())
    refused = CliRunner().invoke(app, ["report", str(file), "--out", str(tmp_path / "out")])
    assert isinstance(refused.exception, ReportError)
    asked = CliRunner().invoke(app, ["report", str(file), "--out", str(tmp_path / "out"), "--void"])
    assert asked.exit_code == 0, asked.output


def test_limits_that_were_found_again_are_listed(tmp_path: Path) -> None:
    limit = samples.limit("PF", 900, spread={"interval_ms": [57.6, 56.0, 59.2]})
    words = "Found one after the other: 57.6 ms, 56 ms, 59.2 ms; the one in the middle counts."
    assert words in read_page(write_run(samples.run(), tmp_path, limit)).texts("p")
    comparison = Comparison(title="T", groups=[Group(name="g", limits=[limit])])
    assert words in read_page(write_comparison(comparison, tmp_path / "both")).text


def test_a_page_names_its_target(tmp_path: Path) -> None:
    page = read_page(write_run(samples.run(targets=["127.0.0.1:1883", "127.0.0.1:1884"]), tmp_path))
    assert "Target: 127.0.0.1:1883, 127.0.0.1:1884" in page.texts("p")


def test_verdict_of_a_comparison() -> None:
    good = of_limit(samples.limit("PF", 2000), "low")
    assert Page(comparison_verdict([good])).texts("strong") == ["All of these results are valid."]
    over = of_run(samples.losing())
    assert "PF, 5 pairs: over the limit." in Page(comparison_verdict([good, over])).texts("p")


def test_settings_of_matplotlib_are_left_alone(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    write_run(bare(per_second=[Second(second=0, ingress=1, egress=10)]), tmp_path)
    assert dict(mpl.rcParams) == before
