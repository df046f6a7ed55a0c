"""Reads migrations from numbered SQL files in dbmate's format, and determines which of them a database still needs.

A file is named `0001_what_it_does.sql`, and `-- migrate:up` precedes its statements. There are no down migrations: each
release must run on its own schema and on that of the release before. A dialect applies the `pending` migrations under a lock
of its own and records them in the table `romancy_migrations(version, name, applied_at)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from romancy.errors import StoreError

_FILE = re.compile(r"(\d+)_(\w+)\.sql")
_UP = "-- migrate:up"
_PIECE = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\"[^\"]*\"|\$\$.*?\$\$|;|[^-'\";$]+|[-$]", re.DOTALL)
"""The tokens of a script: comments, quoted text, a function body in `$$`, the end of a statement, and anything else."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration: one numbered file."""

    version: int
    name: str
    statements: tuple[str, ...]


def read_migrations(package: str) -> tuple[Migration, ...]:
    """Return the migrations in a package, by number."""
    found = (
        _parse_migration(entry.name, entry.read_text("utf-8"))
        for entry in files(package).iterdir()
        if _FILE.match(entry.name)
    )
    return tuple(sorted(found, key=lambda migration: migration.version))


def pending(known: Sequence[Migration], applied: Sequence[tuple[int, str]], database: str) -> tuple[Migration, ...]:
    """Return the migrations that `database` still needs. Raises `StoreError` if a newer release has changed it."""
    newest = max((one.version for one in known), default=0)
    ahead = [f"{version:04}_{name}" for version, name in applied if version > newest]
    if ahead:
        raise StoreError(
            f"The database {database} was changed by a newer release of romancy (migration {ahead[-1]}; this release "
            f"knows up to {newest:04}). Upgrade romancy, or use another database."
        )
    done = {version for version, _ in applied}
    return tuple(one for one in known if one.version not in done)


def state_of(known: Sequence[Migration], applied: Sequence[tuple[int, str]]) -> list[tuple[str, bool]]:
    """List the migrations that this release or the database knows, each with whether the database has it."""
    names = {one.version: one.name for one in known} | dict(applied)
    done = {version for version, _ in applied}
    return [(f"{version:04}_{name}", version in done) for version, name in sorted(names.items())]


def schema_behind_error(missing: Sequence[Migration], database: str) -> StoreError:
    """Return the error for a schema that is behind and must not be changed."""
    names = ", ".join(f"{one.version:04}_{one.name}" for one in missing)
    return StoreError(
        f"The schema of the database {database} is behind this release of romancy: it lacks {names}. "
        f"Set auto_migrate=True, or apply the missing migrations first."
    )


def split_statements(script: str) -> Iterator[str]:
    """Split a script into its statements, without comments. A function body must be enclosed in `$$`."""
    statement: list[str] = []
    for piece in _PIECE.findall(script):
        if piece == ";":
            yield "".join(statement).strip()
            statement.clear()
        elif not piece.startswith("--"):
            statement.append(piece)
    if rest := "".join(statement).strip():
        yield rest


def _parse_migration(file_name: str, text: str) -> Migration:
    match = _FILE.fullmatch(file_name)
    head, mark, script = text.partition(_UP)
    if match is None or not mark or head.strip():
        raise StoreError(f"The migration {file_name} is malformed: name it 0001_name.sql and begin it with {_UP!r}.")
    return Migration(int(match[1]), match[2], tuple(split_statements(script)))
