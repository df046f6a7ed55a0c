"""Tests of the protocol class of `romancy serve`, without a server."""

from __future__ import annotations

import asyncio
import socket

from uvicorn import Config
from uvicorn.server import ServerState

from romancy import App
from romancy.cli.uvicorn.timeouts import TimeoutProtocol


async def test_answers_are_not_held_back() -> None:
    """The protocol sets TCP_NODELAY: sockets that were opened elsewhere lack it, and responses would take 40 ms longer."""
    config = Config(App(":memory:"), http=TimeoutProtocol, ws="none", log_config=None, proxy_headers=False)
    config.load()
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as client:
        accepted, _ = listening.accept()
        transport, protocol = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: TimeoutProtocol(config, ServerState(), {}), accepted
        )
        assert isinstance(protocol, TimeoutProtocol)
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        client.close()
        transport.close()
        await asyncio.sleep(0)
