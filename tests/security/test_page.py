"""The page about security names tests that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ildm.config import Config

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / ".github" / "SECURITY.md").read_text()
NAMED = re.findall(r"`(tests/[\w/.]+)::(\w+)`", PAGE)


def functions_in(path: Path) -> set[str]:
    """Names of the test functions in a file."""
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_")}


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_there_is_the_test(file: str, test: str) -> None:
    assert test in functions_in(ROOT / file)


def test_each_row_of_what_was_tried_names_one() -> None:
    tried = PAGE.partition("## What was tried")[2].splitlines()
    rows = [line for line in tried if line.startswith("| ")][1:]
    assert len(rows) > 20
    assert [row for row in rows if not re.search(r"`tests/[\w/.]+::\w+`", row)] == []
    assert len(NAMED) == PAGE.count("::test_"), "one is written in another way"


def test_all_that_is_tried_in_this_directory_is_on_the_page() -> None:
    here = {
        (f"tests/security/{path.name}", test)
        for path in Path(__file__).parent.glob("test_*.py")
        for test in functions_in(path)
        if path != Path(__file__)
    }
    # what must work for the others to mean something
    served = {"test_who_dials_with_its_own_certificate_is_taken", "test_what_a_trusted_proxy_says_holds"}
    assert {test for _, test in here - set(NAMED)} == served


def test_keys_on_the_page_are_keys() -> None:
    for section, key in re.findall(r"`(limits|link|broker)\.(\w+)`", PAGE):
        assert key in type(getattr(Config(), section)).model_fields, f"{section}.{key}"
