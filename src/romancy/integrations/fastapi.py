"""FastAPI and Starlette: a lifespan that starts and stops the app, and a dependency for requests. Needs `romancy[http]`.

api = FastAPI(lifespan=lifespan(app))        # or lifespan(app, your_own_lifespan)
api.mount("/romancy", app)                   # events, the API and the viewer, for this machine; others need App(auth=...)

@api.post("/orders")
async def place(order: Order, app: Annotated[App, Depends(current_app)]) -> str:
    return (await app.start_workflow(checkout, order)).instance_id
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias, TypeVar

from romancy import Client, ConfigurationError

try:
    from starlette.requests import HTTPConnection
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "starlette":
        raise
    raise ConfigurationError("FastAPI needs starlette, which is not installed: pip install 'romancy[http]'") from error

__all__ = ["current_app", "lifespan"]

A = TypeVar("A")
Lifespan: TypeAlias = Callable[[A], AbstractAsyncContextManager[Mapping[str, Any]]]
YourLifespan: TypeAlias = Callable[[A], AbstractAsyncContextManager[Mapping[str, Any] | None]]

_STATE = "romancy"


def lifespan(app: Client, yours: YourLifespan[A] | None = None) -> Lifespan[A]:
    """Return a lifespan for an application that starts and stops `app`, an `App` or a `Client`.

    Your own lifespan, if given, starts first and ends last: its resources are open while workflows run. Code that needs the
    running app, such as the start of a workflow, belongs in a lifespan around this one:
    `async with lifespan(app)(api) as state:`.

    >>> api = FastAPI(lifespan=lifespan(app, open_the_pool))
    """

    @asynccontextmanager
    async def both(application: A) -> AsyncIterator[Mapping[str, Any]]:
        if yours is None:
            async with app:
                yield {_STATE: app}
        else:
            async with yours(application) as state, app:
                yield {**(state or {}), _STATE: app}

    return both


async def current_app(connection: HTTPConnection) -> Client:
    """Return the app or client that the lifespan has started, for `Depends`. Raises `ConfigurationError` without one."""
    found: Client | None = getattr(connection.state, _STATE, None)
    if found is None:
        raise ConfigurationError(
            "This application has started no app: give it `lifespan=lifespan(app)`. (In tests, enter the client: "
            "`with TestClient(api) as client`.)"
        )
    return found
