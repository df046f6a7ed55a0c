"""Edda's relayer, which the app is here."""

from __future__ import annotations

from typing import Any

from romancy import ConfigurationError

__all__ = ["OutboxRelayer"]


class OutboxRelayer:
    """Not offered: an app with a broker relays by itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise ConfigurationError(
            "OutboxRelayer is not offered: an app with a broker relays by itself. Write EddaApp(outbox_enabled=True, "
            "broker_url=...); how often it looks is outbox_interval=, what is left shows app.romancy.list_outbox()."
        )
