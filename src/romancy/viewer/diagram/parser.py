"""Parses the source of a workflow into a tree of its operations, nested like its control flow."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

from romancy.model.source import Section, tree_of
from romancy.viewer.diagram.tree import (
    Branch,
    Call,
    CallSite,
    End,
    Fork,
    Frame,
    Item,
    Lane,
    Node,
    Seq,
    has_content,
    has_nodes,
)

_KINDS = {
    "wait_event": "event",
    "receive": "message",
    "sleep": "timer",
    "sleep_until": "timer",
    "publish": "effect",
    "send_event": "effect",
    "send_to": "effect",
    "send_to_group": "effect",
    "subscribe": "effect",
    "unsubscribe": "effect",
    "join_group": "effect",
    "leave_group": "effect",
    "get_group_members": "effect",
    "register_compensation": "compensation",
    "recur": "recur",
}
_TOGETHER = {"gather", "wait", "as_completed"}
_SPAWNING = {"create_task", "ensure_future"}
_TIMEOUTS = {"timeout", "timeout_at"}
_LABEL_LIMIT = 200
_MOST_NODES = 1_000

Def = ast.FunctionDef | ast.AsyncFunctionDef
_Together = ast.List | ast.Tuple | ast.Set
_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the stored source."""

    definition: Def
    module: str
    offset: int
    """Added to a line of the syntax tree, it gives the line of the file."""
    contexts: frozenset[str]
    """Names of the parameters that hold the workflow context."""
    inner: dict[str, Function] = field(default_factory=dict[str, "Function"])

    def call_site(self, line: int, column: int) -> CallSite:
        """Return the call site of a position, as it is in the history."""
        return self.module, line + self.offset, column + 1


def parse(section: Section) -> Function | None:
    """Return the function of a section; None if it cannot be parsed."""
    indented = section.text[:1] in " \t"
    wrapper = "if 1:\n" if indented else ""  # columns stay as they are in the file
    tree = tree_of(wrapper + section.text)
    for one in ast.walk(tree) if tree is not None else ():
        if isinstance(one, Def):
            return _function(one, section.module, max(section.line, 1) - 1 - len(wrapper.splitlines()), frozenset())
    return None


def _function(definition: Def, module: str, offset: int, outer: frozenset[str]) -> Function:
    contexts = outer | _contexts(definition, first=not outer)
    made = Function(definition, module, offset, contexts)
    for one in _inner_definitions(definition.body):
        made.inner[one.name] = _function(one, module, offset, contexts)
    return made


def _contexts(definition: Def, *, first: bool) -> frozenset[str]:
    arguments = [*definition.args.posonlyargs, *definition.args.args, *definition.args.kwonlyargs]
    annotated = {one.arg for one in arguments if one.annotation and "WorkflowContext" in ast.unparse(one.annotation)}
    if not annotated and first and arguments:
        annotated = {one.arg for one in arguments[:2] if one.arg in ("ctx", "context")} or {arguments[0].arg}
    return frozenset(annotated)


def _inner_definitions(body: Sequence[ast.AST]) -> list[Def]:
    """Return the functions defined in a body, its branches and loops, but not those inside other functions."""
    found: list[Def] = []
    for one in body:
        if isinstance(one, Def):
            found.append(one)
        elif not isinstance(one, ast.ClassDef | ast.Lambda):
            found += _inner_definitions(list(ast.iter_child_nodes(one)))
    return found


class Reader:
    """Reads the functions of a stored source. `recorded` are the call sites in the history."""

    def __init__(self, functions: Sequence[Function], recorded: Set[CallSite]) -> None:
        self._recorded = frozenset(recorded)
        self._top = {one.definition.name: one for one in reversed(functions)}
        self._left = _MOST_NODES
        self._calls: list[Call] = []
        self._awaits: list[set[CallSite]] = []
        self._function_stack: list[Function] = []
        self._claimed: set[CallSite] = set()
        """Call sites of operations whose callee is being read: `charge.with_options(...)` begins where its call does."""
        self.inlined: list[Function] = []
        """The helpers that are drawn, once for each time."""

    def read(self, function: Function) -> Seq:
        """Return the operations of a function."""
        self._function_stack.append(function)
        self._awaits.append(set())
        try:
            return self._body(function.definition.body)
        finally:
            self._function_stack.pop()
            self._awaits.pop()

    # -- statements

    def _body(self, statements: Iterable[ast.stmt]) -> Seq:
        items: list[Item] = []
        spawned: list[Lane] = []
        for one in statements:
            found = self._statement(one)
            if not found:
                continue
            if _spawns(one) and has_nodes(Seq(found)):
                spawned.append(Lane("", Seq(found)))
                continue
            items += _forked(spawned)
            items += found
            spawned = []
        return Seq([*items, *_forked(spawned)])

    def _statement(self, one: ast.stmt) -> list[Item]:
        match one:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return []
            case ast.Return():
                return [*self._expression(one.value), End("return", _cut("return", one.value))]
            case ast.Raise():
                return [*self._expression(one.exc), *self._expression(one.cause), End("raise", _cut("raise", one.exc))]
            case ast.Break():
                return [End("break", "break")]
            case ast.Continue():
                return [End("continue", "continue")]
            case ast.Assign():
                return [*self._expression(one.value), *self._expressions(one.targets)]
            case ast.If():
                return self._if(one)
            case ast.For() | ast.AsyncFor():
                each = _cut("async for" if isinstance(one, ast.AsyncFor) else "for", one.target) + _cut(" in", one.iter)
                body = self._body(one.body)
                return [*self._expression(one.iter), *self._loop(each, body), *self._otherwise(one.orelse)]
            case ast.While():
                body = Seq([*self._expression(one.test), *self._body(one.body).items])
                endless = isinstance(one.test, ast.Constant) and bool(one.test.value)
                return [*self._loop(_cut("while", one.test), body, endless), *self._otherwise(one.orelse)]
            case ast.Try() | ast.TryStar():
                return self._try(one)
            case ast.With() | ast.AsyncWith():
                return self._with(one)
            case ast.Match():
                return self._match(one)
            case _:
                return self._expressions(child for child in ast.iter_child_nodes(one) if isinstance(child, ast.expr))

    def _if(self, one: ast.If) -> list[Item]:
        before = self._expression(one.test)
        lanes = [Lane(_cut("if", one.test), self._body(one.body))]
        rest = one.orelse
        while len(rest) == 1 and isinstance(rest[0], ast.If):
            inner = rest[0]
            if self._expression(inner.test):
                break  # its condition has operations, so it is a branch inside the `else` lane
            lanes.append(Lane(_cut("elif", inner.test), self._body(inner.body)))
            rest = inner.orelse
        lanes.append(Lane("else", self._body(rest)))
        return [*before, *_branch(lanes)]

    def _match(self, one: ast.Match) -> list[Item]:
        lanes = [self._case(case) for case in one.cases]
        if not _catches_all(one.cases[-1]):
            lanes.append(Lane("no match", Seq()))
        return [*self._expression(one.subject), *_branch(lanes)]

    def _case(self, case: ast.match_case) -> Lane:
        label = _cut("case", case.pattern) + (_cut(" if", case.guard) if case.guard is not None else "")
        return Lane(label, Seq([*self._expression(case.guard), *self._body(case.body).items]))

    def _loop(self, label: str, body: Seq, endless: bool = False) -> list[Item]:
        return [Frame("loop", label, body, endless)] if has_nodes(body) else []

    def _otherwise(self, statements: list[ast.stmt]) -> list[Item]:
        body = self._body(statements)
        return [Frame("else", "else: no break", body)] if has_content(body) else []

    def _try(self, one: ast.Try | ast.TryStar) -> list[Item]:
        body, final = self._body(one.body), self._body(one.finalbody)
        fine = Lane("no error", self._body(one.orelse))
        lanes = [fine, *(self._handler(handler) for handler in one.handlers)]
        if not (has_content(body) or has_content(final) or any(has_content(lane.body) for lane in lanes)):
            return []
        inside: list[Item] = [body] if body.items else []
        if one.handlers:
            inside.append(Branch(lanes, on_error=True))
        elif fine.body.items:
            inside.append(fine.body)
        if has_content(final):
            inside.append(Frame("finally", "finally", final))
        return [Frame("try", "try", Seq(inside))]

    def _handler(self, handler: ast.ExceptHandler) -> Lane:
        label = _cut("except", handler.type) if handler.type is not None else "except"
        return Lane(label, self._body(handler.body))

    def _with(self, one: ast.With | ast.AsyncWith) -> list[Item]:
        before = [item for entered in one.items for item in self._entered(entered.context_expr)]
        fired = [item for entered in one.items for item in self._time_out(one, entered.context_expr)]
        body = self._body(one.body)
        if not has_content(body) and not fired:
            return before
        names = [_last_name(entered.context_expr) for entered in one.items]
        if "TaskGroup" in names:
            return [*before, Frame("group", "TaskGroup", body)]
        label = "async with" if isinstance(one, ast.AsyncWith) else "with"
        label += ",".join(_cut("", entered.context_expr) for entered in one.items)
        return [*before, Frame("with", label, Seq([*body.items, *fired]))]

    def _entered(self, one: ast.expr) -> list[Item]:
        if isinstance(one, ast.Call) and _last_name(one.func) in _TIMEOUTS:
            return self._arguments(one)  # `_time_out` adds its timer to the frame
        return self._expression(one)

    def _time_out(self, one: ast.With | ast.AsyncWith, entered: ast.expr) -> list[Item]:
        """Return the timer of `async with timeout(...)`: it is in the history only if it fired."""
        if _last_name(entered) not in _TIMEOUTS:
            return []
        call_sites = {self._call_site(one), self._call_site(entered)}
        return [self._node("timer", "timed out", "", call_sites, one)] if call_sites & self._recorded else []

    # -- expressions, in the order of evaluation

    def _expressions(self, several: Iterable[ast.expr]) -> list[Item]:
        return [item for one in several for item in self._expression(one)]

    def _expression(self, one: ast.AST | None) -> list[Item]:
        match one:
            case None | ast.Constant() | ast.Name():
                return []
            case ast.Await():
                return self._await(one)
            case ast.Call():
                return self._call(one)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(one)
            case ast.IfExp():
                lanes = [Lane(_cut("if", one.test), Seq(self._expression(one.body)))]
                lanes.append(Lane("else", Seq(self._expression(one.orelse))))
                return [*self._expression(one.test), *_branch(lanes)]
            case ast.BoolOp():
                return self._either(one)
            case _:
                return [item for child in ast.iter_child_nodes(one) for item in self._expression(child)]

    def _await(self, one: ast.Await) -> list[Item]:
        call_site = self._call_site(one)
        self._awaits[-1].add(call_site)
        try:
            return self._call(one.value, one) if isinstance(one.value, ast.Call) else self._expression(one.value)
        finally:
            self._awaits[-1].discard(call_site)

    def _either(self, one: ast.BoolOp) -> list[Item]:
        word = "and" if isinstance(one.op, ast.And) else "or"
        rest = Seq(self._expressions(one.values[1:]))
        lanes = [Lane(_cut(f"… {word}", one.values[1]), rest), Lane("short-circuited", Seq())]
        return [*self._expression(one.values[0]), *_branch(lanes)]

    def _comprehension(self, one: _Comprehension) -> list[Item]:
        first = one.generators[0]
        inside = [part for made in one.generators[1:] for part in self._expression(made.iter)]
        inside += [part for made in one.generators for test in made.ifs for part in self._expression(test)]
        results = [one.key, one.value] if isinstance(one, ast.DictComp) else [one.elt]
        inside += self._expressions(results)
        each = "".join(
            _cut(" for" if at else "for", made.target) + _cut(" in", made.iter) for at, made in enumerate(one.generators)
        )
        return [*self._expression(first.iter), *self._loop(each, Seq(inside))]

    def _call(self, call: ast.Call, awaited: ast.Await | None = None) -> list[Item]:
        name = _last_name(call.func)
        if name in _TOGETHER:
            return [*self._together(call, name), *self._noticed(call, awaited)]
        helper = self._helper(call)
        call_sites = self._call_sites(call, awaited if _is_asyncio_sleep(call) else None)
        if helper is not None:
            return [*self._before(call, call_sites), *self._inline(call, helper, awaited)]
        if self._is_operation(call) or _is_asyncio_sleep(call):
            node = self._operation(call, call_sites)
            node.loose = awaited is None and _is_asyncio_sleep(call)
            return [*self._before(call, call_sites), node]
        before = self._before(call, set())
        if any(isinstance(one, Node) and one.call_sites & call_sites for one in before):
            return before  # `charge(ctx).add_done_callback(...)`: the operation comes first
        return [*before, *self._noticed(call, awaited)]

    def _before(self, call: ast.Call, claimed: set[CallSite]) -> list[Item]:
        new = claimed - self._claimed
        self._claimed |= new
        callee = self._expression(_caller(call.func))
        self._claimed -= new
        return [*callee, *self._arguments(call)]

    def _arguments(self, call: ast.Call) -> list[Item]:
        return self._expressions([*call.args, *(keyword.value for keyword in call.keywords)])

    def _together(self, call: ast.Call, name: str) -> list[Item]:
        given = [part for one in call.args for part in (one.elts if isinstance(one, _Together) else [one])]
        lanes = [Lane("", Seq(items)) for one in given if (items := self._expression(one))]
        return _forked(lanes, name)

    def _noticed(self, call: ast.Call, awaited: ast.Await | None) -> list[Item]:
        """Return a call that does not look like an operation but is one according to the history."""
        call_sites = self._call_sites(call, awaited)
        return [self._operation(call, call_sites)] if (call_sites & self._recorded) - self._claimed else []

    def _operation(self, call: ast.Call, call_sites: set[CallSite]) -> Node:
        name = _last_name(call.func)
        given = call.args[1:] if call.args and self._is_context(call.args[0]) else call.args
        kind = _KINDS.get(name, "activity")
        if kind == "compensation" and given:
            return self._node(kind, f"register {_last_name(given[0])}", _list(given[1:], call.keywords), call_sites, call)
        if name in ("sleep", "wait_for"):
            kind = "timer"
        return self._node(kind, name, _list(given, call.keywords), call_sites, call)

    def _node(self, kind: str, label: str, detail: str, call_sites: set[CallSite], at: ast.expr | ast.stmt) -> Node:
        self._left -= 1
        around = frozenset(call_sites | {self._call_site(at)} | self._awaits[-1])
        path = tuple(reversed(self._calls))
        return Node(
            kind, label[:_LABEL_LIMIT], detail[:_LABEL_LIMIT], frozenset(call_sites), self._call_site(at)[1], around, path
        )

    def _is_operation(self, call: ast.Call) -> bool:
        if isinstance(call.func, ast.Attribute) and self._is_context(call.func.value):
            return call.func.attr == "recur"
        handed = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "ctx")]
        return any(self._is_context(one) for one in handed)

    def _is_context(self, one: ast.expr) -> bool:
        if isinstance(one, ast.Attribute):
            return one.attr == "ctx"
        return isinstance(one, ast.Name) and one.id in self._function_stack[-1].contexts

    # -- helpers

    def _helper(self, call: ast.Call) -> Function | None:
        if isinstance(call.func, ast.Name):
            for outer in reversed(self._function_stack):
                if call.func.id in outer.inner:
                    return outer.inner[call.func.id]
        known = self._top.get(_last_name(call.func)) if isinstance(call.func, ast.Name | ast.Attribute) else None
        hands_on = any(self._is_context(one) for one in [*call.args, *(keyword.value for keyword in call.keywords)])
        return known if known is not None and hands_on else None

    def _inline(self, call: ast.Call, helper: Function, awaited: ast.Await | None) -> list[Item]:
        label = f"{_last_name(call.func)}({_list(call.args, call.keywords)})"
        if self._left <= 0 or any(helper is one for one in self._function_stack):
            return [self._node("call", _last_name(call.func), "not expanded", self._call_sites(call), call)]
        self.inlined.append(helper)
        self._calls.append(Call(frozenset(self._call_sites(call) | self._awaits[-1]), awaited is not None))
        try:
            body = self.read(helper)
        finally:
            self._calls.pop()
        if body.items and isinstance(body.items[-1], End) and body.items[-1].kind == "return":
            body.items.pop()  # the end of the frame already shows it
        return [Frame("helper", label[:_LABEL_LIMIT], body)] if has_nodes(body) else []

    # -- call sites

    def _call_site(self, one: ast.expr | ast.stmt) -> CallSite:
        return self._function_stack[-1].call_site(one.lineno, one.col_offset)

    def _call_sites(self, call: ast.Call, awaited: ast.Await | None = None) -> set[CallSite]:
        """Return the call sites that Python reports: its start or, in a chain over several lines, its last name."""
        found = {self._call_site(call)}
        if isinstance(call.func, ast.Attribute) and call.func.end_lineno is not None:
            end = (call.func.end_col_offset or 0) - len(call.func.attr.encode())
            if call.func.end_lineno != call.lineno:
                found = {self._function_stack[-1].call_site(call.func.end_lineno, end)}
        if awaited is not None:
            found.add(self._call_site(awaited))
        return found


def _forked(lanes: list[Lane], label: str = "") -> list[Item]:
    if len(lanes) < 2:
        return [item for lane in lanes for item in lane.body.items]
    return [Fork(lanes, label)]


def _branch(lanes: list[Lane]) -> list[Item]:
    return [Branch(lanes)] if any(has_content(lane.body) for lane in lanes) else []


def _spawns(one: ast.stmt) -> bool:
    """Return whether a statement starts an operation without awaiting it."""
    value = one.value if isinstance(one, ast.Assign | ast.AnnAssign | ast.Expr) else None
    if isinstance(value, ast.Call) and _last_name(value.func) in _SPAWNING and value.args:
        value = value.args[0]
    return isinstance(value, ast.Call)


def _catches_all(case: ast.match_case) -> bool:
    return case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def _is_asyncio_sleep(call: ast.Call) -> bool:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id == "asyncio" and _last_name(call.func) == "sleep"


def _last_name(one: ast.expr) -> str:
    """Return the name of a callee: `charge` of `shop.charge`, of `charge.with_options(...)` and of a call of either."""
    while isinstance(one, ast.Call):
        one = one.func
    if isinstance(one, ast.Attribute):
        return _last_name(one.value) if one.attr == "with_options" else one.attr
    return one.id if isinstance(one, ast.Name) else _text(one)


def _caller(func: ast.expr) -> ast.expr | None:
    """Return the expression that is evaluated before the call."""
    return func.value if isinstance(func, ast.Attribute) else func


def _list(arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> str:
    return ", ".join([_text(one) for one in arguments] + [f"{one.arg or '**'}={_text(one.value)}" for one in keywords])


def _cut(word: str, one: ast.AST | None) -> str:
    return f"{word} {_text(one)}" if one is not None else word


def _text(one: ast.AST) -> str:
    try:
        return " ".join(ast.unparse(one).split())[:_LABEL_LIMIT]
    except (RecursionError, ValueError):
        return "…"
