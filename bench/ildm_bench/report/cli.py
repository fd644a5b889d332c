"""``ildm-bench report``: pages out of the files that runs, limit searches and comparisons leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ValidationError

from ildm_bench.measure.figures import Comparison, Group, Limit, RunFigures
from ildm_bench.measure.schema import FIGURES
from ildm_bench.report import ReportError, write_comparison, write_run

LIMIT = "limit.json"
COMPARISON = "comparison.json"

# Keys that one of the models has and the others have not.
_MODELS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("bounded_by", Limit),
    ("title", Comparison),
    ("verdict", RunFigures),
)


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help=f"Directory of a run (with {FIGURES}), or a file: {FIGURES}, {LIMIT} or {COMPARISON}.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Where the page and its pictures go; several pages each into a directory of their own "
            "there. Default: beside the figures.",
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare", metavar="TITLE", help="One page that compares all PATHs, needs --out as well."
        ),
    ] = None,
    void: Annotated[
        bool, typer.Option("--void", help="Comparisons of figures that are void as well, marked as such.")
    ] = False,
) -> None:
    """Write a page of HTML and PNGs for each run, limit search or comparison."""
    sources = [_source(path) for path in paths]
    found = [(source, read(source)) for source in sources]
    if compare is not None:
        if out is None:
            raise typer.BadParameter("--compare needs to know where the page goes: --out DIR")
        print(write_comparison(compared(compare, [model for _, model in found]), out, void))
        return
    names = _names(sources)
    for (source, model), name in zip(found, names, strict=True):
        directory = source.parent if out is None else out if len(found) == 1 else out / name
        print(write(model, directory, void))


def write(model: RunFigures | Limit | Comparison, directory: Path, void: bool = False) -> Path:
    """The page of whatever it is; a limit at which no run was kept is shown as comparison of one.

    The page of a single run or limit says by itself that it is void.
    """
    if isinstance(model, RunFigures):
        return write_run(model, directory)
    if isinstance(model, Limit):
        if model.figures is not None:
            return write_run(model.figures, directory, model)
        return write_comparison(compared(model.label, [model]), directory, void=True)
    return write_comparison(model, directory, void)


def compared(title: str, models: list[RunFigures | Limit | Comparison]) -> Comparison:
    """All of it on one page: limits grouped by scenario, the contents of comparisons as they are."""
    groups: dict[str, list[Limit]] = {}
    runs: list[RunFigures] = []
    for model in models:
        if isinstance(model, RunFigures):
            runs.append(model)
        elif isinstance(model, Limit):
            groups.setdefault(model.scenario, []).append(model)
        else:
            runs += model.runs
            for group in model.groups:
                groups.setdefault(group.name, []).extend(group.limits)
    listed = [Group(name=name, limits=limits) for name, limits in groups.items()]
    return Comparison(title=title, text="", groups=listed, runs=runs, reference="")


def read(path: Path) -> RunFigures | Limit | Comparison:
    """The figures in a file, whichever they are.

    Raises:
        ReportError: it cannot be read or holds something else; names the file and the key.
    """
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ReportError(f"{path}: {error}") from error
    model = next((m for key, m in _MODELS if isinstance(data, dict) and key in data), None)
    if model is None:
        raise ReportError(f"{path}: neither figures of a run nor a limit nor a comparison")
    try:
        result = model.model_validate(data)
    except ValidationError as error:
        lines = (f"{path}: {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ReportError("\n".join(lines)) from error
    assert isinstance(result, RunFigures | Limit | Comparison)
    return result


def _source(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = next((path / name for name in (FIGURES, LIMIT, COMPARISON) if (path / name).is_file()), None)
    if found is None:
        raise ReportError(
            f"{path}: has no {FIGURES}, {LIMIT} or {COMPARISON}; ildm-bench analyse makes the first"
        )
    return found


def _names(sources: list[Path]) -> list[str]:
    """A directory for each source: that of the run, or the file's own name; numbered where they repeat."""
    names: list[str] = []
    for source in sources:
        name = source.parent.resolve().name if source.name == FIGURES else source.stem
        wanted, number = name, 2
        while name in names:
            name, number = f"{wanted}-{number}", number + 1
        names.append(name)
    return names
