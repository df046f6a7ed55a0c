"""Instances in tests of what workflows say and ask: driven as a worker would, without one."""

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


class Story:
    """An instance in a test, and the history as a store would keep it."""

    def __init__(self, body: Body, *args: Any, history: Iterable[Entry] = ()) -> None:
        self.workflow: Workflow[..., Any] = Workflow(body, name="story")
        self.args = args
        self.history = list(history)
        self.books: Execution = execution_of(
            self.workflow,
            instance_id="order-1",
            generation=1,
            input=self.workflow.codec.encode(args, {}),
            history=self.history,
            length=max((entry.seq for entry in self.history), default=0),
        )
        self.run = self.books.run
        self.at = BEGIN
        self.asks: list[Issue] = []
        self.effects: list[tuple[str, Effect]] = []

    def start(self) -> list[str]:
        self.books.start(self.at)
        return self.commit()

    def replay(self) -> list[str]:
        self.books.replay(BEGIN, self.history)
        return self.commit()

    def commit(self) -> list[str]:
        """Everything that a shell takes; says what is asked for, activities first."""
        self.history += self.books.take_entries()
        self.effects += self.books.take_effects()
        starts = self.books.take_new_activities()
        asks = self.books.take_store_calls()
        self.asks += asks
        return [issue.op for issue in (*starts, *asks)]

    def answer(self, *answers: tuple[str, bytes | BaseException | None]) -> list[str]:
        """The store decides asks in one commit."""
        self.at += SECOND
        replies: list[StoreReply] = []
        for op, value in answers:
            issue = next(issue for issue in self.asks if issue.op == op)
            outcome = Outcome.ERROR if isinstance(value, BaseException) else Outcome.OK
            raw = encode_failure(value) if isinstance(value, BaseException) else value
            seq = self.books.seq + 1 + len(replies)
            entry = Entry(seq, issue.kind, op, outcome, self.at, issue.name, digest=issue.digest, value=raw)
            self.history.append(entry)
            replies.append(StoreReply(op, seq, self.at, outcome, raw))
        self.books.feed_replies(*replies)
        return self.commit()

    def ok(self, op: str, value: bytes = b"1") -> list[str]:
        return self._end(op, Outcome.OK, value)

    def error(self, op: str) -> list[str]:
        return self._end(op, Outcome.ERROR, encode_failure(ValueError("declined")))

    def _end(self, op: str, outcome: Outcome, value: bytes) -> list[str]:
        self.at += SECOND
        self.books.feed(Resolution(Kind.ACTIVITY, op, self.at, outcome, value), AttemptResult(outcome, value))
        return self.commit()

    def cancel(self, kind: Kind = Kind.CANCEL) -> list[str]:
        self.books.feed(Resolution(kind, kind.value, self.at), name=kind.value)
        return self.commit()

    @property
    def result(self) -> Any:
        assert isinstance(self.books.body_outcome, Finish), self.books.body_outcome
        return self.books.body_outcome.value

    @property
    def failure(self) -> BaseException:
        assert isinstance(self.books.body_outcome, Fail), self.books.body_outcome
        return self.books.body_outcome.error

    @property
    def recurrence(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        assert isinstance(self.books.body_outcome, Recur), self.books.body_outcome
        return self.workflow.codec.decode(self.books.body_outcome.input)


Tell = Callable[..., Story]


@activity
async def charge(ctx: ActivityContext, amount: int) -> int:
    return amount


def paid(number: int = 1) -> bytes:
    return event_json(Event(f"e-{number}", "/shop", "paid", b'{"n":%d}' % number))


def message(data: bytes = b"3", *, binary: bool = False) -> bytes:
    return message_json(Message("m-1", "orders", data, binary, b'{"a":[1]}', "order-7"), BEGIN)


def told_again(tell: Tell, story: Story) -> Story:
    """The same code with the same history, in a new run."""
    again = tell(story.workflow.fn, *story.args, history=story.history)
    again.replay()
    return again
