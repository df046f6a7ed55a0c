"""Access over HTTP: tokens, roles and browser sessions.

A caller presents a token (`Authorization: Bearer ...`) and has the role of that token. Instead of tokens, the app can have
a function that decides: it receives the ASGI scope of the request and returns a role, a role and a name, or None to refuse
the caller.

A browser cannot send that header when it opens a page. It exchanges the token for a session, which it keeps as a cookie.
A session is signed with the token itself: every process that knows the token can check its sessions, none has to be
stored, and all of them end when the token is removed.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from romancy.clock import MICROS, to_micros

_LOG = logging.getLogger("romancy.http")
_SESSION = 12 * 3600 * MICROS
"""The lifetime of a session in microseconds, unless its token expires earlier."""
_LONGEST_NAME = 200


class CallerRole(StrEnum):
    """The role of a caller, which decides the requests that it may make."""

    ADMIN = "admin"
    """All requests."""
    READ = "read"
    """Requests that read, and change nothing."""
    EVENTS = "events"
    """Sending events, and nothing else."""


@dataclass(frozen=True, slots=True)
class Token:
    """A secret that a caller presents, with a role and a time of expiry. The secret is not part of its `repr`.

    >>> Token("s3cret", role="events")
    Token(role='events', expires=None)
    """

    value: str = field(repr=False)
    role: str = "admin"
    expires: datetime | None = None
    name: str = field(default="", repr=False)
    """The name of the token's holder in the audit; without one, the audit shows the end of the token's fingerprint."""

    def __post_init__(self) -> None:
        if not isinstance(self.value, str) or not self.value or not self.value.isascii() or not self.value.isprintable():
            raise ValueError("a token must be a non-empty string of printable ASCII characters")
        if self.value != self.value.strip():
            raise ValueError("a token must not begin or end with a space, because callers could not send it")
        _role(self.role)
        if self.expires is not None and (not isinstance(self.expires, datetime) or self.expires.tzinfo is None):
            raise ValueError("expires= of a token must be an aware datetime, e.g. datetime(2030, 1, 1, tzinfo=UTC)")

    def valid(self, now: int) -> bool:
        """Whether the token has not expired."""
        return self.expires is None or now < to_micros(self.expires)

    @property
    def fingerprint(self) -> str:
        """A hash that identifies the token without revealing it."""
        return hashlib.sha256(self.value.encode()).hexdigest()

    @property
    def bearer(self) -> str:
        """The name of the token's holder, as the audit and the logs show it."""
        return self.name or f"token …{self.fingerprint[-4:]}"

    def signature(self, expires: int) -> str:
        """Return the signature of a session that ends at this time; it can be computed only with the token."""
        key = hmac.digest(self.value.encode(), b"romancy session", "sha256")
        return hmac.new(key, f"{self.fingerprint}:{expires}".encode(), "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller that was authenticated."""

    name: str
    """The name of the caller in the audit."""
    role: CallerRole


@dataclass(frozen=True, slots=True)
class Session:
    """A session, which a browser presents instead of a token."""

    value: str = field(repr=False)
    seconds: int
    """The time until it ends."""


@dataclass(slots=True)
class Visitors:
    """What this process knows about access from other machines."""

    served_on: str = ""
    """The name or address on which `romancy serve` listens."""
    exposed: bool = False
    """Whether other machines can reach that address."""
    refused: int = 0
    """The number of events from other machines that were refused because the app has no `auth`."""

    def record_refusal(self, client: object) -> None:
        """Count an event that was refused, and log the first one."""
        self.refused += 1
        if self.refused == 1:
            _LOG.warning(
                "an event from %.100r was refused: without auth, events are accepted from this machine only. Give the app "
                "auth=[Token(...)] and the sender a token; auth='open' accepts events from every machine.",
                client,
            )


Decision: TypeAlias = str | tuple[str, str] | None
"""A role, or a role and the name of the caller in the audit; None refuses the caller."""
Decide: TypeAlias = Callable[[Mapping[str, Any]], Decision | Awaitable[Decision]]
AuthOption: TypeAlias = Sequence[Token] | Decide | Literal["open"]


@dataclass(frozen=True, slots=True)
class OpenAccess:
    """The setting `auth="open"`: events are accepted from every machine, and nothing else is."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of an app."""

    known: tuple[Token, ...]

    def find(self, shown: str, now: int) -> Token | None:
        """Return the token with this value, if it is valid."""
        # All tokens are compared, each in constant time: the duration reveals nothing about a value that is nearly right.
        value = shown.encode("utf-8", "replace")
        matches = [token for token in self.known if hmac.compare_digest(token.value.encode(), value)]
        return next((token for token in matches if token.valid(now)), None)

    def open_session(self, token: Token, now: int) -> Session:
        """Open a session for this token, which ends after some hours, or when the token expires."""
        expires = now + _SESSION
        if token.expires is not None:
            expires = min(expires, to_micros(token.expires))
        return Session(f"{expires}.{token.signature(expires)}", (expires - now) // MICROS)

    def find_session(self, shown: str, now: int) -> Token | None:
        """Return the token for which this session was opened, if both are valid."""
        end, _, signature = shown.partition(".")
        if not (end.isascii() and end.isdecimal() and len(end) < 20 and signature.isascii()):
            return None
        matches = [token for token in self.known if hmac.compare_digest(token.signature(int(end)), signature)]
        return next((token for token in matches if token.valid(now) and now < int(end)), None)


def read_decision(decided: Any) -> Caller | None:
    """Make a caller from the decision of the app's function. Raises ValueError if the role is unknown."""
    if decided is None:
        return None
    role, name = decided if isinstance(decided, tuple) else (decided, "")
    known = _role(role)
    return Caller(str(name)[:_LONGEST_NAME] or f"role {known.value}", known)


def read_auth(given: Any) -> Tokens | Decide | OpenAccess | None:
    """Read the option `auth`: tokens, a function, or the text of the environment variable. Raises ValueError."""
    if given is None or isinstance(given, Tokens | OpenAccess):
        return given
    if given == "open":
        return OpenAccess()
    if isinstance(given, str):
        return Tokens(tuple(_parse_token(part) for part in given.split(",")))
    if callable(given):
        return given  # type: ignore[no-any-return]
    if not isinstance(given, Sequence) or not given or not all(isinstance(token, Token) for token in given):
        raise ValueError(
            "give a list of Token(...), a function, or 'open'; in the variable, give `role:token`, separated by commas"
        )
    return Tokens(tuple(given))


def _parse_token(part: str) -> Token:
    role, colon, value = part.strip().partition(":")
    if not colon:
        raise ValueError("in the variable, write each token as `role:token`, separated by commas")
    return Token(value, _role(role))


def _role(name: Any) -> CallerRole:
    try:
        return CallerRole(name)
    except ValueError:
        raise ValueError(f"a role must be one of {', '.join(CallerRole)}") from None
