"""Every option: as an argument, as an environment variable, and with wrong values."""

import inspect
import math
from datetime import timedelta
from typing import Any

import pytest

from romancy import App, Client, Compress, ConfigurationError, Hooks, RetryPolicy, activity, workflow
from romancy.auth import Token, Tokens
from romancy.codec import read_codec
from romancy.settings import OPTIONS

_HERE = "tests.acceptance.test_options"
_RETRY = "max_attempts=3, initial_interval=0.5,multiplier=1,max_interval=9,max_duration=600,jitter=.25"
POLICY = RetryPolicy(3, 0.5, 1.0, 9.0, 600.0, 0.25)
HOOKS = Hooks()
MORE_HOOKS = [Hooks(), Hooks()]
CODER = read_codec(Compress())
RIGHT: dict[str, tuple[Any, str | None, Any]] = {
    # the argument, the environment variable, the value that both mean
    "database": ("a.db", "a.db", "a.db"),
    "service_name": ("shop", "shop", "shop"),
    "worker_id": ("w1", "w1", "w1"),
    "broker": (["http://h/in"], "http://h/in", {"http": "http://h/in"}),
    "hooks": ([HOOKS, *MORE_HOOKS], f"{_HERE}:HOOKS, {_HERE}:MORE_HOOKS", (HOOKS, *MORE_HOOKS)),
    "outbox_interval": (0.5, "0.5", 0.5),
    "outbox_batch_size": (7, "7", 7),
    "outbox_retention": (timedelta(days=1), "86400", 86400.0),
    "outbox_relay": (False, "off", False),
    "default_retry": (POLICY, _RETRY, POLICY),
    "auto_migrate": (False, "off", False),
    "max_concurrent_workflows": (7, "7", 7),
    "max_concurrent_activities": (7, "7", 7),
    "cache_size": (0, "0", 0),
    "heartbeat_interval": (timedelta(seconds=2), "2", 2.0),
    "lease_timeout": (60, "60.0", 60.0),
    "max_losses": (5, "5", 5),
    "poll_interval": (0.5, "0.5", 0.5),
    "pool_size": (3, "3", 3),
    "listen_notify": (True, "on", True),
    "listen_dsn": ("postgresql://h/db", "postgresql://h/db", "postgresql://h/db"),
    "archive_retention": (3600, "3600", 3600.0),
    "audit_retention": (3600, "3600", 3600.0),
    "shutdown_timeout": (0, "0", 0.0),
    "instance_retention": (timedelta(days=1), "86400", 86400.0),
    "event_retention": (timedelta(days=1), "86400", 86400.0),
    "message_retention": (3600, "3600", 3600.0),
    "archive_history": (False, "no", False),
    "auth": ([Token("s3cret", role="read")], "read:s3cret", Tokens((Token("s3cret", role="read"),))),
    "codec": (CODER, "tests.acceptance.test_options:CODER", CODER),
    "max_body_size": (1000, "1000", 1000),
    "request_timeout": (5, "5", 5.0),
    "block_warning": (0, "0", 0.0),
    "guard": ("warn", "warn", "warn"),
    "refuse_blocking_io": (True, "true", True),
}
WRONG: dict[str, list[Any]] = {
    "database": ["", 5, "oracle://x"],
    "service_name": ["", 5],
    "worker_id": ["", b"w"],
    "broker": [5, "amqp://h", [None]],
    "hooks": [5, Hooks, [None], "hooks", "", "nowhere:HOOKS", f"{_HERE}:Hooks", f"{_HERE}:HOOKS,"],
    "outbox_interval": [0, "often"],
    "outbox_batch_size": [0, "many", True],
    "outbox_retention": [-1, "a day"],
    "outbox_relay": ["perhaps", 1],
    "default_retry": [
        3,
        "default",
        "",
        "max_attempts",
        "max_attempts=many",
        "retryable=OSError",
        "jitter=2",
        "max_attempts=-1",
    ],
    "auto_migrate": ["perhaps", 1],
    "max_concurrent_workflows": [0, -1, 1.5, True, "many"],
    "max_concurrent_activities": [0, "1.5"],
    "cache_size": [-1, "-1", True],
    "heartbeat_interval": [0, -1, math.nan, "soon", timedelta(0)],
    "lease_timeout": [0, math.inf, "x", 5],
    "max_losses": [-1, "many", 1.5],
    "poll_interval": [0, "never"],
    "pool_size": [1, 0, "many", 2.5],
    "listen_notify": ["perhaps", 1],
    "listen_dsn": ["", 5],
    "archive_retention": [-1, "a day"],
    "audit_retention": [-1, "a day"],
    "shutdown_timeout": [-1, "", "x"],
    "instance_retention": [-1, "a day"],
    "event_retention": [0, -1, "a week"],
    "message_retention": [0, math.nan],
    "archive_history": ["perhaps", 2],
    "auth": ["s3cret", [5], 5],
    "codec": [5, "nowhere", [None]],
    "max_body_size": [0, "1 MB"],
    "request_timeout": [0, "long"],
    "block_warning": [-1, math.inf],
    "guard": ["maybe", True],
    "refuse_blocking_io": ["maybe", 2],
}
NAMES = [option.name for option in OPTIONS]


def test_the_table_is_the_signature() -> None:
    parameters = inspect.signature(App).parameters
    mine = {"workflows", "clock", "ids", "unknown"}
    assert set(NAMES) == set(parameters) - mine
    assert set(RIGHT) == set(WRONG) == set(NAMES)
    assert all(option.meaning.endswith((".", ")")) or "." in option.meaning for option in OPTIONS)


@pytest.mark.parametrize("name", NAMES)
def test_an_option_is_an_argument_or_a_variable_and_the_argument_wins(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    argument, variable, understood = RIGHT[name]
    assert App(**{name: argument}, workflows=[])._options[name] == understood
    if variable is None:
        return
    monkeypatch.setenv(f"ROMANCY_{name.upper()}", variable)
    assert App(workflows=[])._options[name] == understood
    if name not in ("database", "auto_migrate"):
        other = next(option.default for option in OPTIONS if option.name == name)
        if other is not None:
            assert App(**{name: other}, workflows=[])._options[name] == other


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
async def test_a_wrong_value_is_an_error_that_names_the_option(
    name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        async with App(**{name: value}, workflows=[]):
            pass
    sentence = str(raised.value)
    assert name in sentence or name == "database"
    assert sentence[-1] in ".)"
    assert "could not convert" not in sentence
    if isinstance(value, str) and name != "database":
        monkeypatch.setenv(f"ROMANCY_{name.upper()}", value)
        with pytest.raises(ConfigurationError, match=f"ROMANCY_{name.upper()}"):
            App(workflows=[])


def test_an_unknown_option_is_an_error_with_a_guess() -> None:
    for call, name in (
        (lambda: App(max_concurrent_workflow=3), "max_concurrent_workflows"),  # type: ignore[arg-type]
        (lambda: Client(database="x.db", auto_migration=True), "auto_migrate"),  # type: ignore[arg-type]
        (lambda: workflow(time_out=3), "timeout"),  # type: ignore[call-overload]
        (lambda: activity(retries=3), "retry"),  # type: ignore[call-overload]
    ):
        with pytest.raises(ConfigurationError, match=f"Did you mean '{name}'"):
            call()


async def test_a_password_in_a_wrong_address_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROMANCY_DATABASE", "oracle://me:secret@host/db")
    with pytest.raises(ConfigurationError) as raised:
        await App(workflows=[]).startup()
    assert "secret" not in str(raised.value)
