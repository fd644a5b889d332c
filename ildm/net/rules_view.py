"""The rules for what crosses, and what they have decided, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ildm.core.node import Node
    from ildm.core.transfer.rules import Hits, Rule

REST = "rest"
"""Stands in the place of a number for what no rule of a set matches, which is denied."""


def rule_sets(node: Node) -> Iterator[tuple[str, str | None, Sequence[Rule], Hits]]:
    """Each set of rules with its key in the configuration, the node it is for, and its hits."""
    if node.config.site.rules:
        yield "site.rules", None, node.config.site.rules, node.site_rules.hits
    if node.has_overlay or not node.router.active:
        return
    for key, neighbor, rules in node.config.link.rule_sets:
        if rules:
            yield key, neighbor, rules, node.links.hits_of(key, rules)


def rule_rows(node: Node) -> list[dict[str, Any]]:
    """See :meth:`ildm.admin.view.NodeView.rules`."""
    rows = []
    for key, neighbor, rules, hits in rule_sets(node):
        for place, rule in enumerate(rules):
            rows.append(
                {
                    "rule": f"{key}.{place}",
                    "neighbor": neighbor,
                    "action": "allow" if rule.allows else "deny",
                    "filters": list(rule.filters),
                    "direction": rule.direction,
                    "qos": rule.qos if rule.allows else None,
                    "local": rule.local,
                    "remote": rule.remote,
                    "hits_in": hits.incoming[place],
                    "hits_out": hits.outgoing[place],
                }
            )
        rest = {"rule": f"{key}.{REST}", "neighbor": neighbor, "action": "deny", "filters": ["#"]}
        whole = {"direction": "both", "qos": None, "local": "", "remote": ""}
        rows.append({**rest, **whole, "hits_in": hits.incoming[-1], "hits_out": hits.outgoing[-1]})
    return rows
