"""Events that are addressed to one instance: translates Edda's extension `eddainstanceid` to `romancyinstanceid`.

Events from HTTP are translated after the app has read and checked them, so its limits apply and bodies stay unchanged.
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
    """Return the extensions of an event, with the target also under the name that romancy uses."""
    return {ROMANCY: extensions[EDDA], **extensions} if EDDA in extensions else dict(extensions)


def translate_targets(app: App) -> None:
    """Accept Edda's targets in events from HTTP. Safe to call again."""
    accept = app.accept_events

    async def accept_addressed(events: Sequence[Any]) -> list[Any]:
        return await accept([_addressed_event(one) for one in events])

    app.accept_events = accept_addressed  # type: ignore[method-assign]


def _addressed_event(event: Any) -> Any:
    if EDDA not in event.extensions or ROMANCY in event.extensions:
        return event
    target = event.extensions[EDDA]
    if not isinstance(target, str) or not 0 < len(target.encode()) <= _LONGEST:
        raise PayloadError(f"{EDDA} must be an instance id: a string of 1 to {_LONGEST} bytes.")
    return replace(event, extensions=with_target(event.extensions))
