"""The selection of instances: by ids, by ids from standard input, or by a filter."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from romancy.admin.filters import ALL, GROUPS, quoted
from romancy.cli.exit_codes import UsageError
from romancy.cli.output import read_line
from romancy.model.status import Status

_STDIN = "-"


def add_filters(parser: ArgumentParser) -> None:
    """Add the options that make up a filter."""
    group = parser.add_argument_group("filters for instances")
    group.add_argument("--filter", metavar="LINE", help="a filter line, e.g. 'status:failed workflow:checkout older:1h'")
    group.add_argument(
        "--status",
        action="append",
        metavar="STATUS",
        type=lambda text: text.replace("-", "_"),
        help=f"with this status: {', '.join([*sorted(ALL, key=list(Status).index), *GROUPS])}; repeat it for alternatives",
    )
    group.add_argument("--workflow", action="append", metavar="NAME", help="of this workflow; * matches any characters")
    group.add_argument(
        "--input", action="append", metavar="PATH=VALUE", help="with this value in the input, e.g. order.id=42"
    )
    group.add_argument("--waits", action="append", metavar="KEY", help="waiting for this event type or channel")
    group.add_argument("--worker", action="append", metavar="ID", help="owned by this worker")
    group.add_argument("--error", action="append", metavar="TEXT", help="with this text in the error")
    group.add_argument("--older", metavar="SPAN", help="created before this time: 1h (ago), 2d, 2026-03-01")
    group.add_argument("--newer", metavar="SPAN", help="created after this time")


def filter_of(given: Namespace, words: list[str] | None = None) -> str:
    """Return the filter that the options make up."""
    terms = [given.filter or "", *(words or [])]
    for name in ("status", "workflow", "waits", "worker", "error"):
        terms += [f"{name}:{quoted(value)}" for value in getattr(given, name) or []]
    for pair in given.input or []:
        path, equals, value = pair.partition("=")
        if not equals or not path:
            raise UsageError(f"--input {pair!r} is not valid: give PATH=VALUE, e.g. order.id=42.")
        terms.append(f"input.{path}:{quoted(value)}")
    terms += [f"{name}:{quoted(getattr(given, name))}" for name in ("older", "newer") if getattr(given, name)]
    return " ".join(term for term in terms if term)


def read_ids(words: list[str]) -> list[str]:
    """Return the ids without duplicates; `-` stands for the ids on standard input, one in each line."""
    found: dict[str, None] = {}
    for word in words:
        if word != _STDIN:
            found[word] = None
            continue
        if sys.stdin.isatty():
            raise UsageError(
                "`-` reads ids from standard input, but that is a terminal: pipe them in, e.g. from `romancy list -o ids`."
            )
        found.update(dict.fromkeys(read_line(line) for line in sys.stdin if line.strip()))
    return list(found)
