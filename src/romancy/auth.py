"""Who may call over HTTP, and what.

A caller shows a token (`Authorization: Bearer ...`) and has the role of that token. Instead of tokens a function may
decide: it gets the ASGI scope of the request and gives back a role, or a role and a name, or None for a stranger.

A browser cannot send that header when it opens a page: it exchanges the token for a session, which it keeps as a cookie.
A session is signed with the token itself. So every process that knows the token knows its sessions, none has to be kept,
and they end when the token is taken away.
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
"""How long a session lasts, unless its token ends earlier."""
_LONGEST_NAME = 200


class CallerRole(StrEnum):
    """What a caller may do."""

    ADMIN = "admin"
    """Everything."""
    READ = "read"
    """Look, but change nothing."""
    EVENTS = "events"
    """Send events, and nothing else."""


@dataclass(frozen=True, slots=True)
class Token:
    """A secret that a caller shows, what it allows, and until when. The secret is never printed.

    >>> Token("s3cret", role="events")
    Token(role='events', expires=None)
    """

    value: str = field(repr=False)
    role: str = "admin"
    expires: datetime | None = None
    name: str = field(default="", repr=False)
    """Who has it, as the record of what was done says; without one, the end of its fingerprint."""

    def __post_init__(self) -> None:
        if not isinstance(self.value, str) or not self.value or not self.value.isascii() or not self.value.isprintable():
            raise ValueError("a token is a text of printable ASCII characters that is not empty")
        if self.value != self.value.strip():
            raise ValueError("a token must not begin or end with a space: callers could not send it")
        _role(self.role)
        if self.expires is not None and (not isinstance(self.expires, datetime) or self.expires.tzinfo is None):
            raise ValueError("expires= of a token is an aware datetime, e.g. datetime(2030, 1, 1, tzinfo=UTC)")

    def valid(self, now: int) -> bool:
        """It has not expired."""
        return self.expires is None or now < to_micros(self.expires)

    @property
    def fingerprint(self) -> str:
        """Tells it from others without telling what it is."""
        return hashlib.sha256(self.value.encode()).hexdigest()

    @property
    def bearer(self) -> str:
        """Who has it, for people."""
        return self.name or f"token …{self.fingerprint[-4:]}"

    def signature(self, expires: int) -> str:
        """What only those can write who know the token: the end of a session."""
        key = hmac.digest(self.value.encode(), b"romancy session", "sha256")
        return hmac.new(key, f"{self.fingerprint}:{expires}".encode(), "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls."""

    name: str
    """As the record of what was done says."""
    role: CallerRole


@dataclass(frozen=True, slots=True)
class Session:
    """What a browser keeps instead of a token."""

    value: str = field(repr=False)
    seconds: int


@dataclass(slots=True)
class Visitors:
    """What is known of callers on other machines."""

    served_on: str = ""
    """The name or address on which `romancy serve` listens."""
    exposed: bool = False
    """Other machines can reach that."""
    refused: int = 0
    """Events that came from elsewhere, and had to be refused because there is no `auth`."""

    def record_refusal(self, client: object) -> None:
        """An event was refused; the first is logged."""
        self.refused += 1
        if self.refused == 1:
            _LOG.warning(
                "an event from %.100r was refused: without auth, events are taken from this machine only. Give the app "
                "auth=[Token(...)] and the sender a token; auth='open' takes events from every machine.",
                client,
            )


Decision: TypeAlias = str | tuple[str, str] | None
"""A role, or a role and who has it, as the record of what was done says; None for a stranger."""
Decide: TypeAlias = Callable[[Mapping[str, Any]], Decision | Awaitable[Decision]]
AuthOption: TypeAlias = Sequence[Token] | Decide | Literal["open"]


@dataclass(frozen=True, slots=True)
class OpenAccess:
    """Said in so many words: events are taken from every machine, and nothing else is."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that are known."""

    known: tuple[Token, ...]

    def find(self, shown: str, now: int) -> Token | None:
        """The token that this text is, if it is valid."""
        # All are compared, each in constant time: how long it takes tells nothing about which was nearly right.
        fits = [one for one in self.known if hmac.compare_digest(one.value.encode(), shown.encode("utf-8", "replace"))]
        return next((one for one in fits if one.valid(now)), None)

    def open_session(self, token: Token, now: int) -> Session:
        """What a browser may show instead of this token for some hours."""
        expires = now + _SESSION
        if token.expires is not None:
            expires = min(expires, to_micros(token.expires))
        return Session(f"{expires}.{token.signature(expires)}", (expires - now) // MICROS)

    def find_session(self, shown: str, now: int) -> Token | None:
        """The token for which a session was opened, if both are valid."""
        end, _, signature = shown.partition(".")
        if not (end.isascii() and end.isdecimal() and len(end) < 20 and signature.isascii()):
            return None
        fits = [one for one in self.known if hmac.compare_digest(one.signature(int(end)), signature)]
        return next((one for one in fits if one.valid(now) and now < int(end)), None)


def read_decision(decided: Any) -> Caller | None:
    """Who calls, by what a function has said. Raises ValueError if that is no role."""
    if decided is None:
        return None
    role, name = decided if isinstance(decided, tuple) else (decided, "")
    known = _role(role)
    return Caller(str(name)[:_LONGEST_NAME] or f"role {known.value}", known)


def read_auth(given: Any) -> Tokens | Decide | OpenAccess | None:
    """The option `auth`: tokens, a function, or the text of the environment variable. Raises ValueError."""
    if given is None or isinstance(given, Tokens | OpenAccess):
        return given
    if given == "open":
        return OpenAccess()
    if isinstance(given, str):
        return Tokens(tuple(_parse_token(part) for part in given.split(",")))
    if callable(given):
        return given  # type: ignore[no-any-return]
    if not isinstance(given, Sequence) or not given or not all(isinstance(one, Token) for one in given):
        raise ValueError(
            "give a list of Token(...), a function, or 'open'; in the variable `role:token`, separated by commas"
        )
    return Tokens(tuple(given))


def _parse_token(part: str) -> Token:
    role, colon, value = part.strip().partition(":")
    if not colon:
        raise ValueError("in the variable each token is written `role:token`, separated by commas")
    return Token(value, _role(role))


def _role(name: Any) -> CallerRole:
    try:
        return CallerRole(name)
    except ValueError:
        raise ValueError(f"a role is one of {', '.join(CallerRole)}") from None
