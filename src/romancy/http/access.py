"""Who may do what: decided before anything of the body is read.

| need   | what                                          | with `auth`          | without      |
|--------|-----------------------------------------------|----------------------|--------------|
| none   | health, and paths that lead nowhere           | anybody              | anybody      |
| events | an event posted                               | role events or admin | this machine |
| enter  | what a browser needs to show its token        | anybody              | this machine |
| read   | GET of /api, /cancel, /metrics, /viewer       | role read or admin   | this machine |
| admin  | everything else there                         | role admin           | this machine |

The API says of some of its paths that they need something else than their method tells: see `Access.needs`. With
`auth="open"` events are taken from every machine; everything else is as without `auth`.

A caller shows a token, or a session, which is a cookie that a browser got for a token.

"This machine" is a connection from a loopback address that nobody has forwarded: a proxy on the same machine would
lend its own address to the whole world. A browser on this machine acts for strangers too, namely for the pages it shows:
so a request from another origin is refused, and one to a name of others, which its owner may have pointed here.

Browsers send cookies, and come from this machine, whichever page makes them ask. What writes is therefore refused when a
browser says that another page than ours asks (`Origin`, `Sec-Fetch-Site`), unless a bearer token is shown, which browsers
never send by themselves. Below /api, and everywhere with a cookie of ours, it takes a header, too, that no page of others
can send (`check_ours`). The viewer's forms cannot send headers, and work without scripts.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice
from typing import Any
from urllib.parse import SplitResult, urlsplit

from romancy.auth import Caller, CallerRole, Decide, OpenAccess, Token, Tokens, Visitors, read_decision
from romancy.clock import Clock
from romancy.http.problems import ForbiddenError, UnauthenticatedError
from romancy.http.types import Scope


class Need(Enum):
    """What a request needs; the value is the roles that have it."""

    NONE = ()
    ENTER = tuple(CallerRole)
    EVENTS = (CallerRole.EVENTS, CallerRole.ADMIN)
    READ = (CallerRole.READ, CallerRole.ADMIN)
    ADMIN = (CallerRole.ADMIN,)


COOKIE = "romancy_session"
OURS = "x-romancy-request"
"""The header, with the value 1, by which scripts of ours say that they are."""

_GUARDED = {"api", "cancel", "metrics", "viewer"}
_EVENTS = {"/", "/events", "/events/"}
_READING = ("GET", "HEAD")
_FORWARDING = frozenset(
    {
        "cf-connecting-ip",
        "fastly-client-ip",
        "fly-client-ip",
        "forwarded",
        "true-client-ip",
        "via",
        "x-azure-clientip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-envoy-external-address",
        "x-original-forwarded-for",
        "x-real-ip",
    }
)
"""Headers of proxies, beside all that begin with `x-forwarded-`."""
_OUR_PAGES = ("same-origin", "none")
"""What `Sec-Fetch-Site` says of a page of this origin, and of a person who typed the address."""
_SESSIONS = 8
"""So many cookies of our name are looked at: a signature is computed for each."""
_HOW = "To allow other callers, give the app `auth=[Token(...)]` and send `Authorization: Bearer ...`."
_UNKNOWN_BEARER = "Send `Authorization: Bearer ...` with a valid token of this app."

NOBODY = Caller("", CallerRole.EVENTS)
"""Whoever calls what needs nothing."""
LOCAL = Caller("local", CallerRole.ADMIN)

Needs = Mapping[tuple[str, str], Need]
"""What is needed by method and path, where the method alone does not tell."""


def need(method: str, path: str, needs: Needs | None = None) -> Need:
    """What a request to this path needs."""
    if path in _EVENTS:
        return Need.EVENTS if method == "POST" else Need.NONE  # other methods are answered 405
    if _first(path) not in _GUARDED:
        return Need.NONE
    return (needs or {}).get((method, path)) or _usual_need(method, path)


def _usual_need(method: str, path: str) -> Need:
    if method not in _READING:
        return Need.ADMIN
    return Need.ENTER if path.startswith("/viewer/assets/") else Need.READ


def _first(path: str) -> str:
    return path[1:].partition("/")[0]


@dataclass(frozen=True, slots=True)
class Access:
    """Decides by the option `auth`."""

    auth: Tokens | Decide | OpenAccess | None
    clock: Clock
    needs: Needs = field(default_factory=dict[tuple[str, str], Need])
    fixed_need: Need | None = None
    """What all paths need: for an application of the user's that stands behind the same `auth`."""
    visitors: Visitors = field(default_factory=Visitors)

    async def check(self, scope: Scope, path: str) -> Caller:
        """Who calls. Raises `UnauthenticatedError` or `ForbiddenError` if they may not do this."""
        wanted = self.fixed_need or need(scope["method"], path, self.needs)
        if wanted is Need.NONE:
            return NOBODY
        if self.auth is None or isinstance(self.auth, OpenAccess):
            caller, by_cookie = self._without_auth(scope, an_event=self.fixed_need is None and path in _EVENTS), False
        else:
            caller, by_cookie = await self._authenticate(scope, wanted)
        if scope["method"] not in _READING:
            first = "api" if self.fixed_need is not None else _first(path)
            check_csrf(scope, by_cookie=by_cookie, by_script=first == "api" or (by_cookie and first != "viewer"))
        return caller

    def _without_auth(self, scope: Scope, *, an_event: bool) -> Caller:
        if an_event and isinstance(self.auth, OpenAccess):
            check_browser_origin(scope, self.visitors.served_on)
            return NOBODY
        try:
            check_local(scope, self.visitors.served_on)
        except ForbiddenError:
            if an_event:
                self.visitors.record_refusal(scope.get("client"))
            raise
        return NOBODY if an_event else LOCAL

    async def _authenticate(self, scope: Scope, need: Need) -> tuple[Caller, bool]:
        """The caller, and whether only a cookie says who that is."""
        if need is Need.ENTER:
            return NOBODY, False
        by_cookie = False
        if isinstance(self.auth, Tokens):
            token = self._token(headers_of(scope))
            by_cookie = token is None and "authorization" not in headers_of(scope)
            if by_cookie:
                token = self._session(scope)
            caller = Caller(token.bearer, CallerRole(token.role)) if token is not None else None
        else:
            caller = await self._decided(scope)
        return _check_role(caller, need), by_cookie

    def _token(self, headers: Mapping[str, str]) -> Token | None:
        assert isinstance(self.auth, Tokens)
        return self.auth.find(bearer(headers), self.clock.now())

    def _session(self, scope: Scope) -> Token | None:
        assert isinstance(self.auth, Tokens)
        shown = islice(cookies_of(scope, COOKIE), _SESSIONS)
        found = (self.auth.find_session(value, self.clock.now()) for value in shown)
        return next((token for token in found if token is not None), None)

    async def _decided(self, scope: Scope) -> Caller | None:
        assert self.auth is not None
        assert not isinstance(self.auth, Tokens | OpenAccess)
        decided = self.auth(scope)
        return read_decision(await decided if inspect.isawaitable(decided) else decided)


def _check_role(caller: Caller | None, need: Need) -> Caller:
    if caller is None:
        raise UnauthenticatedError(_UNKNOWN_BEARER)
    if caller.role not in need.value:
        raise ForbiddenError(f"The role {caller.role.value!r} may not do this: it takes {' or '.join(need.value)}.")
    return caller


def check_local(scope: Scope, served_on: str = "") -> None:
    """Raise `ForbiddenError` unless the request comes from this machine, on its own behalf."""
    headers = headers_of(scope)
    if any(name in _FORWARDING or name.startswith("x-forwarded-") for name in headers):
        raise ForbiddenError(f"Without `auth` the app serves only this machine, and the request was forwarded. {_HOW}")
    client: Sequence[Any] | None = scope.get("client")
    if not is_loopback(str(client[0]) if client else ""):
        raise ForbiddenError(f"Without `auth` the app serves only this machine. {_HOW}")
    if not _is_local_name(headers, served_on):
        raise ForbiddenError(f"Without `auth` the app serves only the hosts localhost, 127.0.0.1 and [::1]. {_HOW}")
    _check_origin(headers)


def check_browser_origin(scope: Scope, served_on: str) -> None:
    """Raise `ForbiddenError` if a browser asks, for a page of others or for one whose name may have been pointed here."""
    headers = headers_of(scope)
    if ("origin" in headers or "sec-fetch-site" in headers) and not (
        _is_local_name(headers, served_on) or _has_address(headers)
    ):
        raise ForbiddenError(f"Without `auth` pages in browsers cannot send events to a server under a host name. {_HOW}")
    _check_origin(headers)


def _check_origin(headers: Mapping[str, str]) -> None:
    if "origin" in headers and not _same_origin(headers):
        raise ForbiddenError(f"Without `auth` the app refuses requests from pages of other origins. {_HOW}")


def check_csrf(scope: Scope, *, by_cookie: bool, by_script: bool) -> None:
    """Raise `ForbiddenError` if a browser may be asking for a page that is not ours.

    A bearer token is proof enough: browsers send none by themselves. Of forms (not `by_script`) no header is asked.
    """
    headers = headers_of(scope)
    if not by_cookie and (bearer(headers) or not ("origin" in headers or "sec-fetch-site" in headers)):
        return
    foreign = not _same_origin(headers) if by_cookie or "origin" in headers else False
    if foreign or headers.get("sec-fetch-site", "same-origin") not in _OUR_PAGES:
        raise ForbiddenError("The request comes from a page of another origin: only pages of this app can change anything.")
    if by_script and headers.get(OURS) != "1":
        raise ForbiddenError("The request lacks the header `X-Romancy-Request: 1`, which the scripts of this app send.")


def headers_of(scope: Scope) -> Mapping[str, str]:
    """The headers by lower-case name; of one that stands twice the last."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def cookies_of(scope: Scope, name: str) -> Iterator[str]:
    """All cookies of a name: there may be one for each path above this one."""
    for header, value in scope["headers"]:
        if header.lower() == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, _, text = part.strip().partition("=")
                if key == name:
                    yield text


def bearer(headers: Mapping[str, str]) -> str:
    """The token that is shown, or nothing."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _same_origin(headers: Mapping[str, str]) -> bool:
    """Of the scheme nothing is said: a proxy that speaks HTTPS may stand before us."""
    origin = _split(headers.get("origin", "")).netloc
    return origin != "" and origin == headers.get("host", "").lower()


def is_loopback(host: str) -> bool:
    """Whether this is an address of this machine that no other can reach."""
    address = _address(host)
    return address is not None and address.is_loopback


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url.lower())
    except ValueError:  # brackets that do not fit
        return urlsplit("//no.host")


def _is_local_name(headers: Mapping[str, str], served_on: str) -> bool:
    """Whether the name that was asked is this machine's: nobody else could have pointed it here.

    Without a `Host` no browser asks.
    """
    if "host" not in headers:
        return True
    name = (_split(f"//{headers['host']}").hostname or "").rstrip(".")
    if name == "localhost" or name.endswith(".localhost") or (served_on and name == served_on.lower().rstrip(".")):
        return True
    address = _address(name)
    return address is not None and (address.is_loopback or address.is_unspecified)


def _has_address(headers: Mapping[str, str]) -> bool:
    return _address(_split(f"//{headers.get('host', '')}").hostname or "") is not None


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
