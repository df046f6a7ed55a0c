"""The states of a runner, the inputs that it handles, and what each input does in each state (`TABLE`).

    STARTING   the runner is made; the body is not started or replayed yet
    RUNNING    the worker owns the instance: attempts run, or are about to
    WRITING    the committer has taken a transition and has not answered it; there is never more than one
    PARKED     the instance is released and waits in memory. Its next transition is a claim as well, made under the epoch
               that the runner knows; the store refuses it if another worker was faster
    GONE       the instance has ended, or belongs to another worker: this runner does nothing more

    STARTING ──Begin, Restore──► RUNNING ──take_transition──► WRITING ──Answered: kept──────► RUNNING
                                    ▲                           ▲  └─────Answered: released──► PARKED
                                    └────────Claimed────────────┼──────────────────────────────┤
                                                                └───────take_transition────────┘

`take_transition` is no input, because it returns a value: the committer calls it when it is free to write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from romancy.errors import StoreError
from romancy.model.instance import Inbox, LoadedInstance
from romancy.model.transition import WriteResult
from romancy.worker.attempt import AttemptEnded


class RunnerIdentity(NamedTuple):
    """What does not change during the life of a runner."""

    instance_id: str
    generation: int
    round: int
    deadline_at: int | None
    blocked_by: str | None = None
    created_at: int = 0


class RunnerState:
    """A state, with the handler of each input that can come in it.

    (Not an enum: looking up a handler by a member of an enum costs as much as calling it.)
    """

    __slots__ = ("handlers", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.handlers: dict[type, Callable[[Any, Any], None]] = {}

    def __repr__(self) -> str:
        return self.name


STARTING, RUNNING, WRITING, PARKED, GONE = map(RunnerState, ("STARTING", "RUNNING", "WRITING", "PARKED", "GONE"))
STATES = (STARTING, RUNNING, WRITING, PARKED, GONE)


class Begin(NamedTuple):
    """Start the body of an instance or generation that was created here; `inbox`: what has arrived for it already."""

    at: int
    inbox: Inbox | None = None


class Restore(NamedTuple):
    """Continue an instance that was claimed and replayed, with the attempts and waits that its last owner left."""

    loaded: LoadedInstance


class TimerDue(NamedTuple):
    """The runner's timer fired."""


class ItemArrived(NamedTuple):
    """An item arrived in the inbox."""


class WaitMatched(NamedTuple):
    """An event or a message arrived for a wait of the instance."""


class Admitted(NamedTuple):
    """There is room on the worker for an instance that was queued when it was due."""


class InboxRead(NamedTuple):
    """The inbox has been read."""

    inbox: Inbox


class Claimed(NamedTuple):
    """The worker has claimed the parked instance."""

    epoch: int


class Answered(NamedTuple):
    """The transition is durable, or was refused."""

    answer: WriteResult | StoreError


class Discarded(NamedTuple):
    """The runner is removed: its attempts are abandoned and its run is evicted. Nothing is recorded."""


Input: TypeAlias = (
    Begin
    | Restore
    | TimerDue
    | ItemArrived
    | WaitMatched
    | Admitted
    | InboxRead
    | AttemptEnded
    | Claimed
    | Answered
    | Discarded
)

# fmt: off
TABLE: dict[type, tuple[str, str, str, str, str]] = {
    #              STARTING    RUNNING        WRITING         PARKED          GONE
    Begin:        ("begin",    "",            "",             "",             ""),
    Restore:      ("restore",  "",            "",             "",             ""),
    TimerDue:     ("",         "check_due",   "forget_timer", "admit_due",    ""),
    ItemArrived:  ("remember", "arrive",      "remember",     "arrive",       "ignore"),
    WaitMatched:  ("remember", "match",       "remember",     "match",        "ignore"),
    Admitted:     ("",         "ignore",      "ignore",       "check_due",    "ignore"),
    InboxRead:    ("",         "apply_read",  "remember",     "apply_read",   "ignore"),
    AttemptEnded: ("",         "record_end",  "record_end",   "ignore_stale", "ignore"),
    Claimed:      ("",         "",            "",             "own",          ""),
    Answered:     ("",         "",            "carry_out",    "",             "propagate_late"),
    Discarded:    ("discard",  "discard",     "discard",      "discard",      "ignore"),
}
# fmt: on
"""The handler of each input in each state, a method of the runner. Without one the input cannot come: that is an error."""


def bind(runner: type) -> None:
    """Give the states the methods that the table names."""
    for kind, row in TABLE.items():
        for state, name in zip(STATES, row, strict=True):
            if name:
                state.handlers[kind] = getattr(runner, f"_{name}")
