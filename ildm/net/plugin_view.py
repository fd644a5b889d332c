"""What the admin API shows of plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ildm.core.node import Node
    from ildm.core.plugin.dispatch import Loaded

KINDS = ("algorithm", "filter")


def plugin_rows(node: Node) -> dict[str, Any]:
    """The algorithm with what is counted of it, and the filters."""
    rows = {kind: [plugin_row(each) for each in node.dispatch.loaded if each.kind == kind] for kind in KINDS}
    filters = rows["filter"]
    if not rows["algorithm"]:
        return {"name": None, "filters": filters}
    (algorithm,) = rows["algorithm"]
    return {**algorithm, "topology": "any" if node.has_overlay else "tree", "filters": filters}


def plugin_row(loaded: Loaded) -> dict[str, Any]:
    return {
        "name": loaded.name,
        "options": _options(loaded),
        "counters": dict(loaded.counters),
        "gauges": dict(loaded.gauges),
        "errors": loaded.errors,
        "slow_hooks": loaded.slow,
        "calls": loaded.calls,
        "seconds": round(loaded.seconds, 6),
        "refused": dict(loaded.refused),
        "waiting": {
            "timers": loaded.timers.waiting,
            "sessions": len(loaded.sessions),
            "offloads": loaded.offloads,
        },
    }


def _options(loaded: Loaded) -> dict[str, Any]:
    try:
        return loaded.options.model_dump(mode="json", fallback=str)
    except Exception:  # whatever a serializer of a stranger raises
        return {name: str(type(value).__name__) for name, value in loaded.options}
