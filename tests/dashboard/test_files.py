"""The files of the page: what the policy asks of them, and whose they are."""

from __future__ import annotations

import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ildm.net.dashboard.files import PAGES, read_files

VENDOR = PAGES / "vendor"
AXE = Path(__file__).parent / "axe"
OURS = sorted(path for path in PAGES.glob("*") if path.is_file())
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|\.style\b"
)


class References(HTMLParser):
    """What a page refers to; nothing may stand in it that the policy forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.wrong: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        for name, value in attrs:
            if name in ("src", "href"):
                self.found.append(value or "")
            elif name == "style" or name.startswith("on"):
                self.wrong.append(f"{tag} {name}")

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style") and data.strip():
            self.wrong.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


def test_the_page_refers_to_its_own_files_alone() -> None:
    page = References()
    page.feed((PAGES / "index.html").read_text())
    assert page.wrong == []
    files = read_files()
    assert len(page.found) >= 8
    assert [name for name in page.found if name not in files] == []


@pytest.mark.parametrize("path", [path for path in OURS if path.suffix == ".js"], ids=lambda path: path.name)
def test_scripts_make_no_markup_and_import_what_is_there(path: Path) -> None:
    script = path.read_text()
    assert MARKUP.findall(script) == []
    for name in re.findall(r'from "\./([^"]+)"', script):
        assert (PAGES / name).is_file()


def test_nothing_of_ours_names_another_host() -> None:
    for path in OURS:
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)\S*", path.read_text()) == [], path


@pytest.mark.parametrize("directory", [VENDOR, AXE], ids=lambda path: path.name)
def test_what_others_have_made_is_as_it_came(directory: Path) -> None:
    told = (directory / "README.md").read_text()
    scripts = [path for path in directory.iterdir() if path.suffix in (".js", ".css")]
    assert scripts
    for path in scripts:
        assert hashlib.sha256(path.read_bytes()).hexdigest() in told, path
        licence = directory / f"{path.name.partition('.')[0]}.LICENSE"
        assert licence.is_file() or (directory / "LICENSE").is_file()
