"""`romancy completion bash|zsh|fish`: prints a script that lets the shell complete commands and options.

The script is generated from the parser and contains every word, so completion is fast and needs no database.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from romancy.cli.exit_codes import Exit
from romancy.cli.output import write
from romancy.model.status import Status


@dataclass(frozen=True, slots=True)
class Level:
    """A command: its path, and the words that can follow it."""

    path: str
    """For example `batch list`; empty for `romancy` itself."""
    words: tuple[str, ...]
    options: tuple[str, ...]
    values: tuple[tuple[str, tuple[str, ...]], ...]
    """The options that accept only certain values, with these values."""


_STATUS = (*(status.value for status in Status if status is not Status.RECURRED), "waiting", "live", "ended")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    command = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Print a script that completes commands and options. For bash: source <(romancy completion bash)",
    )
    command.add_argument("shell", choices=list(_SHELLS), metavar="SHELL", help=f"one of {', '.join(_SHELLS)}")
    command.set_defaults(do=show, parser=command)


def show(given: Namespace) -> int:
    """Print the script."""
    write(_SHELLS[given.shell](list(levels(given.whole))))
    return Exit.OK


def levels(parser: argparse.ArgumentParser, path: str = "") -> Iterator[Level]:
    """Yield a level for the parser, and for every command below it."""
    inner: dict[str, argparse.ArgumentParser] = {}
    options: list[str] = []
    values: list[tuple[str, tuple[str, ...]]] = []
    words: list[str] = []
    for action in parser._actions:
        chosen = tuple(str(one) for one in action.choices or ())
        if isinstance(action, argparse._SubParsersAction):
            inner = dict(action.choices)
        elif action.option_strings:
            options += action.option_strings
            known = _STATUS if "--status" in action.option_strings else chosen
            values += [(name, known) for name in action.option_strings if known]
        else:
            words += chosen
    yield Level(path, (*inner, *words), tuple(options), tuple(values))
    for name, command in inner.items():
        yield from levels(command, f"{path} {name}".strip())


def _bash(found: list[Level]) -> str:
    steps = "\n".join(f"            '{_step(one)}') at='{one.path}' ;;" for one in found if one.path)
    offers = "\n".join(f"        '{one.path}') offered='{' '.join((*one.words, *one.options))}' ;;" for one in found)
    values = "\n".join(f"        {pattern}) offered='{' '.join(known)}' ;;" for pattern, known in _values(found))
    return _BASH.format(steps=steps, offers=offers, values=values)


def _zsh(found: list[Level]) -> str:
    steps = "\n".join(f"            '{_step(one)}') at='{one.path}' ;;" for one in found if one.path)
    offers = "\n".join(f"        '{one.path}') offered=({' '.join((*one.words, *one.options))}) ;;" for one in found)
    values = "\n".join(f"        {pattern}) offered=({' '.join(known)}) ;;" for pattern, known in _values(found))
    return _ZSH.format(steps=steps, offers=offers, values=values)


def _fish(found: list[Level]) -> str:
    steps = "\n".join(f"            case '{_step(one)}'\n                set at '{one.path}'" for one in found if one.path)
    offers: list[str] = []
    for one in found:
        here = f"complete -c romancy -n \"test (__romancy_at) = '{one.path}'\""
        if one.words:
            offers.append(f"{here} -f -a '{' '.join(one.words)}'")
        known = dict(one.values)
        for option in one.options:
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            offers.append(f"{here} {flag}" + (f" -x -a '{' '.join(known[option])}'" if option in known else ""))
    return _FISH.format(steps=steps, offers="\n".join(offers))


def _step(one: Level) -> str:
    """Return the key of the step that leads to a level: the path before it, and its last word."""
    before, _, word = one.path.rpartition(" ")
    return f"{before}>{word}"


def _values(found: list[Level]) -> list[tuple[str, tuple[str, ...]]]:
    return list({f"'{option}'": known for one in found for option, known in one.values}.items())


_BASH = """\
# romancy: completion for bash.  source <(romancy completion bash)
_romancy() {{
    local at='' offered='' word i current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${{COMP_WORDS[i]}}"
        case "$at>$word" in
{steps}
        esac
    done
    case "$at" in
{offers}
    esac
    case "$previous" in
{values}
    esac
    COMPREPLY=($(compgen -W "$offered" -- "$current"))
}}
complete -o bashdefault -o default -F _romancy romancy"""
_ZSH = """\
#compdef romancy
# romancy: completion for zsh.  source <(romancy completion zsh)
_romancy() {{
    local at='' word
    local -a offered
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        case "$at>$word" in
{steps}
        esac
    done
    case "$at" in
{offers}
    esac
    case "${{words[CURRENT-1]}}" in
{values}
    esac
    compadd -- "${{offered[@]}}" || _files
}}
compdef _romancy romancy"""
_FISH = """\
# romancy: completion for fish.  romancy completion fish | source
function __romancy_at
    set -l at ''
    for word in (commandline -opc)[2..]
        switch "$at>$word"
{steps}
        end
    end
    echo -- $at
end
{offers}"""
_SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
