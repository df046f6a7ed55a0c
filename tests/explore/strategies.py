"""Strategies that choose what happens next: at random, by a script, or exhaustively."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

_NUMBER = re.compile(r"\b\d+/")
"""The number of the round, with which all names begin."""


class Option(NamedTuple):
    """One thing that can happen next."""

    name: str
    do: Callable[[], Coroutine[Any, Any, None]]
    weight: float = 1.0


class Strategy(Protocol):
    """Chooses among the options."""

    injects_faults: bool
    """Time passes, processes poll and are declared dead, commits fail, instances are paused and ended."""
    crashes: int
    """How many more times a process may die."""
    delays: int
    """How many more times time may pass, if no faults are injected."""

    def choose(self, options: Sequence[Option]) -> int | None:
        """The index of an option; None to end the round."""
        ...


class RandomStrategy:
    """Chooses at random."""

    injects_faults = True

    def __init__(self, seed: int, *, crashes: int = 0) -> None:
        self.crashes = crashes
        self.delays = 0
        self._random = random.Random(seed)

    def choose(self, options: Sequence[Option]) -> int:
        """The index of a random option."""
        weights = [option.weight for option in options]
        return self._random.choices(range(len(options)), weights)[0]


class ScriptedStrategy:
    """Chooses options by name; of several with one name the oldest, or the newest for a name with the prefix `newest`.

    `may` lists options that follow if they are possible: in a regression test the fixed engine may not offer them.
    """

    injects_faults = True

    def __init__(self, *must: str, may: Sequence[str] = ()) -> None:
        self.crashes = self.delays = 0
        self._must = list(must)
        self._may = list(may)

    def choose(self, options: Sequence[Option]) -> int | None:
        """The index of the next option of the script; None at its end."""
        if self._must:
            return _find(options, self._must.pop(0))[0]
        while self._may:
            if found := _find(options, self._may.pop(0)):
                return found[0]
        return None


def _find(options: Sequence[Option], name: str) -> list[int]:
    found = [index for index, option in enumerate(options) if option.name == name.removeprefix("newest ")]
    return found[::-1] if name.startswith("newest ") else found


class _Step(NamedTuple):
    """A decision of a round."""

    chosen: int
    of: int
    names: str


class ExhaustiveStrategy:
    """Chooses in every possible way, one round after another."""

    injects_faults = False

    def __init__(self, *, crashes: int = 0, delays: int = 0) -> None:
        self.crashes = crashes
        self.delays = delays
        self._most = (crashes, delays)
        self._path: list[_Step] = []
        """The decisions with which this round begins; after them the first option is taken."""
        self._taken: list[_Step] = []

    def choose(self, options: Sequence[Option]) -> int:
        """The index of the option on the current path."""
        place, names = len(self._taken), ", ".join(_NUMBER.sub("", option.name) for option in options)
        step = self._path[place] if place < len(self._path) else _Step(0, len(options), names)
        if step.names != names:
            raise AssertionError(f"the same decisions led to {names}; before, to {step.names}")
        self._taken.append(step)
        return step.chosen

    def next(self) -> bool:
        """Move to the next path; False if there is none."""
        path, self._taken = self._taken, []
        while path and path[-1].chosen + 1 == path[-1].of:
            path.pop()
        if path:
            path[-1] = path[-1]._replace(chosen=path[-1].chosen + 1)
        self._path = path
        self.crashes, self.delays = self._most
        return bool(path)
