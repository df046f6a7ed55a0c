"""What a retry of a whole instance takes back: a function of its history.

A failed instance that is tried again must not repeat what stands, and must repeat what was undone. There is a cut in
the history: at the first thing that was compensated, or, if it comes first, at what made the instance fail. That is its own
timeout, or what failed last: an activity, a wait that was in vain, a limit that was exceeded (`asyncio.timeout`). When
there is nothing of all this the code failed by itself, and the cut is what it was fed last: that is given to it again
now, and mended code need not ask for it. Before the cut nothing changes. From it on, results that were not compensated are
kept, to answer the operation of the same id when the code asks for it again. So are the answers of the store: what was
consumed is gone. So is what was said: nobody hears it twice. Everything else is set aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from romancy.model.history import EFFECTS, STORE_CALLS, TIMEOUT_TIMER, Entry, Kind, Outcome, Role

_FALLIBLE = STORE_CALLS | {Kind.ACTIVITY}
_LASTING = _FALLIBLE | EFFECTS - {Kind.REGISTRATION}
"""What is done once, whatever becomes of the instance."""
_PREFIX = "compensate:"
_LIVE = (Role.FED, Role.OUT_OF_BAND)


@dataclass(frozen=True, slots=True)
class Rewind:
    """The entries whose role changes, by `seq`, and whether anything had been compensated."""

    roles: tuple[tuple[int, Role], ...]
    compensated: bool


def rewind(history: Sequence[Entry]) -> Rewind:
    """Which entries of a failed instance change their role when it is retried."""
    live = [entry for entry in history if entry.role in _LIVE]
    compensated = {entry.op.removeprefix(_PREFIX) for entry in live if _ran_compensation(entry)}
    cut = _cut(live, compensated)
    roles = ((entry.seq, _role(entry, compensated, cut)) for entry in live if entry.seq >= cut)
    return Rewind(tuple((seq, role) for seq, role in roles if role is not None), compensated=bool(compensated))


def _ran_compensation(entry: Entry) -> bool:
    # One that failed may have done half its work: what it belongs to counts as undone too.
    return entry.kind is Kind.COMPENSATION and entry.outcome in (Outcome.OK, Outcome.ERROR)


def _cut(live: Sequence[Entry], compensated: set[str]) -> int:
    fed = [entry for entry in live if entry.role is Role.FED]
    # After a timeout of the whole workflow only what it led to: what had failed before was dealt with.
    causes = [entry.seq for entry in fed if entry.kind is Kind.TIMEOUT][:1] or [
        entry.seq for entry in fed if _failed(entry)
    ][-1:]
    causes += [entry.seq for entry in live if entry.op in compensated and _can_be_compensated(entry)]
    # Without any, the body failed by itself with what it was fed last.
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
