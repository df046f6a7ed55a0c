"""A fake server that asks for the password in plain text."""

from __future__ import annotations

import asyncio

import asyncmy
import pytest
from asyncmy.errors import OperationalError

from romancy.store.mysql.pool import parse_address

PASSWORD = b"s3kr1t"
_CAPABILITIES = 0x0008_8209
"""The capabilities: a database at login, protocol 4.1, a salt of 20 bytes, and authentication plugins."""


class FakeServer:
    """Sends a server's greeting, asks for the password with a given plugin, and records the answer."""

    def __init__(self, plugin: bytes) -> None:
        self._asks = b"\xfe" + plugin + b"\0" + b"\x04Password: "
        self.got = b""
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        low, high = _CAPABILITIES & 0xFFFF, _CAPABILITIES >> 16
        greeting = b"\x0a8.0.0\0" + bytes(4) + b"s" * 8 + b"\0" + low.to_bytes(2, "little") + b"\x2d\x02\0"
        greeting += high.to_bytes(2, "little") + b"\x15" + bytes(10) + b"s" * 12 + b"\0" + b"mysql_native_password\0"
        writer.write(_packet(greeting, 0))
        self.got += await reader.read(4096)
        writer.write(_packet(self._asks, 2))
        while part := await reader.read(4096):
            self.got += part
        writer.close()
        await writer.wait_closed()
        self.left.set()


def _packet(body: bytes, number: int) -> bytes:
    return len(body).to_bytes(3, "little") + bytes((number,)) + body


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog"])
async def test_a_password_is_not_sent_in_clear_over_a_line_that_others_can_read(plugin: bytes) -> None:
    fake_server = FakeServer(plugin)
    async with await asyncio.start_server(fake_server.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        address = parse_address(f"mysql://ada:{PASSWORD.decode()}@127.0.0.1:{port}/shop")
        with pytest.raises(OperationalError, match="in clear"):
            await asyncmy.connect(**address.connect_arguments())
        await fake_server.left.wait()
    assert b"ada" in fake_server.got
    assert PASSWORD not in fake_server.got


def test_over_tls_the_way_to_log_in_is_the_servers_to_say() -> None:
    assert parse_address("mysql://ada:x@localhost/shop").connect_arguments()["auth_plugin_map"]
    for options in ("ssl=true", "unix_socket=/tmp/x"):
        assert not parse_address(f"mysql://ada:x@localhost/shop?{options}").connect_arguments()["auth_plugin_map"]
