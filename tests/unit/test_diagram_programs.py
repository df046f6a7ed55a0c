"""Random programs: whatever was asked for is lit, and nothing else; drawing never fails.

A program is text. Every operation in it has a number of its own, so the test knows what ran without looking at places; the
drawing knows places only.
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
class Writer:
    """Writes a program at random."""

    chance: random.Random
    lines: list[str] = field(default_factory=list[str])
    number: int = 0
    helpers: int = 0

    def program(self) -> str:
        self.function("async def program(ctx, via):", size=self.chance.randint(1, 5), helpers=self.chance.randint(0, 2))
        return "\n".join(self.lines) + "\n"

    def function(self, head: str, *, size: int, helpers: int, depth: int = 0) -> None:
        self.lines.append("    " * depth + head)
        for number in range(helpers):
            # Each helper is defined before the next and may call it: none calls itself.
            self.helpers = number
            self.function(f"async def helper{number}(ctx, via):", size=2, helpers=0, depth=depth + 1)
        self.helpers = helpers
        for _ in range(size):
            self.statement(depth + 1, looping=False)
        self.lines.append("    " * (depth + 1) + "return None")

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def next(self) -> int:
        self.number += 1
        return self.number

    def flag(self) -> str:
        return f"flag({self.next()})"

    def op(self) -> str:
        return f"op(ctx, {self.next()}, via)"

    def call(self) -> str:
        if self.helpers and self.chance.random() < 0.4:
            return f"helper{self.chance.randrange(self.helpers)}(ctx, (*via, {self.next()}))"
        return self.op()

    def body(self, depth: int, *, looping: bool) -> None:
        for _ in range(self.chance.randint(1, 2)):
            self.statement(depth, looping=looping)

    def statement(self, depth: int, *, looping: bool) -> None:
        simple = [self.plain, self.plain, self.spread, self.several, self.leave]
        nested = [self.branch, self.loop, self.endless, self.trying, self.group, self.matching, self.within]
        kind = self.chance.choice(simple if depth > 3 else simple + nested)
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
        self.put(depth, self.chance.choice(texts))

    def spread(self, depth: int, looping: bool) -> None:
        self.put(depth, f"await asyncio.gather(*[{self.op()} for _ in range({self.chance.randint(0, 3)}) if {self.flag()}])")

    def several(self, depth: int, looping: bool) -> None:
        self.put(depth, f"await asyncio.gather({', '.join(self.call() for _ in range(self.chance.randint(1, 3)))})")

    def leave(self, depth: int, looping: bool) -> None:
        ways = [f"return told({self.next()})", "raise Planned()"] + (["break", "continue"] if looping else [])
        self.put(depth, f"if {self.flag()}:")
        if self.chance.random() < 0.5:
            self.put(depth + 1, f"await {self.op()}")
        self.put(depth + 1, self.chance.choice(ways))

    def branch(self, depth: int, looping: bool) -> None:
        self.put(depth, f"if {self.flag()}:")
        self.body(depth + 1, looping=looping)
        if self.chance.random() < 0.5:
            self.put(
                depth, f"elif await {self.op()} or {self.flag()}:" if self.chance.random() < 0.3 else f"elif {self.flag()}:"
            )
            self.body(depth + 1, looping=looping)
        if self.chance.random() < 0.5:
            self.put(depth, "else:")
            self.body(depth + 1, looping=looping)

    def loop(self, depth: int, looping: bool) -> None:
        self.put(depth, f"for _ in range({self.chance.randint(0, 3)}):")
        self.body(depth + 1, looping=True)

    def endless(self, depth: int, looping: bool) -> None:
        self.put(depth, "while True:")
        self.put(depth + 1, f"await {self.op()}")
        self.put(depth + 1, f"if {self.flag()} or tired():")
        self.put(depth + 2, "break")
        self.body(depth + 1, looping=True)

    def trying(self, depth: int, looping: bool) -> None:
        self.put(depth, "try:")
        self.body(depth + 1, looping=looping)
        self.put(depth, self.chance.choice(["except Planned:", "except (Planned, ExceptionGroup):"]))
        self.body(depth + 1, looping=looping)
        if self.chance.random() < 0.5:
            self.put(depth, "finally:")
            self.put(depth + 1, f"await {self.op()}")

    def group(self, depth: int, looping: bool) -> None:
        self.put(depth, "async with asyncio.TaskGroup() as tasks:")
        for _ in range(self.chance.randint(1, 3)):
            self.put(depth + 1, f"tasks.create_task({self.call()})")

    def matching(self, depth: int, looping: bool) -> None:
        self.put(depth, f"match {self.flag()}:")
        self.put(depth + 1, "case True:")
        self.body(depth + 2, looping=looping)
        self.put(depth + 1, self.chance.choice(["case False:", "case _:", f"case _ if {self.flag()}:"]))
        self.body(depth + 2, looping=looping)

    def within(self, depth: int, looping: bool) -> None:
        self.put(depth, "with contextlib.nullcontext():")
        self.body(depth + 1, looping=looping)


@dataclass
class Played:
    """One run of a program: what the test knows, and what a history would tell."""

    entries: list[HistoryEntry] = field(default_factory=list[HistoryEntry])
    asked: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict[str, tuple[int, tuple[int, ...]]])
    ended: set[tuple[int, tuple[int, ...]]] = field(default_factory=set[tuple[int, tuple[int, ...]]])
    true: set[int] = field(default_factory=set[int])
    """Conditions that were true at least once, and returns that were come to."""
    completed: bool = False


def play(source: str, chance: random.Random) -> Played:
    played = Played()
    issues: dict[str, Issue] = {}
    budget = iter(range(200))

    def op(ctx: Run, number: int, via: tuple[int, ...]) -> Any:
        operation = ctx.issue_operation(Kind.ACTIVITY, "op", decode)
        played.asked[operation.issue.op] = (number, via)
        issues[operation.issue.op] = operation.issue
        return operation

    def decode(resolution: Resolution) -> bool:
        if resolution.outcome is Outcome.ERROR:
            raise Planned
        return chance.random() < 0.5

    def flag(number: int) -> bool:
        value = chance.random() < 0.5
        if value:
            played.true.add(number)
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
        "told": played.true.add,
        "tired": lambda: next(budget, None) is None,
        "Planned": Planned,
        "asyncio": asyncio,
        "contextlib": contextlib,
    }
    exec(compile("\n" * (FIRST - 1) + source, "programs.py", "exec"), scope)
    with running(scope["program"]) as run:
        run.advance(Resolution(Kind.START, "", 0))
        while run.body_outcome is None and run.pending:
            name = chance.choice(sorted(run.pending))
            failed = chance.random() < 0.15
            run.advance(Resolution(Kind.ACTIVITY, name, 0, Outcome.ERROR if failed else Outcome.OK))
            played.ended.add(played.asked[name])
            played.entries.append(_entry(len(played.entries) + 1, issues[name], "error" if failed else "ok"))
        played.completed = isinstance(run.body_outcome, Finish)
    return played


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


def check_ways(lines: tuple[Outline, ...], played: Played) -> None:
    """What is concluded is true: a lane or return that is lit was come to."""
    for line in lines:
        found = re.fullmatch(r"(?:(?:if|elif) flag|return told)\((\d+)\)", line.text.rpartition(", ")[0])
        if found and line.state == "taken":
            assert int(found[1]) in played.true, line.text
        check_ways(line.below, played)


def check(drawing: Diagram, played: Played) -> None:
    assert drawing.from_source
    assert not any(node.runtime for node in drawing.nodes), drawing.text
    ran = {number for number, _ in played.ended}
    lit: dict[int, int] = {}
    unsure: set[int] = set()
    for node in drawing.nodes:
        number = number_of(node.text)
        if node.state == "maybe":
            unsure.add(number)
        elif node.state != "untaken":
            lit[number] = lit.get(number, 0) + 1
    assert set(lit) | unsure == ran, drawing.text
    for number in ran - unsure:
        ways = {via for other, via in played.ended if other == number}
        assert lit[number] == len(ways), f"{number} ran by way of {ways}"
    assert sum(len(node.seqs) for node in drawing.nodes if node.state != "maybe") <= len(played.entries)


@given(st.randoms(use_true_random=False))
@unhurried(examples(300))
def test_exactly_what_was_asked_for_is_lit(chance: random.Random) -> None:
    source = Writer(chance).program()
    note(source)
    played = play(source, chance)
    stored = join_sections([Section(source, "programs", FIRST)])
    drawing = draw(stored, played.entries, status="completed" if played.completed else "failed")
    ElementTree.fromstring(drawing.svg)
    check(drawing, played)
    check_ways(drawing.outline, played)


@given(st.randoms(use_true_random=False), st.text())
@unhurried(examples(50))
def test_histories_of_other_code_do_no_harm(chance: random.Random, junk: str) -> None:
    source = Writer(chance).program()
    played = play(Writer(chance).program(), chance)
    for text in (source, join_sections([Section(source, "programs", FIRST)]), junk, source[: len(source) // 2]):
        drawing = draw(text, played.entries, status=junk)
        ElementTree.fromstring(drawing.svg)
        assert sum(len(set(node.seqs)) for node in drawing.nodes) >= len(played.entries), "nothing that happened is left out"
