"""The app for calls that name none: `wf.start(...)`, `send_event(...)`. Edda has one per process."""

from __future__ import annotations

import logging
from weakref import WeakSet

from romancy import App, InvalidWorkflowStateError
from romancy.integrations.edda.context import CURRENT_CONTEXT

_log = logging.getLogger("romancy.edda")
_current_apps: list[App] = []
apps_without_broker: WeakSet[App] = WeakSet()
"""Apps without a broker for which the warning has not been logged yet."""


def set_current_app(app: App) -> None:
    """Make this the current app."""
    unset_current_app(app)
    _current_apps.append(app)


def unset_current_app(app: App) -> None:
    """Remove this app; the one before it becomes the current app again."""
    _current_apps[:] = [one for one in _current_apps if one is not app]


def current_app(what: str) -> App:
    """Return the app of the running workflow or activity, or else the one that was initialized last."""
    here = CURRENT_CONTEXT.get()
    if here is not None:
        return here.romancy.app
    if _current_apps:
        return _current_apps[-1]
    raise InvalidWorkflowStateError(f"{what} needs a running app: `await app.initialize()` on an EddaApp comes first.")


def warn_without_broker(app: App, event_type: str) -> None:
    """Warn once for an app that its transactional events reach no broker, although another process may relay them."""
    if app in apps_without_broker:
        apps_without_broker.discard(app)
        _log.warning(
            "send_event_transactional(%r): this EddaApp has no broker_url, so the event reaches the workflows of this "
            "database and is not added to the outbox. If another process relays events, give both the same broker_url, "
            "and outbox_enabled=True only to the one that relays.",
            event_type,
        )
