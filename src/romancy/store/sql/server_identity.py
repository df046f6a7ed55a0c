"""Which server the connections of a process lead to.

An address may lead elsewhere from one moment to the next: a fail-over, a load balancer, a name that changes. What was found
out about one server says nothing of another, and half a pool on each would be two databases. So each connection says whose
it is.
"""

from __future__ import annotations


class AnotherServerError(ConnectionError):
    """A connection leads to another server than those before it."""


class ServerIdentity:
    """The server that was looked at, and whether connections have been led to another one since."""

    __slots__ = ("changes", "has_changed", "server")

    def __init__(self) -> None:
        self.server: str | None = None
        """What it calls itself; None until it was looked at."""
        self.has_changed = False
        self.changes = 0
        """How often it has changed: what was lent before is not taken back."""

    def recognise(self, server: str) -> None:
        """Somebody has connected to a server. Raises `AnotherServerError` if it has to be looked at first."""
        if self.server not in (None, server):
            self.has_changed = True
            raise AnotherServerError(f"another server answers than before ({server}, not {self.server})")

    def require(self) -> None:
        """Nothing is written anywhere while it is not known where that would be."""
        if self.has_changed:
            raise AnotherServerError("another server answers than before")

    def reset(self) -> None:
        """Whichever server is found next is to be looked at."""
        self.server = None
        self.changes += 1

    def confirm(self, server: str) -> None:
        """This one has been looked at."""
        self.server = server
        self.has_changed = False
