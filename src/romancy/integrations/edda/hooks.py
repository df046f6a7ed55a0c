"""Edda's hooks, with several arguments instead of one object.

They are called when romancy's hooks are: after the commit, one after another, without delaying the engine.
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
    """The hooks of Edda. Any object with some of these methods is accepted; it need not inherit from this class."""

    async def on_workflow_start(self, instance_id: str, workflow_name: str, input_data: dict[str, Any]) -> None:
        """An instance starts."""

    async def on_workflow_complete(self, instance_id: str, workflow_name: str, result: Any) -> None:
        """An instance has completed."""

    async def on_workflow_failed(self, instance_id: str, workflow_name: str, error: Exception) -> None:
        """An instance has failed."""

    async def on_workflow_cancelled(self, instance_id: str, workflow_name: str) -> None:
        """An instance was cancelled."""

    async def on_activity_start(self, instance_id: str, activity_id: str, activity_name: str, is_replaying: bool) -> None:
        """An activity starts, or its outcome is taken from the history."""

    async def on_activity_complete(
        self, instance_id: str, activity_id: str, activity_name: str, result: Any, cache_hit: bool
    ) -> None:
        """An activity has completed."""

    async def on_activity_failed(self, instance_id: str, activity_id: str, activity_name: str, error: Exception) -> None:
        """An activity has failed and is not retried."""

    async def on_activity_retry(
        self, instance_id: str, activity_id: str, activity_name: str, error: Exception, attempt: int, delay: float
    ) -> None:
        """An attempt has failed and another follows, in `delay` seconds."""

    async def on_event_sent(self, event_type: str, event_source: str, event_data: dict[str, Any]) -> None:
        """A workflow or an activity has sent an event."""

    async def on_event_received(self, instance_id: str, event_type: str, event_data: dict[str, Any]) -> None:
        """An instance has received an event that it waited for."""


class HooksBase(WorkflowHooks):
    """A base class for hooks that define only some of the methods."""


_METHODS = [name for name in vars(WorkflowHooks) if name.startswith("on_")]
_MAX_ERRORS = 1000
"""Most errors of attempts that are retained until their hook is called. Older ones are dropped, as their call is lost."""

_Key: TypeAlias = tuple[str, int, str, int]


class HooksAdapter(romancy.Hooks):
    """Romancy hooks that call Edda's hooks. As in Edda, there are no calls for compensations."""

    def __init__(self, hooks: object) -> None:
        self._hooks = hooks
        self._raised: dict[_Key, Exception] = {}

    @contextmanager
    def around_activity(self, info: infos.ActivityStarted) -> Iterator[None]:
        """Retain the exception of an attempt, because the later hook call has only its type and message."""
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
        if info.activity_id is not None:  # otherwise the event has started the instance
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
        """Call a hook with positional arguments, because programs choose the names of their parameters."""
        hook = getattr(self._hooks, method, None)
        result = None if hook is None else hook(*arguments)
        if inspect.isawaitable(result):
            await result


def native_hooks(given: Any) -> tuple[romancy.Hooks, ...]:
    """Return romancy hooks, given either kind."""
    several: Iterable[Any] = () if given is None else given if isinstance(given, list | tuple) else (given,)
    return tuple(one if isinstance(one, romancy.Hooks) else HooksAdapter(_checked(one)) for one in several)


def _checked(hooks: object) -> object:
    if any(callable(getattr(hooks, name, None)) for name in _METHODS) and not isinstance(hooks, type):
        return hooks
    raise ConfigurationError(f"EddaApp(hooks={hooks!r}): give an object with methods such as {_METHODS[0]}; see HooksBase.")


def rebuild_error(recorded: Error) -> Exception:
    """Rebuild a recorded exception, of its own class if that is loaded. The recorded traceback becomes a note."""
    found = _class(recorded.type)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        found = type(recorded.type.rpartition(".")[2], (Exception,), {})
    made: Exception = found.__new__(found, recorded.message)  # without __init__, which may need other arguments
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
        # Not `getattr`: the name comes from the database, and a `__getattr__` of a module may import other modules.
        found = vars(found).get(name) if isinstance(found, ModuleType | type) else None
    return found


def _named(info: infos.ActivityStarted | infos.ActivityCompleted | Any) -> tuple[str, str, str]:
    return info.instance_id, info.activity_id, info.activity_name


def _key(info: infos.ActivityStarted | infos.ActivityFailed | infos.ActivityRetried) -> _Key:
    return info.instance_id, info.generation, info.activity_id, info.attempt
