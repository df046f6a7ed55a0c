"""What a page is made of: a visit, the template and its values, and the headers that every answer carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from romancy.admin.filters import quoted
from romancy.admin.port import Manager
from romancy.clock import Clock, to_datetime
from romancy.http.body import Bodies
from romancy.http.headers import HTML_HEADERS
from romancy.http.problems import MalformedRequestError
from romancy.viewer import charts, formatters, html_text, values

THEMES = ("light", "dark")
THEME = "romancy_theme"
"""The cookie."""
_FIELDS = 20_000
_NAMES = frozenset({"id", "instance_id", "name", "op", "subject", "type", "workflow"})
_LONGEST = 1024
"""Bytes of a name."""
GENERATIONS = 2**31 - 1


@dataclass(slots=True)
class PageRequest:
    """One request, and whom to ask for the answer."""

    request: Request
    manager: Manager
    clock: Clock
    bodies: Bodies
    form: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """What was posted."""

    def get(self, name: str, default: str = "") -> str:
        """A value of the address or, if something was posted, of that."""
        for key, value in reversed(self.form):
            if key == name:
                return value
        return self.request.query_params.get(name, default)

    def all(self, name: str) -> list[str]:
        """All values of that name."""
        return [value for key, value in self.form if key == name] or self.request.query_params.getlist(name)

    def number(self, name: str, most: int = 10**15) -> int | None:
        """A whole number of the address."""
        given = self.get(name)
        if not given:
            return None
        if not (given.isascii() and given.isdecimal() and len(given) < 17 and int(given) <= most):
            raise MalformedRequestError(f"{name}={given[:40]!a} is no whole number up to {most}.")
        return int(given)

    def check(self) -> None:
        """Refuse names that no database could hold. What a workflow gets (`/...`, `json`) is checked as a payload."""
        for name, value in [*self.request.query_params.multi_items(), *self.form]:
            if "\0" in value and name != "json" and not name.startswith("/"):
                raise MalformedRequestError(f"{name[:40]!a} holds a NUL character.")
            if name in _NAMES and len(value.encode("utf-8", "replace")) > _LONGEST:
                raise MalformedRequestError(f"{name!a} is longer than {_LONGEST} bytes.")

    @property
    def now(self) -> datetime:
        """The time."""
        return to_datetime(self.clock.now())

    @property
    def actor(self) -> str:
        """Who calls, for the record."""
        return str(getattr(self.caller, "name", "") or "")

    @property
    def caller(self) -> Any:
        """Who calls."""
        return self.request.scope.get("romancy.caller")

    @property
    def may_write(self) -> bool:
        """The caller has a role that may change things. This hides buttons; the door refuses."""
        return getattr(self.caller, "role", "admin") == "admin"

    async def read_form(self) -> None:
        """Take in what was posted."""
        async with self.bodies.read(self.request.headers, self.request.receive) as body:
            try:
                self.form = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS, errors="strict")
            except ValueError as error:
                raise MalformedRequestError(f"The form cannot be read: {error}.") from error


@dataclass(frozen=True, slots=True)
class View:
    """A template and what it shows."""

    template: str
    values: Mapping[str, Any]
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """Elsewhere, after something was done."""

    page: str
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])


def link(page: str, **query: Any) -> str:
    """A relative address; what is None or empty is left out."""
    given = {name: value for name, value in query.items() if value is not None and value != ""}
    return f"{page}?{urlencode(given, doseq=True, errors='surrogatepass')}" if given else page


def respond(view: View, visit: PageRequest) -> Response:
    """The page."""
    theme = visit.request.cookies.get(THEME, "")
    here = visit.request.url.path.rpartition("/")[2]
    shown = _TEMPLATES.get_template(view.template).render(
        **view.values,
        visit=visit,
        now=visit.now,
        may_write=visit.may_write,
        actor=visit.actor,
        page=here,
        address=f"{here}?{visit.request.url.query}" if visit.request.url.query else here,
        theme=theme if theme in THEMES else "",
    )
    return HTMLResponse(shown.encode("utf-8", "replace"), view.status, HTML_HEADERS)


# --- what templates can say


def _time(when: datetime | None, now: datetime, how: str = "ago") -> html_text.Markup:
    """A time, relative; the exact one on hover and for machines."""
    if when is None:
        return html_text.Markup('<span class="none">–</span>')
    distance = (when - now).total_seconds()
    shown = formatters.duration(abs(distance))
    said = {"ago": f"{shown} ago", "age": shown, "in": f"in {shown}" if distance >= 0 else f"{shown} overdue"}[how]
    return html_text.Markup('<time datetime="{}" title="{}" data-how="{}" tabindex="0">{}</time>').format(
        when.isoformat(), formatters.exact(when), how, said
    )


def _exact_time(when: datetime | None) -> html_text.Markup:
    return (
        html_text.Markup('<time datetime="{}">{}</time>').format(when.isoformat(), formatters.exact(when))
        if when
        else html_text.Markup("–")
    )


def _icon(name: str, tone: str = "") -> html_text.Markup:
    shape = html_text.Markup('<svg class="icon{}" viewBox="0 0 16 16" aria-hidden="true"><use href="#i-{}"/></svg>')
    return shape.format(f" t-{tone}" if tone else "", name)


def _status(status: Any) -> html_text.Markup:
    face = formatters.STATUS_LABELS[status]
    return html_text.Markup('<span class="status">{}<span>{}</span></span>').format(_icon(face.icon, face.tone), face.word)


_FILTERS: dict[str, Any] = {
    "line": html_text.line,
    "block": html_text.block,
    "attribute": html_text.attribute,
    "duration": formatters.duration,
    "size": formatters.size,
    "exact": _exact_time,
    "status": _status,
    "plain": values.plain,
}
_WORDS: dict[str, Any] = {
    "link": link,
    "quoted": quoted,
    "time": _time,
    "icon": _icon,
    "show": values.show,
    "between": formatters.between,
    "sparkline": charts.sparkline,
    "action_labels": formatters.ACTION_LABELS,
}


def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_FILTERS)
    environment.globals.update(_WORDS)
    return environment


_TEMPLATES = _templates()
