"""The configuration file: any text is a configuration or an error that says why, and gives away no secret."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Hashable, Iterable
from pathlib import Path

from ildm.config import Config, ConfigError, load_config, parse_config
from ildm.core.node import Node
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import plugin_specs
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from tests.fuzz.engine import Target
from tests.fuzz.mutator import mutate_text
from tests.support.site import ALGORITHMS

SECRET = "Th3-s3cr3t-0f-th3-c0rpus"
"""What stands in the files of the corpus where a secret does."""


class Configuration(Target):
    """A file."""

    name = "config"
    mutate = staticmethod(mutate_text)

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        place = memory if os.access(memory, os.W_OK) else None
        self._directory = tempfile.TemporaryDirectory(prefix="ildm-fuzz-", dir=place)
        self._file = Path(self._directory.name) / "node.yaml"

    def close(self) -> None:
        self._directory.cleanup()

    def take(self, data: bytes) -> Iterable[Hashable]:
        self._file.write_bytes(data)
        try:
            config = load_config(self._file)
        except ConfigError as error:
            text = str(error)
            assert str(self._file) in text
            if "not YAML" not in text:  # there the line is quoted in which the fault is
                assert SECRET not in text or not is_secret(data), "a secret is shown"
            return [re.sub(r"\d+|'[^']*'|found .*", "", line)[-60:] for line in text.splitlines()]
        shown = f"{config.broker} {config.link}"
        assert SECRET not in shown or not is_secret(data), "a secret is shown"
        check_accepted(config, self._file)
        return [(name, name in config.model_fields_set) for name in Config.model_fields]


def is_secret(data: bytes) -> bool:
    """Whether the secret stands nowhere but where secrets do."""
    places = re.findall(rb"[^\n]*" + SECRET.encode() + rb"[^\n]*", data)
    return all(re.match(rb" +(secret|password): *" + SECRET.encode() + rb" *$", place) for place in places)


def check_accepted(config: Config, file: Path) -> None:
    """What is accepted reads the same when it is written again, and a node works with it."""
    document = config.model_dump(mode="json", exclude={"algorithm", "filters"})
    for section, name in (("broker", "password"), ("link", "secret")):
        given = getattr(getattr(config, section), name)
        document[section][name] = None if given is None else given.get_secret_value()
    chosen = config.algorithm
    document["algorithm"] = None if chosen is None else {**chosen.options, "name": chosen.name}
    document["filters"] = [{**each.options, "name": each.name} for each in config.filters]
    assert parse_config(document, "again", file.parent) == config
    world = World()
    specs = plugin_specs(None) if chosen is None else plugin_specs("sf", ALGORITHMS["sf"])
    node = Node(config, specs, WorldDriver(world, "a"), MemoryStore(), node_id=config.node_id or "a")
    node.start(dict.fromkeys(config.link.addresses, True))
    world.run(0.01)
