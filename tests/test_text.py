"""Text for people: what the product escapes, and what holds for the documents."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ildm.text import json_text, printable, reason


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (ConnectionResetError("[Errno 104] Connection reset by peer"), "Connection reset by peer"),
        (FileNotFoundError(2, "No such file or directory", "node.yaml"), "No such file or directory"),
        (OSError("closed by the peer"), "closed by the peer"),
        (ValueError("[Errno 104] is no error here"), "[Errno 104] is no error here"),
    ],
)
def test_a_reason_has_words_and_no_number(error: Exception, words: str) -> None:
    assert reason(error) == words


@pytest.mark.parametrize("character", ["\x1b", "\x9b", "\x7f", "\x00", "\u202e", "\u2028"])
def test_json_commands_no_terminal_and_says_the_same(character: str) -> None:
    value = {"topic": f"gr\u00f6\u00dfe{character}[2J"}
    text = json_text(value)
    assert printable(text) == text
    assert json.loads(text) == value


def test_json_keeps_letters_as_they_are() -> None:
    assert json_text({"topic": "größe"}, indent=2) == '{\n  "topic": "größe"\n}'


PROJECT = Path(__file__).parents[1]
README = PROJECT / "README.md"
DOCUMENTS = [
    path
    for path in sorted(PROJECT.rglob("*.md"))
    if not {".venv", ".cache", ".git", "dist"} & set(path.relative_to(PROJECT).parts)
]
NOT_OURS = {
    "bench/ildm_bench/sim/RESULTS.md",  # a program writes it
    "tests/net/transport/mqttjs/LICENSE.md",  # the words of others
}
PLAIN = [path for path in DOCUMENTS if str(path.relative_to(PROJECT)) not in NOT_OURS]
"""Documents whose sentences are held to the rules of CONTRIBUTING.md."""
WORDS = 25
CELL = 60
"""Words in a cell of a table."""
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.M | re.S)
LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]*)\)")


def without_code(text: str) -> str:
    """Without the head of a template, comments and blocks of code."""
    text = re.sub(r"\A---\n.*?^---$", "", text, flags=re.M | re.S)
    return FENCE.sub("", re.sub(r"<!--.*?-->", "", text, flags=re.S))


def sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Each sentence, and whether a cell of a table has it. Code counts as one word, a link by its text."""
    text = re.sub(r"`[^`]*`", "code", without_code(text))
    text = LINK.sub(r"\1", re.sub(r"^#.*$", "", text, flags=re.M))
    text = re.sub(r"^\s*([*-]|\d+\.|>) +", "\n", text, flags=re.M)
    for block in re.split(r"\n\s*\n|\n(?=\|)", text):
        cells = block.split("|") if block.lstrip().startswith("|") else [block]
        for cell in cells:
            for sentence in re.split(r"(?<=[.!?])\)?\s+", re.sub(r"[*_\\]", "", cell).strip()):
                if re.search(r"\w", sentence):
                    yield " ".join(sentence.split()), len(cells) > 1


def faults(text: str) -> list[str]:
    found = []
    for sentence, in_table in sentences(text):
        if sum(bool(re.search(r"\w", word)) for word in sentence.split()) > WORDS:
            found.append(f"more than {WORDS} words: {sentence}")
        if not in_table and re.match(r"(Who|What|That)\b.*(?<!\?)$", sentence):
            found.append(f"no noun at its beginning: {sentence}")
    return found


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: str(path.relative_to(PROJECT)))
def test_sentences_are_short_and_begin_with_a_noun(path: Path) -> None:
    assert faults(path.read_text()) == []


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: str(path.relative_to(PROJECT)))
def test_cells_of_tables_are_short(path: Path) -> None:
    rows = re.findall(r"^\|.*\|$", without_code(path.read_text()), re.M)
    cells = [cell for row in rows for cell in row.split("|")]
    assert [cell for cell in cells if len(cell.split()) > CELL] == []


def test_faults_are_found_where_they_are_and_nowhere_else() -> None:
    long = "word " * WORDS
    assert faults(f"A {long.strip()}.") == [f"more than 25 words: A {long.strip()}."]
    assert faults(f"* A {long}\n* b\n") == [f"more than 25 words: A {long.strip()}"]
    assert faults(f"| a | A {long}|\n|---|---|") == [f"more than 25 words: A {long.strip()}"]
    assert faults("It is so.\nWhat waits is lost.") == ["no noun at its beginning: What waits is lost."]
    assert faults(f"What waits?\n\n```sh\n{long}{long}\n```\n`{long}` {long}") == [
        f"more than 25 words: code {long.strip()}"
    ]
    assert faults(f"{long}\n\n{long}\n# {long}{long}\n\n| Who | {long}|") == []


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 200


@pytest.mark.parametrize("wing", ["plugin", "transfer", "broker", "link", "local", "host"])
def test_the_page_of_the_core_names_each_module(wing: str) -> None:
    core = PROJECT / "ildm" / "core"
    section = re.search(rf"^### {wing}\n(.*?)^#", (core / "README.md").read_text(), re.M | re.S)
    assert section
    modules = {path.name for path in (core / wing).glob("*.py")} - {"__init__.py", "parts.py", "ports.py"}
    assert set(re.findall(r"`(\w+\.py)`", section[1])) == modules


def anchors(text: str) -> set[str]:
    """Names of the headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *$", without_code(text), re.M):
        slug = re.sub(r"[^\w\- ]", "", LINK.sub(r"\1", heading).lower()).replace(" ", "-")
        found.add(slug)
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for _, target in LINK.findall(re.sub(r"`[^`]*`", "", without_code(path.read_text()))):
        file, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        other = (path.parent / file).resolve() if file else path
        assert other.exists(), target
        if anchor and other.suffix == ".md":
            assert anchor in anchors(other.read_text()), target


@pytest.mark.parametrize(("length", "status"), [(72, 0), (73, 1)])
def test_a_long_subject_of_a_commit_is_refused(length: int, status: int, tmp_path: Path) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("# a comment\n" + "ü" * length + "\n\n" + "The body may be longer. " * 9 + "\n")
    done = subprocess.run([PROJECT / ".ci/subjects", message], capture_output=True, text=True)
    assert (done.returncode, bool(done.stderr)) == (status, bool(status))
