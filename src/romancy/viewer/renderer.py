"""The request of a page, its template with values, and the rendered response."""

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
"""The name of the cookie."""
_FIELDS = 20_000
_NAMES = frozenset({"id", "instance_id", "name", "op", "subject", "type", "workflow"})
_LONGEST = 1024
"""Most bytes of a name or an id."""
GENERATIONS = 2**31 - 1


@dataclass(slots=True)
class PageRequest:
    """One request for a page, with the manager that serves it."""

    request: Request
    manager: Manager
    clock: Clock
    bodies: Bodies
    form: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The posted fields."""

    def get(self, name: str, default: str = "") -> str:
        """Return a posted value or, if there is none, a value of the query."""
        for key, value in reversed(self.form):
            if key == name:
                return value
        return self.request.query_params.get(name, default)

    def all(self, name: str) -> list[str]:
        """Return all values of that name."""
        return [value for key, value in self.form if key == name] or self.request.query_params.getlist(name)

    def number(self, name: str, most: int = 10**15) -> int | None:
        """Return a value as a whole number; None if it is missing."""
        given = self.get(name)
        if not given:
            return None
        if not (given.isascii() and given.isdecimal() and len(given) < 17 and int(given) <= most):
            raise MalformedRequestError(f"{name}={given[:40]!a} is not valid: give a whole number from 0 to {most}.")
        return int(given)

    def check(self) -> None:
        """Refuse values that the database could not store. Input of workflows (`/...`, `json`) is checked as a payload."""
        for name, value in [*self.request.query_params.multi_items(), *self.form]:
            if "\0" in value and name != "json" and not name.startswith("/"):
                raise MalformedRequestError(f"The field {name[:40]!a} contains a NUL character.")
            if name in _NAMES and len(value.encode("utf-8", "replace")) > _LONGEST:
                raise MalformedRequestError(f"The field {name!a} is longer than {_LONGEST} bytes.")

    @property
    def now(self) -> datetime:
        """The current time."""
        return to_datetime(self.clock.now())

    @property
    def actor(self) -> str:
        """The name of the caller, for the audit."""
        return str(getattr(self.caller, "name", "") or "")

    @property
    def caller(self) -> Any:
        """The authenticated caller; None without authentication."""
        return self.request.scope.get("romancy.caller")

    @property
    def may_write(self) -> bool:
        """Whether the caller may change anything. This only hides buttons; the HTTP layer refuses the requests."""
        return getattr(self.caller, "role", "admin") == "admin"

    async def read_form(self) -> None:
        """Read the posted form."""
        async with self.bodies.read(self.request.headers, self.request.receive) as body:
            try:
                self.form = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS, errors="strict")
            except ValueError as error:
                raise MalformedRequestError(f"The form cannot be read: {error}.") from error


@dataclass(frozen=True, slots=True)
class View:
    """A template and its values."""

    template: str
    values: Mapping[str, Any]
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirect to a page, after an action."""

    page: str
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])


def link(page: str, **query: Any) -> str:
    """Return a relative URL; values that are None or empty are left out."""
    given = {name: value for name, value in query.items() if value is not None and value != ""}
    return f"{page}?{urlencode(given, doseq=True, errors='surrogatepass')}" if given else page


def respond(view: View, visit: PageRequest) -> Response:
    """Render the page."""
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


# --- functions and filters of templates


def _time(when: datetime | None, now: datetime, how: str = "ago") -> html_text.Markup:
    """Format a time relative to now, with the exact time in the tooltip and in the attribute `datetime`."""
    if when is None:
        return html_text.Markup('<span class="none">–</span>')
    distance = (when - now).total_seconds()
    shown = formatters.duration(abs(distance))
    text = {"ago": f"{shown} ago", "age": shown, "in": f"in {shown}" if distance >= 0 else f"{shown} overdue"}[how]
    return html_text.Markup('<time datetime="{}" title="{}" data-how="{}" tabindex="0">{}</time>').format(
        when.isoformat(), formatters.exact(when), how, text
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
_GLOBALS: dict[str, Any] = {
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
    environment.globals.update(_GLOBALS)
    return environment


_TEMPLATES = _templates()
