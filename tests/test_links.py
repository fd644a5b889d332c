"""Links between the Markdown pages lead to files of the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = (".ci", ".github", "algorithms", "bench", "configs", "docker", "ildm", "tests")
PAGES = [ROOT / "README.md", *(page for name in FOLDERS for page in sorted((ROOT / name).rglob("*.md")))]
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
MADE = re.compile(r"bench/reports/[^/]+/[^/]+\.(html|json)")
"""Git ignores these, so a link to one leads nowhere in a fresh clone."""


def files_of(page: Path) -> list[Path]:
    """Where the links of a page lead that name no other host and no place in the page itself."""
    links = [link.partition("#")[0] for link in LINK.findall(CODE.sub("", page.read_text()))]
    return [(page.parent / link).resolve() for link in links if link and ":" not in link]


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_to_files_of_the_repository(page: str) -> None:
    for file in files_of(ROOT / page):
        assert file.exists()
        assert not MADE.fullmatch(str(file.relative_to(ROOT)))


def test_pages_have_links() -> None:
    assert ROOT / "bench/reports/slow-link/course-0.png" in files_of(ROOT / "bench/reports/README.md")
