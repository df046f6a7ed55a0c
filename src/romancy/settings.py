"""The options of an app in one table; arguments and environment variables are read by it, and the documentation follows it.

The value of an option is the argument of `App(...)`, else its environment variable, else its default. A wrong value raises
a `ConfigurationError` that names the option, wherever the value came from.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from romancy.auth import read_auth
from romancy.brokers.base import read_brokers
from romancy.codec import read_codec
from romancy.errors import ConfigurationError
from romancy.hooks import read_hooks
from romancy.model.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class Option:
    """One option of an app: its name, its default, the function that checks and converts a value, and its meaning."""

    name: str
    default: Any
    read: Callable[[Any], Any]
    meaning: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"ROMANCY_{self.name.upper()}"


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("give a non-empty string")
    return value


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _FLAGS:
        return _FLAGS[value.lower()]
    raise ValueError("give true or false")


_FLAGS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _count(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, str) and value.strip().isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"give a whole number of at least {least}")
        return value

    return read


def _seconds(least: float) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if isinstance(value, timedelta):
            value = value.total_seconds()
        if isinstance(value, str):
            value = _number(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
            raise ValueError(f"give seconds as a number of at least {least:g}, or a timedelta")
        return float(value)

    return read


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan  # the caller refuses it with the same message as any other value that is not a number


_POLICY_NUMBERS = ("max_attempts", "initial_interval", "multiplier", "max_interval", "max_duration", "jitter")
"""The fields of a policy that a text can set. Its exceptions are classes, and need code."""


def _policy(value: Any) -> RetryPolicy:
    if isinstance(value, RetryPolicy):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("give a RetryPolicy, or a string such as 'max_attempts=3,initial_interval=0.5'")
    numbers: dict[str, Any] = {}
    for part in value.split(","):
        name, _, text = (piece.strip() for piece in part.partition("="))
        if name not in _POLICY_NUMBERS:
            raise ValueError(f"{part.strip()!r} is not valid: give {', '.join(_POLICY_NUMBERS)}, each as name=number")
        numbers[name] = int(text) if text.isdecimal() else _number(text)
    try:
        return RetryPolicy(**numbers)
    except ConfigurationError as error:
        raise ValueError(str(error).rstrip(".")) from error


def _guard(value: Any) -> str:
    if value not in ("raise", "warn", "off"):
        raise ValueError("give 'raise', 'warn' or 'off'")
    return str(value)


OPTIONS = (
    Option("database", "sqlite:///romancy.db", _text, "Where instances are stored: a path or a database address."),
    Option("service_name", None, _text, "The name of the service, shown beside its workers."),
    Option(
        "worker_id",
        None,
        _text,
        "A label for this worker; every start adds its own incarnation. Default: the host's name.",
    ),
    Option(
        "broker",
        None,
        read_brokers,
        "The brokers that get the events sent here, in addition to the workflows: brokers, or addresses. Default: none.",
    ),
    Option(
        "hooks",
        (),
        read_hooks,
        "Objects whose methods are called once a change is durable; in the variable `module:name`, separated by commas.",
    ),
    Option("outbox_interval", 1.0, _seconds(0.01), "Seconds between two polls of the outbox for events of other processes."),
    Option("outbox_batch_size", 100, _count(1), "How many events are taken out of the outbox at once for one broker."),
    Option("outbox_retention", None, _seconds(0), "Seconds after which dead letters are deleted. Default: never."),
    Option(
        "outbox_relay",
        True,
        _flag,
        "Hand events from the outbox to the brokers here. False: this app only puts them there; another app relays them.",
    ),
    Option(
        "default_retry",
        RetryPolicy(),
        _policy,
        "The retry policy of activities that have none of their own; in the variable `max_attempts=3,initial_interval=0.5`.",
    ),
    Option("auto_migrate", True, _flag, "Bring the database's schema up to date at start-up."),
    Option("max_concurrent_workflows", 1000, _count(1), "How many instances run here at once; waiting ones do not count."),
    Option("max_concurrent_activities", 100, _count(1), "How many attempts of activities run here at once."),
    Option("cache_size", 1000, _count(0), "How many waiting instances stay in memory, to continue without a replay."),
    Option("heartbeat_interval", 5.0, _seconds(0.01), "Seconds between two heartbeats of this worker."),
    Option(
        "lease_timeout", 30.0, _seconds(0.02), "Seconds without a heartbeat after which a worker's instances are taken over."
    ),
    Option(
        "max_losses",
        3,
        _count(0),
        "How many workers an instance may lose without recording anything in between before it is paused; 0: any number.",
    ),
    Option("poll_interval", 1.0, _seconds(0.01), "Seconds between two polls for instances that no worker runs."),
    Option("pool_size", 8, _count(2), "How many connections to a database server this process opens at most."),
    Option(
        "listen_notify",
        None,
        _flag,
        "PostgreSQL: receive notifications from other processes by LISTEN. Default: if it works; true: refuse to start if "
        "not; false: only poll every `poll_interval`.",
    ),
    Option("listen_dsn", None, _text, "PostgreSQL: another address for LISTEN, past a pooler such as PgBouncer."),
    Option("shutdown_timeout", 30.0, _seconds(0), "Seconds that running activities get to finish at shutdown."),
    Option("instance_retention", None, _seconds(0), "Seconds after which ended instances are deleted. Default: never."),
    Option(
        "event_retention", 604800.0, _seconds(1), "Seconds for which events are kept for workflows that wait for them later."
    ),
    Option("message_retention", 604800.0, _seconds(1), "Seconds for which a message is kept that no instance receives."),
    Option("archive_history", True, _flag, "Keep the history of the generations of a workflow that recurs."),
    Option(
        "archive_retention",
        None,
        _seconds(0),
        "Seconds after which the history of a generation that is over is deleted. Default: with the instance.",
    ),
    Option("audit_retention", None, _seconds(0), "Seconds after which entries of the audit are deleted. Default: never."),
    Option("block_warning", 1.0, _seconds(0), "Warn when the event loop is blocked for this many seconds; 0 turns it off."),
    Option(
        "guard",
        "off",
        _guard,
        "The treatment of clocks, randomness, files, the environment and threads in workflow code: 'raise', 'warn' or "
        "'off'.",
    ),
    Option(
        "refuse_blocking_io",
        False,
        _flag,
        "Refuse sockets, processes and threads in workflow code (by an audit hook).",
    ),
    Option(
        "auth",
        None,
        read_auth,
        "The callers with access over HTTP: tokens, a function, or 'open' for events from every machine; in the variable "
        "`role:token`, separated by commas. Default: this machine.",
    ),
    Option(
        "codec",
        None,
        read_codec,
        "The layers that encode payloads before they are stored, such as Encrypt; in the variable `module:name`. Default: "
        "none.",
    ),
    Option("max_body_size", 16 * 1024 * 1024, _count(1), "The largest request body in bytes that is read over HTTP."),
    Option(
        "request_timeout",
        30.0,
        _seconds(0.01),
        "Seconds within which the headers of a request, and then its body, must arrive.",
    ),
)
_SECRETS = frozenset({"database", "listen_dsn", "auth", "broker", "codec"})
"""Options whose values may hold passwords or tokens: errors do not show them."""
BY_NAME = {option.name: option for option in OPTIONS}


def resolve(given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the value of every option: the given one, else that of the environment, else the default."""
    environment = os.environ if environment is None else environment
    found = {option.name: _value(option, given.get(option.name), environment) for option in OPTIONS}
    if found["lease_timeout"] <= found["heartbeat_interval"]:
        raise ConfigurationError(
            f"lease_timeout={found['lease_timeout']:g} must be longer than heartbeat_interval="
            f"{found['heartbeat_interval']:g}: a worker would be declared dead between two heartbeats."
        )
    return found


def _value(option: Option, given: Any, environment: Mapping[str, str]) -> Any:
    secret = option.name in _SECRETS
    value, origin = given, option.name if secret else f"{option.name}={given!r}"
    if value is None and option.variable in environment:
        value = environment[option.variable]
        origin = option.variable if secret else f"{option.variable}={value!r}"
    if value is None:
        return option.default
    try:
        return option.read(value)
    except ValueError as error:
        raise ConfigurationError(f"{origin}: {error}. {option.meaning}") from error
