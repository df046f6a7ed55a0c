"""Drives the execution of an instance as a runner does, without a worker and a store."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from romancy import (
    ActivityContext,
    Workflow,
)
from romancy.authoring.activity import activity
from romancy.core.commands import Fail, Finish, Issue, Recur, Resolution
from romancy.core.execution import AttemptResult, Execution
from romancy.model.history import Entry, Kind, Outcome
from romancy.model.messaging import (
    Effect,
    Event,
    Message,
    StoreReply,
)
from romancy.registry.instantiation import execution_of
from romancy.serde.failure import encode_failure
from romancy.serde.messaging import event_json, message_json

Body = Callable[..., Coroutine[Any, Any, Any]]
SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND


class InstanceDriver:
    """An instance without a worker, with the history that a store would have."""

    def __init__(self, body: Body, *args: Any, history: Iterable[Entry] = ()) -> None:
        self.workflow: Workflow[..., Any] = Workflow(body, name="driven")
        self.args = args
        self.history = list(history)
        self.execution: Execution = execution_of(
            self.workflow,
            instance_id="order-1",
            generation=1,
            input=self.workflow.codec.encode(args, {}),
            history=self.history,
            length=max((entry.seq for entry in self.history), default=0),
        )
        self.run = self.execution.run
        self.at = BEGIN
        self.store_calls: list[Issue] = []
        self.effects: list[tuple[str, Effect]] = []

    def start(self) -> list[str]:
        self.execution.start(self.at)
        return self.commit()

    def replay(self) -> list[str]:
        self.execution.replay(BEGIN, self.history)
        return self.commit()

    def commit(self) -> list[str]:
        """Take what a runner takes for a commit; returns the issued operations, activities first."""
        self.history += self.execution.take_entries()
        self.effects += self.execution.take_effects()
        starts = self.execution.take_new_activities()
        store_calls = self.execution.take_store_calls()
        self.store_calls += store_calls
        return [issue.op for issue in (*starts, *store_calls)]

    def answer(self, *answers: tuple[str, bytes | BaseException | None]) -> list[str]:
        """Feed replies to store calls, as of one commit."""
        self.at += SECOND
        replies: list[StoreReply] = []
        for op, value in answers:
            issue = next(issue for issue in self.store_calls if issue.op == op)
            outcome = Outcome.ERROR if isinstance(value, BaseException) else Outcome.OK
            raw = encode_failure(value) if isinstance(value, BaseException) else value
            seq = self.execution.seq + 1 + len(replies)
            entry = Entry(seq, issue.kind, op, outcome, self.at, issue.name, digest=issue.digest, value=raw)
            self.history.append(entry)
            replies.append(StoreReply(op, seq, self.at, outcome, raw))
        self.execution.feed_replies(*replies)
        return self.commit()

    def ok(self, op: str, value: bytes = b"1") -> list[str]:
        return self._end(op, Outcome.OK, value)

    def error(self, op: str) -> list[str]:
        return self._end(op, Outcome.ERROR, encode_failure(ValueError("declined")))

    def _end(self, op: str, outcome: Outcome, value: bytes) -> list[str]:
        self.at += SECOND
        self.execution.feed(Resolution(Kind.ACTIVITY, op, self.at, outcome, value), AttemptResult(outcome, value))
        return self.commit()

    def cancel(self, kind: Kind = Kind.CANCEL) -> list[str]:
        self.execution.feed(Resolution(kind, kind.value, self.at), name=kind.value)
        return self.commit()

    @property
    def result(self) -> Any:
        assert isinstance(self.execution.body_outcome, Finish), self.execution.body_outcome
        return self.execution.body_outcome.value

    @property
    def failure(self) -> BaseException:
        assert isinstance(self.execution.body_outcome, Fail), self.execution.body_outcome
        return self.execution.body_outcome.error

    @property
    def recurrence(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        assert isinstance(self.execution.body_outcome, Recur), self.execution.body_outcome
        return self.workflow.codec.decode(self.execution.body_outcome.input)


Drive = Callable[..., InstanceDriver]


@activity
async def charge(ctx: ActivityContext, amount: int) -> int:
    return amount


def paid(number: int = 1) -> bytes:
    return event_json(Event(f"e-{number}", "/shop", "paid", b'{"n":%d}' % number))


def message(data: bytes = b"3", *, binary: bool = False) -> bytes:
    return message_json(Message("m-1", "orders", data, binary, b'{"a":[1]}', "order-7"), BEGIN)


def replay_anew(drive: Drive, driver: InstanceDriver) -> InstanceDriver:
    """A new run of the same code with the same history."""
    again = drive(driver.workflow.fn, *driver.args, history=driver.history)
    again.replay()
    return again
