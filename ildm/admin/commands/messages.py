"""Where messages go, and where they are kept."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from ildm.admin.client import AdminClient, Page
from ildm.admin.commands.kinds import (
    ALL,
    ANY_KEY,
    ANYBODY,
    MESSAGES,
    PROBE,
    SHOWN,
    Duration,
    Filter,
    KeyText,
    Limit,
    OutputFile,
    Receiver,
    SenderName,
    TopicName,
    topic_name,
)
from ildm.admin.commands.registry import UsageError, command, confirmed
from ildm.admin.view import AdminError, Row
from ildm.text import json_text, reason


@command("overlay")
def overlay(node: AdminClient, *, key: KeyText = ANY_KEY) -> Row:
    """The node's keys in the overlay and their neighbours."""
    answer = node.overlay()
    if not key:
        return answer
    return {**answer, "keys": [each for each in answer["keys"] if key in each["key"]], "tables": {}}


@command("overlay trace")
def overlay_trace(node: AdminClient, topic: TopicName) -> Row:
    """The tree which a message on a topic would take."""
    return node.trace(topic)


PATIENCE = 10.0
"""Seconds after the end of a trace in which the node says so."""


@command("trace")
def trace(
    node: AdminClient,
    topic: Filter,
    *,
    client: SenderName = ANYBODY,
    for_: Duration = PROBE,
    messages: Limit = MESSAGES,
    one_in: Limit = ALL,
) -> Row:
    """The way of a message on a topic, or of real ones.

    With ``--for`` real messages are noted at all sites, at most ``messages`` of them, of so many ``one_in``.
    Ctrl-C ends it before its time.
    """
    if for_:
        return {"topic": topic, **_watched(node, topic, for_, messages, one_in)}
    try:
        topic_name(topic)
    except ValueError as error:
        raise UsageError(f"trace: {error} (a filter needs --for TIME)") from None
    return {**node.follow(topic), "kept": node.kept(topic, client)}


def _watched(node: AdminClient, topic_filter: str, seconds: float, messages: int, one_in: int) -> Row:
    name = node.watch(topic_filter, seconds, messages, one_in)["name"]
    shows, give_up = sys.stderr.isatty(), time.monotonic() + seconds + PATIENCE
    try:
        while not (found := node.watched(name))["over"]:
            left = give_up - PATIENCE - time.monotonic()
            if left < -PATIENCE:
                return node.unwatch(name)
            if shows:
                line = f"{len(found['messages'])} messages noted, {max(0, left):.0f} s left (Ctrl-C ends)"
                print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)
            time.sleep(min(0.5, max(0.1, left)))
    except KeyboardInterrupt:
        return node.unwatch(name)
    finally:
        if shows:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return found


@command("spool")
def spool(node: AdminClient) -> Row:
    """What is acknowledged and not had by others yet, on disk."""
    return node.spool()


@command("spool show")
def spool_show(node: AdminClient, receiver: Receiver, *, limit: Limit = SHOWN) -> Page:
    """The oldest messages which a neighbour, or the broker, is to get."""
    waiting = next((row for row in node.spool()["receivers"] if row["receiver"] == receiver), None)
    items = node.spooled(receiver, 0, limit)
    return Page(max(len(items), waiting["messages"] if waiting else 0), items[:limit])


@command("spool export")
def spool_export(node: AdminClient, receiver: Receiver, file: OutputFile) -> Row:
    """Write all these messages to a file as JSON lines; they stay in the spool."""
    after = count = 0
    with _output(file) as out:
        while items := node.spooled(receiver, after):
            for item in items:
                out.write(json_text(item) + "\n")
            after, count = items[-1]["lsn"], count + len(items)
    return {"receiver": receiver, "file": file, "messages": count}


@contextmanager
def _output(file: str) -> Iterator[TextIO]:
    if file == "-":
        yield sys.stdout
        return
    try:
        # whatever is in messages is for their owner alone
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            yield out
    except OSError as error:
        raise AdminError(f"{file}: {reason(error)}") from error


@command("spool drop")
def spool_drop(node: AdminClient, receiver: Receiver, *, force: bool = False) -> Row:
    """Throw these messages away."""
    rows = {row["receiver"]: row for row in node.spool()["receivers"]}
    row = rows.get(receiver)
    if row is not None and not force:
        what = f"{row['messages']:,} messages for {receiver} that nobody else may have would be thrown away"
        if not confirmed(what):
            raise AdminError(f"{what}; to do so: --force")
    return node.drop_spooled(receiver)
