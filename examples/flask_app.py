"""Flask, or any other WSGI application: the app runs in a thread beside it.

`python examples/flask_app.py` serves it on port 5000: orders at /orders, the viewer at /romancy/viewer/.

Output with --once:
    POST /orders: 202 {'order': 'order-1'}
    GET /orders/order-1: {'parcel': 'parcel with a lamp', 'status': 'completed'}
    GET /romancy/health/live: {'status': 'alive'}
"""

import asyncio
import sqlite3
import sys
from contextlib import closing
from typing import Any

from flask import Flask, request
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from romancy import ActivityContext, App, WorkflowContext, activity, to_wsgi, workflow

FILE = "flask_app.db"


@activity
async def pack(ctx: ActivityContext, item: str) -> str:
    """Pack the item."""
    return f"parcel with {item}"


@workflow
async def fulfil(ctx: WorkflowContext, item: str) -> str:
    """Runs after the response."""
    return await pack(ctx, item)


app = App(FILE, workflows=[fulfil])
workflows = to_wsgi(app)
site = Flask(__name__)
site.wsgi_app = DispatcherMiddleware(site.wsgi_app, {"/romancy": workflows})  # type: ignore[method-assign]


@site.post("/orders")
def place() -> Any:
    """Start the workflow in your own transaction. On a synchronous connection nothing waits, so `asyncio.run` is enough."""
    order, item = request.form["order"], request.form["item"]
    with closing(sqlite3.connect(FILE)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT)")
        connection.execute("INSERT OR IGNORE INTO orders VALUES (?, ?)", (order, item))
        asyncio.run(app.using(connection).start_workflow(fulfil.with_options(instance_id=order), item))
    return {"order": order}, 202


@site.get("/orders/<order>")
def show(order: str) -> Any:
    """All other calls run in the app's thread."""
    handle = app.get_handle(order)
    return {"parcel": workflows.run(handle.result(timeout=10)), "status": workflows.run(handle.status())}


def once() -> None:
    """Use it as a test would."""
    client = site.test_client()
    client.get("/romancy/health/live")  # the app creates its tables when it first starts
    answer = client.post("/orders", data={"order": "order-1", "item": "a lamp"})
    print("POST /orders:", answer.status_code, answer.json)
    print("GET /orders/order-1:", client.get("/orders/order-1").json)
    print("GET /romancy/health/live:", client.get("/romancy/health/live").json)


if __name__ == "__main__":
    if "--once" in sys.argv:
        once()
    else:
        site.run()
