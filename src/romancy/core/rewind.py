"""Decides which part of its history a failed instance keeps when it is retried.

A retried instance must not repeat operations whose results stand, and must repeat operations that were compensated. Its
history is cut at the first operation that was compensated or, if that comes earlier, at the cause of the failure:

- the timeout of the instance; or
- the last failure that the code was fed: of an activity, a wait that timed out, a limit (`asyncio.timeout`); or
- if there is none, the code failed by itself, and the cut is the last entry that it was fed. The instance is fed that again,
  unless its fixed code no longer issues the operation.

Entries before the cut do not change. From the cut on, these are retained, and resolve the operation of the same id when the
code issues it again: results that were not compensated, replies of the store (what they consumed is gone), and effects (an
event or message must not be sent twice). All other entries are discarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from romancy.model.history import EFFECTS, STORE_CALLS, TIMEOUT_TIMER, Entry, Kind, Outcome, Role

_FALLIBLE = STORE_CALLS | {Kind.ACTIVITY}
_LASTING = _FALLIBLE | EFFECTS - {Kind.REGISTRATION}
"""Kinds of operations that are never repeated once they succeeded, unless they were compensated."""
_PREFIX = "compensate:"
_LIVE = (Role.FED, Role.OUT_OF_BAND)


@dataclass(frozen=True, slots=True)
class Rewind:
    """The entries whose role changes, by `seq`, and whether anything had been compensated."""

    roles: tuple[tuple[int, Role], ...]
    compensated: bool


def rewind(history: Sequence[Entry]) -> Rewind:
    """Return which entries of a failed instance change their role when it is retried."""
    live = [entry for entry in history if entry.role in _LIVE]
    compensated = {entry.op.removeprefix(_PREFIX) for entry in live if _ran_compensation(entry)}
    cut = _cut(live, compensated)
    roles = ((entry.seq, _role(entry, compensated, cut)) for entry in live if entry.seq >= cut)
    return Rewind(tuple((seq, role) for seq, role in roles if role is not None), compensated=bool(compensated))


def _ran_compensation(entry: Entry) -> bool:
    # A compensation that failed may have done part of its work, so its operation counts as compensated too.
    return entry.kind is Kind.COMPENSATION and entry.outcome in (Outcome.OK, Outcome.ERROR)


def _cut(live: Sequence[Entry], compensated: set[str]) -> int:
    fed = [entry for entry in live if entry.role is Role.FED]
    # If the whole workflow timed out, that is the cause: the code has handled the failures before it.
    causes = [entry.seq for entry in fed if entry.kind is Kind.TIMEOUT][:1] or [
        entry.seq for entry in fed if _failed(entry)
    ][-1:]
    causes += [entry.seq for entry in live if entry.op in compensated and _can_be_compensated(entry)]
    # Without a cause, the body failed by itself after the entry that it was fed last.
    return min(causes, default=fed[-1].seq if fed else 0)


def _can_be_compensated(entry: Entry) -> bool:
    return entry.kind in (Kind.ACTIVITY, Kind.REGISTRATION)


def _failed(entry: Entry) -> bool:
    if entry.kind is Kind.TIMER:
        return entry.name == TIMEOUT_TIMER
    return entry.kind in _FALLIBLE and entry.outcome is Outcome.ERROR


def _role(entry: Entry, compensated: set[str], cut: int) -> Role | None:
    if entry.kind is Kind.START:
        return None
    if entry.kind is Kind.TIMER:
        return Role.RETAINED if entry.seq == cut and not _failed(entry) else Role.DISCARDED
    stands = entry.kind in _LASTING and entry.outcome is Outcome.OK and entry.op not in compensated
    return Role.RETAINED if stands else Role.DISCARDED
