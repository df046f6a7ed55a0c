"""Tracks which server the connections of a process lead to.

An address may lead to another server at any time: after a fail-over, behind a load balancer, when a host name changes. What
was verified for one server does not hold for another, and a pool with connections to both would use two databases. So each
new connection is checked against the server that was verified.
"""

from __future__ import annotations


class AnotherServerError(ConnectionError):
    """A connection leads to another server than the one that was verified."""


class ServerIdentity:
    """The server that was verified, and whether a connection has reached another one since."""

    __slots__ = ("changes", "has_changed", "server")

    def __init__(self) -> None:
        self.server: str | None = None
        """The server's own identifier; None until it is verified."""
        self.has_changed = False
        self.changes = 0
        """Number of changes. Connections that were lent before the last one must not go back to the pool."""

    def recognise(self, server: str) -> None:
        """Check the server of a new connection. Raises `AnotherServerError` if it is not the verified one."""
        if self.server not in (None, server):
            self.has_changed = True
            raise AnotherServerError(f"another server responds than before ({server}, not {self.server})")

    def require(self) -> None:
        """Raise `AnotherServerError` if a connection has reached another server, until that one is verified."""
        if self.has_changed:
            raise AnotherServerError("another server responds than before")

    def reset(self) -> None:
        """Forget the verified server: the next one that is found has to be verified."""
        self.server = None
        self.changes += 1

    def confirm(self, server: str) -> None:
        """Record that this server has been verified."""
        self.server = server
        self.has_changed = False
