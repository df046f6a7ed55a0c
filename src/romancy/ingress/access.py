"""Who may do what: decided before anything of the body is read.

| need   | what                                          | with `auth`          | without                    |
|--------|-----------------------------------------------|----------------------|----------------------------|
| none   | health, and paths that lead nowhere           | anybody              | anybody                    |
| events | an event posted                               | role events or admin | anybody                    |
| read   | GET of /api, /cancel, /metrics, /viewer       | role read or admin   | this machine               |
| admin  | everything else there                         | role admin           | this machine               |

"This machine" is a connection from a loopback address that nobody has forwarded: a proxy on the same machine would
lend its own address to the whole world. A browser on this machine acts for strangers too, namely for the pages it shows:
so a request from another origin is refused, and one to a public name, which its owner may have pointed at this machine.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

from romancy.auth import Decide, Role, Tokens
from romancy.clock import Clock
from romancy.ingress.problems import ForbiddenError, UnauthenticatedError
from romancy.ingress.types import Scope


class Need(Enum):
    """What a request needs; the value is the roles that have it."""

    NONE = ()
    EVENTS = (Role.EVENTS, Role.ADMIN)
    READ = (Role.READ, Role.ADMIN)
    ADMIN = (Role.ADMIN,)


_GUARDED = {"api", "cancel", "metrics", "viewer"}
_EVENTS = {"/", "/events", "/events/"}
_FORWARDING = ("forwarded", "x-real-ip")
_HOW = "To let others in, give the app `auth=[Token(...)]` and send `Authorization: Bearer ...`."


def need(method: str, path: str) -> Need:
    """What a request to this path needs."""
    if path in _EVENTS:
        return Need.EVENTS if method == "POST" else Need.NONE  # other methods are answered 405
    if path[1:].partition("/")[0] in _GUARDED:
        return Need.READ if method in ("GET", "HEAD") else Need.ADMIN
    return Need.NONE


@dataclass(frozen=True, slots=True)
class Access:
    """Decides by the option `auth`."""

    auth: Tokens | Decide | None
    clock: Clock

    async def check(self, scope: Scope, path: str) -> None:
        """Raise `UnauthenticatedError` or `ForbiddenError` if the caller may not do this."""
        wanted = need(scope["method"], path)
        if wanted is Need.NONE:
            return
        if self.auth is not None:
            self._compare(await self._role(scope), wanted)
        elif wanted is not Need.EVENTS:
            check_local(scope)

    async def _role(self, scope: Scope) -> Role | None:
        if isinstance(self.auth, Tokens):
            return self.auth.role(_bearer(headers_of(scope)), self.clock.now())
        assert self.auth is not None
        decided = self.auth(scope)
        role = await decided if inspect.isawaitable(decided) else decided
        return None if role is None else Role(role)

    def _compare(self, role: Role | None, wanted: Need) -> None:
        if role is None:
            raise UnauthenticatedError(
                "Send `Authorization: Bearer ...` with a token that this app knows and that is valid."
            )
        if role not in wanted.value:
            raise ForbiddenError(f"The role {role.value!r} may not do this: it takes {' or '.join(wanted.value)}.")


def check_local(scope: Scope) -> None:
    """Raise `ForbiddenError` unless the request comes from this machine, on its own behalf."""
    headers = headers_of(scope)
    if any(name in _FORWARDING or name.startswith("x-forwarded-") for name in headers):
        raise ForbiddenError(f"Without `auth` this answers only this machine, and the request was forwarded. {_HOW}")
    if not _is_loopback(scope.get("client")):
        raise ForbiddenError(f"Without `auth` this answers only this machine. {_HOW}")
    host = headers.get("host", "").lower()
    if _is_public_name(_split(f"//{host}").hostname or ""):
        raise ForbiddenError(f"Without `auth` this answers only to localhost and addresses, not to names. {_HOW}")
    if "origin" in headers and _split(headers["origin"]).netloc != host:
        raise ForbiddenError(f"Without `auth` this answers no pages of other origins. {_HOW}")


def headers_of(scope: Scope) -> Mapping[str, str]:
    """The headers by lower-case name; of one that stands twice the last."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _bearer(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _is_loopback(client: Sequence[Any] | None) -> bool:
    try:
        address = ip_address(str(client[0]) if client else "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url.lower())
    except ValueError:  # brackets that do not fit
        return urlsplit("//no.host")


def _is_public_name(host: str) -> bool:
    """Whether somebody else could have pointed this name here: it has a dot and is no address."""
    if "." not in host.rstrip(".") or host.endswith(".localhost"):
        return False
    try:
        ip_address(host)
    except ValueError:
        return True
    return False
