"""Addresses of PostgreSQL: whether they are sound, what of them may be shown, and the servers they name.

The driver reads them too, but its words about a wrong one may hold a part of the password: nothing is handed to it that is
not sound.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from romancy.errors import ConfigurationError

_SCHEME = re.compile(r"(postgres|postgresql)(\+asyncpg)?:", re.IGNORECASE)
_HOST = re.compile(r"(?:\[[0-9a-f:.%]+\]|[^\[\]:/@\s]*)(?::(\d{1,5}))?", re.IGNORECASE)
_MAY_HOLD_AT = ("host", "password", "user")
"""Options that may hold an @."""
_LABEL_OPTIONS = ("host", "port", "service")
"""Options that say where a database is."""
_EXAMPLE = "Write postgresql://user:password@host:port/database; in a password, %40 for @, %2F for /, %23 for #, %3F for ?."


def check_dsn(dsn: str) -> str:
    """The address as the driver reads it. Raises `ConfigurationError`, without showing anything of the address."""
    scheme = _SCHEME.match(dsn)
    if scheme is None:
        raise ConfigurationError(f"An address of PostgreSQL begins with postgresql://. {_EXAMPLE}")
    plain = "postgresql:" + dsn[scheme.end() :]
    try:
        parts = urlsplit(plain)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ConfigurationError(f"The address of the PostgreSQL database cannot be read. {_EXAMPLE}") from None
    stray = any("@" in value and name not in _MAY_HOLD_AT for name, value in options)  # behind a ? in a password
    if parts.fragment or stray or "@" in parts.path or parts.netloc.count("@") > 1 or not _are_hosts(_hosts(parts)):
        raise ConfigurationError(f"The address of the PostgreSQL database cannot be read. {_EXAMPLE}")
    return plain


def redact_dsn(dsn: str) -> str:
    """A sound address without what must not be shown."""
    parts = urlsplit(dsn)
    options = dict(parse_qsl(parts.query))
    user = parts.netloc.rpartition("@")[0].partition(":")[0] or options.get("user", "")
    shown = "&".join(f"{name}={options[name]}" for name in _LABEL_OPTIONS if name in options)
    place = ",".join(_hosts(parts))
    return f"{parts.scheme}://{user}{'@' if user else ''}{place}{parts.path}{'?' if shown else ''}{shown}"


def split_hosts(dsn: str) -> list[str]:
    """An address for each server that a sound address names."""
    parts = urlsplit(dsn)
    hosts = _hosts(parts)
    if len(hosts) < 2 or "port" in dict(parse_qsl(parts.query)):
        return [dsn]
    who, at, _ = parts.netloc.rpartition("@")
    query = parts.query
    if "target_session_attrs" not in dict(parse_qsl(query)):  # a standby is of no use: everything here wants to write
        query += f"{'&' if query else ''}target_session_attrs=read-write"
    return [parts._replace(netloc=f"{who}{at}{host}", query=query).geturl() for host in hosts]


def host_of(dsn: str) -> str:
    """The server, or the servers, of a sound address."""
    return ",".join(_hosts(urlsplit(dsn)))


def has_application_name(dsn: str) -> bool:
    """The address says what the server shows as the name of who is connected."""
    return "application_name" in dict(parse_qsl(urlsplit(dsn).query))


def _hosts(parts: SplitResult) -> list[str]:
    place = parts.netloc.rpartition("@")[2]
    return place.split(",") if place else []


def _are_hosts(hosts: list[str]) -> bool:
    found = [_HOST.fullmatch(unquote(host) if "%2F" not in host.upper() else "") for host in hosts]
    return all(one is not None and int(one[1] or 0) < 65536 for one in found)
