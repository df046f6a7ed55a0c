"""The argument parser: argparse, with suggestions for misspelt words."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from romancy.cli.terminal_text import escape

_WATCH = "--watch"
_EVERY = "2"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")


class Parser(argparse.ArgumentParser):
    """A parser that suggests corrections.

    Long options cannot be abbreviated: in a later release, an abbreviation in a script could mean another option.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        """Parse as argparse does, but accept the arguments of a command before, between and after its options."""
        if args is not None and not self._has_commands():
            args = self._options_first(args)
        found: tuple[argparse.Namespace, list[str]] = super().parse_known_args(args, namespace)
        return found

    def _has_commands(self) -> bool:
        return any(isinstance(action, argparse._SubParsersAction) for action in self._actions)

    def _options_first(self, arguments: Sequence[str]) -> list[str]:
        """Move the options to the front, because argparse ends a list of arguments at the next option."""
        options: list[str] = []
        others: list[str] = []
        left = iter(arguments)
        for one in left:
            if one == "--":
                others += [one, *left]
            elif not one.startswith("-") or one == "-":
                others.append(one)
            else:
                options.append(one)
                action = self._option_string_actions.get(one)
                if action is not None and action.nargs is None and (value := next(left, None)) is not None:
                    options.append(value)
                elif action is not None and action.nargs not in (None, 0):
                    return list(arguments)  # only argparse knows how many words belong to this option
        return [*options, *others]

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            offered = [str(one) for one in action.choices]
            suggestion = advice(str(value), offered) or f" Use one of {', '.join(offered)}."
            raise argparse.ArgumentError(None, f"there is no {_called(action)} {value!r}.{suggestion}")

    def error(self, message: str) -> NoReturn:
        """Exit with an error message. It is escaped, because arguments may contain control characters."""
        super().error(escape(message))

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Exit with a status, after printing the message."""
        super().exit(status, message)


def _called(action: argparse.Action) -> str:
    if action.option_strings:
        return action.option_strings[-1]
    return "command" if action.metavar in ("COMMAND", "WHAT") else str(action.metavar or action.dest)


def read_arguments(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments. If they are not valid, the program exits with 2 and a suggestion."""
    given: argparse.Namespace
    given, left = parser.parse_known_args(_spelt_out(arguments))
    if left:
        own: Parser = getattr(given, "parser", parser)
        options = [name for name in left if name.startswith("-")]
        suggestion = advice(options[0].partition("=")[0], options_of(own)) if options else ""
        own.error(f"unrecognized arguments: {' '.join(left)}.{suggestion}")
    return given


def _spelt_out(arguments: Sequence[str]) -> list[str]:
    """Replace `--watch` without a value by `--watch=2`; argparse would take the next word as the value."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    return [f"{_WATCH}={_EVERY}" if one == _WATCH and at < end else one for at, one in enumerate(arguments)]


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the names of a parser's options."""
    return [name for action in parser._actions for name in action.option_strings if action.help != argparse.SUPPRESS]


def advice(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean ...?` with similar words, or an empty string."""
    close = get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(close)}?" if close else ""


def parse_span(text: str) -> float:
    """Parse a duration, such as `90`, `90s`, `15m`, `1h`, `30d` or `2w`; return seconds."""
    match = _SPAN.fullmatch(text)
    if match is None or not math.isfinite(float(match[1])):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: give, for example, 90s, 15m, 1h or 30d")
    return float(match[1]) * _UNITS[match[2] or "s"]


def parse_count(text: str) -> int:
    """Parse a whole number that is at least 1."""
    if not text.isascii() or not text.isdecimal() or int(text[:12]) < 1 or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number: give a whole number from 1 to 999999999")
    return int(text)
