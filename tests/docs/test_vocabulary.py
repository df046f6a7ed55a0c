"""One word for each idea: no retired word anywhere, a glossary that the code bears out, names that are used once."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path, PurePosixPath

import pytest
from tests.docs.retired_words import ROOT, tracked, uses, uses_in

SOURCE = ROOT / "src" / "romancy"
DUPLICATE_CLASSES = {
    "Message": "a part of a conversation with a language model is called so by users of romancy.integrations.llm",
    # The Edda layer has Edda's names.
    **dict.fromkeys(
        ("Activity", "EventTimeoutError", "ReceivedEvent", "RetryPolicy", "Workflow", "WorkflowContext"), "Edda"
    ),
}
NOUNS_IN_ING = {"messaging", "staging"}
"""Modules that end so and are no gerunds."""
PAGES = [
    *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md")),
    *sorted((ROOT / "docs" / "internals").glob("*.md")),
]
"""For contributors: they name files of the code."""


def test_no_retired_word_is_used() -> None:
    found = [str(use) for use in uses(tracked())]
    assert not found, "\n".join(found[:40])


@pytest.mark.parametrize(
    "planted",
    [
        "def _enlist_worker() -> None:",
        "class StrandedInstance:",
        "# Nobody waits for it.",
        "for whoever asks",
        "UPKEEP = 1",
    ],
)
def test_a_planted_word_is_found(planted: str) -> None:
    words: dict[str, str] = dict.fromkeys(("enlist", "strand", "nobody", "whoever", "upkeep"), "another word")
    assert [use.line for use in uses_in("src/romancy/made_up.py", f"fine = 1\n{planted}\n", words)] == [2]


def test_a_planted_file_name_is_found() -> None:
    assert [use.line for use in uses_in("src/romancy/upkeep.py", "", {"upkeep": "maintenance"})] == [0]


def test_words_that_hold_a_retired_one_are_fine() -> None:
    assert not list(uses_in("a.py", "strange strangler, bellows, pulsed_light = impulse", {"bell": "", "strand": ""}))


def glossary() -> list[tuple[str, str]]:
    """The words of the code, each with a name that the code uses for it."""
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8").partition("## Words of the code")[2]
    return re.findall(r"^### (.+)\n\n`(\w+)`: ", text, re.MULTILINE)


def test_the_code_uses_the_names_in_the_glossary() -> None:
    sources = [path.read_text("utf-8") for path in SOURCE.rglob("*.*") if path.suffix in (".py", ".sql")]
    names = {name for source in sources for name in re.findall(r"\w+", source)}
    assert len(glossary()) > 40
    assert [f"{word}: {name}" for word, name in glossary() if name not in names] == []


def test_the_glossary_is_in_order() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    for level in ("##", "###"):
        words = [word.lower() for word in re.findall(rf"^{level} (.+)$", text, re.MULTILINE) if word != "Words of the code"]
        assert words == sorted(words)


def test_a_class_name_is_used_once() -> None:
    where: dict[str, set[str]] = defaultdict(set)
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                where[node.name].add(str(path.relative_to(SOURCE)))
    twice = {name: paths for name, paths in where.items() if len(paths) > 1}
    assert set(twice) == set(DUPLICATE_CLASSES), twice


def test_modules_are_nouns() -> None:
    gerunds = {path.stem for path, _ in modules() if path.stem.endswith("ing")} - NOUNS_IN_ING
    assert not gerunds


def test_the_architecture_names_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition("## Packages")[2].partition("## Three paths")[0]
    parts = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert {part for part in parts if not part.startswith("__")} - set(re.findall(r"`(\w+)`", text)) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_for_contributors_names_files_that_are_there(page: Path) -> None:
    assert missing_files(page, page.read_text("utf-8")) == set()


@pytest.mark.parametrize(
    "name", ["`core/lop.py`", "`x queries/*.sgl.sql`", "[x](docs/glosary.md#claim)", "[x](core/loop.py)"]
)
def test_a_file_that_is_not_there_is_found(name: str) -> None:
    assert len(missing_files(ROOT / "page.md", f"`core/loop.py`, `queries/*.sql`, [x](docs/glossary.md#claim), {name}")) == 1


def test_the_page_of_tests_names_every_test_file() -> None:
    named = {f"tests/{link}" for link in links((ROOT / "tests" / "README.md").read_text("utf-8"))}
    assert {path for path in tracked(["tests"]) if re.search(r"/test_\w+\.py$", path)} - named == set()


def links(text: str) -> set[str]:
    """The files that a page links to."""
    return set(re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", text))


def missing_files(page: Path, text: str) -> set[str]:
    """The files that a page names and that are not there: links lead from its folder, a name in code ends some path."""
    files = [PurePosixPath(path) for path in tracked()]
    code = " ".join(re.findall(r"`([^`\n]+)`", text))
    named = set(re.findall(r"[\w*./-]*[\w*]\.(?:py|sql|md|toml)\b", code))
    missing = {name for name in named if not any(file.match(name) for file in files)}
    return missing | {link for link in links(text) if not (page.parent / link).exists()}


@cache
def modules() -> list[tuple[Path, ast.Module]]:
    """Every module of the package."""
    return [(path, ast.parse(path.read_text("utf-8"))) for path in sorted(SOURCE.rglob("*.py"))]
