"""Addresses (DSNs) of PostgreSQL: checks them, removes their secrets, and splits them by server.

The driver parses an address too, but its error for an invalid one may quote a part of the password: the driver only gets
addresses that were checked here.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from romancy.errors import ConfigurationError

_SCHEME = re.compile(r"(postgres|postgresql)(\+asyncpg)?:", re.IGNORECASE)
_HOST = re.compile(r"(?:\[[0-9a-f:.%]+\]|[^\[\]:/@\s]*)(?::(\d{1,5}))?", re.IGNORECASE)
_MAY_HOLD_AT = ("host", "password", "user")
"""Options whose values may contain an @."""
_LABEL_OPTIONS = ("host", "port", "service")
"""Options that locate a database."""
_EXAMPLE = "Write postgresql://user:password@host:port/database; in a password, %40 for @, %2F for /, %23 for #, %3F for ?."


def check_dsn(dsn: str) -> str:
    """Return the address as the driver reads it. Raises `ConfigurationError`, whose text shows nothing of the address."""
    scheme = _SCHEME.match(dsn)
    if scheme is None:
        raise ConfigurationError(f"The address of a PostgreSQL database must begin with postgresql://. {_EXAMPLE}")
    plain = "postgresql:" + dsn[scheme.end() :]
    try:
        parts = urlsplit(plain)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ConfigurationError(f"The address of the PostgreSQL database cannot be read. {_EXAMPLE}") from None
    stray = any("@" in value and name not in _MAY_HOLD_AT for name, value in options)  # after a ? in a password
    if parts.fragment or stray or "@" in parts.path or parts.netloc.count("@") > 1 or not _are_hosts(_hosts(parts)):
        raise ConfigurationError(f"The address of the PostgreSQL database cannot be read. {_EXAMPLE}")
    return plain


def redact_dsn(dsn: str) -> str:
    """Return a checked address without the password and other secrets."""
    parts = urlsplit(dsn)
    options = dict(parse_qsl(parts.query))
    user = parts.netloc.rpartition("@")[0].partition(":")[0] or options.get("user", "")
    query = "&".join(f"{name}={options[name]}" for name in _LABEL_OPTIONS if name in options)
    hosts = ",".join(_hosts(parts))
    return f"{parts.scheme}://{user}{'@' if user else ''}{hosts}{parts.path}{'?' if query else ''}{query}"


def split_hosts(dsn: str) -> list[str]:
    """Return an address for each server that a checked address names."""
    parts = urlsplit(dsn)
    hosts = _hosts(parts)
    if len(hosts) < 2 or "port" in dict(parse_qsl(parts.query)):
        return [dsn]
    user, at, _ = parts.netloc.rpartition("@")
    query = parts.query
    if "target_session_attrs" not in dict(parse_qsl(query)):  # a standby is useless: every transaction writes
        query += f"{'&' if query else ''}target_session_attrs=read-write"
    return [parts._replace(netloc=f"{user}{at}{host}", query=query).geturl() for host in hosts]


def host_of(dsn: str) -> str:
    """Return the server, or the servers, of a checked address."""
    return ",".join(_hosts(urlsplit(dsn)))


def has_application_name(dsn: str) -> bool:
    """Whether the address sets the application name that the server shows for a connection."""
    return "application_name" in dict(parse_qsl(urlsplit(dsn).query))


def _hosts(parts: SplitResult) -> list[str]:
    hosts = parts.netloc.rpartition("@")[2]
    return hosts.split(",") if hosts else []


def _are_hosts(hosts: list[str]) -> bool:
    found = [_HOST.fullmatch(unquote(host) if "%2F" not in host.upper() else "") for host in hosts]
    return all(match is not None and int(match[1] or 0) < 65536 for match in found)
