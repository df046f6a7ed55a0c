"""Who may call over HTTP, and what.

A caller shows a token (`Authorization: Bearer ...`) and has the role of that token. Instead of tokens a function may
decide: it gets the ASGI scope of the request and gives back a role, or None for a stranger.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from romancy.clock import to_micros


class Role(StrEnum):
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

    def __post_init__(self) -> None:
        if not isinstance(self.value, str) or not self.value or not self.value.isascii() or not self.value.isprintable():
            raise ValueError("a token is a text of printable ASCII characters that is not empty")
        if self.value != self.value.strip():
            raise ValueError("a token must not begin or end with a space: callers could not send it")
        _role(self.role)
        if self.expires is not None and (not isinstance(self.expires, datetime) or self.expires.tzinfo is None):
            raise ValueError("expires= of a token is an aware datetime, e.g. datetime(2030, 1, 1, tzinfo=UTC)")


Decide: TypeAlias = Callable[[Mapping[str, Any]], str | Awaitable[str | None] | None]
AuthOption: TypeAlias = Sequence[Token] | Decide


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that are known."""

    known: tuple[Token, ...]

    def role(self, shown: str, now: int) -> Role | None:
        """The role of whoever shows this text, or None."""
        # All are compared, each in constant time: how long it takes tells nothing about which was nearly right.
        fits = [one for one in self.known if hmac.compare_digest(one.value.encode(), shown.encode("utf-8", "replace"))]
        valid = [one for one in fits if one.expires is None or now < to_micros(one.expires)]
        return Role(valid[0].role) if valid else None


def read_auth(given: Any) -> Tokens | Decide | None:
    """The option `auth`: tokens, a function, or the text of the environment variable. Raises ValueError."""
    if given is None or isinstance(given, Tokens):
        return given
    if isinstance(given, str):
        return Tokens(tuple(_from_text(part) for part in given.split(",")))
    if callable(given):
        return given  # type: ignore[no-any-return]
    if not isinstance(given, Sequence) or not given or not all(isinstance(one, Token) for one in given):
        raise ValueError("give a list of Token(...), or a function; in the variable `role:token`, separated by commas")
    return Tokens(tuple(given))


def _from_text(part: str) -> Token:
    role, colon, value = part.strip().partition(":")
    if not colon:
        raise ValueError("in the variable each token is written `role:token`, separated by commas")
    return Token(value, _role(role))


def _role(name: Any) -> Role:
    try:
        return Role(name)
    except ValueError:
        raise ValueError(f"a role is one of {', '.join(Role)}") from None
