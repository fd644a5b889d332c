"""How far the sites of a testbed are from each other, read from a file.

As a table (``.csv``), one-way delays in milliseconds from the site of the row to that of the column; a region
may have parts, ``eu/de``::

    site,region,paris,lyon,tokyo
    paris,eu,0,4,40
    lyon,eu,4,0,40
    tokyo,asia,40,40,0

or by regions (``.yaml``), for many sites::

    within: 4           # ms, one way, between two sites of one region
    between: 40         # between sites of two regions
    regions: {eu: 4, asia: 4, us: 4}
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from ildm_bench.testbed.network import MAX_SITES
from ildm_bench.testbed.spec import MAX_DELAY_MS, SpecError

_HEADING = ["site", "region"]
_KEYS = ("within", "between", "regions")


@dataclass(frozen=True)
class Distances:
    """Names, regions and delays of sites; all sequences are in the order of the sites."""

    names: tuple[str, ...]
    regions: tuple[tuple[str, ...], ...]
    """From the largest to the smallest that a site is in."""
    delays_ms: tuple[tuple[float, ...], ...]
    """``delays_ms[i][j]``: one way from site i to site j."""

    def place(self, site: int) -> str:
        """The name of a site in the file, for people, and its region if the name does not tell."""
        name, region = self.names[site], "/".join(self.regions[site])
        return name if name.startswith(region) else f"{name} ({region})"

    @classmethod
    def by_regions(cls, sizes: Mapping[str, int], within_ms: float, between_ms: float) -> Distances:
        """As many sites in each region as ``sizes`` says; they follow each other region by region."""
        regions = [region for region, size in sizes.items() for _ in range(size)]
        return cls(
            names=tuple(f"{region}-{n}" for region, size in sizes.items() for n in range(size)),
            regions=tuple(tuple(region.split("/")) for region in regions),
            delays_ms=tuple(
                tuple(
                    0.0 if i == j else within_ms if here == there else between_ms
                    for j, there in enumerate(regions)
                )
                for i, here in enumerate(regions)
            ),
        )

    @classmethod
    def uniform(cls, sites: int, delay_ms: float) -> Distances:
        """Each site a region of its own, all equally far from each other."""
        return cls.by_regions({f"site-{index}": 1 for index in range(sites)}, 0.0, delay_ms)

    def crosses(self, one: int, other: int) -> bool:
        """Whether two sites are in different regions."""
        return self.regions[one] != self.regions[other]


def load_distances(path: Path) -> Distances:
    """Read a file of either kind.

    Raises:
        SpecError: it cannot be read or says something else; with the line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise SpecError(f"{path}: {error}") from error
    reading = _from_table if path.suffix.lower() == ".csv" else _from_regions
    try:
        return reading(text)
    except _LineError as error:
        raise SpecError(f"{path}:{error.line}: {error}") from None


class _LineError(Exception):
    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


def _from_table(text: str) -> Distances:
    rows = _rows(text)
    line, heading = next(rows, (1, []))
    names = heading[2:]
    if heading[:2] != _HEADING or not names:
        raise _LineError(line, "the heading is not site,region,NAME,NAME...")
    _check_count(line, len(names))
    if twice := next((name for name in names if not name or names.count(name) > 1), None):
        raise _LineError(line, f"site {twice!r} stands there twice")
    regions: list[tuple[str, ...]] = []
    delays: list[tuple[float, ...]] = []
    for line, (name, region, *cells) in rows:
        if len(delays) == len(names) or name != names[len(delays)]:
            wanted = names[len(delays)] if len(delays) < len(names) else "nothing more"
            raise _LineError(
                line, f"site {name!r}: {wanted} comes here, the rows are in the order of the columns"
            )
        if len(cells) != len(names):
            raise _LineError(line, f"site {name!r}: {len(cells)} delays for {len(names)} sites")
        if not all(region.split("/")):
            raise _LineError(line, f"site {name!r}: {region!r} is no region")
        regions.append(tuple(region.split("/")))
        delays.append(tuple(_delay(line, to, cell) for to, cell in zip(names, cells, strict=True)))
        if delays[-1][len(delays) - 1]:
            raise _LineError(line, f"site {name!r}: the delay to itself is not 0")
    if len(delays) < len(names):
        raise _LineError(line, f"no row of site {names[len(delays)]!r}")
    return Distances(tuple(names), tuple(regions), tuple(delays))


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                cells = [cell.strip() for cell in row]
                yield reader.line_num, cells if len(cells) > 1 else [*cells, ""]
    except csv.Error as error:
        raise _LineError(reader.line_num, str(error)) from None


def _from_regions(text: str) -> Distances:
    try:
        document = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _LineError(1 if mark is None else mark.line + 1, str(error.problem)) from None
    except yaml.YAMLError as error:
        raise _LineError(1, str(error)) from None
    found = _mapping(document, f"the keys {', '.join(_KEYS)}")
    for key, (line, _) in found.items():
        if key not in _KEYS:
            raise _LineError(line, f"{key}: unknown key; {', '.join(_KEYS)} are known")
    for key in _KEYS:
        if key not in found:
            raise _LineError(1, f"{key} is missing")
    delays = [_delay(line, key, _scalar(node)) for key in _KEYS[:2] for line, node in [found[key]]]
    sizes: dict[str, int] = {}
    line, node = found["regions"]
    for name, (at, size) in _mapping(node, "regions with the number of sites of each").items():
        given = _scalar(size)
        if not given.isdecimal() or not 1 <= int(given) <= MAX_SITES:
            raise _LineError(at, f"{name}: {given!r} is no number of sites (1 to {MAX_SITES})")
        if not all(name.split("/")):
            raise _LineError(at, f"{name!r} is no region")
        sizes[name] = int(given)
    _check_count(line, sum(sizes.values()))
    return Distances.by_regions(sizes, *delays)


def _mapping(node: yaml.Node | None, wanted: str) -> dict[str, tuple[int, yaml.Node]]:
    line = 1 if node is None else node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        raise _LineError(line, f"a mapping is needed: {wanted}")
    found: dict[str, tuple[int, yaml.Node]] = {}
    for key, value in node.value:
        name, at = _scalar(key), key.start_mark.line + 1
        if name in found:
            raise _LineError(at, f"{name} stands there twice")
        found[name] = at, value
    return found


def _scalar(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else "something else"


def _delay(line: int, name: str, text: str) -> float:
    try:
        delay = float(text)
    except ValueError:
        delay = math.nan
    if not 0 <= delay <= MAX_DELAY_MS:
        raise _LineError(line, f"{name}: {text!r} is no delay (0 to {MAX_DELAY_MS:g} ms)")
    return delay


def _check_count(line: int, sites: int) -> None:
    if not 1 <= sites <= MAX_SITES:
        raise _LineError(line, f"{sites} sites (1 to {MAX_SITES} are possible)")
