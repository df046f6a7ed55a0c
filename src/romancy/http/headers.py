"""Response headers that restrict what browsers do with a response."""

from __future__ import annotations

from collections.abc import Mapping

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
"""The policy of pages: resources only from the same origin, no inline scripts or styles, no frames around the page."""

_ALL: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not no-referrer: browsers would send `Origin: null` with the viewer's own forms, and `check_csrf` would refuse them.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
JSON_HEADERS: Mapping[str, str] = {**_ALL, "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"}
"""For data: a browser that renders it as a page runs and loads nothing."""
HTML_HEADERS: Mapping[str, str] = {**_ALL, "Content-Security-Policy": POLICY}
"""For pages."""
