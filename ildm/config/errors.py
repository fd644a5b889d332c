"""What is wrong with a configuration, in words of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from ildm.mqtt import IldmError


class ConfigError(IldmError):
    """A configuration that cannot be used; the text names the file, the key and what is allowed."""


MASKED = frozenset({"secret", "password"})
"""Keys whose values are not shown, nor those of keys below them."""


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
            like = get_close_matches(str(last), _known(model, way), n=1)
            return f"unknown {what} ({like[0]}?)" if like else f"unknown {what}"
        case "tuple_type":
            return "Input should be a valid list"
        case "too_short":
            least = item["ctx"]["min_length"]
            return f"List should have at least {least} item{'' if least == 1 else 's'}"
    return str(item["msg"]).removeprefix("Value error, ")


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
