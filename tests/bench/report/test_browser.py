"""The pages in a browser: no complaint on its console, nothing wider than the window, and on paper."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bench.report.pages import browse

_SCRIPT = """<script>
addEventListener("load", () => { document.title = "width " + document.scrollingElement.scrollWidth; });
</script>"""


def test_console_stays_empty(chromium: str, patterns_report: Path, tmp_path: Path) -> None:
    dom, complaints = browse(chromium, patterns_report, tmp_path, "--dump-dom")
    assert complaints == []
    assert "</svg>" in dom


def test_script_would_be_refused_on_the_console(chromium: str, losing_report: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(losing_report.read_text(encoding="utf-8").replace("</main>", f"{_SCRIPT}</main>"))
    dom, complaints = browse(chromium, page, tmp_path / "profile", "--dump-dom")
    assert any("Content Security Policy" in line for line in complaints)
    assert "<title>width" not in dom


@pytest.mark.parametrize("name", ["run_report", "patterns_report"])
def test_nothing_is_wider_than_the_window(
    name: str, chromium: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    text = request.getfixturevalue(name).read_text(encoding="utf-8")
    # The policy of the page forbids the script that measures it.
    allowed = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', _SCRIPT, text)
    page = tmp_path / "page.html"
    page.write_text(allowed, encoding="utf-8")
    dom, _ = browse(chromium, page, tmp_path / "profile", "--dump-dom")
    (width,) = re.findall(r"<title>width (\d+)</title>", dom)
    assert 800 < int(width) <= 1100


@pytest.mark.parametrize("name", ["run_report", "patterns_report"])
def test_nothing_overflows_on_a_telephone(
    name: str, chromium: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """At 420 pixels neither the page nor a card is narrower than what is in it; a window cannot be so narrow,
    a frame can."""
    text = request.getfixturevalue(name).read_text(encoding="utf-8")
    script = """<script>addEventListener("load", () => {
        const wide = [...document.querySelectorAll(".tile, .tile *, .verdict, header")]
            .filter(each => each.scrollWidth > each.clientWidth && each.clientWidth)
            .map(each => each.textContent);
        const tiles = getComputedStyle(document.querySelector(".tiles"));
        const columns = tiles.gridTemplateColumns.split(" ").length;
        parent.postMessage([document.scrollingElement.scrollWidth, columns, ...wide].join("; "), "*");
    });</script>"""
    page = tmp_path / "page.html"
    page.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', lambda _: script, text))
    frame = tmp_path / "frame.html"
    frame.write_text(
        '<script>addEventListener("message", event => { document.title = "seen " + event.data; });</script>'
        '<iframe src="page.html" style="width: 420px; height: 800px; border: 0"></iframe>'
    )
    dom, _ = browse(chromium, frame, tmp_path / "profile", "--dump-dom", "--virtual-time-budget=5000")
    (seen,) = re.findall(r"<title>seen ([^<]*)</title>", dom)
    width, _, others = seen.partition("; ")
    assert int(width) <= 420
    assert others == "2", "columns of cards, and what overflows"


def test_prints_on_a_few_sheets(chromium: str, patterns_report: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "report.pdf"
    browse(chromium, patterns_report, tmp_path / "profile", f"--print-to-pdf={sheet}")
    content = sheet.read_bytes()
    assert content.startswith(b"%PDF-")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 6
