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


def test_prints_on_a_few_sheets(chromium: str, patterns_report: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "report.pdf"
    browse(chromium, patterns_report, tmp_path / "profile", f"--print-to-pdf={sheet}")
    content = sheet.read_bytes()
    assert content.startswith(b"%PDF-")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 6
