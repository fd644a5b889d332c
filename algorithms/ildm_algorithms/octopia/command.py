"""``ildm content``: expressions tried on messages; no node is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError

from ildm.mqtt import IldmError, Property, Publish, topic_matches
from ildm_algorithms.octopia.content.attributes import AttributeReader
from ildm_algorithms.octopia.content.content import (
    ContentError,
    ContentFilter,
    Value,
    parse,
    show_name,
    show_value,
)
from ildm_algorithms.octopia.content.relations import contradictions
from ildm_algorithms.octopia.delivery.local import ContentConfig

__all__ = ["CommandError", "app", "explained"]

app = typer.Typer(
    help="Content-based subscriptions (OctopiA): expressions.", no_args_is_help=True, rich_markup_mode=None
)


class CommandError(IldmError):
    """A file that cannot be used."""


@app.command()
def explain(
    expression: Annotated[
        str,
        typer.Argument(
            metavar="EXPRESSION",
            help="As price>80&sym=IBM, or a whole filter as filter/price>80/stock/#.",
            show_default=False,
        ),
    ],
    message: Annotated[
        typer.FileBinaryRead | None,
        typer.Option("--message", metavar="FILE", help="Payload of the message; - for standard input."),
    ] = None,
    topic: Annotated[str, typer.Option("--topic", help="Topic of the message.")] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A user property of it. May be repeated."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="Configuration of a node: names, sources of attributes."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether and why a message matches an expression.

    Without a message: what the expression asks for.
    """
    options = _options(config)
    sent = None
    if message is not None or topic or properties:
        pairs = [_pair(text) for text in properties or ()]
        payload = message.read() if message is not None else b""
        sent = Publish(topic=topic, payload=payload, properties={Property.USER_PROPERTY: pairs})
    said = explained(expression, options, sent)
    if as_json:
        print(json.dumps(said, indent=2, ensure_ascii=False))
    else:
        print(as_text(said))


def explained(text: str, options: ContentConfig, message: Publish | None) -> dict[str, Any]:
    """Whether and why a message matches an expression, or a filter with one, as JSON.

    Raises:
        ContentError: the expression is wrong.
    """
    content = _parsed(text, options)
    said: dict[str, Any] = {
        "expression": content.expression.text,
        "topic_filter": content.topic_filter or None,
        "contradictions": contradictions(content.expression),
    }
    if message is None:
        return said | {"predicates": [{"predicate": str(each)} for each in content.expression.predicates]}
    left_out: list[str] = []
    attributes = AttributeReader(options.attributes, left_out.append).read(message)
    rows = [
        {"predicate": str(predicate), "holds": held, "value": value}
        for predicate, held, value in content.expression.explain(attributes)
    ]
    on_topic = (
        not content.topic_filter or not message.topic or topic_matches(content.topic_filter, message.topic)
    )
    return said | {
        "matches": on_topic and all(row["holds"] for row in rows),
        "topic": message.topic or None,
        "topic_matches": on_topic,
        "predicates": rows,
        "attributes": attributes,
        "complete": not left_out,
        "payload_problem": _payload_problem(message.payload) if options.attributes.json_payload else None,
    }


def as_text(said: dict[str, Any]) -> str:
    """What :func:`explained` found, for people."""
    rows = said["predicates"]
    width = max(len(row["predicate"]) for row in rows)
    lines = [f"expression  {said['expression']}"]
    if said["topic_filter"]:
        lines.append(f"topics      {said['topic_filter']}")
    if said["contradictions"]:
        names = ", ".join(said["contradictions"])
        lines.append(f"No message matches it: what it says of {names} contradicts itself.")
    if "matches" not in said:
        return "\n".join([*lines, "", *(f"  {row['predicate']}" for row in rows)])
    lines.append(f"attributes  {_shown(said['attributes'])}")
    if said["payload_problem"]:
        lines.append(f"            none of the payload: {said['payload_problem']}")
    if not said["complete"]:
        lines.append("            and more, beyond a bound of the configuration")
    lines.append("")
    if said["topic"] and said["topic_filter"]:
        lines.append(f"  {_mark(said['topic_matches'])}  topic {said['topic']}")
    for row in rows:
        actual = "not there" if row["value"] is None else f"it is {show_value(row['value'])}"
        lines.append(f"  {_mark(row['holds'])}  {row['predicate']:{width}}  {actual}")
    return "\n".join(
        [*lines, "", "The message matches." if said["matches"] else "The message does not match."]
    )


def _payload_problem(payload: bytes) -> str | None:
    """Why a payload that there is has no attributes, if it is for its form."""
    if not payload:
        return None
    try:
        document = json.loads(payload)
    except RecursionError:
        return None  # beyond a bound, which is reported anyway
    except ValueError as error:
        return f"it is not JSON: {error}"
    return None if isinstance(document, dict) else "it is JSON, but not an object"


def _parsed(text: str, options: ContentConfig) -> ContentFilter:
    """The filter of a text; an expression alone has an empty topic filter."""
    prefix = f"{options.root}/"
    topic_filter = ""
    if text.startswith(prefix):
        text, slash, topic_filter = text[len(prefix) :].partition("/")
        if not slash or not topic_filter:
            raise ContentError(
                f"no topic filter follows the expression, as in {prefix}EXPRESSION/TOPIC FILTER"
            )
    return ContentFilter(topic_filter, parse(text, options.names(), options.limits))


def _options(config: Path | None) -> ContentConfig:
    """Of a node's configuration, those that are about expressions."""
    if config is None:
        return ContentConfig()
    try:
        document = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CommandError(f"{config}: cannot be read: {error}") from error
    algorithm = document.get("algorithm") if isinstance(document, dict) else None
    if not isinstance(algorithm, dict):
        algorithm = {}
    about = {key: value for key, value in algorithm.items() if key in ContentConfig.model_fields}
    try:
        return ContentConfig.model_validate(about)
    except ValidationError as error:
        wrong = "; ".join(
            f"algorithm.{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()
        )
        raise CommandError(f"{config}: {wrong}") from None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CommandError(f"--property {text}: expected NAME=VALUE")
    return name, value


def _shown(attributes: dict[str, Value]) -> str:
    pairs = (f"{show_name(name)} {show_value(value)}" for name, value in attributes.items())
    return ", ".join(pairs) or "none"


def _mark(good: bool) -> str:
    return "✓" if good else "✕"
