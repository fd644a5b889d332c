"""What the README says of invariants and excuses is what the judge goes by."""

from __future__ import annotations

from pathlib import Path

from ildm_bench.chaos import excuses, verdict

README = (Path(verdict.__file__).parent / "README.md").read_text(encoding="utf-8")


def test_the_tables_of_the_readme_are_printed_from_the_judge() -> None:
    rows = "".join(f"| {name} | {text} |\n" for name, text in verdict.INVARIANTS.items())
    assert f"| Invariant | Found when |\n|---|---|\n{rows}\n" in README
    assert f"\n{excuses.table()}\n" in README


def test_each_excuse_is_of_an_invariant_and_has_a_name_of_its_own() -> None:
    assert excuses.EXCUSES.keys() <= verdict.INVARIANTS.keys()
    listed = {excuse for each in excuses.EXCUSES.values() for excuse in each}
    assert listed == set(excuses.Excuse.__subclasses__())
    assert len({excuse.name for excuse in listed} | {excuses.OURS}) == len(listed) + 1
