"""The pages in a browser: no complaint on its console, nothing wider than the window, and on paper."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_SCRIPT = """<script>
addEventListener("load", () => { document.title = "width " + document.scrollingElement.scrollWidth; });
</script>"""


@pytest.fixture(scope="module")
def chromium() -> str:
    """A browser; without one the tests are skipped, but fail where all parts must be there."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is not None:
        return found
    reason = "chromium is not installed"
    if any(os.environ.get(name, "").lower() not in {"", "0", "false"} for name in ("CI", "ILDM_REQUIRE_ALL")):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def browse(chromium: str, page: Path, profile: Path, *options: str) -> tuple[str, list[str]]:
    """What the browser prints, and the lines that the page left on its console."""
    done = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1100,1400",
            "--enable-logging=stderr",
            f"--user-data-dir={profile}",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


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
