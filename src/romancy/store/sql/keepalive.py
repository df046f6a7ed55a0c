"""Connections to machines that are gone without a word; by itself the system would wait for a quarter of an hour."""

from __future__ import annotations

import asyncio
import socket

_DEAD_PEER_TIMEOUT = 20
"""Seconds after which a server is given up whose machine does not acknowledge what was sent."""
_KEEPALIVE_OPTIONS = {
    "TCP_KEEPIDLE": _DEAD_PEER_TIMEOUT // 2,
    "TCP_KEEPINTVL": _DEAD_PEER_TIMEOUT // 4,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": 1000 * _DEAD_PEER_TIMEOUT,
}


def enable_keepalive(transport: asyncio.BaseTransport) -> None:
    """Notice when the machine at the other end is gone."""
    line: socket.socket | None = transport.get_extra_info("socket")
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE_OPTIONS.items():
        if hasattr(socket, name):  # not every system has all of them
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
