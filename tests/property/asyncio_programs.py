"""Random workflow bodies as data: each node is a piece of asyncio that a person might write.

A node runs in a `World`, which says what a durable operation is there. So the same program runs on a `Run` and, for
comparison, on an ordinary event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Collection, Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

from hypothesis import strategies as st

Mode = Literal["FIRST_COMPLETED", "FIRST_EXCEPTION", "ALL_COMPLETED"]
Rest = Literal["cancel", "leave", "join"]


class Failure(Exception):
    """An activity failed."""


class Mishap(Exception):
    """The body itself raised."""


CAUGHT = (Failure, Mishap, TimeoutError, ExceptionGroup)
variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)


class World(Protocol):
    """Where a program runs: what an operation is, and where it writes down what it saw."""

    def operation(self, name: str, *, undo: bool = False) -> asyncio.Future[Any]:
        """Ask for an activity."""
        ...

    def effect(self, name: str) -> Awaitable[None]:
        """Ask for something that is done by being committed."""
        ...

    def several(self, futures: list[Any]) -> Collection[Any]:
        """What the program keeps its futures in."""
        ...

    def note(self, *seen: object) -> None:
        """Write down what the program saw."""
        ...


def describe(value: object) -> object:
    """What can be compared of a value: exceptions by type, text and members."""
    if isinstance(value, BaseExceptionGroup):
        return (type(value).__name__, value.message, [describe(one) for one in value.exceptions])
    if isinstance(value, BaseException):
        return f"{type(value).__name__}({value})"
    if isinstance(value, list | tuple):
        return [describe(one) for one in value]
    return value


def outcome(future: asyncio.Future[Any]) -> object:
    """How a future that is done ended."""
    if future.cancelled():
        return "cancelled"
    return describe(future.exception() or future.result())


def operations(world: World, names: Iterable[str]) -> list[asyncio.Future[Any]]:
    """Several activities at once."""
    return [world.operation(name) for name in names]


class Node(ABC):
    """A piece of a program."""

    @abstractmethod
    async def run(self, world: World) -> object:
        """Do what the node stands for."""


def contains(node: Node, kinds: tuple[type[Node], ...]) -> bool:
    """A node of one of these kinds occurs in the program."""
    if isinstance(node, kinds):
        return True
    below = [getattr(node, field.name) for field in fields(node)]  # type: ignore[arg-type]
    children = [one for value in below for one in (value if isinstance(value, tuple) else (value,))]
    return any(contains(child, kinds) for child in children if isinstance(child, Node))


# --- leaves


@dataclass(frozen=True)
class Act(Node):
    """One activity."""

    name: str
    undo: bool = False

    async def run(self, world: World) -> object:
        result = await world.operation(self.name, undo=self.undo)
        world.note(self.name, result)
        return result


@dataclass(frozen=True)
class Register(Node):
    """A compensation registered by hand."""

    name: str

    async def run(self, world: World) -> object:
        await world.effect(self.name)
        world.note("registered", self.name)
        return None


@dataclass(frozen=True)
class Sleep(Node):
    """A durable timer, or a turn of the loop."""

    seconds: float

    async def run(self, world: World) -> object:
        await asyncio.sleep(self.seconds)
        world.note("slept", asyncio.get_running_loop().time())
        return None


@dataclass(frozen=True)
class Raise(Node):
    """The body's own error."""

    async def run(self, world: World) -> object:
        raise Mishap("planned")


@dataclass(frozen=True)
class TaskNames(Node):
    """What is running, and who am I."""

    async def run(self, world: World) -> object:
        current = asyncio.current_task()
        assert current is not None
        world.note("tasks", [task.get_name() for task in asyncio.all_tasks()], current.get_name())
        return None


@dataclass(frozen=True)
class Variable(Node):
    """A context variable that siblings must not see."""

    value: int

    async def run(self, world: World) -> object:
        world.note("variable", variable.get())
        variable.set(self.value)
        return None


@dataclass(frozen=True)
class Own(Node):
    """A task that nobody refers to, waiting for a future that nobody else has."""

    name: str

    async def run(self, world: World) -> object:
        async def forgotten() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                world.note("forgotten ends")
                await world.operation(self.name)

        _ = asyncio.create_task(forgotten())  # noqa: RUF006
        return None


@dataclass(frozen=True)
class OperationSet(Node):
    """A set of operations raced against each other."""

    names: tuple[str, ...]
    mode: Mode
    rest: Rest

    async def run(self, world: World) -> object:
        waited = world.several(operations(world, self.names))
        done, pending = await asyncio.wait(waited, return_when=getattr(asyncio, self.mode))
        return await conclude(world, done, pending, self.rest)


@dataclass(frozen=True)
class OperationsCompleted(Node):
    """Operations in the order they complete."""

    names: tuple[str, ...]

    async def run(self, world: World) -> object:
        seen: list[object] = []
        for future in asyncio.as_completed(operations(world, self.names)):
            try:
                seen.append(await future)
            except Failure as error:
                seen.append(describe(error))
        world.note("completed", seen)
        return seen


@dataclass(frozen=True)
class Gathers(Node):
    """A set of gathers, or futures made by hand, in one wait."""

    names: tuple[str, ...]
    by_hand: bool

    async def run(self, world: World) -> object:
        if self.by_hand:
            waited = [self._copy(world, name) for name in self.names]
            done, pending = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        else:
            gathers = [asyncio.gather(world.operation(name), return_exceptions=True) for name in self.names]
            done, pending = await asyncio.wait(world.several(gathers), return_when=asyncio.FIRST_COMPLETED)
        return await conclude(world, done, pending, "cancel")

    def _copy(self, world: World, name: str) -> asyncio.Future[Any]:
        operation = world.operation(name)
        by_hand: asyncio.Future[Any] = asyncio.Future()
        by_hand.add_done_callback(lambda _: operation.cancel())
        operation.add_done_callback(lambda done: pass_on(done, by_hand))
        return by_hand


def pass_on(done: asyncio.Future[Any], waiting: asyncio.Future[object]) -> None:
    """Tell one future how another ended."""
    if not waiting.done():
        waiting.set_result(outcome(done))


async def conclude(world: World, done: set[Any], pending: set[Any], rest: Rest) -> object:
    """Write down what a wait returned, and do away with the rest."""
    if rest == "cancel":
        for future in pending:
            future.cancel()
    elif rest == "join" and pending:
        pending |= {asyncio.create_task(Act("joined").run(world))}
        finished, _ = await asyncio.wait(pending)
        world.note("joined", [outcome(future) for future in finished])
    ends = [outcome(future) for future in done]
    world.note("wait", ends, len(pending))
    return ends


# --- nodes of nodes


@dataclass(frozen=True)
class Seq(Node):
    """One after another."""

    children: tuple[Node, ...]

    async def run(self, world: World) -> object:
        return [await child.run(world) for child in self.children]


@dataclass(frozen=True)
class Gather(Node):
    """`asyncio.gather`, with and without `return_exceptions`."""

    children: tuple[Node, ...]
    keep: bool

    async def run(self, world: World) -> object:
        results = await asyncio.gather(*[child.run(world) for child in self.children], return_exceptions=self.keep)
        return describe(results)


@dataclass(frozen=True)
class Group(Node):
    """`asyncio.TaskGroup`, over coroutines and operations."""

    children: tuple[Node, ...]
    name: str | None

    async def run(self, world: World) -> object:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child.run(world)) for child in self.children]
            if self.name is not None:
                tasks.append(group.create_task(wait_for_it(world.operation(self.name))))
        return [task.result() for task in tasks]


async def wait_for_it(future: asyncio.Future[Any]) -> Any:
    """A coroutine around a future."""
    return await future


@dataclass(frozen=True)
class Wait(Node):
    """`asyncio.wait` over a set of tasks."""

    children: tuple[Node, ...]
    mode: Mode
    timeout: float | None
    rest: Rest

    async def run(self, world: World) -> object:
        tasks = world.several([asyncio.create_task(child.run(world)) for child in self.children])
        done, pending = await asyncio.wait(tasks, timeout=self.timeout, return_when=getattr(asyncio, self.mode))
        return await conclude(world, done, pending, self.rest)


@dataclass(frozen=True)
class Completed(Node):
    """`asyncio.as_completed` over coroutines, not always to its end."""

    children: tuple[Node, ...]
    timeout: float | None
    most: int

    async def run(self, world: World) -> object:
        seen: list[object] = []
        for future in asyncio.as_completed([child.run(world) for child in self.children], timeout=self.timeout):
            try:
                seen.append(await future)
            except CAUGHT as error:
                seen.append(describe(error))
            if len(seen) >= self.most:
                break
        world.note("completed", seen)
        return seen


@dataclass(frozen=True)
class Timeout(Node):
    """`asyncio.timeout`."""

    seconds: float
    child: Node

    async def run(self, world: World) -> object:
        try:
            async with asyncio.timeout(self.seconds):
                return await self.child.run(world)
        except TimeoutError:
            world.note("timeout")
            return "timeout"


@dataclass(frozen=True)
class WaitFor(Node):
    """`asyncio.wait_for`."""

    seconds: float | None
    child: Node

    async def run(self, world: World) -> object:
        try:
            return await asyncio.wait_for(self.child.run(world), self.seconds)
        except TimeoutError:
            world.note("timeout")
            return "timeout"


@dataclass(frozen=True)
class Shield(Node):
    """`asyncio.shield` against a timeout; what it shields goes on."""

    seconds: float
    child: Node

    async def run(self, world: World) -> object:
        try:
            async with asyncio.timeout(self.seconds):
                return await asyncio.shield(self.child.run(world))
        except TimeoutError:
            world.note("timeout")
            return "timeout"


@dataclass(frozen=True)
class Queued(Node):
    """Producers and consumers around a queue of one place."""

    children: tuple[Node, ...]
    consumers: int

    async def run(self, world: World) -> object:
        queue: asyncio.Queue[object] = asyncio.Queue(maxsize=1)
        got: list[object] = []

        async def produce(child: Node) -> None:
            try:
                await queue.put(await child.run(world))
            except CAUGHT as error:
                await queue.put(describe(error))

        async def consume() -> None:
            while len(got) < len(self.children):
                got.append(await queue.get())
                world.note("got", got[-1])

        producers = [asyncio.create_task(produce(child)) for child in self.children]
        consumers = [asyncio.create_task(consume()) for _ in range(self.consumers)]
        try:
            await asyncio.wait(consumers, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*producers, *consumers):
                task.cancel()
        return got


@dataclass(frozen=True)
class Locked(Node):
    """One at a time, or two."""

    children: tuple[Node, ...]
    places: int

    async def run(self, world: World) -> object:
        lock = asyncio.Lock() if self.places == 1 else asyncio.Semaphore(self.places)

        async def hold(child: Node) -> object:
            async with lock:
                world.note("in")
                return await child.run(world)

        return describe(await asyncio.gather(*map(hold, self.children), return_exceptions=True))


@dataclass(frozen=True)
class Signalled(Node):
    """Tasks that wait for an event."""

    first: Node
    children: tuple[Node, ...]

    async def run(self, world: World) -> object:
        event = asyncio.Event()

        async def follow(child: Node) -> object:
            await event.wait()
            return await child.run(world)

        followers = [asyncio.create_task(follow(child)) for child in self.children]
        try:
            await self.first.run(world)
        finally:
            event.set()
        return describe(await asyncio.gather(*followers, return_exceptions=True))


@dataclass(frozen=True)
class Notified(Node):
    """Tasks that wait for a condition."""

    children: tuple[Node, ...]

    async def run(self, world: World) -> object:
        condition = asyncio.Condition()
        tickets = 0

        async def follow(child: Node) -> object:
            nonlocal tickets
            async with condition:
                await condition.wait_for(lambda: tickets > 0)
                tickets -= 1
            return await child.run(world)

        followers = [asyncio.create_task(follow(child)) for child in self.children]
        for _ in self.children:
            await world.operation("ticket")
            async with condition:
                tickets += 1
                condition.notify(2)
        return describe(await asyncio.gather(*followers, return_exceptions=True))


@dataclass(frozen=True)
class Meeting(Node):
    """Tasks that wait for each other at a barrier."""

    children: tuple[Node, ...]

    async def run(self, world: World) -> object:
        barrier = asyncio.Barrier(len(self.children))

        async def come(child: Node) -> object:
            try:
                result = await child.run(world)
            except CAUGHT as error:
                result = describe(error)
            world.note("met", await barrier.wait())
            return result

        return await asyncio.gather(*map(come, self.children))


@dataclass(frozen=True)
class Background(Node):
    """A task beside the body: cancelled, awaited or left alone."""

    child: Node
    body: Node
    rest: Rest

    async def run(self, world: World) -> object:
        task = asyncio.create_task(self.child.run(world))
        try:
            return await self.body.run(world)
        finally:
            if self.rest == "cancel":
                task.cancel()
            if self.rest != "leave":
                await asyncio.wait([task])
                world.note("background", outcome(task))


@dataclass(frozen=True)
class Try(Node):
    """`try`, `except` and `finally` with durable calls in each."""

    body: Node
    handler: Node
    last: Node

    async def run(self, world: World) -> object:
        try:
            return await self.body.run(world)
        except CAUGHT as error:
            world.note("caught", describe(error))
            return await self.handler.run(world)
        finally:
            world.note("finally")
            await self.last.run(world)


@dataclass(frozen=True)
class Cancelling(Node):
    """Code that is cancelled and cleans up, or will not have it."""

    child: Node
    clean: Node
    swallow: bool

    async def run(self, world: World) -> object:
        try:
            return await self.child.run(world)
        except asyncio.CancelledError:
            world.note("cancelled")
            await self.clean.run(world)
            if not self.swallow:
                raise
            return "swallowed"


@dataclass(frozen=True)
class Retried(Node):
    """Three attempts."""

    child: Node

    async def run(self, world: World) -> object:
        for attempt in range(3):
            try:
                return await self.child.run(world)
            except CAUGHT as error:
                world.note("again", attempt, describe(error))
                await asyncio.sleep(attempt)
        return "given up"


@dataclass(frozen=True)
class Generated(Node):
    """An asynchronous generator, exhausted or left half-way."""

    children: tuple[Node, ...]
    most: int
    last: str | None

    async def run(self, world: World) -> object:
        async def generate() -> AsyncIterator[object]:
            try:
                for child in self.children:
                    yield await child.run(world)
            finally:
                world.note("generator ends")
                if self.last is not None:
                    await world.operation(self.last)

        got: list[object] = []
        async for value in generate():
            got.append(value)
            if len(got) >= self.most:
                break
        return got


@dataclass(frozen=True)
class Managed(Node):
    """An asynchronous context manager with durable calls on the way in and out."""

    child: Node
    last: Node

    async def run(self, world: World) -> object:
        @contextlib.asynccontextmanager
        async def hold() -> AsyncGenerator[None]:
            await world.operation("acquire")
            token = variable.set(99)
            try:
                yield
            finally:
                variable.reset(token)
                await self.last.run(world)

        async with hold():
            return await self.child.run(world)


@dataclass(frozen=True)
class Soon(Node):
    """A task started by a callback."""

    child: Node

    async def run(self, world: World) -> object:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        tasks: list[asyncio.Task[object]] = []

        def begin() -> None:
            tasks.append(loop.create_task(self.child.run(world)))
            tasks[0].add_done_callback(lambda task: pass_on(task, ended))

        loop.call_soon(begin)
        return await ended


@dataclass(frozen=True)
class Nested(Node):
    """A task in a task."""

    child: Node

    async def run(self, world: World) -> object:
        async def inner() -> object:
            return await asyncio.create_task(self.child.run(world))

        return await asyncio.create_task(inner())


# --- strategies

_names = st.sampled_from("abc")
_several_names = st.lists(_names, min_size=1, max_size=4).map(tuple)
_modes: st.SearchStrategy[Mode] = st.sampled_from(("FIRST_COMPLETED", "FIRST_EXCEPTION", "ALL_COMPLETED"))
_rests: st.SearchStrategy[Rest] = st.sampled_from(("cancel", "leave", "join"))
_seconds = st.sampled_from((0, 2, 7))

leaves: st.SearchStrategy[Node] = st.one_of(
    st.builds(Act, _names, st.booleans()),
    st.builds(Act, _names, st.booleans()),
    st.builds(Register, st.sampled_from("rs")),
    st.builds(Sleep, st.sampled_from((0, 1, 5))),
    st.just(Raise()),
    st.just(TaskNames()),
    st.builds(Variable, st.integers(1, 9)),
    st.builds(Own, _names),
    st.builds(OperationSet, _several_names, _modes, _rests),
    st.builds(OperationsCompleted, _several_names),
    st.builds(Gathers, _several_names, st.booleans()),
)


def _nodes_of(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(children, min_size=1, max_size=4).map(tuple)
    return st.one_of(
        st.builds(Seq, several),
        st.builds(Gather, several, st.booleans()),
        st.builds(Group, several, st.none() | _names),
        st.builds(Wait, several, _modes, st.sampled_from((None, 0, 3)), _rests),
        st.builds(Completed, several, st.sampled_from((None, 4)), st.sampled_from((1, 2, 99))),
        st.builds(Timeout, _seconds, children),
        st.builds(WaitFor, st.none() | _seconds, children),
        st.builds(Shield, st.sampled_from((2, 7)), children),
        st.builds(Queued, several, st.sampled_from((1, 2))),
        st.builds(Locked, several, st.sampled_from((1, 2))),
        st.builds(Signalled, children, several),
        st.builds(Notified, several),
        st.builds(Meeting, several),
        st.builds(Background, children, children, _rests),
        st.builds(Try, children, children, children),
        st.builds(Cancelling, children, children, st.booleans()),
        st.builds(Retried, children),
        st.builds(Generated, several, st.sampled_from((1, 2, 99)), st.none() | _names),
        st.builds(Managed, children, children),
        st.builds(Soon, children),
        st.builds(Nested, children),
    )


programs: st.SearchStrategy[Node] = st.recursive(leaves, _nodes_of, max_leaves=12)
