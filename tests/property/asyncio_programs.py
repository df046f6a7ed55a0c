"""Random workflow bodies as data: each node is a common piece of asyncio code.

A node runs in an `Environment`, which defines durable operations. The same program can therefore run on a `Run` and, for
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
    """Error of an activity that failed."""


class PlannedError(Exception):
    """Error that the body itself raises."""


CAUGHT = (Failure, PlannedError, TimeoutError, ExceptionGroup)
variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)


class Environment(Protocol):
    """Where a program runs: defines its operations and records what it observes."""

    def operation(self, name: str, *, compensated: bool = False) -> asyncio.Future[Any]:
        """Issue an activity."""
        ...

    def effect(self, name: str) -> Awaitable[None]:
        """Issue an effect, which is carried out by its commit."""
        ...

    def collect(self, futures: list[Any]) -> Collection[Any]:
        """The collection that the program keeps its futures in."""
        ...

    def note(self, *seen: object) -> None:
        """Record what the program observed."""
        ...


def describe(value: object) -> object:
    """A comparable form of a value: exceptions by type, text and members."""
    if isinstance(value, BaseExceptionGroup):
        return (type(value).__name__, value.message, [describe(one) for one in value.exceptions])
    if isinstance(value, BaseException):
        return f"{type(value).__name__}({value})"
    if isinstance(value, list | tuple):
        return [describe(one) for one in value]
    return value


def outcome(future: asyncio.Future[Any]) -> object:
    """The outcome of a future that is done."""
    if future.cancelled():
        return "cancelled"
    return describe(future.exception() or future.result())


def operations(environment: Environment, names: Iterable[str]) -> list[asyncio.Future[Any]]:
    """Issue several activities at once."""
    return [environment.operation(name) for name in names]


class Node(ABC):
    """A piece of a program."""

    @abstractmethod
    async def run(self, environment: Environment) -> object:
        """Run the node."""


def contains(node: Node, kinds: tuple[type[Node], ...]) -> bool:
    """Whether a node of one of these kinds occurs in the program."""
    if isinstance(node, kinds):
        return True
    below = [getattr(node, field.name) for field in fields(node)]  # type: ignore[arg-type]
    children = [one for value in below for one in (value if isinstance(value, tuple) else (value,))]
    return any(contains(child, kinds) for child in children if isinstance(child, Node))


# --- leaves


@dataclass(frozen=True)
class Act(Node):
    """An activity."""

    name: str
    compensated: bool = False

    async def run(self, environment: Environment) -> object:
        result = await environment.operation(self.name, compensated=self.compensated)
        environment.note(self.name, result)
        return result


@dataclass(frozen=True)
class Register(Node):
    """A compensation registered explicitly."""

    name: str

    async def run(self, environment: Environment) -> object:
        await environment.effect(self.name)
        environment.note("registered", self.name)
        return None


@dataclass(frozen=True)
class Sleep(Node):
    """A durable timer; for zero seconds one pass of the loop."""

    seconds: float

    async def run(self, environment: Environment) -> object:
        await asyncio.sleep(self.seconds)
        environment.note("slept", asyncio.get_running_loop().time())
        return None


@dataclass(frozen=True)
class Raise(Node):
    """An error raised by the body."""

    async def run(self, environment: Environment) -> object:
        raise PlannedError("planned")


@dataclass(frozen=True)
class TaskNames(Node):
    """The names of all tasks and of the current one."""

    async def run(self, environment: Environment) -> object:
        current = asyncio.current_task()
        assert current is not None
        environment.note("tasks", [task.get_name() for task in asyncio.all_tasks()], current.get_name())
        return None


@dataclass(frozen=True)
class Variable(Node):
    """A context variable that sibling tasks must not see."""

    value: int

    async def run(self, environment: Environment) -> object:
        environment.note("variable", variable.get())
        variable.set(self.value)
        return None


@dataclass(frozen=True)
class Unreferenced(Node):
    """An unreferenced task that waits for an unreferenced future."""

    name: str

    async def run(self, environment: Environment) -> object:
        async def forgotten() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                environment.note("forgotten ends")
                await environment.operation(self.name)

        _ = asyncio.create_task(forgotten())  # noqa: RUF006
        return None


@dataclass(frozen=True)
class OperationSet(Node):
    """`asyncio.wait` over a set of operations."""

    names: tuple[str, ...]
    mode: Mode
    rest: Rest

    async def run(self, environment: Environment) -> object:
        waited = environment.collect(operations(environment, self.names))
        done, pending = await asyncio.wait(waited, return_when=getattr(asyncio, self.mode))
        return await conclude(environment, done, pending, self.rest)


@dataclass(frozen=True)
class OperationsCompleted(Node):
    """`asyncio.as_completed` over operations."""

    names: tuple[str, ...]

    async def run(self, environment: Environment) -> object:
        seen: list[object] = []
        for future in asyncio.as_completed(operations(environment, self.names)):
            try:
                seen.append(await future)
            except Failure as error:
                seen.append(describe(error))
        environment.note("completed", seen)
        return seen


@dataclass(frozen=True)
class Gathers(Node):
    """`asyncio.wait` over gathers or over futures that copy operations."""

    names: tuple[str, ...]
    by_hand: bool

    async def run(self, environment: Environment) -> object:
        if self.by_hand:
            waited = [self._copy(environment, name) for name in self.names]
            done, pending = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        else:
            gathers = [asyncio.gather(environment.operation(name), return_exceptions=True) for name in self.names]
            done, pending = await asyncio.wait(environment.collect(gathers), return_when=asyncio.FIRST_COMPLETED)
        return await conclude(environment, done, pending, "cancel")

    def _copy(self, environment: Environment, name: str) -> asyncio.Future[Any]:
        operation = environment.operation(name)
        by_hand: asyncio.Future[Any] = asyncio.Future()
        by_hand.add_done_callback(lambda _: operation.cancel())
        operation.add_done_callback(lambda done: pass_on(done, by_hand))
        return by_hand


def pass_on(done: asyncio.Future[Any], waiting: asyncio.Future[object]) -> None:
    """Copy the outcome of one future to another."""
    if not waiting.done():
        waiting.set_result(outcome(done))


async def conclude(environment: Environment, done: set[Any], pending: set[Any], rest: Rest) -> object:
    """Record what a wait returned, and treat the pending futures as `rest` says."""
    if rest == "cancel":
        for future in pending:
            future.cancel()
    elif rest == "join" and pending:
        pending |= {asyncio.create_task(Act("joined").run(environment))}
        finished, _ = await asyncio.wait(pending)
        environment.note("joined", [outcome(future) for future in finished])
    ends = [outcome(future) for future in done]
    environment.note("wait", ends, len(pending))
    return ends


# --- composite nodes


@dataclass(frozen=True)
class Seq(Node):
    """Children in sequence."""

    children: tuple[Node, ...]

    async def run(self, environment: Environment) -> object:
        return [await child.run(environment) for child in self.children]


@dataclass(frozen=True)
class Gather(Node):
    """`asyncio.gather`, with and without `return_exceptions`."""

    children: tuple[Node, ...]
    keep: bool

    async def run(self, environment: Environment) -> object:
        results = await asyncio.gather(*[child.run(environment) for child in self.children], return_exceptions=self.keep)
        return describe(results)


@dataclass(frozen=True)
class Group(Node):
    """`asyncio.TaskGroup` over coroutines and operations."""

    children: tuple[Node, ...]
    name: str | None

    async def run(self, environment: Environment) -> object:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child.run(environment)) for child in self.children]
            if self.name is not None:
                tasks.append(group.create_task(await_future(environment.operation(self.name))))
        return [task.result() for task in tasks]


async def await_future(future: asyncio.Future[Any]) -> Any:
    """Wrap a future in a coroutine."""
    return await future


@dataclass(frozen=True)
class Wait(Node):
    """`asyncio.wait` over a set of tasks."""

    children: tuple[Node, ...]
    mode: Mode
    timeout: float | None
    rest: Rest

    async def run(self, environment: Environment) -> object:
        tasks = environment.collect([asyncio.create_task(child.run(environment)) for child in self.children])
        done, pending = await asyncio.wait(tasks, timeout=self.timeout, return_when=getattr(asyncio, self.mode))
        return await conclude(environment, done, pending, self.rest)


@dataclass(frozen=True)
class Completed(Node):
    """`asyncio.as_completed` over coroutines, possibly left before its end."""

    children: tuple[Node, ...]
    timeout: float | None
    most: int

    async def run(self, environment: Environment) -> object:
        seen: list[object] = []
        for future in asyncio.as_completed([child.run(environment) for child in self.children], timeout=self.timeout):
            try:
                seen.append(await future)
            except CAUGHT as error:
                seen.append(describe(error))
            if len(seen) >= self.most:
                break
        environment.note("completed", seen)
        return seen


@dataclass(frozen=True)
class Timeout(Node):
    """`asyncio.timeout`."""

    seconds: float
    child: Node

    async def run(self, environment: Environment) -> object:
        try:
            async with asyncio.timeout(self.seconds):
                return await self.child.run(environment)
        except TimeoutError:
            environment.note("timeout")
            return "timeout"


@dataclass(frozen=True)
class WaitFor(Node):
    """`asyncio.wait_for`."""

    seconds: float | None
    child: Node

    async def run(self, environment: Environment) -> object:
        try:
            return await asyncio.wait_for(self.child.run(environment), self.seconds)
        except TimeoutError:
            environment.note("timeout")
            return "timeout"


@dataclass(frozen=True)
class Shield(Node):
    """`asyncio.shield` under a timeout; the shielded child continues after it."""

    seconds: float
    child: Node

    async def run(self, environment: Environment) -> object:
        try:
            async with asyncio.timeout(self.seconds):
                return await asyncio.shield(self.child.run(environment))
        except TimeoutError:
            environment.note("timeout")
            return "timeout"


@dataclass(frozen=True)
class Queued(Node):
    """Producers and consumers of a queue of size 1."""

    children: tuple[Node, ...]
    consumers: int

    async def run(self, environment: Environment) -> object:
        queue: asyncio.Queue[object] = asyncio.Queue(maxsize=1)
        got: list[object] = []

        async def produce(child: Node) -> None:
            try:
                await queue.put(await child.run(environment))
            except CAUGHT as error:
                await queue.put(describe(error))

        async def consume() -> None:
            while len(got) < len(self.children):
                got.append(await queue.get())
                environment.note("got", got[-1])

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
    """A lock, or a semaphore of 2."""

    children: tuple[Node, ...]
    places: int

    async def run(self, environment: Environment) -> object:
        lock = asyncio.Lock() if self.places == 1 else asyncio.Semaphore(self.places)

        async def hold(child: Node) -> object:
            async with lock:
                environment.note("in")
                return await child.run(environment)

        return describe(await asyncio.gather(*map(hold, self.children), return_exceptions=True))


@dataclass(frozen=True)
class Signalled(Node):
    """Tasks that wait for an `asyncio.Event`."""

    first: Node
    children: tuple[Node, ...]

    async def run(self, environment: Environment) -> object:
        event = asyncio.Event()

        async def follow(child: Node) -> object:
            await event.wait()
            return await child.run(environment)

        followers = [asyncio.create_task(follow(child)) for child in self.children]
        try:
            await self.first.run(environment)
        finally:
            event.set()
        return describe(await asyncio.gather(*followers, return_exceptions=True))


@dataclass(frozen=True)
class Notified(Node):
    """Tasks that wait for an `asyncio.Condition`."""

    children: tuple[Node, ...]

    async def run(self, environment: Environment) -> object:
        condition = asyncio.Condition()
        tickets = 0

        async def follow(child: Node) -> object:
            nonlocal tickets
            async with condition:
                await condition.wait_for(lambda: tickets > 0)
                tickets -= 1
            return await child.run(environment)

        followers = [asyncio.create_task(follow(child)) for child in self.children]
        for _ in self.children:
            await environment.operation("ticket")
            async with condition:
                tickets += 1
                condition.notify(2)
        return describe(await asyncio.gather(*followers, return_exceptions=True))


@dataclass(frozen=True)
class Meeting(Node):
    """Tasks that wait for each other at an `asyncio.Barrier`."""

    children: tuple[Node, ...]

    async def run(self, environment: Environment) -> object:
        barrier = asyncio.Barrier(len(self.children))

        async def come(child: Node) -> object:
            try:
                result = await child.run(environment)
            except CAUGHT as error:
                result = describe(error)
            environment.note("met", await barrier.wait())
            return result

        return await asyncio.gather(*map(come, self.children))


@dataclass(frozen=True)
class Background(Node):
    """A task beside the body: cancelled, awaited or left running."""

    child: Node
    body: Node
    rest: Rest

    async def run(self, environment: Environment) -> object:
        task = asyncio.create_task(self.child.run(environment))
        try:
            return await self.body.run(environment)
        finally:
            if self.rest == "cancel":
                task.cancel()
            if self.rest != "leave":
                await asyncio.wait([task])
                environment.note("background", outcome(task))


@dataclass(frozen=True)
class Try(Node):
    """`try`, `except` and `finally` with durable calls in each."""

    body: Node
    handler: Node
    last: Node

    async def run(self, environment: Environment) -> object:
        try:
            return await self.body.run(environment)
        except CAUGHT as error:
            environment.note("caught", describe(error))
            return await self.handler.run(environment)
        finally:
            environment.note("finally")
            await self.last.run(environment)


@dataclass(frozen=True)
class Cancelling(Node):
    """Code that is cancelled, cleans up, and re-raises or swallows the cancellation."""

    child: Node
    clean: Node
    swallow: bool

    async def run(self, environment: Environment) -> object:
        try:
            return await self.child.run(environment)
        except asyncio.CancelledError:
            environment.note("cancelled")
            await self.clean.run(environment)
            if not self.swallow:
                raise
            return "swallowed"


@dataclass(frozen=True)
class Retried(Node):
    """A loop of up to three attempts."""

    child: Node

    async def run(self, environment: Environment) -> object:
        for attempt in range(3):
            try:
                return await self.child.run(environment)
            except CAUGHT as error:
                environment.note("again", attempt, describe(error))
                await asyncio.sleep(attempt)
        return "given up"


@dataclass(frozen=True)
class Generated(Node):
    """An asynchronous generator, exhausted or left half-way."""

    children: tuple[Node, ...]
    most: int
    last: str | None

    async def run(self, environment: Environment) -> object:
        async def generate() -> AsyncIterator[object]:
            try:
                for child in self.children:
                    yield await child.run(environment)
            finally:
                environment.note("generator ends")
                if self.last is not None:
                    await environment.operation(self.last)

        got: list[object] = []
        async for value in generate():
            got.append(value)
            if len(got) >= self.most:
                break
        return got


@dataclass(frozen=True)
class Managed(Node):
    """An asynchronous context manager with durable calls on entry and exit."""

    child: Node
    last: Node

    async def run(self, environment: Environment) -> object:
        @contextlib.asynccontextmanager
        async def hold() -> AsyncGenerator[None]:
            await environment.operation("acquire")
            token = variable.set(99)
            try:
                yield
            finally:
                variable.reset(token)
                await self.last.run(environment)

        async with hold():
            return await self.child.run(environment)


@dataclass(frozen=True)
class Soon(Node):
    """A task started by a callback."""

    child: Node

    async def run(self, environment: Environment) -> object:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        tasks: list[asyncio.Task[object]] = []

        def begin() -> None:
            tasks.append(loop.create_task(self.child.run(environment)))
            tasks[0].add_done_callback(lambda task: pass_on(task, ended))

        loop.call_soon(begin)
        return await ended


@dataclass(frozen=True)
class Nested(Node):
    """A task in a task."""

    child: Node

    async def run(self, environment: Environment) -> object:
        async def inner() -> object:
            return await asyncio.create_task(self.child.run(environment))

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
    st.builds(Unreferenced, _names),
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
