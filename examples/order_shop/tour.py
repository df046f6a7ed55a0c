"""Simulates some customers, who use the shop over HTTP."""

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

LONGEST = 60.0
ENDED = ("completed", "failed")


def visit(url: str) -> None:
    """Place orders, pay some of them, and print the results."""
    ada, joe = order(url, "Ada", "lamps", 1), order(url, "Joe", "lamps", 1)
    bob, eve = order(url, "Bob", "chairs", 2, hold=1.0), order(url, "Eve", "chairs", 3)
    for one in (ada, joe):
        pay(url, one["id"], one["cents"])
    for what, one in {"Ada's lamp": ada, "Bob's two chairs": bob, "Eve's three chairs": eve, "Joe's lamp": joe}.items():
        found = until(lambda found: found["workflow"] in ENDED, f"{url}/orders/{one['id']}")
        print(f"{what}: {found['status']}")
    try:
        order(url, "Fay", "unicorns", 1)
    except HTTPError as error:
        print(f"Fay's unicorn: {error.code}, {json.load(error)['detail']}")
    print("stock:", ", ".join(f"{name} {left}" for name, left in call(f"{url}/stock").items()))
    print("paid back: Joe", call(f"{url}/orders/{joe['id']}")["paid_back"])
    notices = until(lambda found: len(found) == 7, f"{url}/notices")
    for customer in ("Ada", "Bob", "Eve", "Joe"):
        print(f"webhook, {customer}:", *(kind for who, kind in notices if who == customer))


def order(url: str, customer: str, item: str, number: int, hold: float = 300.0) -> Any:
    """Place an order."""
    return call(f"{url}/orders", {"customer": customer, "item": item, "number": number, "hold": hold})


def pay(url: str, order_id: str, cents: int) -> None:
    """Send a CloudEvent, as the bank does. A duplicate would be ignored."""
    data = {"cents": cents, "card": "4242"}
    event = {"specversion": "1.0", "type": "payment.received", "source": "/bank", "id": f"payment of {order_id}"}
    call(f"{url}/romancy/events", {**event, "subject": order_id, "data": data}, "application/cloudevents+json")


def until(enough: Callable[[Any], bool], url: str) -> Any:
    """Repeat a request until its response is good enough."""
    end = time.monotonic() + LONGEST
    while not enough(found := call(url)):
        if time.monotonic() > end:
            raise TimeoutError(f"{url} still returns {found}")
        time.sleep(0.05)
    return found


def call(url: str, body: Any = None, kind: str = "application/json") -> Any:
    """Send a GET request, or a POST request with a body."""
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"Content-Type": kind}), timeout=LONGEST) as answer:
        return json.load(answer)
