"""The diagram of each construct of Python, run by an app."""

from __future__ import annotations

import ast
import linecache
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.unit import diagram_cases as cases
from tests.unit.diagram_cases import highlighted, paths, run, untaken

from romancy import AttemptEntry, HistoryEntry, WaitingFor, Workflow, WorkflowContext, workflow
from romancy.model.source import Section, join_sections, split_sections
from romancy.registry.source_capture import stored_source
from romancy.viewer.diagram import Diagram, draw

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def count(drawing: Diagram, text: str) -> int:
    return next(node.count for node in drawing.nodes if node.text.startswith(text))


def entry(site: str, name: str = "act", *, seq: int = 1, outcome: str = "ok", kind: str = "activity") -> HistoryEntry:
    return HistoryEntry(seq, kind, f"{name}:{seq}", name, outcome, 1, None, None, None, "w", NOW, site=site)


# -- constructs


@pytest.mark.parametrize(("amount", "taken"), [(500, "much"), (50, "some"), (5, "little")])
async def test_only_the_branch_taken_is_lit_though_all_call_the_same_activity(amount: int, taken: str) -> None:
    drawing = (await run(cases.same_in_both_branches, amount)).draw()
    assert highlighted(drawing) == {f"act('{taken}')": "taken", "act('after')": "taken"}
    assert untaken(drawing) == {f"act('{other}')" for other in ("much", "some", "little") if other != taken}
    lanes = {"if amount > 100": "much", "elif amount > 10": "some", "else": "little"}
    assert {way: on for way, on in paths(drawing).items() if way in lanes} == {way: lanes[way] == taken for way in lanes}


async def test_loops_tell_how_often_they_went_round() -> None:
    drawing = (await run(cases.loops, ["a", "b", "c"])).draw()
    assert [(node.text.partition(", ")[0], node.count) for node in drawing.nodes] == [
        ("act(item)", 3),
        ("act(rounds)", 2),
        ("act('never')", 0),
    ]
    assert paths(drawing) == {"for item in items": True, "while rounds < 2": True, "for _ in []": False}
    assert "×3" in drawing.svg


@pytest.mark.parametrize(("stop", "again"), [(1, False), (3, True)])
async def test_a_loop_left_by_break(stop: int, again: bool) -> None:
    drawing = (await run(cases.left_by_break, stop)).draw()
    assert count(drawing, "act(1)") == stop
    assert ("act('again')" in highlighted(drawing)) is again
    assert paths(drawing)["break"], "only a break ends `while True`"
    assert paths(drawing)["else"] is again


async def test_try_without_an_error() -> None:
    drawing = (await run(cases.tries, "good")).draw()
    assert set(highlighted(drawing)) == {"act(what)", "act('second')", "act('fine')", "act('finally')"}
    assert paths(drawing) == {
        "try": True,
        "no error": True,
        "except TerminalError": False,
        "except ValueError": False,
        "finally": True,
        "return 'ended'": True,
    }


async def test_try_with_a_failing_activity() -> None:
    drawing = (await run(cases.tries, "bad")).draw()
    assert highlighted(drawing) == {"act(what)": "failed", "act('mended')": "taken", "act('finally')": "taken"}
    assert paths(drawing)["except TerminalError"]
    assert not paths(drawing)["no error"]
    assert "bad went wrong" in next(node.text for node in drawing.nodes if node.state == "failed")


async def test_a_return_in_a_handler_before_finally() -> None:
    drawing = (await run(cases.returns_in_a_handler, "bad")).draw()
    assert highlighted(drawing) == {"act(what)": "failed", "act('mended')": "taken", "act('finally')": "taken"}
    assert paths(drawing)["return 'mended'"]
    assert not paths(drawing)["return 'ended'"]


async def test_gather_forks() -> None:
    drawing = (await run(cases.gathers)).draw()
    assert untaken(drawing) == set()
    assert set(highlighted(drawing).values()) == {"taken"}, "two calls of one helper as tasks differ by their order"
    assert count(drawing, "act(number)") == 3
    assert [node.count for node in drawing.nodes if "in helper" in node.text] == [1, 1]
    assert not any(node.runtime for node in drawing.nodes)
    assert 'class="bar taken"' in drawing.svg


async def test_a_helper_that_is_awaited_here_and_a_task_there() -> None:
    """The history of the task does not name its caller, so it is not matched with the awaited call."""
    drawing = (await run(cases.both_ways)).draw()
    assert [(node.label, node.state, node.count) for node in drawing.nodes] == [("act", "taken", 1)] * 3


async def test_a_task_group_forks() -> None:
    drawing = (await run(cases.task_group)).draw()
    assert set(highlighted(drawing)) == {"act('left')", "act('in helper')", "act('after')"}
    assert paths(drawing)["TaskGroup"]
    assert paths(drawing)["helper(ctx, 'right')"]


@pytest.mark.parametrize("first", [True, False])
async def test_a_helper_called_from_two_branches_is_lit_where_it_was_called(first: bool) -> None:
    drawing = (await run(cases.nested_helpers, first)).draw()
    states = [(node.text.partition(", ")[0], node.state) for node in drawing.nodes]
    branch = [("act('in inner')", "taken"), ("act('in helper')", "taken")]
    other = [(text, "untaken") for text, _ in branch]
    assert states == (branch + other if first else other + branch)
    assert paths(drawing)["inner('a')"] is first
    assert paths(drawing)["helper(ctx, what)"] is not first or first


@pytest.mark.parametrize("pay", [True, False])
async def test_a_helper_whose_source_is_not_known_is_lit_where_it_was_called(pay: bool) -> None:
    records = await run(cases.by_way_of_an_object, pay)
    assert len(split_sections(records.source)) == 1, "the class of `till` is not known statically"
    drawing = records.draw()
    assert [node.state for node in drawing.nodes] == (["taken", "untaken"] if pay else ["untaken", "taken"])


@pytest.mark.parametrize(
    ("how", "taken", "way"),
    [
        ("post", "posted", "case 'post'"),
        ({"courier": "x"}, "carried", "case {'courier': _}"),
        (7, "seven", "case _ if how == 7"),
    ],
)
async def test_match(how: Any, taken: str, way: str) -> None:
    drawing = (await run(cases.matches, how)).draw()
    assert highlighted(drawing) == {f"act('{taken}')": "taken"}
    assert [lane for lane, on in paths(drawing).items() if on] == [way]


async def test_no_case_fits() -> None:
    drawing = (await run(cases.matches, "none")).draw()
    assert highlighted(drawing) == {}
    assert [lane for lane, on in paths(drawing).items() if on] == ["no match"]


async def test_an_early_return_is_concluded_from_what_was_not_done() -> None:
    early = (await run(cases.returns_early, True)).draw()
    assert paths(early) == {"if empty": True, "return 'nothing to do'": True, "else": False, "return 'done'": False}
    late = (await run(cases.returns_early, False)).draw()
    assert paths(late) == {"if empty": False, "return 'nothing to do'": False, "else": True, "return 'done'": True}


async def test_a_raise_is_concluded_too() -> None:
    drawing = (await run(cases.raises, True)).draw()
    assert paths(drawing) == {"if wrong": True, "raise TerminalError('wrong')": True, "else": False}
    assert 'class="finish failed' in drawing.svg


@pytest.mark.parametrize("yes", [True, False])
async def test_decorators_calls_over_several_lines_attributes_and_options(yes: bool) -> None:
    records = await run(cases.decorated, yes)
    drawing = records.draw()
    assert not any(node.runtime for node in drawing.nodes)
    reached = [node.text.partition(", ")[0] for node in drawing.nodes if node.state == "taken"]
    rest = ["act('with options')", "act('by attribute')", *(["act('a')", "act('b')"] if yes else ["act('c')"])]
    assert reached == ["act('long')", *rest]
    assert [node.state for node in drawing.nodes[:2]] == (["taken", "untaken"] if yes else ["untaken", "taken"])


async def test_what_it_says_and_where_it_waits() -> None:
    drawing = (await run(cases.says_and_waits, seconds=60, events=("order.paid",))).draw()
    states = [(node.label, node.kind, node.state) for node in drawing.nodes]
    assert states == [
        ("subscribe", "effect", "taken"),
        ("publish", "effect", "taken"),
        ("receive", "message", "taken"),
        ("send_event", "effect", "taken"),
        ("register undo", "compensation", "taken"),
        ("sleep", "timer", "taken"),
        ("sleep", "timer", "taken"),
        ("wait_event", "event", "failed"),
        ("wait_event", "event", "taken"),
        ("wait_event", "event", "waiting"),
    ]
    assert "waiting: event order.shipped" in drawing.nodes[-1].text


async def test_what_was_undone_says_by_what() -> None:
    drawing = (await run(cases.undone)).draw()
    assert highlighted(drawing) == {"book('room')": "taken", "act('bad')": "failed"}
    assert drawing.nodes[0].text.endswith("compensated by undo")
    assert drawing.nodes[0].count == 1, "the compensation does not count as another booking"


async def test_an_activity_that_backs_off() -> None:
    drawing = (await run(cases.patient, seconds=70)).draw()
    assert highlighted(drawing) == {"stubborn()": "waiting"}
    assert "next attempt" in drawing.nodes[0].text


async def test_recur_is_a_node() -> None:
    drawing = (await run(cases.again, 2)).draw()
    assert [(node.label, node.state) for node in drawing.nodes] == [("act", "taken"), ("recur", "untaken")]
    records = await run(cases.again, 2)
    earlier = draw(records.source, records.entries, status="recurred")
    assert highlighted(earlier) == {"act(rounds)": "taken", "recur(rounds - 1)": "taken"}
    assert paths(earlier)["if rounds > 1"]


async def test_a_timeout_that_rang() -> None:
    drawing = (await run(cases.timed_out)).draw()
    assert highlighted(drawing) == {"timed out()": "taken", "act('late')": "taken"}


async def test_calls_that_do_not_look_like_operations_are_noticed_by_their_place() -> None:
    drawing = (await run(cases.hidden)).draw()
    assert [(node.text.partition(", ")[0], node.state) for node in drawing.nodes] == [
        ("do('partly hidden')", "taken"),
        ("act('in a lambda')", "taken"),
    ]


# -- open attempts


def test_an_attempt_that_runs_now_and_one_that_failed() -> None:
    source = join_sections([Section("async def w(ctx):\n    await a(ctx)\n    await b(ctx)\n", "m", 10)])
    running = AttemptEntry("b:1", "b", 3, True, None, "w", 1, NOW, NOW, None, None, None, "m:w:12:11")
    drawing = draw(source, [entry("m:w:11:11", "a")], open=[running])
    assert highlighted(drawing) == {"a()": "taken", "b()": "running"}
    assert "3 attempts" in drawing.nodes[1].text


# -- sources


async def test_an_edited_source_does_not_change_what_old_runs_show(tmp_path: Any) -> None:
    """The source is stored under the fingerprint of the code."""
    old = await run(_loaded(tmp_path, "one", "    await act(ctx, 'old')\n"))
    new = await run(_loaded(tmp_path, "two", "    await act(ctx, 'new')\n    await act(ctx, 'more')\n"))
    assert highlighted(old.draw()) == {"act('old')": "taken"}
    assert highlighted(new.draw()) == {"act('new')": "taken", "act('more')": "taken"}


def _loaded(place: Any, module: str, body: str) -> Workflow[..., Any]:
    path = place / "edited.py"
    path.write_text("# a comment\n\n\nasync def edited(ctx: WorkflowContext) -> None:\n" + body)
    linecache.checkcache(str(path))
    scope: dict[str, Any] = {"__name__": f"edited_{module}", "WorkflowContext": WorkflowContext, "act": cases.act}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return workflow(name="edited", version=module)(scope["edited"])


async def test_without_source_history_alone_is_drawn() -> None:
    records = await run(cases.loops, ["a", "b"])
    for source in ("", None, "not python at all (", "x = 1\n"):
        drawing = draw(source, records.entries, status="completed")
        assert not drawing.from_source
        assert [(node.label, node.count) for node in drawing.nodes] == [("act", 2), ("act", 2)]
        assert all(node.runtime for node in drawing.nodes)


async def test_what_the_source_does_not_show_is_seen_at_run_time() -> None:
    records = await run(cases.nested_helpers, True)
    alone = join_sections(split_sections(records.source)[:1])
    foreign = [*records.entries, entry("elsewhere:strange:3:9", "strange", seq=99)]
    drawing = draw(alone, foreign, status="completed")
    assert [node.label for node in drawing.nodes if node.runtime] == ["strange"]
    assert "only in the history" in drawing.text
    assert count(drawing, "helper(what)") == 1, "a helper without source stands for its operations"


async def test_a_source_stored_without_its_place_is_laid_over_the_history() -> None:
    records = await run(cases.same_in_both_branches, 50)
    bare = split_sections(records.source)[0].text
    drawing = draw(bare, records.entries, status="completed")
    assert not drawing.exact
    assert highlighted(drawing) == {"act('some')": "taken", "act('after')": "taken"}


def test_python_that_loses_count_while_another_thread_parses_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, failures = ast.parse, iter(range(3))

    def lose_count(text: str) -> ast.Module:
        if next(failures, None) is not None:
            raise SystemError("AST constructor recursion depth mismatch (before=78, after=69)")
        return parse(text)

    known = stored_source(cases.nested_helpers.fn)
    monkeypatch.setattr(ast, "parse", lose_count)
    assert stored_source(cases.nested_helpers.fn) == known
    assert next(failures, None) is None


def test_sources_are_stored_with_the_helpers_that_get_the_context() -> None:
    sections = split_sections(stored_source(cases.nested_helpers.fn))
    assert [section.text.strip().splitlines()[-1].strip() for section in sections] == [
        'await inner("b")',
        'return await act(ctx, "in helper")',
    ]
    lines = open_lines()
    for section in sections:
        assert lines[section.line - 1] == section.text.splitlines()[0]
        assert section.module == "tests.unit.diagram_cases"


def open_lines() -> list[str]:
    return [line.rstrip("\n") for line in linecache.getlines(cases.__file__)]


def test_stored_sections_are_read_as_they_were_written() -> None:
    tricky = [
        Section('async def a(ctx):\n    x = """\n# m:3 (2 lines)\n"""\n\x0c    return x', "m", 3),
        Section("async def b(ctx): ...\n", "n.o", 7),
    ]
    again = split_sections(join_sections(tricky))
    assert [(one.module, one.line, one.text.rstrip("\n")) for one in again] == [
        (one.module, one.line, one.text.rstrip("\n")) for one in tricky
    ]
    assert split_sections("") == []
    assert split_sections("def old(): ...") == [Section("def old(): ...")]


# -- the picture


HOSTILE = "</title><script>alert(1)</script>\"'&\x00\x1b\u202e\ud800 " + "x" * 1_000_000


async def test_the_picture_is_well_formed_and_has_no_style_or_script() -> None:
    drawing = (await run(cases.tries, "bad")).draw()
    tree = ElementTree.fromstring(drawing.svg)
    assert tree.attrib["role"] == "group"
    names = [one.tag.rpartition("}")[2] for one in tree.iter()]
    assert set(names) <= {"svg", "title", "desc", "g", "rect", "path", "text"}
    assert not any(name == "style" or name.startswith("on") for one in tree.iter() for name in one.attrib)
    focusable = [one for one in tree.iter() if "tabindex" in one.attrib]
    assert [one.attrib["aria-label"] for one in focusable] == [node.text for node in drawing.nodes]


def test_hostile_text_is_text() -> None:
    source = join_sections([Section(f"async def w(ctx):\n    await a(ctx, {HOSTILE!r})\n", "m", 1)])
    strange = entry(f"m:{HOSTILE}:9:9", HOSTILE, seq=2)
    waiting = WaitingFor("event", HOSTILE, NOW, None, "x:1", HOSTILE, site="m:w:2:11")
    for text in (source, "", HOSTILE):
        drawing = draw(text, [strange], open=[waiting], title=HOSTILE, status="running", prefix='"><script>')
        ElementTree.fromstring(drawing.svg)
        drawing.svg.encode()
        drawing.text.encode()
        assert "<script" not in drawing.svg
        assert "\u202e" not in drawing.svg + drawing.text
        assert len(drawing.svg) < 100_000, "long texts are shortened"


def test_everything_stays_inside_the_picture() -> None:
    tree = ElementTree.fromstring(_everything().svg)
    width, height = float(tree.attrib["width"]), float(tree.attrib["height"])
    for one in tree.iter():
        if one.tag.endswith("rect"):
            x, y, w, h = (float(one.attrib[name]) for name in ("x", "y", "width", "height"))
            assert min(x, y, width - x - w, height - y - h) >= 0, one.attrib


def test_nodes_do_not_overlap() -> None:
    tree = ElementTree.fromstring(_everything().svg)
    boxes: list[tuple[float, float, float, float]] = []
    for group in tree.iter():
        if group.tag.endswith("}g") and group.attrib["class"].split()[0] in ("node", "lane", "end", "begin", "finish"):
            rect = next(one for one in group if one.tag.endswith("rect"))
            x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            boxes.append((x, y, x + w, y + h))
    assert len(boxes) > 30
    for at, one in enumerate(boxes):
        for other in boxes[:at]:
            apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
            assert apart, (one, other)


def _everything() -> Diagram:
    """All constructs in one function."""
    bodies = [
        split_sections(stored_source(made.fn))[0].text
        for made in (cases.tries, cases.gathers, cases.task_group, cases.matches, cases.left_by_break, cases.loops)
    ]
    lines = [line for body in bodies for line in body.splitlines() if line.startswith("    ")]
    source = "async def everything(ctx):\n" + "\n".join(line.replace("return", "x =") for line in lines) + "\n"
    drawing = draw(join_sections([Section(source, "m", 1)]), [])
    assert drawing.from_source
    return drawing


def test_code_nested_deeper_than_can_be_followed_is_not_drawn_but_does_not_fail() -> None:
    deep = (
        "async def w(ctx):\n    x = " + "(" * 90 + "await a(ctx)" + ")" * 90 + "\n    y = " + "+".join(["1"] * 20_000) + "\n"
    )
    assert draw(join_sections([Section(deep, "m", 1)]), [entry("m:w:2:101", "a")]).nodes
    doubling = [f"async def f{n}(ctx):\n    await f{n + 1}(ctx)\n    await f{n + 1}(ctx)\n" for n in range(30)]
    helpers = [Section(text, "m", 1 + 5 * n) for n, text in enumerate(doubling)]
    drawing = draw(join_sections([*helpers, Section("async def f30(ctx):\n    await a(ctx)\n", "m", 500)]), [])
    assert len(drawing.nodes) < 5_000


def test_a_helper_that_calls_itself_is_drawn_once() -> None:
    source = join_sections([Section("async def f(ctx, n):\n    await a(ctx)\n    await f(ctx, n - 1)\n", "m", 1)])
    drawing = draw(source, [entry("m:f:2:11", "a", seq=1), entry("m:f:2:11|m:f:3:5", "a", seq=2)])
    assert [(node.label, node.count) for node in drawing.nodes] == [("a", 2), ("f", 0)]


async def test_the_words_follow_the_code() -> None:
    records = await run(cases.returns_early, False)
    first = split_sections(records.source)[0].line
    assert replace_lines(records.draw().text, first) == (
        "act('look'), line 2, completed\n"
        "if empty, not taken\n"
        "  return 'nothing to do', not taken\n"
        "else, taken\n"
        "act('do it'), line 5, completed\n"
        "return 'done', taken\n"
    )


def replace_lines(text: str, first: int) -> str:
    for line in range(first, first + 20):
        text = text.replace(f"line {line},", f"line {line - first - 1 + 1 - 0},")
    return text


def test_a_run_without_columns_is_matched_by_line() -> None:
    """Python can run without column numbers; call sites end in `:1` then."""
    source = join_sections([Section("async def w(ctx):\n    await a(ctx)\n    await b(ctx)\n", "m", 10)])
    drawing = draw(source, [entry("m:w:12:1", "b")])
    assert highlighted(drawing) == {"b()": "taken"}
