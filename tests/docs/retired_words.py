"""Finds the retired words of the project: `python tests/docs/retired_words.py [path ...]` lists their uses."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("retired_words.toml")
_UNREAD = (".png", ".svg", ".json", ".gz", ".woff2", ".ico", "constraints.txt", "LICENSE", TABLE.name, "test_vocabulary.py")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
"""A word, also within a name: `_start_worker` and `StartedWorker` consist of two words each."""


class Use(NamedTuple):
    """A use of a retired word, with its path and line."""

    path: str
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r} is retired: write {self.instead}"


def uses(paths: Iterable[str]) -> Iterator[Use]:
    """Every use of a retired word in these files, and in their names."""
    table = tomllib.loads(TABLE.read_text("utf-8"))
    for path in paths:
        if path.endswith(_UNREAD) or path.startswith("tests/golden/0."):
            continue
        words = table["everywhere"] | (table.get(path.partition("/")[0]) or {})
        words = {word: instead for word, instead in words.items() if word not in table["allowed"].get(path, ())}
        yield from uses_in(path, (ROOT / path).read_text("utf-8"), words)


def uses_in(path: str, text: str, words: dict[str, str]) -> Iterator[Use]:
    """Every use of one of these words in a text, and in the name of its file."""
    forms = {form: word for word in words for form in _forms(word)}
    for number, line in enumerate([path, *text.splitlines()]):
        for found in _WORD.findall(line):
            if (word := forms.get(found.lower())) is not None:
                yield Use(path, number, found, words[word])


def tracked(paths: Iterable[str] = ()) -> list[str]:
    """The files of the repository, new ones included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in listed if (ROOT / path).is_file()]


def _forms(word: str) -> set[str]:
    """The forms of a word: the word itself, its plural and two forms of the verb."""
    stem = word.removesuffix("e")
    plural = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return {word, plural, f"{stem}ed", f"{stem}ing"}


if __name__ == "__main__":
    found = list(uses(tracked(sys.argv[1:])))
    print(*found, f"{len(found)} uses", sep="\n")
    sys.exit(1 if found else 0)
