"""Forms from JSON Schema: to start a workflow, and to send an event that an instance waits for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from romancy.errors import InstanceConflictError, PayloadError, RomancyError
from romancy.http.problems import MalformedRequestError
from romancy.model.instance import WaitingFor
from romancy.viewer import forms
from romancy.viewer.html_text import escaped
from romancy.viewer.renderer import PageRequest, Redirect, View
from romancy.viewer.values import plain

_NO_FIELDS: dict[str, Any] = {"type": "object", "properties": {}}


@dataclass(slots=True)
class Draft:
    """A value that the user enters: in fields if there is a schema, otherwise as JSON."""

    schema: dict[str, Any] | None
    as_json: bool
    value: Any = forms.MISSING
    text: str = ""
    errors: dict[str, str] = field(default_factory=dict[str, str])
    problem: str = ""

    @property
    def fields(self) -> forms.Field | None:
        """The form; None if the value is entered as JSON."""
        return None if self.schema is None or self.as_json else forms.fields_of(self.schema, self.value, self.errors)

    @property
    def shown(self) -> str:
        """The value as JSON text."""
        return self.text or ("" if self.value is forms.MISSING else escaped(plain(self.value, indent=2)))

    def read(self, visit: PageRequest) -> bool:
        """Read the posted value; return whether it is valid."""
        if self.fields is None:
            self.text = visit.get("json")
            try:
                self.value = json.loads(self.text) if self.text.strip() else forms.MISSING
            except (ValueError, RecursionError) as error:  # nested more deeply than Python can parse
                self.problem = self.errors["json"] = f"This is not valid JSON: {error}."
            return not self.errors
        assert self.schema is not None
        reading = forms.read(self.schema, dict(visit.form))
        self.value, self.errors = reading.value, reading.errors
        return not self.errors

    def set_error(self, error: RomancyError) -> None:
        """Show an error of the app, at the fields that it names."""
        self.problem = str(error)
        if self.fields is not None:
            self.errors |= _errors_by_path(error, self.fields)


def _errors_by_path(error: RomancyError, form: forms.Field) -> dict[str, str]:
    """Return the messages of an error by path of the field. The error itself uses dotted paths."""
    messages: dict[str, str] = getattr(error, "fields", None) or {}
    known = {one.path.removeprefix("/").replace("/", "."): one.path for one in _leaves(form)}
    return {known[name]: why for name, why in messages.items() if name in known}


def _leaves(form: forms.Field) -> list[forms.Field]:
    return [form, *(leaf for one in form.fields for leaf in _leaves(one))]


# --- starting


async def start_form(visit: PageRequest) -> View:
    """Show the form of a workflow: empty, or filled in with the input of an instance."""
    name, like = visit.get("workflow"), visit.get("like")
    value: Any = forms.MISSING
    if like:
        detail = await visit.manager.get_instance(like)
        name, value = detail.summary.workflow_name, detail.input
    if not name:
        return View("choose.html", {"workflows": await visit.manager.list_workflows()})
    draft = Draft(await visit.manager.get_schema(name), visit.get("as") == "json", value)
    return _start_view(visit, name, draft)


async def start(visit: PageRequest) -> View | Redirect:
    """Start the workflow with the posted input."""
    name = visit.get("workflow")
    draft = Draft(await visit.manager.get_schema(name), visit.get("as") == "json")
    if not draft.read(visit):
        return _start_view(visit, name, draft, 400)
    value = {} if draft.value is forms.MISSING else draft.value
    if not isinstance(value, dict):
        draft.problem = "The input must be a JSON object that contains the parameters of the workflow by name."
        return _start_view(visit, name, draft, 400)
    try:
        started = await visit.manager.start(name, value, instance_id=visit.get("instance_id") or None, actor=visit.actor)
    except (PayloadError, InstanceConflictError) as error:
        draft.set_error(error)
        return _start_view(visit, name, draft, 400)
    return Redirect("instance", {"id": started.instance_id, "did": "start"})


def _start_view(visit: PageRequest, name: str, draft: Draft, status: int = 200) -> View:
    return View(
        "start.html",
        {"name": name, "draft": draft, "instance_id": visit.get("instance_id"), "like": visit.get("like")},
        status,
    )


# --- sending


async def event_form(visit: PageRequest) -> View:
    """Show the form of the event or message that an instance waits for."""
    return _event_view(visit, *await _awaited(visit))


async def event(visit: PageRequest) -> View | Redirect:
    """Send the posted event or message."""
    wait, draft = await _awaited(visit)
    if not draft.read(visit):
        return _event_view(visit, wait, draft, 400)
    data = None if draft.value is forms.MISSING else draft.value
    only = visit.get("id") if visit.get("to") != "all" else None
    try:
        if wait is not None and wait.kind == "message":
            await visit.manager.publish(visit.get("type"), data, to=only, actor=visit.actor)
        else:
            await visit.manager.send_event(
                visit.get("type"), data, subject=visit.get("subject") or None, to=only, actor=visit.actor
            )
    except RomancyError as error:
        draft.set_error(error)
        return _event_view(visit, wait, draft, 400)
    return Redirect("instance", {"id": visit.get("id"), "did": "event"})


async def _awaited(visit: PageRequest) -> tuple[WaitingFor | None, Draft]:
    """Return the wait for which the event is, and a draft of its data."""
    if not visit.get("id"):
        raise MalformedRequestError("The instance id is missing from the address: use event?id=...")
    detail = await visit.manager.get_instance(visit.get("id"))
    waits = [one for one in detail.summary.waiting_for if one.kind in ("event", "message")]
    op = visit.get("op")
    wait = next((one for one in waits if not op or one.activity_id == op), None)
    schema = None
    if wait is not None and wait.kind == "event":
        schema = await visit.manager.get_event_schema(visit.get("id"), wait.activity_id)
    value = forms.MISSING if wait is None else await _suggested(visit, wait)
    return wait, Draft(schema, visit.get("as") == "json" or schema is None, value)


async def _suggested(visit: PageRequest, wait: WaitingFor) -> Any:
    """Return the data that the wait must match, if it is known."""
    found = await visit.manager.explain(visit.get("id"))
    values = next((one.values for one in found.remedies if one.values.get("op") == wait.activity_id), {})
    return values.get("data") or forms.MISSING


def _event_view(visit: PageRequest, wait: WaitingFor | None, draft: Draft, status: int = 200) -> View:
    return View(
        "event.html",
        {
            "id": visit.get("id"),
            "wait": wait,
            "draft": draft,
            "type": visit.get("type") or (wait.key if wait else ""),
            "subject": visit.get("subject") or (wait.subject if wait else "") or "",
            "to": visit.get("to"),
        },
        status,
    )
