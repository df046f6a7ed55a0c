"""What browsers are told not to do with our answers."""

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
"""Nothing from elsewhere, nothing inline, and no frame around us."""

_ALL: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not no-referrer: with that, browsers hide the origin of our own forms, too, and we could not check it.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
JSON_HEADERS: Mapping[str, str] = {**_ALL, "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"}
"""For data: should a browser show it as a page after all, it does nothing."""
HTML_HEADERS: Mapping[str, str] = {**_ALL, "Content-Security-Policy": POLICY}
"""For pages."""
