"""Access control: decides whether a caller may make a request, before any of the body is read.

| need   | requests                                      | with `auth`          | without      |
|--------|-----------------------------------------------|----------------------|--------------|
| none   | health checks, and paths that do not exist    | every caller         | every caller |
| events | sending an event                              | role events or admin | this machine |
| enter  | login, logout, and the assets of the viewer   | every caller         | this machine |
| read   | GET of /api, /cancel, /metrics, /viewer       | role read or admin   | this machine |
| admin  | every other request to those paths            | role admin           | this machine |

Some paths of the API need another access than their method implies: see `Access.needs`. With `auth="open"`, events are
accepted from every machine; all other requests are treated as without `auth`.

A caller presents a token, or a session: a cookie that the browser received in exchange for a token.

"This machine" means a connection from a loopback address whose request carries no header of a proxy. A proxy on this
machine connects from a loopback address too, on behalf of any client. A browser on this machine sends requests on behalf
of any page that it shows. A request from a page of another origin is therefore refused, and so is a request whose `Host`
is not a name of this machine: the owner of a domain can point its name at this machine (DNS rebinding), which makes a
page of that domain one of the same origin.

A browser sends its cookies, and connects from this machine, no matter which page caused the request (CSRF). A request that
writes is therefore refused if `Origin` or `Sec-Fetch-Site` shows that a page of another origin caused it. A request with
a bearer token is exempt, because browsers never send one by themselves. Below /api, and with a session outside /viewer, a
browser must also send a header that pages of other origins cannot send (`check_csrf`). The viewer's forms need no such
header: they work without scripts, and forms cannot send headers.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice
from typing import Any
from urllib.parse import SplitResult, urlsplit

from romancy.auth import Caller, CallerRole, Decide, OpenAccess, Token, Tokens, Visitors, read_decision
from romancy.clock import Clock
from romancy.http.problems import ForbiddenError, UnauthenticatedError
from romancy.http.types import Scope


class Need(Enum):
    """The access that a request needs; the value lists the roles that have it."""

    NONE = ()
    ENTER = tuple(CallerRole)
    EVENTS = (CallerRole.EVENTS, CallerRole.ADMIN)
    READ = (CallerRole.READ, CallerRole.ADMIN)
    ADMIN = (CallerRole.ADMIN,)


COOKIE = "romancy_session"
OURS = "x-romancy-request"
"""The header that scripts of the app send with the value 1. Pages of other origins cannot send it."""

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
"""Headers that only proxies send. So are all that begin with `x-forwarded-`."""
_SAME_ORIGIN_SITES = ("same-origin", "none")
"""`Sec-Fetch-Site` of a request by a page of the same origin, and of one that no page caused, such as a typed address."""
_MAX_HOST = 300
"""The length of the longest possible host name with a port, rounded up; a longer one matches nothing."""
_MAX_SESSION_COOKIES = 8
"""How many session cookies of a request are checked: each check computes a signature."""
_HOW = "To allow other callers, give the app `auth=[Token(...)]` and send `Authorization: Bearer ...`."
_UNKNOWN_BEARER = "Send `Authorization: Bearer ...` with a valid token of this app."

ANONYMOUS = Caller("", CallerRole.EVENTS)
"""The caller of a request that needs no authentication."""
LOCAL = Caller("local", CallerRole.ADMIN)
"""A caller on this machine, when the app has no `auth`."""

Needs = Mapping[tuple[str, str], Need]
"""The access that is needed, by method and path, where it does not follow from the method."""


def need(method: str, path: str, needs: Needs | None = None) -> Need:
    """Return the access that a request to this path needs."""
    if path in _EVENTS:
        return Need.EVENTS if method == "POST" else Need.NONE  # other methods are refused with 405
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
    """Checks callers by the option `auth` of the app."""

    auth: Tokens | Decide | OpenAccess | None
    clock: Clock
    needs: Needs = field(default_factory=dict[tuple[str, str], Need])
    fixed_need: Need | None = None
    """The access that every path needs: for an application of the user that is protected by the same `auth`."""
    visitors: Visitors = field(default_factory=Visitors)

    async def check(self, scope: Scope, path: str) -> Caller:
        """Return the caller. Raises `UnauthenticatedError` or `ForbiddenError` if the request is refused."""
        required = self.fixed_need or need(scope["method"], path, self.needs)
        if required is Need.NONE:
            return ANONYMOUS
        headers = headers_of(scope)
        if self.auth is None or isinstance(self.auth, OpenAccess):
            is_event = self.fixed_need is None and path in _EVENTS
            caller, by_cookie = self._without_auth(scope, headers, is_event=is_event), False
        else:
            caller, by_cookie = await self._authenticate(scope, headers, required)
        if scope["method"] not in _READING:
            first = "api" if self.fixed_need is not None else _first(path)
            check_csrf(headers, by_cookie=by_cookie, by_script=first == "api" or (by_cookie and first != "viewer"))
        return caller

    def _without_auth(self, scope: Scope, headers: Mapping[str, str], *, is_event: bool) -> Caller:
        if is_event and isinstance(self.auth, OpenAccess):
            check_browser_origin(headers, self.visitors.served_on)
            return ANONYMOUS
        try:
            check_local(scope, headers, self.visitors.served_on)
        except ForbiddenError:
            if is_event:
                self.visitors.record_refusal(scope.get("client"))
            raise
        return ANONYMOUS if is_event else LOCAL

    async def _authenticate(self, scope: Scope, headers: Mapping[str, str], need: Need) -> tuple[Caller, bool]:
        """Return the caller, and whether a session cookie is the only proof of its identity."""
        if need is Need.ENTER:
            return ANONYMOUS, False
        by_cookie = False
        if isinstance(self.auth, Tokens):
            token = self._token(headers)
            by_cookie = token is None and "authorization" not in headers
            if by_cookie:
                token = self._session(scope)
            caller = Caller(token.bearer, CallerRole(token.role)) if token is not None else None
        else:
            caller = await self._call_auth_function(scope)
        return _check_role(caller, need), by_cookie

    def _token(self, headers: Mapping[str, str]) -> Token | None:
        assert isinstance(self.auth, Tokens)
        return self.auth.find(bearer(headers), self.clock.now())

    def _session(self, scope: Scope) -> Token | None:
        assert isinstance(self.auth, Tokens)
        values = islice(cookies_of(scope, COOKIE), _MAX_SESSION_COOKIES)
        tokens = (self.auth.find_session(value, self.clock.now()) for value in values)
        return next((token for token in tokens if token is not None), None)

    async def _call_auth_function(self, scope: Scope) -> Caller | None:
        assert self.auth is not None
        assert not isinstance(self.auth, Tokens | OpenAccess)
        decision = self.auth(scope)
        return read_decision(await decision if inspect.isawaitable(decision) else decision)


def _check_role(caller: Caller | None, need: Need) -> Caller:
    if caller is None:
        raise UnauthenticatedError(_UNKNOWN_BEARER)
    if caller.role not in need.value:
        raise ForbiddenError(f"The role {caller.role.value!r} may not do this: it takes {' or '.join(need.value)}.")
    return caller


def check_local(scope: Scope, headers: Mapping[str, str], served_on: str) -> None:
    """Raise `ForbiddenError` unless the request comes from this machine, and from no page of another origin."""
    if any(name in _FORWARDING or name.startswith("x-forwarded-") for name in headers):
        raise ForbiddenError(f"Without `auth` the app serves only this machine, and the request was forwarded. {_HOW}")
    client: Sequence[Any] | None = scope.get("client")
    if not is_loopback(str(client[0]) if client else ""):
        raise ForbiddenError(f"Without `auth` the app serves only this machine. {_HOW}")
    if not _is_local_name(headers, served_on):
        raise ForbiddenError(f"Without `auth` the app serves only the hosts localhost, 127.0.0.1 and [::1]. {_HOW}")
    _check_origin(headers)


def check_browser_origin(headers: Mapping[str, str], served_on: str) -> None:
    """Raise `ForbiddenError` if a browser sends the request for a page of another origin, or to a foreign host name.

    The owner of a host name can point it at this server after the page was loaded. That is impossible for an address.
    """
    if ("origin" in headers or "sec-fetch-site" in headers) and not (
        _is_local_name(headers, served_on) or _has_address(headers)
    ):
        raise ForbiddenError(f"Without `auth` pages in browsers cannot send events to a server under a host name. {_HOW}")
    _check_origin(headers)


def _check_origin(headers: Mapping[str, str]) -> None:
    if "origin" in headers and not _same_origin(headers):
        raise ForbiddenError(f"Without `auth` the app refuses requests from pages of other origins. {_HOW}")


def check_csrf(headers: Mapping[str, str], *, by_cookie: bool, by_script: bool) -> None:
    """Raise `ForbiddenError` if a page of another origin may have caused this request in a browser.

    A bearer token rules that out, because browsers send none by themselves. `by_script` is False for requests that forms
    may send: they do not need the header of the scripts.
    """
    if not by_cookie and (bearer(headers) or not ("origin" in headers or "sec-fetch-site" in headers)):
        return
    foreign = not _same_origin(headers) if by_cookie or "origin" in headers else False
    if foreign or headers.get("sec-fetch-site", "same-origin") not in _SAME_ORIGIN_SITES:
        raise ForbiddenError("The request comes from a page of another origin: only pages of this app can change anything.")
    if by_script and headers.get(OURS) != "1":
        raise ForbiddenError("The request lacks the header `X-Romancy-Request: 1`, which the scripts of this app send.")


def headers_of(scope: Scope) -> Mapping[str, str]:
    """Return the headers by lower-case name; if one is repeated, its last value."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def cookies_of(scope: Scope, name: str) -> Iterator[str]:
    """Return the values of all cookies with this name: a browser may send one for each path above this one."""
    for header, value in scope["headers"]:
        if header.lower() == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, _, text = part.strip().partition("=")
                if key == name:
                    yield text


def bearer(headers: Mapping[str, str]) -> str:
    """Return the bearer token of the request, or an empty string."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _same_origin(headers: Mapping[str, str]) -> bool:
    """Whether `Origin` and `Host` agree. The scheme is not compared: a proxy in front of the app may terminate TLS."""
    origin = _split(headers.get("origin", "")).netloc
    return origin != "" and origin == headers.get("host", "").lower()


def is_loopback(host: str) -> bool:
    """Whether this is a loopback address, which other machines cannot reach."""
    address = _address(host)
    return address is not None and address.is_loopback


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url.lower())
    except ValueError:  # unbalanced brackets
        return urlsplit("//no.host")


def _is_local_name(headers: Mapping[str, str], served_on: str) -> bool:
    """Whether `Host` is a name or an address of this machine, which no owner of another domain controls.

    A request without `Host` passes: browsers always send it.
    """
    if "host" not in headers:
        return True
    name = _host_name(headers["host"])
    if name == "localhost" or name.endswith(".localhost") or (served_on and name == served_on.lower().rstrip(".")):
        return True
    address = _address(name)
    return address is not None and (address.is_loopback or address.is_unspecified)


def _has_address(headers: Mapping[str, str]) -> bool:
    return _address(_host_name(headers.get("host", ""))) is not None


def _host_name(host: str) -> str:
    """Return the name or address in a `Host` header, without its port."""
    return _parse_host(host) if len(host) <= _MAX_HOST else ""


# Cached, because every request is checked, and nearly all have the same few values.
@lru_cache(maxsize=256)
def _parse_host(host: str) -> str:
    return (_split(f"//{host}").hostname or "").rstrip(".")


def _address(text: str) -> IPv4Address | IPv6Address | None:
    return _parse_address(text) if len(text) <= _MAX_HOST else None


@lru_cache(maxsize=256)
def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
