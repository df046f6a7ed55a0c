"""Tests of the app with Django: shared transactions, both in one ASGI application, and the viewer with Django's login."""

# Django has no type annotations, and pyright infers wrong types.
# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportIndexIssue=false
from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
import httpx
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.management import call_command
from django.db import connections, transaction
from django.db.utils import OperationalError
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import path

from romancy import (
    App,
    Client,
    ConfigurationError,
    InstanceConflictError,
    Status,
    WorkflowContext,
    WorkflowNotFoundError,
    receive,
    subscribe,
    wait_event,
    workflow,
)
from romancy.integrations.django import Using, mount, staff, using, viewer_link, viewer_url

if not settings.configured:
    settings.configure(
        SECRET_KEY="for tests",
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["localhost"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
        MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
        USE_TZ=True,
    )
    django.setup()


def home(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"Django at {request.path}")


urlpatterns = [path("", home), path("romancyfan/", home)]


@workflow
async def greet(ctx: WorkflowContext, name: str) -> str:
    return f"hello, {name}"


@workflow
async def listen(ctx: WorkflowContext) -> list[Any]:
    await subscribe(ctx, "news")
    heard = [(await receive(ctx, "news")).data for _ in range(2)]
    return [*heard, (await wait_event(ctx, "paid")).data]


# --- transactions


def described(database: str) -> dict[str, Any]:
    """A database in the form of Django's settings."""
    if not database.startswith("postgres"):
        options = {"transaction_mode": "IMMEDIATE", "timeout": 30}
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": database, "OPTIONS": options}
    parts = urlsplit(database)
    where = {"HOST": parts.hostname, "PORT": parts.port, "USER": parts.username, "NAME": parts.path[1:]}
    return {"ENGINE": "django.db.backends.postgresql", **where}


@pytest.fixture
def shop(database: str) -> Iterator[str]:
    """Django's alias of the app's database."""
    if database.startswith("mysql"):
        pytest.skip("Django's driver for MySQL, mysqlclient, has to be compiled")
    settings_of_all: dict[str, Any] = connections.settings
    settings_of_all["shop"] = connections.configure_settings({"default": {}, "shop": described(database)})["shop"]
    yield "shop"
    del settings_of_all["shop"]


async def in_django(work: Callable[[], Any]) -> Any:
    """Run a function as a view does: in a thread with a connection of its own."""

    def closing() -> Any:
        try:
            return work()
        finally:
            connections["shop"].close()
            del connections["shop"]

    return await asyncio.to_thread(closing)


def add_order(name: str) -> None:
    with connections["shop"].cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS orders (id VARCHAR(50))")
        cursor.execute("INSERT INTO orders VALUES (%s)", [name])


def orders() -> list[str]:
    with connections["shop"].cursor() as cursor:
        cursor.execute("SELECT id FROM orders ORDER BY id")
        return [name for (name,) in cursor.fetchall()]


async def test_a_workflow_commits_with_djangos_rows(database: str, shop: str) -> None:
    async with App(database, workflows=[greet], poll_interval=0.1) as app:

        def view(name: str, fails: bool) -> str:
            with transaction.atomic(using=shop):
                add_order(name)
                handle = using(app, shop).start_workflow(greet, name)
                if fails:
                    transaction.set_rollback(True, using=shop)
            return handle.instance_id

        kept = await in_django(lambda: view("Ada", fails=False))
        lost = await in_django(lambda: view("Bob", fails=True))
        assert await app.get_handle(kept).result(timeout=10) == "hello, Ada"
        assert await app.get_instance(lost) is None
        assert await in_django(orders) == ["Ada"]


async def test_without_a_transaction_a_start_commits_by_itself(database: str, shop: str) -> None:
    async with App(database, workflows=[greet], poll_interval=0.1) as app:
        handle = await in_django(lambda: using(app, shop).start_workflow("greet", name="Ada"))
        assert await handle.result(timeout=10) == "hello, Ada"


async def test_events_and_messages_can_be_sent_in_a_transaction(database: str, shop: str) -> None:
    async with App(database, workflows=[listen], poll_interval=0.1) as app:
        handle = await app.start_workflow(listen)
        while await handle.status() is not Status.WAITING_FOR_MESSAGE:
            await asyncio.sleep(0.01)

        def view() -> None:
            with transaction.atomic(using=shop):
                say: Using = using(app, shop)
                say.publish("news", "100 %", metadata={"%s": 1})
                say.send_to_group("missing", "news", "unheard")
                say.send_to(handle.instance_id, "news", "for you")
                assert say.send_event("paid", "/shop", {"cents": 5}, event_id="1", subject="s") == "1"

        await in_django(view)
        assert await handle.result(timeout=10) == ["100 %", "for you", {"cents": 5}]


async def test_an_error_leaves_the_transaction_as_it_was(database: str, shop: str) -> None:
    async with App(database, workflows=[greet, listen], poll_interval=0.1) as app:
        once = greet.with_options(instance_id="one")

        def view() -> None:
            with transaction.atomic(using=shop):
                using(app, shop).start_workflow(once, "Ada")
                with pytest.raises(InstanceConflictError):
                    using(app, shop).start_workflow(once, "Bob")
                with pytest.raises(WorkflowNotFoundError):
                    using(app, shop).send_to("missing", "news", 1)
                add_order("Ada")

        await in_django(view)
        assert await in_django(orders) == ["Ada"]
        assert await app.get_handle("one").result(timeout=10) == "hello, Ada"


async def test_a_process_without_a_running_app_starts_workflows(database: str, shop: str) -> None:
    elsewhere = Client(database, workflows=[greet])
    async with App(database, workflows=[greet], poll_interval=0.1) as app:
        started = await in_django(lambda: using(elsewhere, shop).start_workflow(greet, "Ada"))
        assert await app.get_handle(started.instance_id).result(timeout=10) == "hello, Ada"


async def test_djangos_own_errors(tmp_path: Path) -> None:
    settings_of_all: dict[str, Any] = connections.settings
    settings_of_all["shop"] = connections.configure_settings({"default": {}, "shop": described(str(tmp_path / "no.db"))})[
        "shop"
    ]
    app = Client(str(tmp_path / "no.db"), workflows=[greet])
    with pytest.raises(OperationalError, match="no such table: romancy_instances"):
        await in_django(lambda: using(app, "shop").start_workflow(greet, "Ada"))
    del settings_of_all["shop"]


# --- the app beside Django


def client_of(application: Any, root: str = "") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=application, root_path=root)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


@pytest.mark.parametrize("root", ["", "/outer"])
async def test_the_app_and_django_side_by_side(root: str, file: str) -> None:
    application = mount(get_asgi_application(), App(file, workflows=[greet]))
    messages: list[Any] = []
    heard = asyncio.Queue[Any]()
    heard.put_nowait({"type": "lifespan.startup"})

    async def send(message: Any) -> None:
        messages.append(message["type"])
        if message["type"] == "lifespan.startup.complete":
            async with client_of(application, root) as client:
                assert (await client.get(f"{root}/romancy/health/live")).json() == {"status": "alive"}
                assert (await client.get(f"{root}/romancy/viewer/")).status_code == 200
                assert (await client.get(f"{root}/romancyfan/")).text == f"Django at {root}/romancyfan/"
                assert (await client.get(f"{root}/")).text == f"Django at {root}/"
            heard.put_nowait({"type": "lifespan.shutdown"})

    await application({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, heard.get, send)
    assert messages == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.mark.parametrize(
    ("root", "path", "seen"),
    [
        ("", "/romancy", ("/romancy", "/romancy")),
        ("", "/romancy/events", ("/romancy", "/romancy/events")),
        ("/outer", "/outer/romancy/events", ("/outer/romancy", "/outer/romancy/events")),
        ("/outer", "/romancy/events", ("/outer/romancy", "/outer/romancy/events")),  # some servers leave the root path out
        ("/romancy", "/romancy/romancy/events", ("/romancy/romancy", "/romancy/romancy/events")),
        ("/romancy", "/romancy/events", None),
        ("", "/romancyfan/", None),
    ],
)
async def test_what_the_app_sees_of_a_request(root: str, path: str, seen: tuple[str, str] | None) -> None:
    paths: list[tuple[str, str] | None] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        paths.append((scope["root_path"], scope["path"]))

    async def django(scope: Any, receive: Any, send: Any) -> None:
        paths.append(None)

    async def nothing(*_: Any) -> None: ...

    await mount(django, app)({"type": "http", "root_path": root, "path": path}, nothing, nothing)
    assert paths == [seen]


def test_where_the_app_is_mounted_is_a_setting() -> None:
    with override_settings(ROMANCY_PATH="/flows"):
        assert viewer_url() == "/flows/viewer/"
    for wrong in ("flows", "/flows/", "/", ""):
        with override_settings(ROMANCY_PATH=wrong), pytest.raises(ConfigurationError, match="ROMANCY_PATH"):
            mount(get_asgi_application(), App(":memory:"))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "romancy.integrations.django")
    monkeypatch.setitem(sys.modules, "django.conf", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'romancy\[django\]'"):
        importlib.import_module("romancy.integrations.django")


def test_a_link_is_escaped() -> None:
    link = '<a href="/romancy/viewer/instance?id=a%22b%26c%3Cd%3E">a&quot;b&amp;c&lt;d&gt;</a>'
    assert viewer_link('a"b&c<d>') == link
    assert viewer_link("x", "look") == '<a href="/romancy/viewer/instance?id=x">look</a>'


# --- the viewer by Django's login


@pytest.fixture
async def users(tmp_path: Path) -> AsyncIterator[Callable[..., str]]:
    """A function that creates a logged-in user and returns the session cookie."""
    own: dict[str, Any] = connections.settings["default"]
    before, own["NAME"] = own["NAME"], str(tmp_path / "django.db")
    await sync_to_async(call_command)("migrate", verbosity=0)

    def login(**rights: bool) -> str:
        from django.contrib.auth import login as log_in
        from django.contrib.auth.models import User
        from django.contrib.sessions.backends.db import SessionStore

        request = HttpRequest()
        request.session = SessionStore()
        user = User.objects.create_user(f"user{User.objects.count()}", **rights)
        log_in(request, user, backend="django.contrib.auth.backends.ModelBackend")
        request.session.save()
        return f"sessionid={request.session.session_key}"

    yield login
    await sync_to_async(connections.close_all)()
    own["NAME"] = before


@pytest.mark.parametrize(
    ("rights", "role"),
    [
        ({"is_staff": True, "is_superuser": True}, "admin"),
        ({"is_staff": True}, "read"),
        ({}, None),
        ({"is_staff": True, "is_superuser": True, "is_active": False}, None),
    ],
)
async def test_what_a_user_may_do(rights: dict[str, bool], role: str | None, users: Callable[..., str]) -> None:
    cookie = await sync_to_async(users)(**rights)
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [(b"cookie", cookie.encode())]}
    assert await staff(scope) == (None if role is None else (role, "user0"))


async def test_the_viewer_opens_for_a_logged_in_user(users: Callable[..., str], file: str) -> None:
    cookies = [await sync_to_async(users)(is_staff=True), "sessionid=made-up", ""]
    async with App(file, workflows=[greet], auth=staff) as app, client_of(mount(get_asgi_application(), app)) as client:
        answers = [await client.get("/romancy/viewer/", headers={"cookie": cookie}) for cookie in cookies]
        assert [answer.status_code for answer in answers] == [200, 401, 401]
        looked = await client.post("/romancy/cancel/x", headers={"cookie": cookies[0]})
        assert looked.status_code == 403  # staff may only read
