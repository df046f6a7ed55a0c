"""Edda's relayer, which raises an error: the app itself relays events."""

from __future__ import annotations

from typing import Any

from romancy import ConfigurationError

__all__ = ["OutboxRelayer"]


class OutboxRelayer:
    """Not offered: an app with a broker relays by itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise ConfigurationError(
            "OutboxRelayer is not offered: an app with a broker relays by itself. Write EddaApp(outbox_enabled=True, "
            "broker_url=...); outbox_interval= sets how often, and app.romancy.list_outbox() lists the pending events."
        )
