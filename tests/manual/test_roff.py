"""Text that goes into a page comes out of the formatter as it was."""

from __future__ import annotations

import subprocess
from datetime import date

import pytest

from ildm.manual.roff import Page, bold, escaped, prose
from tests.support.programs import need

DAY = date(2026, 2, 1)


def rendered(page: str) -> str:
    """As `man` shows it, without bold; a warning is an error."""
    done = subprocess.run(
        [need("groff"), "-Tutf8", "-man", "-ww", "-P-c", "-P-bou", "-rLL=200n"],
        input=page,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    "text",
    [
        ".SH no macro",
        "'tis no macro either",
        r"a\fBb \n[x] \\",
        "--option ^ ~ ` ' \"quoted\" 'a/#'",
        "Zürich 東京",
    ],
)
def test_every_character_is_itself(text: str) -> None:
    page = Page("x", 1, "tries", "1", DAY)
    page.heading("TRIED")
    page.paragraph(escaped(text))
    page.subheading(text)
    page.item(bold("tag"), escaped(text))
    page.example(text)
    lines = [line.strip() for line in rendered(page.text()).splitlines()]
    assert lines.count(text) == 3
    assert f"tag    {text}" in lines


def test_prose_is_filled_and_its_code_is_bold() -> None:
    assert prose("a\n    b ``c`` and\n`d-e`.") == r"a b \fBc\fR and \fBd\-e\fR."
    assert prose("``.x``") == r"\fB.x\fR"
    assert prose(".x") == r"\&.x"
