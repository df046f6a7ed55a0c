"""Tables, records and progress bars for people. No other module imports rich."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from romancy.cli.output import Column, RecordSection
from romancy.cli.terminal_text import escape, escape_lines

_UNBOUNDED = 4000
"""The width of output that is not a terminal. It is large, because wrapped lines are hard to read for programs."""
_STYLES = {
    "completed": "green",
    "ok": "green",
    "alive": "green",
    "healthy": "green",
    "done": "green",
    "failed": "bold red",
    "error": "bold red",
    "stuck": "bold red",
    "blocked": "bold red",
    "dead": "bold red",
    "silent": "bold red",
    "terminated": "red",
    "cancelled": "red",
    "aborted": "red",
    "compensating": "magenta",
    "waiting_for_event": "magenta",
    "waiting_for_message": "magenta",
    "waiting_for_timer": "magenta",
    "warning": "yellow",
    "slow": "yellow",
    "paused": "yellow",
    "running": "cyan",
    "pending": "cyan",
}


def table(title: str, columns: Sequence[Column[Any]], items: Sequence[Any]) -> None:
    """Print rows as a table."""
    drawn = Table(
        box=SIMPLE_HEAD, title=Text(title) if title else None, title_justify="left", title_style="dim", pad_edge=False
    )
    for column in columns:
        drawn.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for item in items:
        drawn.add_row(*(_cell(column, item) for column in columns))
    with _console() as console:
        console.print(drawn)


def _cell(column: Column[Any], item: Any) -> Text:
    text = escape(column.value(item))
    return Text(text, style=_STYLES.get(text, "") if column.status else "")


def record(sections: Sequence[RecordSection]) -> None:
    """Print the sections of a record."""
    with _console() as console:
        for at, section in enumerate(sections):
            if at:
                console.print()
            if section.title:
                console.print(Text(section.title, style="bold"))
            if section.fields:
                console.print(_grid(section.fields))
            if section.text:
                console.print(Text(escape_lines(section.text)), soft_wrap=True)


def _grid(fields: Sequence[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for name, value in fields:
        text = escape_lines(value)
        grid.add_row(Text(escape(name)), Text(text, style=_STYLES.get(text, "")))
    return grid


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Any]:
    """Show a progress bar on standard error. Yields a function that takes the number of finished items."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)

        def show(done: int, of: int | None = None) -> None:
            bar.update(task, completed=done, total=of if of is not None else total)

        yield show


@contextmanager
def _console() -> Iterator[Console]:
    """Yield a console. Output that is not a terminal gets unwrapped lines without trailing spaces."""
    if sys.stdout.isatty():
        yield Console(highlight=False)
        return
    console = Console(highlight=False, width=_UNBOUNDED)
    with console.capture() as captured:
        yield console
    lines = [line.rstrip() for line in captured.get().rstrip().splitlines()]
    print("\n".join(line for line in lines), flush=True)
