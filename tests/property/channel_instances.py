"""Instances that do what they are told, and the stage they do it on: acts are carried out, and held against the model."""

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

from tests.model.channels import DONE, LIVE, SECOND, Act, Heard, World, possible

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

_LIMIT = 10.0
"""Seconds until a stage that does not come to rest is called stuck."""
_MEMORY = Path("/dev/shm")  # simulated crashes lose nothing the kernel has, so the disk is not needed


class Divergence(AssertionError):
    """Channels did what they must not."""


# --- what is told


class Book:
    """What instances have told: again in every replay, and then the same."""

    def __init__(self) -> None:
        self.told: dict[int, str] = {}
        self.new: dict[int, str] = {}
        """What was told since somebody looked."""
        self.senders: dict[int, str | None] = {}
        self.received: dict[str, list[tuple[int, str]]] = {}
        """The numbers of the messages that an instance got, in order, with their ids."""
        self.faults: list[str] = []

    def tell(self, number: int, outcome: str) -> None:
        """An instance says how an act of it went."""
        if number not in self.told:
            self.told[number] = self.new[number] = outcome
        elif self.told[number] != outcome:
            self.faults.append(f"act {number} went {self.told[number]!r} first, and {outcome!r} in a replay")

    def receive(self, act: Act, message: ReceivedMessage[int]) -> None:
        """An instance got a message."""
        if act.number not in self.told:
            self.received.setdefault(act.by, []).append((message.data, message.id))
        about = message.metadata, message.sender_instance_id, message.channel
        sent = {"number": message.data}, self.senders.get(message.data), act.channel
        if about != sent:
            self.faults.append(f"message {message.data} came as {about}, and was sent as {sent}")
        self.tell(act.number, f"got {message.data}")

    @property
    def receipts(self) -> int:
        """How many messages were received."""
        return sum(map(len, self.received.values()))


_book = Book()
"""Of the play that is on; one is at a time."""


# --- the instances


@workflow(name="puppet")
async def puppet(ctx: WorkflowContext) -> str:
    """Does one act after another; receiving, it goes on with the next meanwhile."""
    receiving: list[tuple[str, asyncio.Task[None]]] = []
    while True:
        act = (await wait_event(ctx, "act", model=Act)).data
        match act.what:
            case "receive":
                receiving.append((act.channel, asyncio.create_task(_receive(ctx, act))))
                continue
            case "withdraw":
                for channel, task in receiving:
                    if channel == act.channel:
                        task.cancel()
                outcome = DONE
            case _:
                outcome = await _outcome(ctx, act)
        _book.tell(act.number, outcome)
        match act.what:
            case "recur":
                await ctx.recur()
            case "complete":
                return "of its own accord"
            case "fail":
                raise ValueError("as it was told")
            case _:
                pass


async def _receive(ctx: WorkflowContext, act: Act) -> None:
    try:
        message = await receive(ctx, act.channel, timeout=act.seconds, model=int)
    except RomancyError as error:
        _book.tell(act.number, type(error).__name__)
    else:
        _book.receive(act, message)


async def _outcome(ctx: WorkflowContext, act: Act) -> str:
    try:
        return await (talk(ctx, act) if act.activity else _do(ctx, act))
    except RomancyError as error:
        return type(error).__name__


async def _do(ctx: WorkflowContext, act: Act) -> str:
    match act.what:
        case "subscribe":
            await subscribe(ctx, act.channel, act.mode)  # type: ignore[arg-type]
        case "unsubscribe":
            await unsubscribe(ctx, act.channel)
        case "join":
            await join_group(ctx, act.group)
        case "leave":
            await leave_group(ctx, act.group)
        case "members":
            return " ".join(["members", *sorted(await get_group_members(ctx, act.group))])
        case _:
            await _send(ctx, act)
    return DONE


async def _send(ctx: WorkflowContext | ActivityContext, act: Act) -> None:
    match act.what:
        case "publish":
            await publish(ctx, act.channel, act.number, metadata={"number": act.number})
        case "send_to":
            await send_to(ctx, act.target, act.channel, act.number, metadata={"number": act.number})
        case "send_to_group":
            await send_to_group(ctx, act.group, act.channel, act.number, metadata={"number": act.number})
        case _:
            pass


@activity(retry=RetryPolicy.fixed(2, 0))
async def talk(ctx: ActivityContext, act: Act) -> str:
    """Sends, and then fails so many times."""
    try:
        await _send(ctx, act)
    except RomancyError as error:
        return type(error).__name__
    if ctx.attempt <= act.failures:
        raise ValueError(f"attempt {ctx.attempt} fails")
    return DONE


# --- the stage


class Stage:
    """An environment with puppets, and the worlds it can be in according to the model."""

    def __init__(self, seed: int, **options: Any) -> None:
        global _book
        _book = self.book = Book()
        self._folder = tempfile.TemporaryDirectory(prefix="romancy-channels-", dir=_MEMORY if _MEMORY.is_dir() else None)
        self._path = str(Path(self._folder.name) / "channels.db")
        self.environment = TestEnvironment(self._path, workflows=[puppet], **options)
        self.worlds = [World(now=self.environment.clock.now())]
        self.story: list[str] = []
        self._slow = _slow_commits(random.Random(seed))
        self._unsure: set[int] = set()
        self._crashes = 0

    async def open(self) -> None:
        """Let the play begin."""
        self._slow.__enter__()
        await self.environment.__aenter__()

    async def close(self) -> None:
        """Leave the stage."""
        try:
            await self.environment.__aexit__(None, None, None)
        finally:
            self._slow.__exit__(None, None, None)
            self._folder.cleanup()

    async def play(self, acts: Sequence[Act]) -> None:
        """Carry out acts at the same time, those of one instance one after another, and look what came of it."""
        rows: dict[object, list[Act]] = {}
        for act in acts:
            rows.setdefault(act.by or act.number, []).append(act)
            self.book.senders[act.number] = act.by or None
        self.story.append(" | ".join(map(_line, acts)))
        try:
            async with asyncio.timeout(_LIMIT):
                await asyncio.gather(*(self._play_row(row) for row in rows.values()))
                await self.environment.settle()
        except TimeoutError:
            raise self._divergence("does not come to rest") from None
        await self._check(list(rows.values()))

    async def restart(self, meanwhile: Sequence[Act] = ()) -> None:
        """Let the process die, and another take over. What happens meanwhile is done by a process without a worker."""
        self.story.append(f"restart; meanwhile {' | '.join(map(_line, meanwhile)) or 'nothing'}")
        self.book.senders.update((act.number, None) for act in meanwhile)
        await self.environment.app._die()
        client = Client(self._path, workflows=[puppet], clock=self.environment.clock)
        client._use_inline_executor = True
        async with client:
            for act in meanwhile:
                await self._call(act, client)
        await self.environment.restart()
        await self.environment.settle()
        await self._check([meanwhile])

    def crash_soon(self, steps: int) -> None:
        """Let the process die at the so manieth point from now."""
        self.story.append(f"crash at point {steps} from here")
        self.environment.crash_at_step(steps)

    async def _play_row(self, row: Sequence[Act]) -> None:
        for act in row:
            await (self._command(act) if act.by else self._call(act, self.environment.app))

    async def _command(self, act: Act) -> None:
        """Tell a puppet what to do: again if nobody answered, which is the same event."""
        while True:
            try:
                await self.environment.app.send_event(
                    "act", "/stage", act, event_id=str(act.number), extensions={"romancyinstanceid": act.by}
                )
                return
            except RomancyError:
                if not self._has_crashed(-1):
                    raise
                await asyncio.sleep(0.001)

    async def _call(self, act: Act, client: Client) -> None:
        crashes = self.environment.crashes
        try:
            self.book.new[act.number] = await self._called(act, client)
        except RomancyError as error:
            if self._has_crashed(crashes):
                self._unsure.add(act.number)
            else:
                self.book.new[act.number] = type(error).__name__

    def _has_crashed(self, crashes: int) -> bool:
        return self.environment.crashes != crashes or self.environment._crashed.is_set()

    async def _called(self, act: Act, app: Client) -> str:
        about = {"number": act.number}
        match act.what:
            case "start":
                await app.start_workflow(puppet.with_options(instance_id=act.target))
            case "publish":
                await app.publish(act.channel, act.number, metadata=about)
            case "send_to":
                await app.send_to(act.target, act.channel, act.number, metadata=about)
            case "send_to_group":
                await app.send_to_group(act.group, act.channel, act.number, metadata=about)
            case "members":
                return " ".join(["members", *sorted(await app.get_group_members(act.group))])
            case "cancel":
                await app.cancel_workflow(act.target)
            case "terminate":
                await app.terminate_workflow(act.target)
            case "advance" if app is self.environment.app:
                await self.environment.advance(act.seconds or 0)
            case "advance":
                clock = self.environment.clock
                clock.move_to(clock.now() + round((act.seconds or 0) * SECOND))
            case _:
                raise AssertionError(f"nobody outside can {act.what}")
        return DONE

    # --- what must hold

    async def _check(self, rows: Sequence[Sequence[Act]]) -> None:
        told, self.book.new = self.book.new, {}
        lives = await self._lives()
        self.story.append(f"    told {told}, unsure {sorted(self._unsure)}")
        if self.book.faults:
            raise self._divergence("; ".join(self.book.faults))
        crashed, self._crashes = self._has_crashed(self._crashes), self.environment.crashes
        worlds = possible(self.worlds, rows, Heard(told, self._unsure, crashed))
        worlds = [world for world in worlds if world.lives == lives]
        if not worlds:
            raise self._divergence(f"cannot be: instances are {lives}, and before it was one of {self.worlds[:3]}")
        self.worlds = worlds
        self._unsure.clear()

    async def _lives(self) -> dict[str, tuple[str, int]]:
        found = (await self.environment.app.list_instances(limit=100)).items
        return {one.instance_id: (one.status.value if one.status.ended else LIVE, one.generation) for one in found}

    async def check_records(self) -> None:
        """What instances told of their messages is what is recorded, once."""
        ids: dict[str, int] = {}
        for instance, (_, generation) in (await self._lives()).items():
            received = self.book.received.get(instance, [])
            recorded: list[int] = []
            for number in range(1, generation + 1):
                async for entry in self.environment.app.history(instance, generation=number):
                    if entry.kind == "message" and entry.error is None:
                        recorded.append(entry.result["data"])
            if recorded != [number for number, _ in received]:
                raise self._divergence(f"{instance} has got {received}; recorded: {recorded}")
            for number, message_id in received:
                if ids.setdefault(message_id, number) != number:
                    raise self._divergence(f"messages {number} and {ids[message_id]} are both {message_id}")

    async def check_leftovers(self) -> None:
        """When everybody has ended nothing is left but what lies in pools."""
        with contextlib.closing(sqlite3.connect(self._path)) as database:
            for table in ("subscriptions", "deliveries", "group_members", "waits"):
                if left := database.execute(f"SELECT * FROM romancy_{table}").fetchall():
                    raise self._divergence(f"everybody has ended, and there are {table}: {left}")
            (count,) = database.execute("SELECT count(*) FROM romancy_messages").fetchone()
        if count not in {sum(map(len, world.unread.values())) for world in self.worlds}:
            raise self._divergence(f"everybody has ended, and there are {count} messages, not as in {self.worlds[:3]}")

    def _divergence(self, what: str) -> Divergence:
        return Divergence("\n".join([*self.story, what]))


def _line(act: Act) -> str:
    shown = {name: value for name, value in vars(act).items() if value not in ("", None, 0, False) and name != "what"}
    return f"{act.what} {shown}"


@contextlib.contextmanager
def _slow_commits(chance: random.Random) -> Iterator[None]:
    """Commits take a few turns of the event loop, as they do on a disk: the next ones gather."""
    original = SqliteStore.commit

    async def commit(self: SqliteStore, batch: Sequence[Write]) -> Any:
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        answers = await original(self, batch)
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        return answers

    with mock.patch.object(SqliteStore, "commit", commit):
        yield
