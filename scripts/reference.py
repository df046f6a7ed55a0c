"""Writes docs/reference/names.md: every public name with its signature and docstring, as they stand in the code.

    python scripts/reference.py           writes the page
    python scripts/reference.py --check   only checks whether the page is current, as a test does

The page is kept in the repository, so that building the site imports no code and a commit shows changes of the public API.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "names.md"
WIDTH = 100
MODULES = ("romancy", "romancy.testing", "romancy.brokers")
GIVEN = {"Activity", "ActivityContext", "Broker", "Operation", "Workflow", "WorkflowContext", "WorkflowHandle"}
"""Classes whose objects users never make themselves: the page leaves out their parameters."""

HEAD = """\
# All names

Every public name with its signature and what the code says about it. `scripts/reference.py` writes this page from the
docstrings; the other pages of the reference say more, and in an order that can be read.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    seen = set[int]()
    for module in MODULES:
        imported = importlib.import_module(module)
        fresh = {name: one for name in imported.__all__ if id(one := getattr(imported, name)) not in seen}
        seen |= {id(one) for one in fresh.values()}
        for heading, names in grouped(module, fresh).items():
            parts.append(f"## {heading}\n")
            parts += [part for name in names for part in entry(name, fresh[name], set(imported.__all__))]
    return "\n".join(parts)


def grouped(module: str, names: dict[str, Any]) -> dict[str, list[str]]:
    """Return the names of a module by heading."""
    if module != "romancy":
        return {f"In {module}": list(names)}
    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": [], "Others": []}
    for name, one in names.items():
        groups[kind(one)].append(name)
    return groups


def kind(one: Any) -> str:
    """Return the heading for a name of `romancy`."""
    if inspect.isfunction(one):
        return "Functions"
    if not inspect.isclass(one):
        return "Others"
    return "Errors" if issubclass(one, Exception) else "Classes"


def entry(name: str, one: Any, public: set[str]) -> Iterator[str]:
    """Yield the entry of a name: signature, docstring and members."""
    yield f"### `{name}`\n"
    if inspect.isfunction(one):
        yield block(signature(name, definition(one)))
        yield prose(one.__doc__)
    elif inspect.isclass(one):
        yield block(class_line(name, one, public))
        yield prose(one.__doc__)
        for member, function in members(one, public):
            yield f"#### `{name}.{member}`\n"
            yield block(signature(member, definition(function), method=True))
            yield prose(function.__doc__)
    else:
        yield block(f"{name} = {shown(one)}")


def shown(value: Any) -> str:
    return repr(value) if isinstance(value, str | tuple) else str(value)


def block(code: str) -> str:
    """Return a block of code, with the project's quotes instead of those of `ast`."""
    return re.sub(r"'([^'\"]*)'", r'"\1"', f"```py\n{code}\n```\n")


def definition(one: Any) -> Any:
    """Return the syntax tree of a function or class."""
    return ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]


def class_line(name: str, cls: type, public: set[str]) -> str:
    """Return the constructor of a class; for records and enums, their fields and values."""
    node = definition(cls)
    bases = [base.__name__ for base in cls.__bases__ if base.__name__ in public or base.__module__ in ("builtins", "enum")]
    head = f"class {name}({', '.join(bases)})".replace("(object)", "").replace("()", "")
    kinds = (ast.AnnAssign, ast.Assign) if issubclass(cls, Enum) else (ast.AnnAssign,)
    lines = [ast.unparse(line) for line in node.body if isinstance(line, kinds)]
    held = [without_field(line) for line in lines if not line.startswith("_") and name not in GIVEN]
    made = vars(cls).get("__init__")
    if held:
        return "\n    ".join([f"{head}:", *held])
    if inspect.isfunction(made) and name not in GIVEN:
        return f"{head}\n\n{signature(name, definition(made), method=True, result=False)}"
    return head


def without_field(line: str) -> str:
    """Return a field of a record, without the arguments of `field`."""
    start, _, told = line.partition(" = field(")
    return f"{start} = ..." if "default" in told else start


def members(cls: type, public: set[str]) -> Iterator[tuple[str, Any]]:
    """Return the public methods and properties, including those of bases without an entry of their own."""
    told = set[str]()
    elsewhere = {base for parent in cls.__mro__[1:] if parent.__name__ in public for base in parent.__mro__}
    for base in cls.__mro__:
        if not base.__module__.startswith("romancy") or base in elsewhere:
            continue
        for name, one in vars(base).items():
            function = one.fget if isinstance(one, property) else getattr(one, "__func__", one)
            if not name.startswith("_") and inspect.isfunction(function) and function.__doc__ and name not in told:
                told.add(name)
                yield name, function


def signature(name: str, node: Any, *, method: bool = False, result: bool = True) -> str:
    """Return the signature of a function, `async def name(...) -> Result`; a long one has a line for each parameter."""
    given = [one for one in split(ast.unparse(node.args)) if one != "**unknown: Never"]
    decorators = {ast.unparse(one) for one in node.decorator_list}
    if method and "staticmethod" not in decorators:
        given = given[2:] if given[1:2] == ["/"] else given[1:]
    if "property" in decorators:
        return f"{name}: {ast.unparse(node.returns)}"
    returns = f" -> {ast.unparse(node.returns)}" if result and node.returns is not None else ""
    start = "async def " if isinstance(node, ast.AsyncFunctionDef) else "def " if result else ""
    line = f"{start}{name}({', '.join(given)}){returns}"
    if len(line) <= WIDTH:
        return line
    return f"{start}{name}(\n" + "".join(f"    {one},\n" for one in given) + f"){returns}"


def split(parameters: str) -> list[str]:
    """Split parameters at the commas outside of brackets."""
    parts, depth = [""], 0
    for character in parameters:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [re.sub(r"^(\w+: [^=]+)=", r"\1 = ", part.strip()) for part in parts if part.strip()]


def prose(docstring: str | None) -> str:
    """Return a docstring as Markdown; its examples become blocks."""
    text = inspect.cleandoc(docstring or "")
    return re.sub(r"^>>> .*(?:\n.+)*", fenced, text, flags=re.MULTILINE) + "\n"


def fenced(example: re.Match[str]) -> str:
    lines = [line[4:] if line.startswith((">>>", "...")) else f"# {line}" for line in example[0].splitlines()]
    return "```py\n" + "\n".join(lines) + "\n```"


def main() -> int:
    """Write the page, or check whether it is current."""
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print("docs/reference/names.md is not current: run scripts/reference.py and commit the page.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
