"""Options come from arguments, the environment and a table; wrong ones are reported."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from romancy import ConfigurationError, RetryPolicy
from romancy.settings import OPTIONS, resolve


def test_defaults_come_from_the_table() -> None:
    assert resolve({}, {}) == {option.name: option.default for option in OPTIONS}


def test_an_argument_wins_over_the_environment_and_that_over_the_default() -> None:
    environment = {"ROMANCY_CACHE_SIZE": "7", "ROMANCY_POLL_INTERVAL": "0.5"}

    found = resolve({"cache_size": 3}, environment)

    assert (found["cache_size"], found["poll_interval"], found["max_concurrent_activities"]) == (3, 0.5, 100)


def test_every_option_has_a_variable_of_its_own_and_a_meaning() -> None:
    assert len({option.variable for option in OPTIONS}) == len(OPTIONS)
    assert all(option.variable.startswith("ROMANCY_") and option.meaning.endswith(".") for option in OPTIONS)


@pytest.mark.parametrize("text", ["1", "true", "YES", "on"])
def test_flags_are_read_from_text(text: str) -> None:
    assert resolve({}, {"ROMANCY_AUTO_MIGRATE": text})["auto_migrate"] is True
    assert resolve({}, {"ROMANCY_AUTO_MIGRATE": "off"})["auto_migrate"] is False


def test_durations_may_be_timedeltas() -> None:
    assert resolve({"shutdown_timeout": timedelta(minutes=2)}, {})["shutdown_timeout"] == 120.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("database", ""),
        ("cache_size", -1),
        ("cache_size", True),
        ("max_concurrent_workflows", 0),
        ("max_concurrent_activities", 1.5),
        ("heartbeat_interval", "soon"),
        ("poll_interval", float("nan")),
        ("auto_migrate", "perhaps"),
        ("default_retry", 3),
    ],
)
def test_a_wrong_value_is_told_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        resolve({name: value}, {})


def test_a_wrong_variable_is_told_by_its_own_name() -> None:
    with pytest.raises(ConfigurationError, match="ROMANCY_CACHE_SIZE='many'"):
        resolve({}, {"ROMANCY_CACHE_SIZE": "many"})


def test_a_wrong_database_variable_does_not_show_its_value() -> None:
    with pytest.raises(ConfigurationError) as error:
        resolve({}, {"ROMANCY_DATABASE": ""})
    assert "ROMANCY_DATABASE:" in str(error.value)


def test_a_lease_shorter_than_a_heartbeat_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"lease_timeout=1 .* heartbeat_interval=5"):
        resolve({"lease_timeout": 1}, {})


@pytest.mark.parametrize(
    "wrong",
    [{"max_attempts": -1}, {"max_attempts": 1.0}, {"jitter": 2}, {"initial_interval": -1}, {"retryable": (3,)}],
)
def test_a_wrong_retry_policy_names_the_field(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        RetryPolicy(**wrong)
