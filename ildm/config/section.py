"""What all sections of the file are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ildm.address import Address


class Section(BaseModel):
    """Keys that belong together; others are refused, and none changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Bytes = Annotated[int, Field(ge=1024, le=1 << 30, json_schema_extra={"unit": "bytes"})]
Seconds = Annotated[float, Field(gt=0, le=86400 * 365, json_schema_extra={"unit": "seconds"})]

AnySection = TypeVar("AnySection", bound=Section)


def anchored(section: AnySection, base: Path) -> AnySection:
    """With all paths, those of unix sockets, too, relative to the directory ``base``."""
    placed = ((name, value, _placed(value, base)) for name, value in section)
    changed = {name: now for name, value, now in placed if now is not value}
    return section.model_copy(update=changed) if changed else section


def _placed(value: Any, base: Path) -> Any:
    """What has no path within stays the same object."""
    match value:
        case Section():
            return anchored(value, base)
        case Path():
            return base / value.expanduser()
        case Address(scheme="unix"):
            return value._replace(host=str(base / Path(value.host).expanduser()))
        case list():
            items = [_placed(each, base) for each in value]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        case dict():
            pairs = {key: _placed(each, base) for key, each in value.items()}
            return pairs if any(pairs[key] is not each for key, each in value.items()) else value
    return value
