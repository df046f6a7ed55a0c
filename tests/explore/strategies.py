"""Who decides what happens next: chance, or everything in turn."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

_NUMBER = re.compile(r"\b\d+/")
"""What names begin with: the number of their round."""


class Option(NamedTuple):
    """Something that can happen next."""

    name: str
    do: Callable[[], Coroutine[Any, Any, None]]
    weight: float = 1.0


class Chooser(Protocol):
    """Decides."""

    disturbs: bool
    """Time passes, processes look unasked and are held for dead, commits fail, instances are paused and ended."""
    crashes: int
    """How often a process may still die."""
    delays: int
    """How often time may still pass where nothing else disturbs."""

    def choose(self, options: Sequence[Option]) -> int | None:
        """Which of them; None: nothing more is to be decided."""
        ...


class Chance:
    """Decides by chance."""

    disturbs = True

    def __init__(self, seed: int, *, crashes: int = 0) -> None:
        self.crashes = crashes
        self.delays = 0
        self._random = random.Random(seed)

    def choose(self, options: Sequence[Option]) -> int:
        """Which of them."""
        weights = [option.weight for option in options]
        return self._random.choices(range(len(options)), weights)[0]


class Script:
    """Decides as it is written, by names; of several of one name for the oldest, or for the `newest`.

    `may` is what follows if it is possible: where something went wrong once, it should not be.
    """

    disturbs = True

    def __init__(self, *must: str, may: Sequence[str] = ()) -> None:
        self.crashes = self.delays = 0
        self._must = list(must)
        self._may = list(may)

    def choose(self, options: Sequence[Option]) -> int | None:
        """Which of them; none when the script ends."""
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
    """A decision of a round: which of how many."""

    chosen: int
    of: int
    names: str


class Every:
    """Decides in every way there is, one round after another."""

    disturbs = False

    def __init__(self, *, crashes: int = 0, delays: int = 0) -> None:
        self.crashes = crashes
        self.delays = delays
        self._most = (crashes, delays)
        self._path: list[_Step] = []
        """How this round begins; where it ends, the first option is taken."""
        self._taken: list[_Step] = []

    def choose(self, options: Sequence[Option]) -> int:
        """Which of them."""
        place, names = len(self._taken), ", ".join(_NUMBER.sub("", option.name) for option in options)
        step = self._path[place] if place < len(self._path) else _Step(0, len(options), names)
        if step.names != names:
            raise AssertionError(f"the same decisions led to {names}; before, to {step.names}")
        self._taken.append(step)
        return step.chosen

    def next(self) -> bool:
        """Begin the next way; False if there is none."""
        path, self._taken = self._taken, []
        while path and path[-1].chosen + 1 == path[-1].of:
            path.pop()
        if path:
            path[-1] = path[-1]._replace(chosen=path[-1].chosen + 1)
        self._path = path
        self.crashes, self.delays = self._most
        return bool(path)
