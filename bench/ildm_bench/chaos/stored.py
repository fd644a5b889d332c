"""Figures that a command writes as one file and reads again."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict


class Stored(BaseModel):
    """A model with a file of a fixed name."""

    model_config = ConfigDict(extra="forbid")
    FILE: ClassVar[str]

    @classmethod
    def read(cls, path: Path) -> Self:
        """
        Raises:
            OSError, ValidationError: there is none, or it is no such file.
        """
        return cls.model_validate_json(path.read_text(encoding="utf-8"))

    def write(self, directory: Path) -> Path:
        """As ``FILE`` in a directory, which is made.

        Raises:
            OSError: it cannot be written.
        """
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / self.FILE
        path.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        return path
