"""The source line by line, with the state of each line."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.unit import diagram_cases as cases
from tests.unit.diagram_cases import run

from romancy import HistoryEntry, WaitingFor
from romancy.model.source import Section, join_sections
from romancy.viewer.diagram.source_lines import CodeLine, LinePart, list_source

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def entry(site: str, seq: int = 1, outcome: str = "ok") -> HistoryEntry:
    return HistoryEntry(seq, "activity", f"act:{seq}", "act", outcome, 1, None, None, None, "w", NOW, site=site)


async def test_lines_say_what_was_done_where() -> None:
    records = await run(cases.nested_helpers, True)
    workflow, helper = list_source(records.source, records.entries, open=records.instance.waiting_for)
    marked = {line.text.strip(): line.state for line in [*workflow.lines, *helper.lines] if line.state}
    assert marked == {
        'await act(ctx, "in inner")': "taken",
        "await helper(ctx, what)": "through",
        'await inner("a")': "through",
        'return await act(ctx, "in helper")': "taken",
    }
    assert workflow.module == helper.module == "tests.unit.diagram_cases"


def test_numbers_are_those_of_the_file_and_the_line_where_it_waits_is_marked() -> None:
    source = join_sections([Section("async def w(ctx):\n    await a(ctx)\n    await wait_event(ctx, 'x')\n", "m", 40)])
    waiting = WaitingFor("event", "x", NOW, None, "x:1", site="m:w:42:11")
    (function,) = list_source(source, [entry("m:w:41:11"), entry("m:w:41:11", 2, "error")], open=[waiting])
    assert [(line.number, line.state, line.count) for line in function.lines] == [
        (40, "", 0),
        (41, "failed", 2),
        (42, "waiting", 1),
    ]
    assert function.lines[1].seqs == (1, 2)
    assert function.lines[2].notes == ("event x",)


def test_a_line_is_parted_where_its_operations_begin() -> None:
    source = join_sections([Section("async def w(ctx):\n    'ä'; await a(ctx); await b(ctx)\n", "m", 1)])
    (function,) = list_source(source, [entry("m:w:2:17"), entry("m:w:2:31", 2, "error")])
    assert function.lines[1] == CodeLine(
        2,
        (LinePart("    'ä'; await "), LinePart("a(ctx); await ", "taken"), LinePart("b(ctx)", "failed")),
        "failed",
        2,
        (),
        (1, 2),
    )


def test_texts_are_shown_as_they_are_without_characters_that_change_them() -> None:
    source = join_sections([Section("async def w(ctx):\n\tx = '<b>\u202e\x00'\n", "m", 1)])
    (function,) = list_source(source, [])
    assert function.lines[1].text == "    x = '<b>\ufffd␀'"
    assert list_source("", []) == list_source(None, []) == ()
