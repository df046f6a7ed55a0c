"""Django: workflows in Django's transactions, the app mounted beside Django, the viewer with Django's login.

Needs `romancy[django]`.

    application = mount(get_asgi_application(), app)      # asgi.py: starts and stops the app; the viewer at /romancy/viewer/

    with transaction.atomic():                            # a view
        order = Order.objects.create(...)
        using(app).start_workflow(checkout, order.pk)     # with the row, or not at all

`ROMANCY_PATH` in the settings sets the path at which the app is mounted; the default is "/romancy".
"""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from io import BytesIO
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast, overload
from urllib.parse import urlencode

from romancy import Client, ConfigurationError, Workflow, WorkflowHandle, WorkflowRef

try:
    from asgiref.sync import sync_to_async
    from django.conf import settings
    from django.contrib.auth import get_user
    from django.contrib.sessions.middleware import SessionMiddleware
    from django.core.handlers.asgi import ASGIRequest
    from django.db import DEFAULT_DB_ALIAS, close_old_connections, connections, transaction
    from django.http import HttpResponse
    from django.urls import get_script_prefix
    from django.utils.html import format_html
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("django", "asgiref"):
        raise
    raise ConfigurationError(
        "The Django integration needs django, which is not installed: pip install 'romancy[django]'"
    ) from error

__all__ = ["Using", "mount", "staff", "using", "viewer_link", "viewer_url"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Scope: TypeAlias = MutableMapping[str, Any]
ASGI: TypeAlias = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


# --- the app mounted beside Django


def mount(django: ASGI, app: ASGI) -> ASGI:
    """Return an ASGI application that sends lifespan events and paths below `ROMANCY_PATH` to `app`, all others to Django.

    >>> application = mount(get_asgi_application(), app)  # uvicorn shop.asgi:application
    """
    prefix = _path()

    async def application(scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
        elif scope["type"] == "http" and (inside := _inside(scope, prefix)) is not None:
            await app(inside, receive, send)
        else:
            await django(scope, receive, send)

    return application


def _inside(scope: Scope, prefix: str) -> Scope | None:
    """Return the scope of a request to the app, with the prefix as its root path; None if the request is for Django."""
    root = scope.get("root_path", "").rstrip("/")
    path: str = scope["path"].removeprefix(root) if f"{scope['path']}/".startswith(f"{root}/") else scope["path"]
    if not f"{path}/".startswith(f"{prefix}/"):
        return None
    return {**scope, "root_path": root + prefix, "path": root + path}


def _path() -> str:
    path: str = getattr(settings, "ROMANCY_PATH", "/romancy")
    if not path.startswith("/") or path.endswith("/"):
        raise ConfigurationError(f"ROMANCY_PATH is {path!r}: it must begin with a slash, and not end with one.")
    return path


# --- the viewer


def viewer_url(instance_id: str | None = None) -> str:
    """Return the URL of the viewer, or of its page for an instance."""
    start = f"{get_script_prefix().rstrip('/')}{_path()}/viewer/"
    return start if instance_id is None else f"{start}instance?{urlencode({'id': instance_id})}"


def viewer_link(instance_id: str, text: str | None = None) -> str:
    """Return a link to an instance in the viewer, for a column or a read-only field of the admin.

    >>> class OrderAdmin(admin.ModelAdmin):
    ...     list_display = ["pk", "workflow"]
    ...
    ...     def workflow(self, order: Order) -> str:
    ...         return viewer_link(order.instance_id)
    """
    return cast(str, format_html('<a href="{}">{}</a>', viewer_url(instance_id), text or instance_id))


async def staff(scope: Mapping[str, Any]) -> tuple[str, str] | None:
    """Authorize users of Django, for `App(auth=staff)`: staff may read, superusers may also act.

    Returns the role, and the name of the user for the audit.
    """
    decided: tuple[str, str] | None = await sync_to_async(_decided)(scope)
    return decided


def _decided(scope: Mapping[str, Any]) -> tuple[str, str] | None:
    close_old_connections()  # as Django does around its own requests
    try:
        request = ASGIRequest(scope, BytesIO())
        SessionMiddleware(_nothing).process_request(request)
        user: Any = get_user(request)
        role = "admin" if user.is_superuser else "read" if user.is_staff else None
        return None if role is None else (role, user.get_username())
    finally:
        close_old_connections()


def _nothing(_: object) -> HttpResponse:
    return HttpResponse()


# --- Django's transactions


def using(app: Client, database: str = DEFAULT_DB_ALIAS) -> Using:
    """Start workflows and send events and messages in Django's transaction: they take effect when it commits.

    `database` is the name of a Django connection to the app's database. The app need not run in this process: workflows
    that are started under WSGI, in a management command or in a task, run in the processes of the app.
    """
    return Using(app, database)


class Using:
    """The calls of `app.using(connection)` for synchronous code. Made by `using`."""

    def __init__(self, app: Client, database: str) -> None:
        self._app = app
        self._database = database

    @overload
    def start_workflow(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]: ...
    @overload
    def start_workflow(self, wf: str | WorkflowRef, /, *args: Any, **kwargs: Any) -> WorkflowHandle[Any]: ...
    def start_workflow(self, wf: Any, /, *args: Any, **kwargs: Any) -> WorkflowHandle[Any]:
        """Start a workflow when the transaction commits. Raises the errors of `App.start_workflow`."""
        with self._transaction() as connection:
            return _run_sync(self._app.using(connection).start_workflow(wf, *args, **kwargs))

    def send_event(
        self,
        type: str,
        source: str,
        data: Any = None,
        *,
        subject: str | None = None,
        event_id: str | None = None,
        content_type: str | None = None,
        extensions: Mapping[str, str | int | bool] | None = None,
        local: bool = True,
    ) -> str:
        """Send an event when the transaction commits; returns its id."""
        with self._transaction() as connection:
            sending = self._app.using(connection).send_event(
                type,
                source,
                data,
                subject=subject,
                event_id=event_id,
                content_type=content_type,
                extensions=extensions,
                local=local,
            )
            return _run_sync(sending)

    def publish(self, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Publish a message to a channel when the transaction commits; returns its id."""
        with self._transaction() as connection:
            return _run_sync(self._app.using(connection).publish(channel, data, metadata=metadata))

    def send_to(self, instance_id: str, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Send a message to one instance when the transaction commits; returns its id. Raises like `App.send_to`."""
        with self._transaction() as connection:
            return _run_sync(self._app.using(connection).send_to(instance_id, channel, data, metadata=metadata))

    def send_to_group(self, name: str, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Send a message to each member of a group when the transaction commits; returns its id."""
        with self._transaction() as connection:
            return _run_sync(self._app.using(connection).send_to_group(name, channel, data, metadata=metadata))

    @contextmanager
    def _transaction(self) -> Iterator[object]:
        # A savepoint in a transaction, otherwise a transaction: the work takes several statements, and a failed one must
        # not break the caller's transaction.
        atomic: Any = transaction.atomic(using=self._database)
        with atomic:
            connection: Any = connections[self._database]
            connection.validate_no_broken_transaction()
            with connection.wrap_database_errors:
                yield connection.connection


def _run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a synchronous connection. It never suspends, so it needs no event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("using() suspended on a synchronous connection")
