"""What is wrong with a configuration, in words of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from ildm.mqtt import IldmError


class ConfigError(IldmError):
    """A configuration that cannot be used; the text names the file, the key and what is allowed."""


MASKED = frozenset({"secret", "password"})
"""Keys whose values are not shown, nor those of keys below them."""


ADDRESSES = ("address", "listen", "url")
"""Keys of sections for which people write an address alone."""


FORMER = {"spool.age": "link.expiry", "limits.retained_deletion_expiry": "link.expiry"}
"""Keys of earlier releases, and what has taken their place."""


def problems(
    error: ValidationError, name: str, model: type[BaseModel], sources: Mapping[str, str]
) -> Iterator[str]:
    """Lines that name the place, the key and what is allowed; ``sources`` are keys from the environment."""
    for item in error.errors(include_url=False):
        way = [str(part) for part in item["loc"]]
        where = ".".join(way) or "(top level)"
        found = "" if MASKED.intersection(way) else _shown(item.get("input"))
        variable = next((v for key, v in sources.items() if f"{where}.".startswith(f"{key}.")), None)
        place = name
        if variable is not None:
            place, found = f"{name} with {variable}", ""
        yield f"{place}: {where}: {unknown_or(item, 'key', model)}{found}"


def unknown_or(item: Any, what: str, model: type[BaseModel]) -> str:
    """The reason of one of pydantic's errors in words of the file.

    An unknown one is called ``what``, with the known one of ``model`` that is written most like it.
    """
    match item["type"]:
        case "extra_forbidden":
            *way, last = item["loc"]
            now = FORMER.get(".".join(map(str, item["loc"])))
            if now is not None:
                return f"{now} says that now"
            like = get_close_matches(str(last), _known(model, way), n=1)
            return f"unknown {what} ({like[0]}?)" if like else f"unknown {what}"
        case "tuple_type" | "list_type":
            return _expected_list(item.get("input"))
        case "model_type":
            return _expected_keys(item, model)
        case "too_short":
            least = item["ctx"]["min_length"]
            return f"List should have at least {least} item{'' if least == 1 else 's'}"
    return str(item["msg"]).removeprefix("Value error, ")


def _expected_list(found: object) -> str:
    if isinstance(found, str | int | float) and not isinstance(found, bool):
        return f"expected a list, in brackets: [{found}]"
    return "expected a list, each item after a dash: - ..."


def _expected_keys(item: Any, model: type[BaseModel]) -> str:
    """What could be written where a section has a single value."""
    if item["ctx"]["class_name"] == "PluginChoice":
        return "expected the name of a plugin, such as sf, or {name: NAME, OPTION: VALUE}"
    section, found = _model_at(model, item["loc"]), item.get("input")
    if section is None:
        return "expected a mapping of keys"
    if isinstance(found, str | int) and not isinstance(found, bool):
        likely = next((name for name in section.model_fields if _takes(section, name, found)), None)
        if likely is not None:
            return f"expected keys, such as {{{likely}: {found}}}"
    names = [field.alias or name for name, field in section.model_fields.items()]
    return f"expected keys, such as {', '.join(names[:4])}"


def _takes(section: type[BaseModel], name: str, value: object) -> bool:
    """Whether a value is likely to be meant for a key."""
    if name in MASKED or name.endswith("_file"):
        return False  # it takes any text
    try:
        section.model_validate({name: value})
    except ValidationError as error:
        # an address alone may need more keys beside it
        return name in ADDRESSES and all(item["loc"][:1] != (name,) for item in error.errors())
    return True


def _model_at(model: type[BaseModel], way: Iterable[str | int]) -> type[BaseModel] | None:
    """The section at a place, also of the items of a list and of what may be null."""
    found: type[BaseModel] | None = model
    for step in way:
        if isinstance(step, str) and found is not None:
            field = found.model_fields.get(step)
            found = None if field is None else next(_models(field.annotation), None)
    return found


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _known(model: type[BaseModel], way: Iterable[str | int]) -> list[str]:
    """The keys at a place within a model; none where it is no mapping of fixed keys."""
    for step in way:
        found = [field for name, field in model.model_fields.items() if step in (name, field.alias)]
        within = found[0].annotation if found else None
        if not (isinstance(within, type) and issubclass(within, BaseModel)):
            return []
        model = within
    return [field.alias or name for name, field in model.model_fields.items()]


def _shown(value: object) -> str:
    return f" (found {value!r})" if isinstance(value, str | int | float | bool) or value is None else ""
