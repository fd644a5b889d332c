"""What the admin API and the dashboard have in common: how requests are read, and changes waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, StrictBool, ValidationError

from ildm.admin.view import AdminError
from ildm.config import LinkAddress

if TYPE_CHECKING:
    from ildm.admin.view import NodeView

SAVE_TIMEOUT = 5.0


class RequestError(Exception):
    """The text goes to the client with status 400."""


class Body(BaseModel):
    """JSON of a request."""

    model_config = ConfigDict(extra="forbid")


class AddNeighbor(Body):
    """A neighbour to be added, perhaps also for the next start."""

    address: LinkAddress
    save: StrictBool = True


Model = TypeVar("Model", bound=Body)


def parsed(raw: bytes, model: type[Model]) -> Model:
    """Raises: RequestError."""
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise RequestError("; ".join(_problem(item) for item in error.errors(include_url=False))) from None


def _problem(item: Any) -> str:
    where = ".".join(str(part) for part in item["loc"]) or "body"
    text = "unknown key" if item["type"] == "extra_forbidden" else str(item["msg"])
    return f"{where}: {text.removeprefix('Value error, ')}"


def number(query: Mapping[str, str], name: str, default: int, highest: int | None) -> int:
    """A number of a query.

    Raises:
        RequestError: it is none, or higher than allowed.
    """
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20) or (
        highest is not None and int(text) > highest
    ):
        allowed = "a number" if highest is None else f"a number from 0 to {highest}"
        raise RequestError(f"{name}: expected {allowed}, found {text!r}")
    return int(text)


async def saved(view: NodeView, done: str) -> None:
    """Wait until a neighbour that was added or removed will be so after a restart.

    Raises:
        AdminError: it cannot be saved now; the node goes on trying.
    """
    answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    view.when_saved(lambda problem: None if answer.done() else answer.set_result(problem))
    try:
        problem = await asyncio.wait_for(answer, SAVE_TIMEOUT)
    except TimeoutError:
        problem = f"the disk gave no answer within {SAVE_TIMEOUT:g} s"
    if problem is not None:
        raise AdminError(f"{done}, but not saved: {problem}; the node goes on trying")
