"""Django: an order and its workflow in one `transaction.atomic()`, and a link from the admin to the viewer.

A whole project in one file. `python examples/django_app.py` serves it on port 8000: the admin at /admin/ (for ada,
whose password it prints), and the viewer, which uses the same login, at /romancy/viewer/.

Output with --once:
    POST /orders/: 201 {'order': 'order-1'}
    GET /orders/order-1/: 200 {'status': 'completed', 'parcel': 'parcel with lamps'}
    POST /orders/, no such item: 404, and nothing was started: None
    the viewer: 401, after the login 200
    the admin: <a href="/romancy/viewer/instance?id=order-1">order-1</a>
"""

import asyncio
import re
import secrets
import sys

import django
import uvicorn
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.management import call_command
from django.db import connection, models, transaction
from django.http import Http404, HttpRequest, JsonResponse
from django.urls import path
from httpx import ASGITransport, AsyncClient

from romancy import ActivityContext, App, WorkflowContext, activity, workflow
from romancy.integrations.django import mount, staff, using, viewer_link

PASSWORD = secrets.token_urlsafe(12)
CONTRIB = [f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "sessions", "messages")]
PROCESSORS = ("django.template.context_processors.request", "django.contrib.auth.context_processors.auth")
MENU = """{% extends "admin/base_site.html" %}{% block userlinks %}<a href="/romancy/viewer/">Workflows</a> /
{{ block.super }}{% endblock %}"""  # in a project: the file templates/admin/base_site.html

settings.configure(
    SECRET_KEY=secrets.token_urlsafe(50),  # in a project: from the environment
    ALLOWED_HOSTS=["localhost", "127.0.0.1"],
    ROOT_URLCONF=__name__,
    STATIC_URL="static/",
    # IMMEDIATE: a transaction that begins with a read could not write after another one has written.
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": "django_app.db",
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 30},
        }
    },
    INSTALLED_APPS=[*CONTRIB, __name__],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "context_processors": [*PROCESSORS, "django.contrib.messages.context_processors.messages"],
                "loaders": [
                    ("django.template.loaders.locmem.Loader", {"admin/base_site.html": MENU}),
                    "django.template.loaders.app_directories.Loader",
                ],
            },
        }
    ],
)
django.setup()
from django.contrib import admin  # noqa: E402 - Django must be set up first
from django.contrib.auth.models import User  # noqa: E402


class Order(models.Model):
    """Your table."""

    id = models.CharField(primary_key=True, max_length=50)
    item = models.CharField(max_length=50)

    class Meta:
        db_table = "orders"


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    """Each order with a link to its workflow."""

    list_display = ("id", "item", "workflow")

    def workflow(self, order: Order) -> str:
        """Return a link to the page of the order's instance."""
        return viewer_link(str(order.id))


@activity
def pack(ctx: ActivityContext, order: str) -> str:
    """A plain function: it runs in a thread, where Django's ORM can be used."""
    return f"parcel with {Order.objects.get(pk=order).item}"


@workflow
async def fulfil(ctx: WorkflowContext, order: str) -> str:
    """Runs after the response."""
    return await pack(ctx, order)


app = App("sqlite:///django_app.db", workflows=[fulfil], auth=staff)


@transaction.atomic
def place(request: HttpRequest) -> JsonResponse:
    """Create the order and its workflow in one transaction. A repeated request changes nothing."""
    order, _ = Order.objects.get_or_create(id=request.POST["id"], defaults={"item": request.POST["item"]})
    using(app).start_workflow(fulfil.with_options(instance_id=order.id), order.id)
    if order.item not in ("lamps", "chairs"):
        raise Http404(f"we have no {order.item}")
    return JsonResponse({"order": order.id}, status=201)


async def show(request: HttpRequest, order: str) -> JsonResponse:
    """Return the status of the workflow, after waiting for its result."""
    parcel = await app.get_handle(order).result(timeout=10)
    return JsonResponse({"status": await app.get_handle(order).status(), "parcel": parcel})


urlpatterns = [path("orders/", place), path("orders/<order>/", show), path("admin/", admin.site.urls)]
application = mount(get_asgi_application(), app)


async def once() -> None:
    """Use it as a test would. A server starts and stops the app itself."""
    async with app, AsyncClient(transport=ASGITransport(application), base_url="http://localhost") as client:
        answer = await client.post("/orders/", data={"id": "order-1", "item": "lamps"})
        print("POST /orders/:", answer.status_code, answer.json())
        answer = await client.get("/orders/order-1/")
        print("GET /orders/order-1/:", answer.status_code, answer.json())
        answer = await client.post("/orders/", data={"id": "order-2", "item": "unicorns"})
        print(
            f"POST /orders/, no such item: {answer.status_code}, and nothing was started:", await app.get_instance("order-2")
        )
        anonymous = await client.get("/romancy/viewer/")
        form = {"csrfmiddlewaretoken": (await client.get("/admin/login/")).cookies["csrftoken"]}
        await client.post("/admin/login/", data={**form, "username": "ada", "password": PASSWORD})
        ada = await client.get("/romancy/viewer/")
        print(f"the viewer: {anonymous.status_code}, after the login {ada.status_code}")
        orders = (await client.get("/admin/__main__/order/")).text
        print("the admin:", *re.findall(r'<a href="/romancy/viewer/instance.*?</a>', orders))


def prepare() -> None:
    """Prepare the database. In a project: `manage.py migrate` and `manage.py createsuperuser`."""
    call_command("migrate", verbosity=0)
    if "orders" not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            editor.create_model(Order)
    User.objects.filter(username="ada").delete()
    User.objects.create_superuser("ada", password=PASSWORD)


if __name__ == "__main__":
    prepare()
    if "--once" in sys.argv:
        asyncio.run(once())
    else:
        print(f"log in as ada with {PASSWORD}")
        uvicorn.run(application)
