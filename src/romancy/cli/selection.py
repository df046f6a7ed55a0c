"""Which instances: ids, ids from standard input, or all that a filter finds."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from romancy.admin.filters import quoted
from romancy.cli.exit_codes import UsageError
from romancy.cli.output import read_line
from romancy.model.status import Status

_STDIN = "-"
_SEVERAL = ("waiting", "live", "ended")


def add_filters(parser: ArgumentParser) -> None:
    """The options that make a filter line."""
    group = parser.add_argument_group("which instances")
    group.add_argument("--filter", metavar="LINE", help="a filter line, e.g. 'status:failed workflow:checkout older:1h'")
    group.add_argument(
        "--status",
        action="append",
        metavar="STATUS",
        type=lambda text: text.replace("-", "_"),
        help=f"of this status: {', '.join([*Status, *_SEVERAL])}; more than once: of any of them",
    )
    group.add_argument("--workflow", action="append", metavar="NAME", help="of this workflow; * stands for any characters")
    group.add_argument("--input", action="append", metavar="PATH=VALUE", help="whose input has this value, e.g. order.id=42")
    group.add_argument("--waits", action="append", metavar="KEY", help="that wait for this event type or channel")
    group.add_argument("--worker", action="append", metavar="ID", help="that this worker has")
    group.add_argument("--error", action="append", metavar="TEXT", help="whose error has this text in it")
    group.add_argument("--older", metavar="SPAN", help="created before this: 1h, 2d, 2026-03-01")
    group.add_argument("--newer", metavar="SPAN", help="created after this")


def filter_of(given: Namespace, words: list[str] | None = None) -> str:
    """The filter line that the options say."""
    terms = [given.filter or "", *(words or [])]
    for name in ("status", "workflow", "waits", "worker", "error"):
        terms += [f"{name}:{quoted(value)}" for value in getattr(given, name) or []]
    for pair in given.input or []:
        path, equals, value = pair.partition("=")
        if not equals or not path:
            raise UsageError(f"--input {pair!r}: write PATH=VALUE, e.g. order.id=42.")
        terms.append(f"input.{path}:{quoted(value)}")
    terms += [f"{name}:{quoted(getattr(given, name))}" for name in ("older", "newer") if getattr(given, name)]
    return " ".join(term for term in terms if term)


def read_ids(words: list[str]) -> list[str]:
    """The ids that were named, each once; `-` stands for those on standard input, one in a line."""
    found: dict[str, None] = {}
    for word in words:
        if word != _STDIN:
            found[word] = None
            continue
        if sys.stdin.isatty():
            raise UsageError(
                "`-` reads ids from standard input, which is a terminal: pipe them in, e.g. from `list -o ids`."
            )
        found.update(dict.fromkeys(read_line(line) for line in sys.stdin if line.strip()))
    return list(found)
