"""The named statements of the `.sql` files, and their text with the values inserted.

    ?        the next value           ?2       the second
    :name    a value by its name
    <<ids>>  a list of values: `IN (<<ids>>)`; an empty one is NULL, which equals nothing
    <<waits: instance_id = ?1 AND op = ?2>>    a condition for each of a list of rows: any of them
    <<kinds UNION ALL: (SELECT ...)>>          a query for each of a list of rows; also with `,` or `;` between them

Lists are passed as JSON by the callers. The driver's text protocol has no parameters: values become a part of the text.
Only `literal` writes values, as hexadecimal digits, so no part of a value can be read as SQL, in whichever character set the
server reads the text.
"""

from __future__ import annotations

import json
import re
from binascii import hexlify
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from romancy.store.sql.cursor import Values
from romancy.store.sql.statements import read_statements

_SLOT = re.compile(
    r"<<(?P<rows>[a-z_]+|\?\d*)(?: (?P<joiner>UNION ALL|,|;))?(?:: (?P<each>.*?))?>>"
    r"|\?(?P<number>\d*)"
    r"|(?<![\w:]):(?P<name>[a-z_]+)",
    re.DOTALL,
)
_VALUES = b"VALUES "
_LARGE = 1 << 20
"""Bytes above which a value is sent by itself."""
_PIECE = 2 << 20
"""Bytes of such a value that are sent at once: as digits they are twice as many."""
_CHUNK = 1 << 20
"""Most bytes of rows in one statement, unless a single row is longer."""

SlotKey = int | str


class LargeStatement(bytes):
    """A statement whose large values are sent before it, each by itself: together they may exceed a packet."""

    large: Sequence[bytes]

    def __new__(cls, text: bytes, large: Sequence[bytes]) -> LargeStatement:
        """Create one from a text that has variables in place of the values."""
        new = super().__new__(cls, text)
        new.large = large
        return new


class Variable(NamedTuple):
    """Stands for the nth large value of a statement."""

    number: int


class ValueSlot(NamedTuple):
    """A slot for one value."""

    key: SlotKey


class ListSlot(NamedTuple):
    """A slot for a list of values, or for a piece of text for each row of a list."""

    key: SlotKey
    joiner: bytes | None
    each: MySqlStatement | None


class MySqlStatement(NamedTuple):
    """A statement: an alternation of text and slots."""

    parts: tuple[bytes | ValueSlot | ListSlot, ...]

    def text(self, values: Values = ()) -> bytes | None:
        """Return the statement with its values; None if it is a query for each row of a list that is empty."""
        large: list[bytes] = []
        text = self.write(values, (), large)
        return LargeStatement(text, large) if large and text is not None else text

    def write(self, values: Values, row: Sequence[Any], large: list[bytes]) -> bytes | None:
        """Like `text`, but append large values to `large`."""
        written: list[bytes] = []
        for part in self.parts:
            match part:
                case bytes():
                    written.append(part)
                case ValueSlot():
                    written.append(_write_value(_get_value(values, row, part.key), large))
                case ListSlot():
                    rows = _write_list(part, values, large)
                    if rows is None:
                        return None
                    written.append(rows)
        return b"".join(written)

    def texts(self, rows: Iterable[Sequence[Any]]) -> Iterable[bytes]:
        """Return the statement for many rows of values: inserts of many rows, or one statement for each row."""
        texts = [text for row in rows if (text := self.text(row)) is not None]
        head, values, _ = texts[0].partition(_VALUES)
        if not values or not head.startswith((b"INSERT", b"REPLACE")):
            return texts
        start = len(head) + len(values)
        large = [text for text in texts if isinstance(text, LargeStatement)]
        joined = [text[start:] for text in texts if not isinstance(text, LargeStatement)]
        return [*large, *_join_chunks(texts[0][:start], joined)]


@cache
def get_statement(name: str) -> MySqlStatement:
    """Return a named statement."""
    return _parse(_load_statements()[name])


def statement_names() -> Iterable[str]:
    """Return the names of all statements."""
    return _load_statements()


def literal(value: object) -> bytes:
    """Return a value as digits, as it is inserted into a statement. Raises `ValueError` for text with lone surrogates.

    An escaped string would be safe only while client and server agree on the character set. In some character sets (gbk,
    sjis, big5) a part of a character looks like a quote or a backslash, and the server may change the character set without
    the client's knowledge.
    """
    match value:
        case None:
            return b"NULL"
        case int():
            return b"%d" % value
        case str():
            return b"_utf8mb4 x'%b'" % hexlify(value.encode())
        case bytes():
            return b"x'%b'" % hexlify(value)
        case Variable():
            return b"@romancy_%d" % value.number
        case _:
            raise TypeError(f"a value of type {type(value).__name__} cannot be stored")


def split_packets(statement: bytes) -> Iterable[bytes]:
    """Yield what has to be sent for a statement: its large values in pieces, then the statement."""
    if isinstance(statement, LargeStatement):
        for number, value in enumerate(statement.large, start=1):
            name = literal(Variable(number))
            yield b"SET %s = x''" % name
            for start in range(0, len(value), _PIECE):
                yield b"SET %s = concat(%s, %s)" % (name, name, literal(value[start : start + _PIECE]))
    yield statement


def _write_value(value: object, large: list[bytes]) -> bytes:
    if isinstance(value, bytes) and len(value) > _LARGE:
        large.append(value)
        value = Variable(len(large))
    return literal(value)


def _write_list(slot: ListSlot, values: Values, large: list[bytes]) -> bytes | None:
    given = _get_value(values, (), slot.key)
    rows: Sequence[Any] = json.loads(given) if isinstance(given, str) else given
    if slot.each is None:
        return b", ".join(map(literal, rows)) or b"NULL"
    outer = values if isinstance(values, Mapping) else {}
    pieces = [slot.each.write(outer, row, large) or b"" for row in rows]
    if slot.joiner is not None:
        return slot.joiner.join(pieces) if pieces else None
    return b"(" + b" OR ".join(b"(%s)" % piece for piece in pieces) + b")" if pieces else b"(FALSE)"


def _get_value(values: Values, row: Sequence[Any], key: SlotKey) -> Any:
    """Return a value by its name, or by its index in the row of a list or in all values."""
    if isinstance(key, int):
        return (row or values)[key]  # type: ignore[index]
    assert isinstance(values, Mapping)
    return values[key]


def _join_chunks(head: bytes, rows: Sequence[bytes]) -> Iterable[bytes]:
    if not rows:
        return
    start, size = 0, 0
    for index, row in enumerate(rows):
        if size and size + len(row) > _CHUNK:
            yield head + b", ".join(rows[start:index])
            start, size = index, 0
        size += len(row)
    yield head + b", ".join(rows[start:])


def _parse(text: str) -> MySqlStatement:
    parts: list[bytes | ValueSlot | ListSlot] = []
    end, count = 0, 0
    for found in _SLOT.finditer(text):
        parts.append(text[end : found.start()].encode())
        end = found.end()
        key, count = _parse_key(found["rows"] or found["name"] or "?" + found["number"], count)
        if found["rows"] is None:
            parts.append(ValueSlot(key))
        else:
            joiner = None if found["joiner"] is None else f" {found['joiner']} ".encode()
            parts.append(ListSlot(key, joiner, None if found["each"] is None else _parse(found["each"])))
    return MySqlStatement((*parts, text[end:].encode()))


def _parse_key(text: str, count: int) -> tuple[SlotKey, int]:
    """Return the key of a slot (a name, an explicit number, or the next number) and the count of unnumbered slots."""
    if not text.startswith("?"):
        return text, count
    return (int(text[1:]) - 1, count) if text[1:] else (count, count + 1)


@cache
def _load_statements() -> dict[str, str]:
    return read_statements("romancy.store.mysql.queries")
