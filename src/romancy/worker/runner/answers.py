"""What follows from the store's answer to a transition: the runner carries it out, or the instance is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from romancy.codec import is_encoded, not_decoded
from romancy.core.execution import Phase
from romancy.errors import CodecError, DeterminismViolationError, StoreError
from romancy.model.history import Outcome
from romancy.model.messaging import StoreCall, StoreReply
from romancy.model.status import Status
from romancy.model.transition import Applied, Transition, WriteResult
from romancy.worker.pending_writes import owned_starts
from romancy.worker.runner.state import GONE, PARKED, RUNNING
from romancy.worker.runner.transition import starts_of

if TYPE_CHECKING:
    from romancy.worker.runner.runner import InstanceRunner

# Module names for enum members: before Python 3.12, looking up a member of an enum takes as long as a call.
_COMPENSATING, _PAUSED = Phase.COMPENSATING, Status.PAUSED


def carry_out(runner: InstanceRunner, transition: Transition, answer: WriteResult | StoreError) -> None:
    """Carry out a transition that is durable, or drop the instance because the transition was refused.

    The order of the steps matters; each comment says why.
    """
    # First: everything below may feed the run, read the inbox or discard the runner, which differ during a write.
    runner.state = RUNNING if runner.owned else PARKED
    if transition.effects:
        runner.worker.pending_writes.end(owned_starts(starts_of(transition)))
    if not isinstance(answer, Applied):
        _refused(runner, answer)
        return
    runner.epoch = transition.new_epoch
    runner.owned, runner.state = answer.owned, RUNNING if answer.owned else PARKED
    # Before `unread` is computed: with `caught_up`, the replies are all that has arrived.
    if answer.caught_up:
        runner.inbox.seen = answer.inbox_version
    if transition.consumed_items:
        runner.inbox.mark_committed(transition.consumed_items)
    # Before the body moves on: here the run is exactly what its stored history says.
    if runner.worker.on_committed is not None:
        runner.worker.on_committed(runner)
    # A reply that this process cannot decode blocks the instance, below. Hooks are not called: they could not read it.
    encoded = next((one.value for one in answer.replies if is_encoded(one.value)), None) if answer.replies else None
    if runner.worker.hook_dispatcher is not None and encoded is None:
        runner.worker.hook_dispatcher.committed(runner, transition, answer, runner.hook_extras)
    # Before every return below: instances that this commit woke or started depend on it.
    if transition.effects or answer.woken or answer.started:  # a plain step has none of them and saves the call
        propagate(runner, transition, answer)
    if transition.recur is not None:
        # The next generation gets a runner of its own: a read of the inbox that is under way is lost with this one.
        unread = answer.inbox_version != runner.inbox.seen or runner.inbox.must_reread or runner.inbox.is_reading
        runner.worker.start_next_generation(runner, transition.recur.input, transition.now, unread=unread)
        return
    # If the instance is still owned, the store did not end it, because something arrived that the run has not seen
    # (a cancellation): it reads its inbox below. The same holds for a pause.
    if transition.ending is not None and not answer.owned:
        runner.worker.instance_ended(runner, transition.status, transition.ending)
        return
    if transition.status is _PAUSED and not answer.owned:
        runner.worker.drop(runner)
        return
    attempts = runner.attempts
    launching, attempts.starting = attempts.starting, []
    # No replies: nothing had arrived before the bound, so the timer that is due may fire (`_continue`).
    if transition.store_calls and not answer.replies:
        runner.waits.answered_until = transition.store_calls[0].before or 0
    if encoded is not None:
        runner.worker.block(runner, not_decoded("the received event or message", encoded))
        return
    # The store has recorded the replies as the next entries of the history: they must be fed before anything else.
    if answer.replies:
        _resume_with_replies(runner, transition.store_calls, answer.replies)
        if runner.state is GONE:
            return
    unread = answer.inbox_version != runner.inbox.seen or runner.inbox.must_reread
    if unread:  # read the inbox before starting anything: it may hold a cancellation or a pause
        attempts.held += launching
        runner.read_inbox()
    elif answer.owned:
        attempts.launch(runner, launching)
    if not answer.owned:
        runner.worker.park(runner)
        runner.arm_timer()
    else:
        _continue(runner)
    # After the replies, as in the history.
    if attempts.deferred_ends:
        ended, attempts.deferred_ends = attempts.deferred_ends, []
        for one in ended:
            runner.handle(one)


def propagate(runner: InstanceRunner, transition: Transition, answer: Applied) -> None:
    """Wake the relays and the instances that this commit concerns, even if this runner was dropped during the write."""
    if transition.effects:
        runner.worker.announce_outbox(transition.effects)
    if answer.woken or answer.started:
        runner.worker.propagate(answer, starts_of(transition))


def _refused(runner: InstanceRunner, answer: WriteResult | StoreError) -> None:
    if isinstance(answer, CodecError):
        runner.worker.block(runner, str(answer))
    elif isinstance(answer, StoreError):
        runner.worker.block(runner, f"its state cannot be stored: {answer}")
    else:
        runner.worker.instance_lost(runner)


def _resume_with_replies(
    runner: InstanceRunner, store_calls: tuple[StoreCall, ...], replies: tuple[StoreReply, ...]
) -> None:
    """Resume the body with the store's replies, and repeat the store calls that got none."""
    runner.waits.mark_resolved(reply.op for reply in replies)
    try:
        runner.execution.feed_replies(*replies)
    except DeterminismViolationError as error:
        runner.worker.block(runner, str(error))
        return
    answered = {reply.op: reply for reply in replies}
    for store_call in store_calls:
        reply = answered.get(store_call.entry.op)
        if reply is None:
            runner.waits.repeat_call(store_call.entry.op, runner.execution.run)
        elif reply.outcome is Outcome.OK:
            runner.worker.metrics.count_reply(store_call.entry.kind)


def _continue(runner: InstanceRunner) -> None:
    if runner.inbox.is_reading:
        return  # the runner continues when the inbox has been read: it may hold a cancellation or a pause
    # Not while an entry is unwritten: the next compensation may follow from it.
    execution, attempts = runner.execution, runner.attempts
    if execution.phase is _COMPENSATING and not runner.inbox.pausing and not execution.has_entries:
        attempts.compensate_next(runner)
    if runner.waits.answered_until:
        runner.check_due()
    elif (
        # Something is to be written, or to be collected from the execution.
        execution.has_entries
        or execution.store_calls
        or execution.effects
        or execution.new_activities
        or attempts.new
        or attempts.rows
        or attempts.closed
        or runner.waits.calls
        or runner.draft.effects
        or not attempts.is_busy(runner)
    ):
        runner.progress()
    else:
        runner.arm_timer()
