"""Events that are addressed to one instance: Edda's extension `eddainstanceid`, said in this library's word.

What comes over HTTP is translated once the app has read and checked it, so its limits hold and bodies are left alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from romancy import App, PayloadError

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]

EDDA, ROMANCY = "eddainstanceid", "romancyinstanceid"
_LONGEST = 1024


def with_target(extensions: Mapping[str, Any]) -> dict[str, Any]:
    """The extensions of an event, with the address in this library's word too."""
    return {ROMANCY: extensions[EDDA], **extensions} if EDDA in extensions else dict(extensions)


def translate_targets(app: App) -> None:
    """Let events that come in over HTTP be addressed as in Edda. Safe to call again."""
    accept = app.accept_events

    async def accept_addressed(events: Sequence[Any]) -> list[Any]:
        return await accept([_addressed_event(one) for one in events])

    app.accept_events = accept_addressed  # type: ignore[method-assign]


def _addressed_event(event: Any) -> Any:
    if EDDA not in event.extensions or ROMANCY in event.extensions:
        return event
    target = event.extensions[EDDA]
    if not isinstance(target, str) or not 0 < len(target.encode()) <= _LONGEST:
        raise PayloadError(f"{EDDA} is the id of an instance, a text of 1 to {_LONGEST} bytes.")
    return replace(event, extensions=with_target(event.extensions))
