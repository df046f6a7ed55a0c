"""Hooks as Edda spells them: many arguments instead of one object.

They are told what this library's hooks are told, when those are: after the commit, one after another, beside the engine.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeAlias

import romancy
from romancy import ConfigurationError, Error
from romancy import hooks as infos
from romancy.integrations.edda.result_types import ACTIVITIES, WORKFLOWS, restore_result

__all__ = ["HooksBase", "WorkflowHooks"]


class WorkflowHooks:
    """What Edda tells about workflows. An object with any of these methods will do: to inherit is not needed."""

    async def on_workflow_start(self, instance_id: str, workflow_name: str, input_data: dict[str, Any]) -> None:
        """An instance begins."""

    async def on_workflow_complete(self, instance_id: str, workflow_name: str, result: Any) -> None:
        """An instance has returned."""

    async def on_workflow_failed(self, instance_id: str, workflow_name: str, error: Exception) -> None:
        """An instance has failed."""

    async def on_workflow_cancelled(self, instance_id: str, workflow_name: str) -> None:
        """An instance was cancelled."""

    async def on_activity_start(self, instance_id: str, activity_id: str, activity_name: str, is_replaying: bool) -> None:
        """An activity begins, or its outcome is taken from the history."""

    async def on_activity_complete(
        self, instance_id: str, activity_id: str, activity_name: str, result: Any, cache_hit: bool
    ) -> None:
        """An activity has its result."""

    async def on_activity_failed(self, instance_id: str, activity_id: str, activity_name: str, error: Exception) -> None:
        """An activity has failed for good."""

    async def on_activity_retry(
        self, instance_id: str, activity_id: str, activity_name: str, error: Exception, attempt: int, delay: float
    ) -> None:
        """An attempt has failed and another follows, in `delay` seconds."""

    async def on_event_sent(self, event_type: str, event_source: str, event_data: dict[str, Any]) -> None:
        """A workflow or an activity has sent an event."""

    async def on_event_received(self, instance_id: str, event_type: str, event_data: dict[str, Any]) -> None:
        """An instance has got an event that it waited for."""


class HooksBase(WorkflowHooks):
    """A base for hooks that write only some of the methods."""


_METHODS = [name for name in vars(WorkflowHooks) if name.startswith("on_")]
_MAX_ERRORS = 1000
"""Errors of attempts that are kept until they are told: more than that are those that never will be."""

_Key: TypeAlias = tuple[str, int, str, int]


class HooksAdapter(romancy.Hooks):
    """Hooks of this library that tell Edda's. Those of compensations are left out, as Edda does."""

    def __init__(self, hooks: object) -> None:
        self._hooks = hooks
        self._raised: dict[_Key, Exception] = {}

    @contextmanager
    def around_activity(self, info: infos.ActivityStarted) -> Iterator[None]:
        """Keep what an attempt raises: what is told later is only its name and message."""
        try:
            yield
        except Exception as error:
            if len(self._raised) >= _MAX_ERRORS:
                self._raised.pop(next(iter(self._raised)), None)
            self._raised[_key(info)] = error
            raise

    async def on_workflow_start(self, info: infos.WorkflowStarted) -> None:
        await self._call_hook("on_workflow_start", info.instance_id, info.workflow_name, info.input)

    async def on_workflow_complete(self, info: infos.WorkflowCompleted) -> None:
        result = restore_result(WORKFLOWS, info.workflow_name, info.result)
        await self._call_hook("on_workflow_complete", info.instance_id, info.workflow_name, result)

    async def on_workflow_failed(self, info: infos.WorkflowFailed) -> None:
        await self._call_hook("on_workflow_failed", info.instance_id, info.workflow_name, rebuild_error(info.error))

    async def on_workflow_cancelled(self, info: infos.WorkflowCancelled) -> None:
        await self._call_hook("on_workflow_cancelled", info.instance_id, info.workflow_name)

    async def on_activity_start(self, info: infos.ActivityStarted) -> None:
        if info.compensates is None and info.attempt == 1:
            await self._call_hook("on_activity_start", *_named(info), False)

    async def on_activity_complete(self, info: infos.ActivityCompleted) -> None:
        if info.compensates is None:
            await self._completed(info, info.result, cache_hit=False)

    async def on_activity_failed(self, info: infos.ActivityFailed) -> None:
        error = self._error(info, info.error)
        if info.compensates is None and not info.cancelled:
            await self._call_hook("on_activity_failed", *_named(info), error)

    async def on_activity_retry(self, info: infos.ActivityRetried) -> None:
        error, delay = self._error(info, info.error), (info.next_at - info.at).total_seconds()
        if info.compensates is None:
            await self._call_hook("on_activity_retry", *_named(info), error, info.attempt, delay)

    async def on_activity_cache_hit(self, info: infos.ActivityCacheHit) -> None:
        await self._call_hook("on_activity_start", *_named(info), True)
        if info.error is None:
            await self._completed(info, info.result, cache_hit=True)
        else:
            await self._call_hook("on_activity_failed", *_named(info), rebuild_error(info.error))

    async def on_event_sent(self, info: infos.EventSent) -> None:
        await self._call_hook("on_event_sent", info.event_type, info.source, info.data)

    async def on_event_received(self, info: infos.EventReceived) -> None:
        if info.activity_id is not None:  # else it has started the instance
            await self._call_hook("on_event_received", info.instance_id, info.event.type, info.event.data)

    async def _completed(
        self, info: infos.ActivityCompleted | infos.ActivityCacheHit, plain: Any, *, cache_hit: bool
    ) -> None:
        await self._call_hook(
            "on_activity_complete", *_named(info), restore_result(ACTIVITIES, info.activity_name, plain), cache_hit
        )

    def _error(self, info: infos.ActivityFailed | infos.ActivityRetried, recorded: Error) -> Exception:
        return self._raised.pop(_key(info), None) or rebuild_error(recorded)

    async def _call_hook(self, method: str, *arguments: Any) -> None:
        """By position: programs name their parameters as they like."""
        hook = getattr(self._hooks, method, None)
        answer = None if hook is None else hook(*arguments)
        if inspect.isawaitable(answer):
            await answer


def native_hooks(given: Any) -> tuple[romancy.Hooks, ...]:
    """Hooks of this library, from either."""
    several: Iterable[Any] = () if given is None else given if isinstance(given, list | tuple) else (given,)
    return tuple(one if isinstance(one, romancy.Hooks) else HooksAdapter(_checked(one)) for one in several)


def _checked(hooks: object) -> object:
    if any(callable(getattr(hooks, name, None)) for name in _METHODS) and not isinstance(hooks, type):
        return hooks
    raise ConfigurationError(f"EddaApp(hooks={hooks!r}): give an object with methods such as {_METHODS[0]}; see HooksBase.")


def rebuild_error(recorded: Error) -> Exception:
    """An exception of that name and message. Its own class if it is there; its trace is a note."""
    found = _class(recorded.type)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        found = type(recorded.type.rpartition(".")[2], (Exception,), {})
    made: Exception = found.__new__(found, recorded.message)  # not called: it may want other arguments
    made.args = (recorded.message,)
    if recorded.trace:
        made.add_note(recorded.trace)
    return made


def _class(path: str) -> Any:
    module, _, rest = path.rpartition(".")
    while module and module not in sys.modules:
        module, _, outer = module.rpartition(".")
        rest = f"{outer}.{rest}"
    found: Any = sys.modules[module] if module else builtins
    for name in rest.split("."):
        # Not `getattr`: the name comes from the database, and modules may import others when they are asked for something.
        found = vars(found).get(name) if isinstance(found, ModuleType | type) else None
    return found


def _named(info: infos.ActivityStarted | infos.ActivityCompleted | Any) -> tuple[str, str, str]:
    return info.instance_id, info.activity_id, info.activity_name


def _key(info: infos.ActivityStarted | infos.ActivityFailed | infos.ActivityRetried) -> _Key:
    return info.instance_id, info.generation, info.activity_id, info.attempt
