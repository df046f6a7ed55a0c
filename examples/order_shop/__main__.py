"""Open the shop."""

import argparse
import asyncio
import os
import socket
from contextlib import suppress

import uvicorn
from examples.order_shop.place import engine_of, find_database
from examples.order_shop.tour import visit
from examples.order_shop.web import build
from examples.order_shop.workflows import fulfil

from romancy import App, HTTPBroker


async def main() -> None:
    """Serve until Ctrl+C, or, with --once, until some customers have been served."""
    options = read_options()
    database = find_database(options.database)
    listener = socket.create_server(("127.0.0.1", 0 if options.once else options.port))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    app = App(database, workflows=[fulfil], broker=HTTPBroker(f"{url}/webhook"))
    api = build(app, engine_of(database))
    server = uvicorn.Server(uvicorn.Config(api, log_level="warning"))
    serving = asyncio.create_task(server.serve([listener]))
    if not options.once:
        print(f"Order at {url}/docs, look at {url}/romancy/viewer/, and press Ctrl+C to close the shop.")
        return await serving
    try:
        await asyncio.to_thread(visit, url)
    finally:
        server.should_exit = True
        await serving


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.order_shop")
    parser.add_argument("--database", default=os.environ.get("ROMANCY_DATABASE"), help="postgresql://..., or a SQLite file")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--once", action="store_true", help="play some customers, and end")
    return parser.parse_args()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
