"""Tests that run every page and every example and compare the output, and that check the links."""

from __future__ import annotations

import ast
import builtins
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, anchors_of, blocks_of, links_of, name_of, pages

TIMEOUT = 120
RUNNER = Path(__file__).with_name("pages.py")
WITH_CODE = [page for page in pages() if any(block.language == "python" for block in blocks_of(page))]
FOLDER = ROOT / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
PARSING = threading.Lock()
OUTPUT = re.compile(r"\n\nOutput(?: with (--\w+))?:\n")
LONGEST = {"demo.py": 150, "django_app.py": 160, "fastapi_app.py": 90}
"""The limits of lines of these examples, without the docstring; the limit of the others is 80."""


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, Future[str]]]:
    """The output of every page and example that the selected tests need. Four programs run at a time: they mostly wait."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    params = [item.callspec.params["program"] for item in items if "programs" in item.fixturenames]
    wanted = {program for program in params if isinstance(program, Path)}
    with ThreadPoolExecutor(4) as pool:
        yield {program: pool.submit(run_twice, program, tmp_path_factory.mktemp(program.stem)) for program in sorted(wanted)}


def run_twice(program: Path, folder: Path) -> str:
    """The output of a program. If it leaves files, it runs again in their folder, as with readers, and must succeed."""
    printed = run(program, folder)
    if any(folder.iterdir()):
        run(program, folder, "when it was run again in the same folder")
    return printed


def run(program: Path, folder: Path, when: str = "") -> str:
    """Run a page or a script, which must succeed; return its output."""
    command = [str(RUNNER), str(program)] if program.suffix == ".md" else [str(program), *documented_output(program)[0]]
    running = subprocess.Popen(
        [sys.executable, "-W", "error", *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    try:
        printed, errors = running.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)  # including the servers that it has started
        printed, errors = running.communicate()
    assert running.returncode == 0, f"{name_of(program)} ended with {running.returncode} {when}:\n{printed}\n{errors}"
    return printed


def missing(expected: list[str], printed: str) -> str | None:
    """The first expected line that the output lacks, in order; `...` matches any text."""
    lines = iter(printed.splitlines())
    for wanted in expected:
        if not any(fits(wanted, line) for line in lines):
            return wanted
    return None


def fits(wanted: str, line: str) -> bool:
    parts = wanted.strip().split("...")
    at = 0
    for part in parts:
        at = line.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


@pytest.mark.parametrize("program", WITH_CODE, ids=name_of)
def test_a_page_prints_the_documented_output(program: Path, programs: dict[Path, Future[str]]) -> None:
    printed = programs[program].result()
    expected = [block.text.splitlines() for block in blocks_of(program) if block.language == "text"]
    wanted = missing([line for line in itertools.chain(*expected) if line.strip()], printed)
    assert wanted is None, f"{name_of(program)} documents the output {wanted!r}. It printed:\n{printed}"


def test_the_pytest_plugin_works_as_documented(tmp_path: Path) -> None:
    for block in blocks_of(ROOT / "docs" / "how-to" / "test-workflows.md"):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # else pytest uses one in a parent folder
    command = [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "--rootdir", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.parametrize(("name", "number"), [("frameworks.md", 4), ("moving-over.md", 5)])
def test_each_section_stands_alone_where_a_reader_copies_one(name: str, number: int) -> None:
    page = ROOT / "docs" / "how-to" / name
    lines = page.read_text(encoding="utf-8").splitlines()
    sections: dict[str, list[ast.AST]] = {}
    for block in blocks_of(page):
        if block.language == "python" and block.file is None:
            heading = next(line for line in reversed(lines[: block.line]) if line.startswith("## "))
            sections.setdefault(heading, []).extend(ast.walk(ast.parse(block.text)))
    assert len(sections) == number
    for heading, nodes in sections.items():
        names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        assert names - bound(nodes) - set(vars(builtins)) == set(), f"{heading} uses names of another section"


def bound(nodes: list[ast.AST]) -> set[str]:
    """The names that the code assigns or defines."""
    found = set[str]()
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                found.add(name)
            case ast.alias(name=name, asname=asname):
                found.add((asname or name).partition(".")[0])
            case _:
                pass
    return found


UNSAFE = re.compile(r"""Token\(\s*["']|Bearer \w|SECRET_KEY\s*=\s*["']|password\s*=\s*["']|auth="open"|["'\s=]0\.0\.0\.0""")
"""Secrets in the text, and settings that open an app to every caller."""
COPIED_PAGES = [page for page in pages() if not page.is_relative_to(ROOT / "docs" / "reference")]


@pytest.mark.parametrize("shown", [*COPIED_PAGES, *sorted(FOLDER.rglob("*.py"))], ids=name_of)
def test_examples_contain_no_secrets_and_open_no_app(shown: Path) -> None:
    texts = [block.text for block in blocks_of(shown)] if shown.suffix == ".md" else [shown.read_text(encoding="utf-8")]
    assert [found[0] for text in texts for found in UNSAFE.finditer(text)] == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_have_targets(page: Path) -> None:
    for link in links_of(page):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}, which does not exist"
        assert target.is_relative_to(ROOT), f"{name_of(page)} links to {link}, outside the repository"
        if anchor and target.suffix == ".md":
            assert anchor in anchors_of(target), f"{name_of(page)} links to {link}: that page has no such heading"


def test_every_page_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    found, left = set[Path](), [index]
    while left:
        page = left.pop()
        if page not in found and page.suffix == ".md" and page.exists():
            found.add(page)
            left += [(page.parent / link.partition("#")[0]).resolve() for link in links_of(page) if "://" not in link]
    assert {page for page in pages() if page.is_relative_to(ROOT / "docs")} - found == set()


def test_blocks_have_a_language() -> None:
    known = {"python", "text", "console", "yaml", "html", "py", "go"}
    for page in pages():
        for block in blocks_of(page):
            assert page.name == "README.md" or block.language in known, f"{name_of(page)}:{block.line}"


def documented_output(example: Path) -> tuple[list[str], list[str]]:
    """The arguments and the output that the docstring of an example documents."""
    docstring = ast.get_docstring(parsed(example)) or ""
    found = OUTPUT.search(docstring)
    assert found, f"the docstring of {name_of(example)} does not document its output"
    return [found[1]] if found[1] else [], [line.strip() for line in docstring[found.end() :].splitlines()]


def parsed(example: Path) -> ast.Module:
    # Python 3.11 keeps the depth of a parse for the whole interpreter: two threads that parse at once can fail.
    with PARSING:
        return ast.parse(example.read_text(encoding="utf-8"))


def test_the_examples_are_listed() -> None:
    listed = [link for link in links_of(FOLDER / "README.md") if link.endswith(".py") and "/" not in link]
    assert sorted(listed) == [example.name for example in EXAMPLES]


@pytest.mark.parametrize("program", EXAMPLES, ids=name_of)
def test_an_example_prints_the_documented_output(program: Path, programs: dict[Path, Future[str]]) -> None:
    printed, expected = programs[program].result().splitlines(), documented_output(program)[1]
    unlike = [(wanted, line) for wanted, line in zip(expected, printed, strict=False) if not fits(wanted, line)]
    assert not unlike, f"{name_of(program)} documents {unlike[0][0]!r} and prints {unlike[0][1]!r}"
    assert len(printed) == len(expected), "\n".join(printed)


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_an_example_is_short(example: Path) -> None:
    lines = example.read_text(encoding="utf-8").splitlines()
    assert len(lines) - (parsed(example).body[0].end_lineno or 0) < LONGEST.get(example.name, 80)


def test_the_comparison_of_output_finds_what_is_missing() -> None:
    assert missing(["a", "c...e"], "a\nb\nc d e\n") is None
    assert missing(["b", "a"], "a\nb\n") == "a"
    assert missing(["a...z"], "a b\n") == "a...z"
