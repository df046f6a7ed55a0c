"""Which app is meant by calls that name none: `wf.start(...)`, `send_event(...)`. Edda has one per process."""

from __future__ import annotations

from romancy import App, InvalidWorkflowStateError
from romancy.integrations.edda.context import HERE

_running: list[App] = []


def begin(app: App) -> None:
    """From now on this app is meant."""
    end(app)
    _running.append(app)


def end(app: App) -> None:
    """This app is meant no longer; the one before it is again."""
    _running[:] = [one for one in _running if one is not app]


def current(what: str) -> App:
    """The app of the workflow or activity that runs, or the one that was initialized last."""
    here = HERE.get()
    if here is not None:
        return here.romancy.app
    if _running:
        return _running[-1]
    raise InvalidWorkflowStateError(f"{what} needs a running app: `await app.initialize()` on an EddaApp comes first.")
