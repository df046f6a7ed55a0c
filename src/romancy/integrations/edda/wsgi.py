"""Serving under WSGI."""

from __future__ import annotations

from typing import Any

from romancy import to_wsgi
from romancy.integrations.edda.app import EddaApp

__all__ = ["create_wsgi_app"]


def create_wsgi_app(edda_app: EddaApp) -> Any:
    """Return a WSGI application that serves the app, and starts it with the first request."""
    return to_wsgi(edda_app)
