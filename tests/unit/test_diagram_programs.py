"""Random programs: the diagram highlights exactly the operations that ran, and never fails.

A program is text. Every operation in it has a number, by which the test knows what ran without positions; the diagram
knows positions only.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

from hypothesis import given, note
from hypothesis import strategies as st
from tests.property.hypothesis_settings import examples, unhurried

from romancy.core.commands import Finish, Issue, Resolution
from romancy.core.loop import Run
from romancy.model.history import Kind, Outcome
from romancy.model.instance import HistoryEntry
from romancy.model.source import Section, join_sections
from romancy.viewer.diagram import Diagram, Outline, draw

NOW = datetime(2030, 1, 1, tzinfo=UTC)
FIRST = 41
"""The line at which programs begin in their file."""


class Planned(Exception):
    """Raised by programs on purpose."""


@dataclass
class ProgramWriter:
    """Writes a random program."""

    rng: random.Random
    lines: list[str] = field(default_factory=list[str])
    number: int = 0
    helpers: int = 0

    def program(self) -> str:
        self.function("async def program(ctx, via):", size=self.rng.randint(1, 5), helpers=self.rng.randint(0, 2))
        return "\n".join(self.lines) + "\n"

    def function(self, head: str, *, size: int, helpers: int, depth: int = 0) -> None:
        self.lines.append("    " * depth + head)
        for number in range(helpers):
            # each helper is defined before the next, which may call it, so that none calls itself
            self.helpers = number
            self.function(f"async def helper{number}(ctx, via):", size=2, helpers=0, depth=depth + 1)
        self.helpers = helpers
        for _ in range(size):
            self.statement(depth + 1, looping=False)
        self.lines.append("    " * (depth + 1) + "return None")

    def add_line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def next(self) -> int:
        self.number += 1
        return self.number

    def flag(self) -> str:
        return f"flag({self.next()})"

    def op(self) -> str:
        return f"op(ctx, {self.next()}, via)"

    def call(self) -> str:
        if self.helpers and self.rng.random() < 0.4:
            return f"helper{self.rng.randrange(self.helpers)}(ctx, (*via, {self.next()}))"
        return self.op()

    def body(self, depth: int, *, looping: bool) -> None:
        for _ in range(self.rng.randint(1, 2)):
            self.statement(depth, looping=looping)

    def statement(self, depth: int, *, looping: bool) -> None:
        simple = [self.plain, self.plain, self.spread, self.several, self.leave]
        nested = [self.branch, self.loop, self.endless, self.trying, self.group, self.matching, self.within]
        kind = self.rng.choice(simple if depth > 3 else simple + nested)
        kind(depth, looping)

    def plain(self, depth: int, looping: bool) -> None:
        texts = [
            f"await {self.call()}",
            f"x = (await {self.op()}) if {self.flag()} else (await {self.op()})",
            f"x = {self.flag()} and await {self.op()}",
            f"ä = 'ß'; await {self.op()}; await {self.op()}",
            f"await op(\n{'    ' * (depth + 1)}ctx, {self.next()}, via\n{'    ' * depth})",
            f"await (tool\n{'    ' * (depth + 1)}.op(ctx, {self.next()}, via))",
        ]
        self.add_line(depth, self.rng.choice(texts))

    def spread(self, depth: int, looping: bool) -> None:
        self.add_line(
            depth, f"await asyncio.gather(*[{self.op()} for _ in range({self.rng.randint(0, 3)}) if {self.flag()}])"
        )

    def several(self, depth: int, looping: bool) -> None:
        self.add_line(depth, f"await asyncio.gather({', '.join(self.call() for _ in range(self.rng.randint(1, 3)))})")

    def leave(self, depth: int, looping: bool) -> None:
        paths = [f"return reached({self.next()})", "raise Planned()"] + (["break", "continue"] if looping else [])
        self.add_line(depth, f"if {self.flag()}:")
        if self.rng.random() < 0.5:
            self.add_line(depth + 1, f"await {self.op()}")
        self.add_line(depth + 1, self.rng.choice(paths))

    def branch(self, depth: int, looping: bool) -> None:
        self.add_line(depth, f"if {self.flag()}:")
        self.body(depth + 1, looping=looping)
        if self.rng.random() < 0.5:
            self.add_line(
                depth, f"elif await {self.op()} or {self.flag()}:" if self.rng.random() < 0.3 else f"elif {self.flag()}:"
            )
            self.body(depth + 1, looping=looping)
        if self.rng.random() < 0.5:
            self.add_line(depth, "else:")
            self.body(depth + 1, looping=looping)

    def loop(self, depth: int, looping: bool) -> None:
        self.add_line(depth, f"for _ in range({self.rng.randint(0, 3)}):")
        self.body(depth + 1, looping=True)

    def endless(self, depth: int, looping: bool) -> None:
        self.add_line(depth, "while True:")
        self.add_line(depth + 1, f"await {self.op()}")
        self.add_line(depth + 1, f"if {self.flag()} or exhausted():")
        self.add_line(depth + 2, "break")
        self.body(depth + 1, looping=True)

    def trying(self, depth: int, looping: bool) -> None:
        self.add_line(depth, "try:")
        self.body(depth + 1, looping=looping)
        self.add_line(depth, self.rng.choice(["except Planned:", "except (Planned, ExceptionGroup):"]))
        self.body(depth + 1, looping=looping)
        if self.rng.random() < 0.5:
            self.add_line(depth, "finally:")
            self.add_line(depth + 1, f"await {self.op()}")

    def group(self, depth: int, looping: bool) -> None:
        self.add_line(depth, "async with asyncio.TaskGroup() as tasks:")
        for _ in range(self.rng.randint(1, 3)):
            self.add_line(depth + 1, f"tasks.create_task({self.call()})")

    def matching(self, depth: int, looping: bool) -> None:
        self.add_line(depth, f"match {self.flag()}:")
        self.add_line(depth + 1, "case True:")
        self.body(depth + 2, looping=looping)
        self.add_line(depth + 1, self.rng.choice(["case False:", "case _:", f"case _ if {self.flag()}:"]))
        self.body(depth + 2, looping=looping)

    def within(self, depth: int, looping: bool) -> None:
        self.add_line(depth, "with contextlib.nullcontext():")
        self.body(depth + 1, looping=looping)


@dataclass
class ProgramRun:
    """One run of a program: the operations that ran, and the history."""

    entries: list[HistoryEntry] = field(default_factory=list[HistoryEntry])
    issued: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict[str, tuple[int, tuple[int, ...]]])
    ended: set[tuple[int, tuple[int, ...]]] = field(default_factory=set[tuple[int, tuple[int, ...]]])
    true: set[int] = field(default_factory=set[int])
    """Conditions that were true at least once, and returns that were reached."""
    completed: bool = False


def run_program(source: str, rng: random.Random) -> ProgramRun:
    record = ProgramRun()
    issues: dict[str, Issue] = {}
    budget = iter(range(200))

    def op(ctx: Run, number: int, via: tuple[int, ...]) -> Any:
        operation = ctx.issue_operation(Kind.ACTIVITY, "op", decode)
        record.issued[operation.issue.op] = (number, via)
        issues[operation.issue.op] = operation.issue
        return operation

    def decode(resolution: Resolution) -> bool:
        if resolution.outcome is Outcome.ERROR:
            raise Planned
        return rng.random() < 0.5

    def flag(number: int) -> bool:
        value = rng.random() < 0.5
        if value:
            record.true.add(number)
        return value

    class Tool:
        pass

    tool: Any = Tool()
    tool.op = op
    scope: dict[str, Any] = {
        "__name__": "programs",
        "op": op,
        "tool": tool,
        "flag": flag,
        "reached": record.true.add,
        "exhausted": lambda: next(budget, None) is None,
        "Planned": Planned,
        "asyncio": asyncio,
        "contextlib": contextlib,
    }
    exec(compile("\n" * (FIRST - 1) + source, "programs.py", "exec"), scope)
    with running(scope["program"]) as run:
        run.advance(Resolution(Kind.START, "", 0))
        while run.body_outcome is None and run.pending:
            name = rng.choice(sorted(run.pending))
            failed = rng.random() < 0.15
            run.advance(Resolution(Kind.ACTIVITY, name, 0, Outcome.ERROR if failed else Outcome.OK))
            record.ended.add(record.issued[name])
            record.entries.append(_entry(len(record.entries) + 1, issues[name], "error" if failed else "ok"))
        record.completed = isinstance(run.body_outcome, Finish)
    return record


@contextlib.contextmanager
def running(program: Any) -> Generator[Run]:
    run: Run = Run(lambda: program(run, ()), "program")
    try:
        yield run
    finally:
        run.evict()


def _entry(seq: int, issue: Issue, outcome: str) -> HistoryEntry:
    return HistoryEntry(seq, "activity", issue.op, "op", outcome, 1, None, None, None, "w", NOW, site=issue.site)


def number_of(text: str) -> int:
    return int(text.removeprefix("op(").partition(",")[0])


def check_paths(lines: tuple[Outline, ...], record: ProgramRun) -> None:
    """Check that highlighted branches and returns were reached."""
    for line in lines:
        found = re.fullmatch(r"(?:(?:if|elif) flag|return reached)\((\d+)\)", line.text.rpartition(", ")[0])
        if found and line.state == "taken":
            assert int(found[1]) in record.true, line.text
        check_paths(line.below, record)


def check(drawing: Diagram, record: ProgramRun) -> None:
    assert drawing.from_source
    assert not any(node.runtime for node in drawing.nodes), drawing.text
    ran = {number for number, _ in record.ended}
    highlighted: dict[int, int] = {}
    unsure: set[int] = set()
    for node in drawing.nodes:
        number = number_of(node.text)
        if node.state == "maybe":
            unsure.add(number)
        elif node.state != "untaken":
            highlighted[number] = highlighted.get(number, 0) + 1
    assert set(highlighted) | unsure == ran, drawing.text
    for number in ran - unsure:
        paths = {via for other, via in record.ended if other == number}
        assert highlighted[number] == len(paths), f"{number} ran in the calls {paths}"
    assert sum(len(node.seqs) for node in drawing.nodes if node.state != "maybe") <= len(record.entries)


@given(st.randoms(use_true_random=False))
@unhurried(examples(300))
def test_exactly_what_was_asked_for_is_lit(rng: random.Random) -> None:
    source = ProgramWriter(rng).program()
    note(source)
    record = run_program(source, rng)
    stored = join_sections([Section(source, "programs", FIRST)])
    drawing = draw(stored, record.entries, status="completed" if record.completed else "failed")
    ElementTree.fromstring(drawing.svg)
    check(drawing, record)
    check_paths(drawing.outline, record)


@given(st.randoms(use_true_random=False), st.text())
@unhurried(examples(50))
def test_histories_of_other_code_do_no_harm(rng: random.Random, junk: str) -> None:
    source = ProgramWriter(rng).program()
    record = run_program(ProgramWriter(rng).program(), rng)
    for text in (source, join_sections([Section(source, "programs", FIRST)]), junk, source[: len(source) // 2]):
        drawing = draw(text, record.entries, status=junk)
        ElementTree.fromstring(drawing.svg)
        assert sum(len(set(node.seqs)) for node in drawing.nodes) >= len(record.entries), "no entry is left out"
