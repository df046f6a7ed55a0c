"""Some customers, and what becomes of their orders. They use the shop over HTTP, as everybody does."""

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

LONGEST = 60.0
ENDED = ("completed", "failed")


def visit(url: str) -> None:
    """Order, pay or not, and look."""
    ada, bob, eve, joe = (
        order(url, *wish) for wish in [("Ada", "lamps", 1), ("Bob", "chairs", 2), ("Eve", "chairs", 3), ("Joe", "lamps", 1)]
    )
    for one in (ada, joe):
        call(f"{url}/orders/{one['id']}/payment", {"cents": one["cents"], "card": "4242"})
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


def order(url: str, customer: str, item: str, number: int) -> Any:
    """Place an order."""
    return call(f"{url}/orders", {"customer": customer, "item": item, "number": number})


def until(enough: Callable[[Any], bool], url: str) -> Any:
    """Ask until the answer is good enough."""
    end = time.monotonic() + LONGEST
    while not enough(found := call(url)):
        if time.monotonic() > end:
            raise TimeoutError(f"{url} still says {found}")
        time.sleep(0.05)
    return found


def call(url: str, body: Any = None) -> Any:
    """Ask, or with a body, tell."""
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=LONGEST) as answer:
        return json.load(answer)
