"""``ildm-bench report``: which file is what, and where the page goes."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ildm_bench.measure.figures import Comparison, Limit, RunFigures
from ildm_bench.report import ReportError
from ildm_bench.report.cli import compared, read, report
from tests.bench.report import samples
from tests.bench.report.pages import read_page

app = typer.Typer()
app.command()(report)


def small_run(label: str) -> RunFigures:
    """Quick to draw."""
    return samples.run(label, 400.0, 1, per_second=[], processes=[], histograms={}, network={})


def invoke(*arguments: object) -> list[Path]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return [Path(line) for line in result.stdout.splitlines()]


def store(path: Path, model: RunFigures | Limit | Comparison) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(model.model_dump_json(), encoding="utf-8")
    return path


def test_run_directory_gets_its_page(tmp_path: Path) -> None:
    store(tmp_path / "run=7" / "figures.json", small_run("alone"))
    (page,) = invoke(tmp_path / "run=7")
    assert page == tmp_path / "run=7" / "report.html"
    assert read_page(page).texts("h1") == ["alone"]


def test_limit_without_run_still_gets_a_page(tmp_path: Path) -> None:
    limit = samples.limit("PF", 3000).model_copy(update={"interval_ms": None, "figures": None})
    (page,) = invoke(store(tmp_path / "limit.json", limit), "--out", tmp_path / "out")
    assert page == tmp_path / "out" / "report.html"
    assert "No interval that was measured is under the limit." in read_page(page).text


def test_limit_with_run_tells_how_it_was_found(tmp_path: Path) -> None:
    limit = samples.limit("PF", 3000).model_copy(update={"figures": small_run("PF")})
    (page,) = invoke(store(tmp_path / "limit.json", limit))
    assert read_page(page).texts("h2")[-1] == "How the limit was found"


def test_several_go_into_directories_of_their_own(tmp_path: Path) -> None:
    sources = [
        store(tmp_path / "a" / "run=1" / "figures.json", small_run("one")).parent,
        store(tmp_path / "b" / "run=1" / "figures.json", small_run("two")),
        store(tmp_path / "comparison.json", Comparison(title="three", text="", reference="")),
    ]
    out = tmp_path / "out"
    found = invoke(*sources, "--out", out)
    assert found == [out / name / "report.html" for name in ("run=1", "run=1-2", "comparison")]
    assert [read_page(page).texts("h1") for page in found] == [["one"], ["two"], ["three"]]


def test_compare_puts_all_on_one_page(tmp_path: Path) -> None:
    sources = [store(tmp_path / f"{n}.json", small_run(f"run {n}")) for n in range(3)]
    (page,) = invoke(*sources, "--compare", "Three runs", "--out", tmp_path / "out")
    shown = read_page(page)
    assert shown.texts("h1") == ["Three runs"]
    assert [text for text in shown.texts("th") if text.startswith("run ")] == ["run 0", "run 1", "run 2"]


def test_compare_needs_a_place(tmp_path: Path) -> None:
    source = store(tmp_path / "figures.json", small_run("one"))
    result = CliRunner().invoke(app, [str(source), "--compare", "x"])
    assert result.exit_code == 2
    assert not (tmp_path / "report.html").exists()


def test_compared_keeps_groups_together() -> None:
    whole = samples.patterns()
    extra = samples.limit("PF with rules", 2000, scenario="low")
    joined = compared("all", [whole, extra, small_run("x")])
    assert [group.name for group in joined.groups] == [group.name for group in whole.groups]
    low = next(group for group in joined.groups if group.name == "low")
    assert [limit.label for limit in low.limits] == ["PF", "SF", "PF with rules"]
    assert len(whole.groups[2].limits) == 2
    assert [run.label for run in joined.runs] == ["x"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "Expecting value"),
        (b"\xff\xfe", "decode"),
        (b"[1]", "neither figures of a run nor a limit nor a comparison"),
        (b'{"title": 4}', "title: "),
        (b'{"verdict": "ok", "run": "x"}', "egress: Field required"),
        (b'{"bounded_by": "moon"}', "bounded_by: "),
    ],
)
def test_what_is_no_figures_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "figures.json"
    path.write_bytes(content)
    with pytest.raises(ReportError) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert complaint in str(raised.value)


def test_directory_without_figures(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"has no figures\.json"):
        report([tmp_path])


def test_models_survive_the_file(tmp_path: Path) -> None:
    for model in (samples.losing(), samples.limit("SF", 3000), samples.latencies()):
        assert read(store(tmp_path / "x.json", model)) == model
