"""``ildm.yaml(5)``: the keys of a configuration file, as its models know them."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from ildm import __version__
from ildm.address import Address
from ildm.config import Config
from ildm.manual.roff import Page, bold, escaped, prose

PURPOSE = "configuration file of a node of ILDM"
EXAMPLE = """\
listen: 0.0.0.0:1883
state_dir: /var/lib/ildm/site-a
broker:
  address: 127.0.0.1:1884
algorithm: sf
link:
  listen: 0.0.0.0:1885
  secret_file: /etc/ildm/link-secret
  neighbors: ["site-b.example.org:1885"]
"""
_REFERENCE = re.compile(r"; see :\w+:`[^`]+`")
"""To the documentation of a module, which readers of the page do not have."""
_BOUNDS = {Ge: "at least {}", Gt: "more than {}", Le: "at most {}", Lt: "less than {}"}


class Key(NamedTuple):
    """One key of the file."""

    name: str
    kind: str
    """What its value is."""
    default: str | None
    """As it would stand in the file; None: there is none."""
    text: str
    section: type[BaseModel] | None
    """The model of the keys below it, or of those of each entry."""


def page(day: date) -> str:
    """The whole page."""
    made = Page("ildm.yaml", 5, PURPOSE, __version__, day)
    made.heading("DESCRIPTION")
    made.paragraph(
        prose(
            "The file that `ildm run --config` reads is one YAML document, checked as a whole before "
            "anything starts: a key that is unknown, out of range or there twice is refused with its name. "
            "A file may "
            "hold just the keys that differ from the defaults. Relative paths are relative to the file. "
            "`ildm check FILE` says what is wrong with it, or what a node with it would do."
        )
    )
    told = dict(sections(Config))
    for model, path in told.items():
        made.heading(path or "TOP LEVEL")
        if path:
            made.paragraph(prose(_summary(model)))
        for key in keys(model):
            kind = key.kind if key.default is None else f"{key.kind}; default {key.default}"
            where = f" See `{told[key.section]}`." if key.section is not None else ""
            made.item(f"{bold(key.name)} ({escaped(kind)})", prose(key.text + where))
    made.heading("EXAMPLE")
    made.example(EXAMPLE)
    made.heading("SEE ALSO")
    made.paragraph(rf"{bold('ildm')}(1)")
    return made.text()


def _below(path: str, key: Key) -> str:
    entry = {"list": "[]", "mapping": ".NAME"}.get(key.kind.split(" ")[0], "")
    return f"{path}.{key.name}{entry}" if path else key.name + entry


def sections(model: type[BaseModel]) -> Iterator[tuple[type[BaseModel], str]]:
    """Each model with where it stands first: ``listeners[].tls`` is below the entries of a list."""
    seen: set[type[BaseModel]] = set()

    def below(model: type[BaseModel], path: str) -> Iterator[tuple[type[BaseModel], str]]:
        seen.add(model)
        yield model, path
        for key in keys(model):
            if key.section is not None and key.section not in seen:
                yield from below(key.section, _below(path, key))

    yield from below(model, "")


def keys(model: type[BaseModel]) -> Iterator[Key]:
    """All keys of one section, in their order.

    Raises:
        LookupError: nothing is said of one where it is defined.
    """
    said = _texts(model)
    for name, field in model.model_fields.items():
        if name not in said:
            raise LookupError(f"{model.__module__}.{model.__name__}.{name} has no docstring")
        kind = _kind(field.annotation, field.metadata, _unit(field))
        section = _section(field.annotation)
        inner = section is not None and kind == "section"
        default = None if field.is_required() or inner else _shown(field.default)
        yield Key(name, kind, default, said[name], section)


def _texts(model: type[BaseModel]) -> dict[str, str]:
    """Key -> docstring. They are read from the source: a node that starts has no use for them."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if not issubclass(each, BaseModel) or each is BaseModel:
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(definition, ast.ClassDef)
        for field, after in zip(definition.body, definition.body[1:], strict=False):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                found[field.target.id] = inspect.cleandoc(str(after.value.value))
    return found


def _summary(model: type[BaseModel]) -> str:
    return _REFERENCE.sub("", (model.__doc__ or "").split("\n\n")[0])


def _section(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_section, get_args(annotation))), None)


def _unit(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra.get("unit", "")) if isinstance(extra, dict) else ""


def _kind(annotation: Any, metadata: Sequence[Any] = (), unit: str = "") -> str:
    """What a value is, in words; ``unit`` is that of a number."""
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if origin is Annotated:
        inner = [each.metadata if isinstance(each, FieldInfo) else [each] for each in arguments[1:]]
        units = [_unit(each) for each in arguments[1:] if isinstance(each, FieldInfo)]
        return _kind(arguments[0], [*metadata, *(x for each in inner for x in each)], unit or "".join(units))
    if origin is Literal:
        return _alternatives([_shown(each) for each in arguments])
    if origin in {list, Sequence}:
        return f"list of {_plural(_kind(arguments[0]))}"
    if origin in {dict, Mapping}:
        return f"mapping of names to {_plural(_kind(arguments[1]))}"
    if arguments:  # a union
        kinds = ["null" if each is type(None) else _kind(each, metadata, unit) for each in arguments]
        return " or ".join(kinds)
    if annotation in {int, float}:
        what = "integer" if annotation is int else "number"
        bounds = [
            text.format(_number(getattr(each, type(each).__name__.lower())))
            for each in metadata
            for kind, text in _BOUNDS.items()
            if isinstance(each, kind)
        ]
        return ", ".join([f"{what} of {unit}" if unit else what, *bounds])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    names = {bool: "true or false", str: "text", Path: "path", SecretStr: "text", Address: "address"}
    return names.get(annotation, "any value")


def _plural(kind: str) -> str:
    endings = {"address": "addresses", "text": "texts", "section": "sections", "any value": "any values"}
    return endings.get(kind, f"{kind}s")


def _alternatives(shown: list[str]) -> str:
    *others, last = shown
    return f"{', '.join(others)} or {last}" if others else last


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else str(int(value))


def _shown(value: object) -> str:
    """As YAML has it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str() if re.fullmatch(r"[\d.]+", value):
            return f'"{value}"'
        case "":
            return '""'
        case list() | tuple() if not isinstance(value, Address):
            return f"[{', '.join(map(_shown, value))}]"
        case dict() if not value:
            return "{}"
        case int() if value >= 1 << 20 and value % (1 << 20) == 0:
            return f"{value} ({value >> 20} MiB)"
        case _:
            return str(value)
