"""The grammar of filters, which the viewer, the API and the command line share.

    status:failed workflow:checkout input.customer.id:c1 older:1h -worker:w3 retrying

Terms are separated by spaces. An instance must match the terms of every key; of several terms with the same key, it must
match one. A term with a minus must not match. Values with spaces are in double quotes. A word without a key matches the
beginning of an id or a part of a workflow's name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, NoReturn

from romancy.clock import MICROS, to_micros
from romancy.core.matcher import find, input_matches, is_same_json
from romancy.errors import ConfigurationError
from romancy.model.instance import InstanceRow
from romancy.model.status import ENDED, Status
from romancy.model.transition import Wait

OVERDUE = MICROS
"""Microseconds after which a due instance that no worker has claimed is overdue."""
LONGEST = 4096
"""The most characters of a filter."""

_TEXTS = ("workflow", "id", "worker", "waits", "error")
_TIMES = ("older", "newer")
_FLAGS = ("retrying", "overdue")
KEYS = ("status", *_TEXTS, *_TIMES, "input.PATH")
"""The keys that can precede a colon."""

_WAITING = frozenset({Status.WAITING_FOR_EVENT, Status.WAITING_FOR_MESSAGE, Status.WAITING_FOR_TIMER})
GROUPS: Mapping[str, frozenset[Status]] = {
    "waiting": _WAITING,
    "ended": ENDED - {Status.RECURRED},
    "live": frozenset(Status) - ENDED,
}
"""Names for sets of statuses."""
ALL = frozenset(Status) - {Status.RECURRED}
"""The statuses that an instance can have in its latest generation."""

MOST_TERMS = 200
"""The most terms of a filter: each of them may need a query."""
_DEEPEST = 100
"""The most parts of a dotted path."""

# Possessive quantifiers prevent backtracking: filters come from outside, and matching must take linear time.
_TERM = re.compile(r"""\s*(?P<term>(?:"(?:\\.|[^"\\])*+(?:"|\\?\Z)|[^\s"])++)""", re.DOTALL)
_QUOTED = re.compile(r'"((?:\\.|[^"\\])*+)"', re.DOTALL)
_SPAN = re.compile(r"(\d++(?:\.\d++)?)([smhdw])")
_SPANS = re.compile(rf"(?:{_SPAN.pattern})++")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@dataclass(frozen=True, slots=True)
class FilterTerm:
    """The terms of one key: one of `any` must match, if there are some, and none of `none`."""

    any: tuple[str, ...] = ()
    none: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.any or self.none)


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter. `fits` checks the row and the waits of an instance, `fits_content` its payloads."""

    text: str = ""
    statuses: frozenset[Status] = ALL
    workflow: FilterTerm = FilterTerm()
    id: FilterTerm = FilterTerm()
    worker: FilterTerm = FilterTerm()
    waits: FilterTerm = FilterTerm()
    error: FilterTerm = FilterTerm()
    words: FilterTerm = FilterTerm()
    input: tuple[tuple[str, FilterTerm], ...] = ()
    """Dotted paths into the input, each with its terms."""
    retrying: bool | None = None
    overdue: bool | None = None
    created_after: int | None = None
    created_before: int | None = None

    @property
    def by_content(self) -> bool:
        """Whether the filter depends on payloads."""
        return bool(self.input or self.error)

    def fits(self, row: InstanceRow, waits: Sequence[Wait], now: int) -> bool:
        """Return whether the row and the waits of an instance match."""
        return (
            row.status in self.statuses
            and _within(self.created_after, row.created_at, self.created_before)
            and _fits_value(self.workflow, row.workflow, _fits_pattern)
            and _fits_value(self.id, row.instance_id, _fits_pattern)
            and _fits_value(self.worker, row.owner or "", _fits_worker)
            and _fits_any(self.waits, [wait.key for wait in waits if wait.key], _fits_pattern)
            and _fits_value(self.words, row, _fits_word)
            and self.retrying in (None, row.retrying_since is not None)
            and self.overdue in (None, is_overdue(row, now))
        )

    def fits_content(self, input: Any, error: str) -> bool:
        """Return whether the input and the error (type and message) of an instance match."""
        if not _fits_value(self.error, error.casefold(), _fits_part):
            return False
        return all(_fits_any(term, [input], partial(_fits_path, path)) for path, term in self.input)


def is_overdue(row: InstanceRow, now: int) -> bool:
    """Return whether the instance has been due for more than `OVERDUE` without being claimed."""
    return row.owner is None and row.wake_at is not None and row.wake_at <= now - OVERDUE


def parse(line: str, *, now: int) -> Filter:
    """Parse a filter. Raises `ConfigurationError`, which gives the position of the error and the allowed values."""
    if len(line) > LONGEST:
        raise ConfigurationError(f"The filter has {len(line)} characters; the maximum is {LONGEST}.")
    parser = _FilterParser(line, now)
    at = terms = 0
    while found := _TERM.match(line, at):
        at, terms = found.end(), terms + 1
        if terms > MOST_TERMS:
            raise ConfigurationError(f"The filter has more than {MOST_TERMS} terms, which is the maximum.")
        parser.add_term(found["term"], found.start("term"))
    return parser.filter()


class _FilterParser:
    """Collects the terms of a filter."""

    def __init__(self, line: str, now: int) -> None:
        self._line = line
        self._now = now
        self._texts: dict[str, tuple[list[str], list[str]]] = {}
        self._paths: dict[str, tuple[list[str], list[str]]] = {}
        self._included: set[Status] = set()
        self._excluded: set[Status] = set()
        self._flags: dict[str, bool] = {}
        self._after: int | None = None
        self._before: int | None = None

    def add_term(self, term: str, at: int) -> None:
        """Parse a term and add it to the filter."""
        body = term.removeprefix("-")
        negative = body != term
        if not body:
            self._refuse(term, at, "write the minus directly before a term, as in -status:completed")
        key, colon, value = ("", "", body) if body.startswith('"') else body.partition(":")
        if not colon:
            self._take_word(_unquoted(body, term, at, self._refuse), negative)
            return
        value = _unquoted(value, term, at, self._refuse)
        if not value:
            self._refuse(term, at, f"the value is missing; write {_example(key)}")
        self._take_pair(key, value, negative, term, at)

    def _take_word(self, word: str, negative: bool) -> None:
        if word in _FLAGS:
            self._flags[word] = not negative
        else:
            self._texts.setdefault("words", ([], []))[negative].append(word)

    def _take_pair(self, key: str, value: str, negative: bool, term: str, at: int) -> None:
        path = key.removeprefix("input.")
        if key == "status":
            (self._excluded if negative else self._included).update(self._statuses(value, term, at))
        elif key in _TEXTS:
            self._texts.setdefault(key, ([], []))[negative].append(value)
        elif key in _TIMES:
            self._take_time(key, value, negative, term, at)
        elif path != key and path:
            if path.count(".") >= _DEEPEST:
                self._refuse(term, at, f"a path can have at most {_DEEPEST} parts")
            self._paths.setdefault(path, ([], []))[negative].append(value)
        else:
            self._refuse(term, at, _unknown(key))

    def _statuses(self, value: str, term: str, at: int) -> set[Status]:
        found: set[Status] = set()
        for word in value.split(","):
            if word in GROUPS:
                found |= GROUPS[word]
            elif word in set(ALL):
                found.add(Status(word))
            else:
                known = ", ".join([*(status.value for status in Status if status in ALL), *GROUPS])
                self._refuse(term, at, f"{word!r} is not a status; use one of {known}")
        return found

    def _take_time(self, key: str, value: str, negative: bool, term: str, at: int) -> None:
        when = self._time(value, term, at)
        if (key == "older") != negative:
            self._before = when if self._before is None else min(self._before, when)
        else:
            self._after = when if self._after is None else max(self._after, when)

    def _time(self, value: str, term: str, at: int) -> int:
        if _SPANS.fullmatch(value):
            seconds = sum(float(number) * _SECONDS[unit] for number, unit in _SPAN.findall(value))
            return max(0, self._now - round(min(seconds, 1e10) * MICROS))
        try:
            when = datetime.fromisoformat(value)
            return max(0, to_micros(when if when.tzinfo is not None else when.replace(tzinfo=UTC)))
        except (ValueError, OverflowError):
            self._refuse(term, at, "give a duration (90s, 5m, 1h30m, 2d, 1w) or a time (2026-03-01, 2026-03-01T12:00Z)")

    def filter(self) -> Filter:
        """Return the filter made of all terms."""
        allowed = frozenset(self._included or ALL) - self._excluded
        texts = {key: FilterTerm(tuple(some), tuple(none)) for key, (some, none) in self._texts.items()}
        if "error" in texts:
            term = texts["error"]
            texts["error"] = FilterTerm(tuple(map(str.casefold, term.any)), tuple(map(str.casefold, term.none)))
        return Filter(
            text=self._line.strip(),
            statuses=allowed,
            **texts,
            input=tuple((path, FilterTerm(tuple(some), tuple(none))) for path, (some, none) in self._paths.items()),
            retrying=self._flags.get("retrying"),
            overdue=self._flags.get("overdue"),
            created_after=self._after,
            created_before=self._before,
        )

    def _refuse(self, term: str, at: int, why: str) -> NoReturn:
        raise ConfigurationError(f"The filter is not valid at character {at + 1}, {term!r}: {why}.")


def _unquoted(value: str, term: str, at: int, refuse: Any) -> str:
    found = _QUOTED.fullmatch(value)
    if found is not None:
        return re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL)
    if '"' in value:
        refuse(term, at, 'quotation marks must enclose a whole value, as in workflow:"two words"; write \\" for one inside')
    return value


def _example(key: str) -> str:
    examples = {"status": "status:failed", "older": "older:1h", "newer": "newer:2d"}
    return examples.get(key, f"{key}:VALUE")


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key, [*KEYS, *_FLAGS], n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return (
        f"there is no key {key!r}.{hint} The keys are {', '.join(KEYS)}; {' and '.join(_FLAGS)} have no value; a word that"
        ' contains a colon needs quotation marks, as in "a:b"'
    )


def quoted(value: str) -> str:
    """Return a value as a filter contains it, with quotes if it needs them."""
    if value and not re.search(r'[\s":\\]', value) and not value.startswith("-") and value not in _FLAGS:
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# --- matching


def _fits_value(term: FilterTerm, value: Any, fits: Any) -> bool:
    return _fits_any(term, [value], fits)


def _fits_any(term: FilterTerm, values: Sequence[Any], fits: Any) -> bool:
    if term.any and not any(fits(text, value) for text in term.any for value in values):
        return False
    return not any(fits(text, value) for text in term.none for value in values)


def _within(after: int | None, at: int, before: int | None) -> bool:
    return (after is None or at >= after) and (before is None or at <= before)


def _fits_pattern(pattern: str, value: str) -> bool:
    """Match a pattern in which `*` stands for any text, without a regular expression: `a*a*a*a*b` would backtrack."""
    first, *middle = pattern.split("*")
    if not middle:
        return value == pattern
    last = middle.pop()
    if not value.startswith(first) or not value.endswith(last) or len(value) < len(first) + len(last):
        return False
    at, end = len(first), len(value) - len(last)
    for part in middle:  # the earliest position of each part leaves the most text for the following parts
        at = value.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def _fits_worker(pattern: str, value: str) -> bool:
    """Match the id of a worker, with or without its incarnation."""
    return _fits_pattern(pattern, value) or _fits_pattern(pattern, value.rpartition("/")[0])


def _fits_part(part: str, value: str) -> bool:
    return part in value


def _fits_word(word: str, row: InstanceRow) -> bool:
    return row.instance_id.startswith(word) or word in row.workflow


def _fits_path(path: str, text: str, data: Any) -> bool:
    if isinstance(data, dict):
        return any(input_matches(data, {path: value}) for value in json_meanings(text))
    return any(is_same_json(find(data, path), value) for value in json_meanings(text))


@lru_cache(256)
def json_meanings(text: str) -> tuple[Any, ...]:
    """Return the JSON values that a text can mean: the text itself, and a number, true, false or null."""
    words: dict[str, Any] = {"true": True, "false": False, "null": None}
    if text in words:
        return (text, words[text])
    if re.fullmatch(r"-?\d{1,4000}", text):
        return (text, int(text))
    if re.fullmatch(r"-?\d{1,300}(\.\d{1,300})?([eE][+-]?\d{1,3})?", text):
        return (text, float(text))
    return (text,)
