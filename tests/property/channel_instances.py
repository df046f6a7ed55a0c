"""Instances that carry out actions on channels, and the comparison of what they observe with the reference model."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from tests.model.channels import DONE, LIVE, SECOND, Action, ModelState, Observed, possible_states

from romancy import (
    ActivityContext,
    Client,
    ReceivedMessage,
    RetryPolicy,
    RomancyError,
    WorkflowContext,
    activity,
    get_group_members,
    join_group,
    leave_group,
    publish,
    receive,
    send_to,
    send_to_group,
    subscribe,
    unsubscribe,
    wait_event,
    workflow,
)
from romancy.model.transition import Write
from romancy.store.sqlite.store import SqliteStore
from romancy.testing import TestEnvironment

_TIME_LIMIT = 10.0
"""Seconds after which a round that is not finished counts as stuck."""
_MEMORY = Path("/dev/shm")  # a simulated crash loses nothing that the kernel has, so no disk is needed


class Divergence(AssertionError):
    """Channels behaved differently from the model."""


# --- outcomes


class OutcomeLog:
    """Outcomes that instances have reported; a replay must report the same ones again."""

    def __init__(self) -> None:
        self.reported: dict[int, str] = {}
        self.new: dict[int, str] = {}
        """Outcomes reported since the last check."""
        self.senders: dict[int, str | None] = {}
        self.received: dict[str, list[tuple[int, str]]] = {}
        """The numbers and ids of the messages that each instance received, in order."""
        self.faults: list[str] = []

    def report(self, number: int, outcome: str) -> None:
        """Report the outcome of an action."""
        if number not in self.reported:
            self.reported[number] = self.new[number] = outcome
        elif self.reported[number] != outcome:
            self.faults.append(
                f"action {number} had the outcome {self.reported[number]!r} first, and {outcome!r} in a replay"
            )

    def receive(self, action: Action, message: ReceivedMessage[int]) -> None:
        """Report a message that an instance received."""
        if action.number not in self.reported:
            self.received.setdefault(action.by, []).append((message.data, message.id))
        about = message.metadata, message.sender_instance_id, message.channel
        sent = {"number": message.data}, self.senders.get(message.data), action.channel
        if about != sent:
            self.faults.append(f"message {message.data} arrived as {about}, but was sent as {sent}")
        self.report(action.number, f"got {message.data}")

    @property
    def receipts(self) -> int:
        """The number of messages received."""
        return sum(map(len, self.received.values()))


_log = OutcomeLog()
"""The log of the test that is running."""


# --- instances


@workflow
async def executor(ctx: WorkflowContext) -> str:
    """Carry out actions one after another; a `receive` continues in the background."""
    receiving: list[tuple[str, asyncio.Task[None]]] = []
    while True:
        action = (await wait_event(ctx, "act", model=Action)).data
        match action.kind:
            case "receive":
                receiving.append((action.channel, asyncio.create_task(_receive(ctx, action))))
                continue
            case "withdraw":
                for channel, task in receiving:
                    if channel == action.channel:
                        task.cancel()
                outcome = DONE
            case _:
                outcome = await _outcome(ctx, action)
        _log.report(action.number, outcome)
        match action.kind:
            case "recur":
                await ctx.recur()
            case "complete":
                return "completed"
            case "fail":
                raise ValueError("planned")
            case _:
                pass


async def _receive(ctx: WorkflowContext, action: Action) -> None:
    try:
        message = await receive(ctx, action.channel, timeout=action.seconds, model=int)
    except RomancyError as error:
        _log.report(action.number, type(error).__name__)
    else:
        _log.receive(action, message)


async def _outcome(ctx: WorkflowContext, action: Action) -> str:
    try:
        return await (send_in_activity(ctx, action) if action.activity else _do(ctx, action))
    except RomancyError as error:
        return type(error).__name__


async def _do(ctx: WorkflowContext, action: Action) -> str:
    match action.kind:
        case "subscribe":
            await subscribe(ctx, action.channel, action.mode)  # type: ignore[arg-type]
        case "unsubscribe":
            await unsubscribe(ctx, action.channel)
        case "join":
            await join_group(ctx, action.group)
        case "leave":
            await leave_group(ctx, action.group)
        case "members":
            return " ".join(["members", *sorted(await get_group_members(ctx, action.group))])
        case _:
            await _send(ctx, action)
    return DONE


async def _send(ctx: WorkflowContext | ActivityContext, action: Action) -> None:
    match action.kind:
        case "publish":
            await publish(ctx, action.channel, action.number, metadata={"number": action.number})
        case "send_to":
            await send_to(ctx, action.target, action.channel, action.number, metadata={"number": action.number})
        case "send_to_group":
            await send_to_group(ctx, action.group, action.channel, action.number, metadata={"number": action.number})
        case _:
            pass


@activity(retry=RetryPolicy.fixed(2, 0))
async def send_in_activity(ctx: ActivityContext, action: Action) -> str:
    """Send, and then fail as often as the action says."""
    try:
        await _send(ctx, action)
    except RomancyError as error:
        return type(error).__name__
    if ctx.attempt <= action.failures:
        raise ValueError(f"attempt {ctx.attempt} fails")
    return DONE


# --- the tester


class ChannelTester:
    """A test environment with instances of `executor`, and the states that the model allows for it."""

    def __init__(self, seed: int, **options: Any) -> None:
        global _log
        _log = self.log = OutcomeLog()
        self._folder = tempfile.TemporaryDirectory(prefix="romancy-channels-", dir=_MEMORY if _MEMORY.is_dir() else None)
        self._path = str(Path(self._folder.name) / "channels.db")
        self.environment = TestEnvironment(self._path, workflows=[executor], **options)
        self.states = [ModelState(now=self.environment.clock.now())]
        self.transcript: list[str] = []
        self._slow_commits_patch = _slow_commits(random.Random(seed))
        self._unknown: set[int] = set()
        self._crashes = 0

    async def open(self) -> None:
        """Start the environment."""
        self._slow_commits_patch.__enter__()
        await self.environment.__aenter__()

    async def close(self) -> None:
        """Close the environment."""
        try:
            await self.environment.__aexit__(None, None, None)
        finally:
            self._slow_commits_patch.__exit__(None, None, None)
            self._folder.cleanup()

    async def run_actions(self, actions: Sequence[Action]) -> None:
        """Run actions concurrently, those of one instance in sequence, and check the result."""
        rows: dict[object, list[Action]] = {}
        for action in actions:
            rows.setdefault(action.by or action.number, []).append(action)
            self.log.senders[action.number] = action.by or None
        self.transcript.append(" | ".join(map(_describe, actions)))
        try:
            async with asyncio.timeout(_TIME_LIMIT):
                await asyncio.gather(*(self._run_row(row) for row in rows.values()))
                await self.environment.settle()
        except TimeoutError:
            raise self._divergence("the round does not end") from None
        await self._check(list(rows.values()))

    async def restart(self, meanwhile: Sequence[Action] = ()) -> None:
        """Kill the process and start another. The actions in between run in a client without a worker."""
        self.transcript.append(f"restart; meanwhile {' | '.join(map(_describe, meanwhile)) or 'nothing'}")
        self.log.senders.update((action.number, None) for action in meanwhile)
        await self.environment.app._die()
        client = Client(self._path, workflows=[executor], clock=self.environment.clock)
        client._use_inline_executor = True
        async with client:
            for action in meanwhile:
                await self._call(action, client)
        await self.environment.restart()
        await self.environment.settle()
        await self._check([meanwhile])

    def crash_soon(self, steps: int) -> None:
        """Let the process die at a crash point, counted from now."""
        self.transcript.append(f"crash at point {steps} from here")
        self.environment.crash_at_step(steps)

    async def _run_row(self, row: Sequence[Action]) -> None:
        for action in row:
            await (self._send_action(action) if action.by else self._call(action, self.environment.app))

    async def _send_action(self, action: Action) -> None:
        """Send an action to an instance; after a crash repeat it with the same event id."""
        while True:
            try:
                await self.environment.app.send_event(
                    "act", "/stage", action, event_id=str(action.number), extensions={"romancyinstanceid": action.by}
                )
                return
            except RomancyError:
                if not self._has_crashed(-1):
                    raise
                await asyncio.sleep(0.001)

    async def _call(self, action: Action, client: Client) -> None:
        crashes = self.environment.crashes
        try:
            self.log.new[action.number] = await self._call_client(action, client)
        except RomancyError as error:
            if self._has_crashed(crashes):
                self._unknown.add(action.number)
            else:
                self.log.new[action.number] = type(error).__name__

    def _has_crashed(self, crashes: int) -> bool:
        return self.environment.crashes != crashes or self.environment._crashed.is_set()

    async def _call_client(self, action: Action, app: Client) -> str:
        about = {"number": action.number}
        match action.kind:
            case "start":
                await app.start_workflow(executor.with_options(instance_id=action.target))
            case "publish":
                await app.publish(action.channel, action.number, metadata=about)
            case "send_to":
                await app.send_to(action.target, action.channel, action.number, metadata=about)
            case "send_to_group":
                await app.send_to_group(action.group, action.channel, action.number, metadata=about)
            case "members":
                return " ".join(["members", *sorted(await app.get_group_members(action.group))])
            case "cancel":
                await app.cancel_workflow(action.target)
            case "terminate":
                await app.terminate_workflow(action.target)
            case "advance" if app is self.environment.app:
                await self.environment.advance(action.seconds or 0)
            case "advance":
                clock = self.environment.clock
                clock.move_to(clock.now() + round((action.seconds or 0) * SECOND))
            case _:
                raise AssertionError(f"a client cannot {action.kind}")
        return DONE

    # --- checks

    async def _check(self, rows: Sequence[Sequence[Action]]) -> None:
        reported, self.log.new = self.log.new, {}
        instances = await self._instances()
        self.transcript.append(f"    reported {reported}, unknown {sorted(self._unknown)}")
        if self.log.faults:
            raise self._divergence("; ".join(self.log.faults))
        crashed, self._crashes = self._has_crashed(self._crashes), self.environment.crashes
        states = possible_states(self.states, rows, Observed(reported, self._unknown, crashed))
        states = [state for state in states if state.instances == instances]
        if not states:
            raise self._divergence(f"not allowed: instances are {instances}; the states before were {self.states[:3]}")
        self.states = states
        self._unknown.clear()

    async def _instances(self) -> dict[str, tuple[str, int]]:
        found = (await self.environment.app.list_instances(limit=100)).items
        return {one.instance_id: (one.status.value if one.status.ended else LIVE, one.generation) for one in found}

    async def check_records(self) -> None:
        """Each instance's history records the messages that it reported, once."""
        ids: dict[str, int] = {}
        for instance, (_, generation) in (await self._instances()).items():
            received = self.log.received.get(instance, [])
            recorded: list[int] = []
            for number in range(1, generation + 1):
                async for entry in self.environment.app.history(instance, generation=number):
                    if entry.kind == "message" and entry.error is None:
                        recorded.append(entry.result["data"])
            if recorded != [number for number, _ in received]:
                raise self._divergence(f"{instance} has received {received}; recorded: {recorded}")
            for number, message_id in received:
                if ids.setdefault(message_id, number) != number:
                    raise self._divergence(f"messages {number} and {ids[message_id]} have the same id {message_id}")

    async def check_leftovers(self) -> None:
        """After all instances have ended, only unread messages of pools are left."""
        with contextlib.closing(sqlite3.connect(self._path)) as database:
            for table in ("subscriptions", "deliveries", "group_members", "waits"):
                if left := database.execute(f"SELECT * FROM romancy_{table}").fetchall():
                    raise self._divergence(f"all instances have ended, but there are {table}: {left}")
            (count,) = database.execute("SELECT count(*) FROM romancy_messages").fetchone()
        if count not in {sum(map(len, state.unread.values())) for state in self.states}:
            raise self._divergence(f"all instances have ended, but there are {count} messages, not as in {self.states[:3]}")

    def _divergence(self, what: str) -> Divergence:
        return Divergence("\n".join([*self.transcript, what]))


def _describe(action: Action) -> str:
    shown = {name: value for name, value in vars(action).items() if value not in ("", None, 0, False) and name != "kind"}
    return f"{action.kind} {shown}"


@contextlib.contextmanager
def _slow_commits(rng: random.Random) -> Iterator[None]:
    """Delay commits by a few passes of the event loop, as on a disk, so that writes accumulate into batches."""
    original = SqliteStore.commit

    async def commit(self: SqliteStore, batch: Sequence[Write]) -> Any:
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
        answers = await original(self, batch)
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
        return answers

    with mock.patch.object(SqliteStore, "commit", commit):
        yield
