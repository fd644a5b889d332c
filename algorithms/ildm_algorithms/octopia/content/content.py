"""The content language: conjunctions of predicates on the attributes of a message.

A filter of content-based publish/subscribe (OctopiA, section 4) is here a topic filter and an *expression*.
The expression stands in one topic level, and is therefore written so::

    price>80&sym=IBM          numbers, texts, true and false; & is "and"
    sym='80'                  quotes make a text of what would be a number, or true or false
    sym^=IB                   begins with
    ?alarm   !!alarm          has the attribute (two ways to write it); !alarm: has it not
    hot&price<5               "hot" is an expression with a name, of the configuration

``%XX`` (UTF-8) stands for characters that mean something here (``%&=<>!^?'``), in topics (``/+#``), or to
some broker (``.,*``). Within quotes only ``%`` means something. Spaces around names, operators and values are
ignored.

A number is a double of IEEE 754, written as in JSON. A predicate, also ``!=``, holds only if the message has
the attribute and its value is of the predicate's type. So ``a!=5`` is not the contrary of ``a=5``.
Texts are compared by code point.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ildm.mqtt import IldmError

__all__ = [
    "ANYTHING",
    "ContentError",
    "ContentFilter",
    "Expression",
    "ExpressionLimits",
    "Predicate",
    "Value",
    "parse",
    "parse_names",
    "parse_scalar",
    "show_name",
    "show_value",
]

Value: TypeAlias = bool | float | str
"""Of an attribute. Numbers are finite."""

PRESENT = "?"
ABSENT = "!"

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "^=": str.startswith,
}
"""Between values of one type; only texts begin with something."""
COMPARISONS = tuple(_COMPARE)
_COMPARISON = re.compile(r"!=|<=|>=|\^=|[=<>]")
_MARK = re.compile(r"!!|[?!]")
_SPECIAL = re.compile(r"[=<>!^?']")
_ESCAPES = re.compile("(?:%[0-9A-Fa-f]{2})+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NO_NUMBER = frozenset({"nan", "inf", "infinity", "-inf", "-infinity"})
_TO_ESCAPE = re.compile(r"[%&/+#=<>!^?'.,*\x00-\x1f\x7f]|^ | $")
_TRUTH = {"true": True, "false": False}


class ContentError(IldmError):
    """An expression that cannot be understood.

    Attributes:
        position: of the character where it goes wrong, the first being 1; None if it is the whole.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message if position is None else f"{message} (at character {position})")
        self.position = position


class ExpressionLimits(NamedTuple):
    """Bounds of an expression, for the nodes that have to evaluate it."""

    length: int = 1024
    """Characters of its text; four times as many bytes of what :meth:`Expression.format` returns."""
    predicates: int = 32
    """With those of the named expressions in it."""


class Predicate(NamedTuple):
    """One condition on one attribute."""

    attribute: str
    op: str
    """``= != < <= > >=``, ``^=`` (begins with), ``?`` (the message has the attribute), ``!`` (it has not)."""
    value: Value | None = None
    """None for ``?`` and ``!``."""

    # A tuple would take true for the number 1.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Predicate) and _typed(self) == _typed(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(_typed(self))

    def __str__(self) -> str:
        """For people; :meth:`format` is what can be parsed."""
        match self.op:
            case "?":
                return f"{show_name(self.attribute)} is there"
            case "!":
                return f"{show_name(self.attribute)} is not there"
        return f"{show_name(self.attribute)} {self.op} {show_value(self.value)}"

    def format(self) -> str:
        """Its text, with every character escaped that could be trouble at a broker of any make."""
        name = _escape(self.attribute)
        value = self.value
        if self.op == PRESENT:
            return f"!!{name}"  # ActiveMQ takes what follows a "?" for options
        if self.op == ABSENT:
            return f"!{name}"
        if not isinstance(value, str):
            text = _escape(show_value(value))
        elif not value or (self.op != "^=" and not _is_plain(value)):
            text = f"'{_escape(value)}'"
        else:
            text = _escape(value)
        return f"{name}{self.op}{text}"

    def holds(self, attributes: Mapping[str, Value]) -> bool:
        """Whether a message with these attributes satisfies it."""
        actual = attributes.get(self.attribute)
        expected = self.value
        if expected is None or actual is None:
            return (actual is None) == (self.op == ABSENT)
        if isinstance(expected, str):
            return isinstance(actual, str) and _COMPARE[self.op](actual, expected)
        if isinstance(actual, str) or isinstance(actual, bool) != isinstance(expected, bool):
            return False
        return _COMPARE[self.op](actual, expected)


def _typed(predicate: Predicate) -> tuple[object, ...]:
    return (*predicate, isinstance(predicate.value, bool))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expression:
    """A conjunction of predicates, in an order that does not depend on how it was written.

    Two are equal if they have the same predicates; without any every message matches.

    Raises:
        ContentError: a predicate without name, with an unknown operator, or a value that does not suit it.
    """

    predicates: tuple[Predicate, ...] = ()
    text: str = field(init=False)
    """What :meth:`format` returns."""

    def __post_init__(self) -> None:
        ordered = sorted({(p.attribute, p.format()): p for p in map(_checked, self.predicates)}.items())
        object.__setattr__(self, "predicates", tuple(predicate for _, predicate in ordered))
        object.__setattr__(self, "text", "&".join(text for (_, text), _ in ordered))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __bool__(self) -> bool:
        """Whether it has predicates."""
        return bool(self.predicates)

    @staticmethod
    def parse(
        text: str, names: Mapping[str, Expression] | None = None, limits: ExpressionLimits | None = None
    ) -> Expression:
        """The same as :func:`parse`."""
        return parse(text, names, limits)

    def format(self) -> str:
        """Its text in one form: equal expressions have equal texts, and :func:`parse` reads it.

        Without names, and with every character escaped that could be trouble at a broker of any make. Empty
        for the expression without predicates, which ``parse`` refuses.
        """
        return self.text

    def matches(self, attributes: Mapping[str, Value]) -> bool:
        """Whether a message with these attributes satisfies all predicates."""
        return all(predicate.holds(attributes) for predicate in self.predicates)

    def explain(self, attributes: Mapping[str, Value]) -> list[tuple[Predicate, bool, Value | None]]:
        """For each predicate: (predicate, whether it holds, the message's value or None)."""
        return [
            (predicate, predicate.holds(attributes), attributes.get(predicate.attribute))
            for predicate in self.predicates
        ]


def _checked(predicate: Predicate) -> Predicate:
    """The same with a float for an integer."""
    attribute, op, value = predicate
    if not attribute:
        raise ContentError("a predicate has no name of an attribute")
    if op in (PRESENT, ABSENT):
        if value is not None:
            raise ContentError(f"{attribute}: {op} takes no value")
        return predicate
    if op not in COMPARISONS:
        raise ContentError(f"{attribute}: no operator {op!r}; there are {' '.join(COMPARISONS)} ? !")
    if value is None:
        raise ContentError(f"{attribute}: {op} needs a value")
    if isinstance(value, str):
        return predicate
    if op == "^=":
        raise ContentError(f"{attribute}: {op} needs a text, not {show_value(value)}")
    if isinstance(value, bool):
        if op not in ("=", "!="):
            raise ContentError(f"{attribute}: {op} needs a number or a text, not {show_value(value)}")
        return predicate
    number = float(value)
    if not math.isfinite(number):
        raise ContentError(f"{attribute}: {number} is no number")
    return Predicate(attribute, op, number + 0.0)  # -0.0 becomes 0.0


ANYTHING = Expression()
"""The expression without predicates, that of a plain subscription."""


class ContentFilter(NamedTuple):
    """The content of a subscription, or of an advertisement.

    It matches a message whose topic the topic filter matches (a valid one, without ``$share/GROUP/``) and
    whose attributes satisfy the expression.
    """

    topic_filter: str
    expression: Expression = ANYTHING

    def __str__(self) -> str:
        return f"{self.topic_filter} {self.expression.text}" if self.expression else self.topic_filter

    @property
    def length(self) -> int:
        """Characters of both parts."""
        return len(self.topic_filter) + len(self.expression.text)


def parse(
    text: str, names: Mapping[str, Expression] | None = None, limits: ExpressionLimits | None = None
) -> Expression:
    """The expression that a text stands for; ``names`` are those it may refer to.

    Cost: O(length).

    Raises:
        ContentError: what is wrong and at which character, or a limit that it exceeds.
    """
    limits = ExpressionLimits() if limits is None else limits
    if len(text) > limits.length:
        raise ContentError(f"an expression of {len(text)} characters, the limit is {limits.length}")
    if not text.strip(" "):
        raise ContentError("an empty expression")
    for position, character in enumerate(text, 1):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            raise ContentError(f"U+{ord(character):04X} is not allowed", position)
    found: dict[Predicate, None] = {}
    for at, part in _parts(text):
        found.update(dict.fromkeys(_parse_part(part, at, names or {})))
        if len(found) > limits.predicates:
            raise ContentError(f"more than {limits.predicates} predicates")
    expression = Expression(tuple(found))
    if len(expression.text.encode()) > 4 * limits.length:  # no character takes more: it is the names
        raise ContentError(
            f"with its names spelled out it has more than {4 * limits.length} bytes, four times the limit"
        )
    return expression


def parse_names(texts: Mapping[str, str], limits: ExpressionLimits | None = None) -> dict[str, Expression]:
    """The named expressions of a configuration; each may refer to those before it.

    Raises:
        ContentError: a name that could not be distinguished from a predicate, or what is wrong with an
            expression.
    """
    names: dict[str, Expression] = {}
    for name, text in texts.items():
        if not name or name != name.strip(" ") or _TO_ESCAPE.search(name):
            raise ContentError(f"{name!r} is no name of an expression: letters, digits, - and _ are safe")
        try:
            names[name] = parse(text, names, limits)
        except ContentError as error:
            raise ContentError(f"expression {name}: {error}") from None
    return names


def parse_scalar(text: str) -> Value:
    """The value of a text without quotes: a number as in JSON, ``true``, ``false``, or itself.

    A number too large for a double stays a text.
    """
    truth = _TRUTH.get(text)
    if truth is not None:
        return truth
    if _NUMBER.fullmatch(text):
        number = float(text)
        if math.isfinite(number):
            return number + 0.0
    return text


def show_name(name: str) -> str:
    """The name of an attribute, in quotes if it has characters that cannot be seen."""
    return name if name.isprintable() else repr(name)


def show_value(value: Value | None) -> str:
    """A value as in JSON, but with single quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(value)
    if value is None:
        return "nothing"
    return str(int(value)) if value == int(value) and abs(value) < 1e16 else repr(value).replace("e+", "e")


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """The parts between the ``&`` outside of quotes, each with the place where it begins."""
    start = 0
    quote = -1
    for at, character in enumerate(text):
        if character == "'":
            quote = at if quote < 0 else -1
        elif character == "&" and quote < 0:
            yield start, text[start:at]
            start = at + 1
    if quote >= 0:
        raise ContentError("this quote is not closed", quote + 1)
    yield start, text[start:]


def _parse_part(part: str, at: int, names: Mapping[str, Expression]) -> Iterable[Predicate]:
    at, part = _stripped(part, at)
    if not part:
        raise ContentError("a predicate is missing", at + 1)
    mark = _MARK.match(part)
    if mark is not None:
        op = ABSENT if mark.group() == "!" else PRESENT
        return [Predicate(_parse_name(part[mark.end() :], at + mark.end()), op)]
    comparison = _COMPARISON.search(part)
    if comparison is not None:
        op = comparison.group()
        name = _parse_name(part[: comparison.start()], at)
        return [Predicate(name, op, _parse_value(part[comparison.end() :], at + comparison.end(), op))]
    name = _parse_name(part, at)
    known = names.get(name)
    if known is None:
        raise ContentError(f"no expression has the name {name!r}, and it has no operator", at + 1)
    return known.predicates


def _parse_name(text: str, at: int) -> str:
    at, text = _stripped(text, at)
    if not text:
        raise ContentError("the name of an attribute is missing", at + 1)
    _refuse_special(text, at)
    return _unescape(text, at)


def _parse_value(text: str, at: int, op: str) -> Value:
    at, text = _stripped(text, at)
    if not text:
        raise ContentError("a value is missing; an empty text is written ''", at + 1)
    if text[0] == "'":
        end = text.index("'", 1)
        if end != len(text) - 1:
            raise ContentError("something follows a closing quote", at + end + 2)
        return _ordered(_unescape(text[1:-1], at + 1), op, at)
    _refuse_special(text, at)
    decoded = _unescape(text, at)
    if op == "^=":
        return decoded
    value = parse_scalar(decoded)
    if isinstance(value, str) and not _is_plain(value):
        raise ContentError(f"{decoded} is no number; as a text it is written '{text}'", at + 1)
    return _ordered(value, op, at)


def _ordered(value: Value, op: str, at: int) -> Value:
    if isinstance(value, bool) and op not in ("=", "!="):
        raise ContentError(f"{op} needs a number or a text, not {show_value(value)}", at + 1)
    return value


def _stripped(text: str, at: int) -> tuple[int, str]:
    return at + len(text) - len(text.lstrip(" ")), text.strip(" ")


def _refuse_special(text: str, at: int) -> None:
    found = _SPECIAL.search(text)
    if found is not None:
        character = found.group()
        raise ContentError(
            f"{character} is not expected here; as a character of a name or value it is written "
            f"%{ord(character):02X}",
            at + found.start() + 1,
        )


def _is_plain(text: str) -> bool:
    """Whether a text is one without quotes, too."""
    return isinstance(parse_scalar(text), str) and not (
        text.lower() in _NO_NUMBER or _NUMBER.fullmatch(text) is not None
    )


def _escape(text: str) -> str:
    return _TO_ESCAPE.sub(lambda found: f"%{ord(found.group()):02X}", text)


def _unescape(text: str, at: int) -> str:
    if "%" not in text:
        return text
    parts: list[str] = []
    done = 0
    for found in _ESCAPES.finditer(text):
        parts.append(_without_percent(text[done : found.start()], at + done))
        try:
            parts.append(bytes.fromhex(found.group().replace("%", "")).decode())
        except UnicodeDecodeError:
            raise ContentError(f"{found.group()} is no character in UTF-8", at + found.start() + 1) from None
        done = found.end()
    parts.append(_without_percent(text[done:], at + done))
    return "".join(parts)


def _without_percent(text: str, at: int) -> str:
    if "%" in text:
        position = at + text.index("%") + 1
        raise ContentError("two hexadecimal digits have to follow %, which itself is written %25", position)
    return text
