"""The reference model of channels finds each fault that is planted in the engine."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar

import pytest
from tests.property import channel_instances
from tests.property.channel_instances import Divergence
from tests.property.test_channels_model import STEPS, Channels

from romancy.core.execution import Execution
from romancy.model.history import Entry
from romancy.model.messaging import ChannelMode, Effect, LeaveGroup, SendTo
from romancy.store.sql import channels, transitions
from romancy.store.sql.json_params import as_json
from romancy.store.sql.messaging import MessagingTransaction
from romancy.store.sql.unit_of_work import InstanceState, UnitOfWork
from romancy.store.sqlite import cursor as sqlite_cursor
from romancy.store.sqlite.cursor import SqliteCursor
from romancy.store.sqlite.statements import get_statement
from romancy.worker.attempt import Attempt
from romancy.worker.runner.attempts import RunnerAttempts
from romancy.worker.runner.runner import InstanceRunner

Plant = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def _short_limit(monkeypatch: Plant) -> None:
    """Shorten the time limit for rounds that a planted fault makes endless."""
    monkeypatch.setattr(channel_instances, "_TIME_LIMIT", 3.0)


def found(attempts: int = 100, steps: Sequence[str] = STEPS, **options: Any) -> str | None:
    """The first divergence from the model, if there is one."""
    rng = Random(1)

    class Planted(Channels):
        environment: ClassVar[dict[str, Any]] = options

    for _ in range(attempts):
        machine = Planted()
        try:
            _run_machine(machine, [rng.choice(steps) for _ in range(15)], rng)
        except Divergence as divergence:
            return str(divergence)
    return None


def _run_machine(machine: Channels, steps: Sequence[str], rng: Random) -> None:
    """Run steps like Hypothesis does, but without a second search for a divergence."""
    try:
        machine.open(rng.getrandbits(32))
        for step in steps:
            machine.run_step(step, rng.getrandbits(32))
    finally:
        machine.teardown()


def test_without_a_fault_nothing_is_found() -> None:
    assert found(attempts=5) is None


# --- recipients


def test_a_broadcast_that_misses_a_subscriber_is_found(monkeypatch: Plant) -> None:
    original = channels._wake_recipients

    def drop_last_recipient(cursor: SqliteCursor, seq: int, now: int) -> list[str]:
        recipients = cursor.raw.execute("SELECT instance_id FROM romancy_deliveries WHERE seq = ?", (seq,)).fetchall()
        if len(recipients) > 1:
            cursor.raw.execute("DELETE FROM romancy_deliveries WHERE seq = ? AND instance_id = ?", (seq, recipients[-1][0]))
        return original(cursor, seq, now)

    monkeypatch.setattr(channels, "_wake_recipients", drop_last_recipient)
    assert found()


def test_a_competing_message_that_is_given_twice_is_found(monkeypatch: Plant) -> None:
    original = channels.take

    def keep(cursor: SqliteCursor, instance_id: str, channel: str, seq: int) -> None:
        if not cursor.raw.execute("SELECT pooled FROM romancy_messages WHERE seq = ?", (seq,)).fetchone()[0]:
            original(cursor, instance_id, channel, seq)

    monkeypatch.setattr(channels, "take", keep)
    assert found()


def test_a_message_that_overtakes_an_older_one_is_found(monkeypatch: Plant) -> None:
    def newest(name: str) -> str:
        return get_statement(name).replace("min(seq)", "max(seq)") if name == "first_delivery" else get_statement(name)

    monkeypatch.setattr(sqlite_cursor, "get_statement", newest)
    assert found()


def test_a_message_that_overtakes_an_older_one_in_the_pool_is_found(monkeypatch: Plant) -> None:
    original = channels.find

    def own_first(cursor: SqliteCursor, instance_id: str, channel: str, mode: str, before: int | None) -> Any:
        own = original(cursor, instance_id, channel, ChannelMode.DIRECT, before)
        return own if own is not None else original(cursor, instance_id, channel, mode, before)

    monkeypatch.setattr(channels, "find", own_first)
    assert found()


# --- sending


def test_a_message_of_a_failed_attempt_is_found(monkeypatch: Plant) -> None:
    original = RunnerAttempts.schedule_retry

    def send_on_failure(self: RunnerAttempts, runner: InstanceRunner, attempt: Attempt, error: BaseException) -> bool:
        key = f"{attempt.work.op}:{attempt.number}"
        runner.draft.effects += [runner.with_ids(key, effect) for effect in attempt.effects]
        return original(self, runner, attempt, error)

    monkeypatch.setattr(RunnerAttempts, "schedule_retry", send_on_failure)
    assert found()


def test_a_message_that_replay_sends_again_is_found(monkeypatch: Plant) -> None:
    original = Execution._handle_effect

    def emit_again(self: Execution, issue: Any, recorded: bool) -> None:
        original(self, issue, recorded)
        if recorded and issue.detail is not None:
            self.effects.append((issue.op, issue.detail))

    monkeypatch.setattr(Execution, "_handle_effect", emit_again)
    assert found(cache_size=0)


def test_a_message_to_an_ended_instance_is_found(monkeypatch: Plant) -> None:
    original = MessagingTransaction.send

    def ignore_result(self: MessagingTransaction, sent: SendTo) -> Any:
        original(self, sent)

    monkeypatch.setattr(MessagingTransaction, "send", ignore_result)
    assert found()


def test_a_message_that_is_not_recorded_is_found(monkeypatch: Plant) -> None:
    """A message is consumed in the commit that records it; this fault loses the record in a crash."""
    original = UnitOfWork.add_history

    def drop_messages(self: UnitOfWork, state: InstanceState, entries: Sequence[Entry]) -> None:
        original(self, state, [entry for entry in entries if entry.kind != "message"])

    monkeypatch.setattr(UnitOfWork, "add_history", drop_messages)
    assert found()


# --- membership


def test_a_mode_that_is_not_checked_is_found(monkeypatch: Plant) -> None:
    def subscribe_unchecked(cursor: SqliteCursor, instance_id: str, channel: str, mode: ChannelMode, now: int) -> None:
        own = cursor.first("subscription", (channel, instance_id))
        if own is None:
            cursor.run("subscribe", (channel, instance_id, mode, now))

    monkeypatch.setattr(channels, "subscribe", subscribe_unchecked)
    assert found()


def test_a_mode_that_outlives_its_last_subscriber_is_found(monkeypatch: Plant) -> None:
    original = channels.subscribe
    used: dict[str, ChannelMode] = {}

    def remember_mode(cursor: SqliteCursor, instance_id: str, channel: str, mode: ChannelMode, now: int) -> str | None:
        if mode is not ChannelMode.DIRECT and used.setdefault(channel, mode) is not mode:
            return used[channel].value
        return original(cursor, instance_id, channel, mode, now)

    monkeypatch.setattr(channels, "subscribe", remember_mode)
    monkeypatch.setattr(channel_instances.ChannelTester, "open", _clearing(channel_instances.ChannelTester.open, used))
    assert found()


def _clearing(original: Any, used: dict[str, ChannelMode]) -> Any:
    def open(self: Any) -> Any:
        used.clear()
        return original(self)

    return open


def test_a_member_that_cannot_leave_is_found(monkeypatch: Plant) -> None:
    def ignore_leave(self: MessagingTransaction, instance_id: str, asked: LeaveGroup) -> None:
        """Leaves the group unchanged without an error."""

    monkeypatch.setattr(MessagingTransaction, "_leave_group", ignore_leave)
    assert found()


def test_a_message_that_is_lost_when_its_reader_recurs_is_found(monkeypatch: Plant) -> None:
    original = UnitOfWork.start_next_generation

    def clear_too_much(self: UnitOfWork, state: InstanceState, *args: Any, **options: Any) -> None:
        original(self, state, *args, **options)
        self.cursor.run("clear_deliveries", (as_json([state.id]),))

    monkeypatch.setattr(UnitOfWork, "start_next_generation", clear_too_much)
    assert found()


def test_a_subscription_that_is_lost_when_its_owner_recurs_is_found(monkeypatch: Plant) -> None:
    original = UnitOfWork.start_next_generation

    def clear_too_much(self: UnitOfWork, state: InstanceState, *args: Any, **options: Any) -> None:
        original(self, state, *args, **options)
        self.cursor.run("clear_subscriptions", (as_json([state.id]),))

    monkeypatch.setattr(UnitOfWork, "start_next_generation", clear_too_much)
    assert found()


def test_rows_of_ended_instances_that_stay_are_found(monkeypatch: Plant) -> None:
    monkeypatch.setattr(channels, "clear", lambda cursor, ids, now: [])
    assert found()


def test_a_woken_instance_that_is_not_replaced_is_found(monkeypatch: Plant) -> None:
    """An instance that was woken for a message and has ended is not replaced."""
    monkeypatch.setattr(channels, "wake_replacements", lambda cursor, ids, now: [])
    assert found(steps=("resubscribe", "compete", "compete"))


def test_a_wake_up_that_is_lost_is_found(monkeypatch: Plant) -> None:
    """A message arrives while its recipient is owned, and the recipient is released nevertheless."""
    original = transitions._resolve_ownership

    def pretend_seen(unit: UnitOfWork, state: InstanceState, write: Any, *, has_replies: bool) -> list[str]:
        state.inbox_version = write.inbox_seen
        return original(unit, state, write, has_replies=has_replies)

    monkeypatch.setattr(transitions, "_resolve_ownership", pretend_seen)
    assert found(steps=("resubscribe", "compete", "compete"))


def test_an_effect_that_is_emitted_twice_is_found(monkeypatch: Plant) -> None:
    original = MessagingTransaction.emit

    def emit_twice(self: MessagingTransaction, instance_id: str, effect: Effect) -> None:
        original(self, instance_id, effect)
        if instance_id:
            original(self, instance_id, effect)

    monkeypatch.setattr(MessagingTransaction, "emit", emit_twice)
    assert found()
