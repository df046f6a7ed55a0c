"""What an app counts, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterable

from romancy.ingress.types import Figure

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(figures: Iterable[Figure]) -> str:
    """The text format of Prometheus: what each figure is, and its value."""
    return "".join(f"{_head(figure)}{figure.name} {figure.value}\n" for figure in figures)


def _head(figure: Figure) -> str:
    kind = "counter" if figure.name.endswith("_total") else "gauge"
    return f"# HELP {figure.name} {figure.meaning}\n# TYPE {figure.name} {kind}\n"
