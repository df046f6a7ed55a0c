"""TCP keepalive settings, to detect that a server's machine is gone; by default this takes about a quarter of an hour."""

from __future__ import annotations

import asyncio
import socket

_DEAD_PEER_TIMEOUT = 20
"""Seconds after which a connection is given up if the server's machine acknowledges nothing."""
_KEEPALIVE_OPTIONS = {
    "TCP_KEEPIDLE": _DEAD_PEER_TIMEOUT // 2,
    "TCP_KEEPINTVL": _DEAD_PEER_TIMEOUT // 4,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": 1000 * _DEAD_PEER_TIMEOUT,
}


def enable_keepalive(transport: asyncio.BaseTransport) -> None:
    """Have the operating system detect when the peer's machine is gone."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE_OPTIONS.items():
        if hasattr(socket, name):  # not every system has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
