"""What Edda has and this layer has not, and what to use instead."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping
from importlib.abc import MetaPathFinder

from romancy import ConfigurationError

_ENGINE = "that is a part of Edda's engine, and this engine keeps its own to itself"
_GROUPS = "groups are romancy's: `from romancy import {0}`, then `await {0}(ctx.romancy, ...)`"

MODULE: Mapping[str, str] = {
    "wait_message": "it was an earlier name: use receive(ctx, channel, timeout_seconds=...)",
    "send_message_to": "it was an earlier name: use send_to(ctx, instance_id, data, channel=...)",
    "publish_to_group": "it was an earlier name: use publish(ctx, channel, data)",
    "saga": "it was an earlier name: use @workflow",
    **{name: _GROUPS.format(name) for name in ("join_group", "leave_group", "get_group_members", "send_to_group")},
    "ReplayEngine": f"{_ENGINE}: use EddaApp",
}

MODULES: Mapping[str, str] = {
    "storage": f"{_ENGINE}: use `await app.storage.get_instance(...)`, or app.romancy",
    "serialization": f"{_ENGINE}: payloads are stored by pydantic, by their annotations",
    "locking": f"{_ENGINE}: instances are claimed and fenced without your doing",
    "replay": f"{_ENGINE}: romancy.testing.replay_history replays a stored history",
    "pydantic_utils": f"{_ENGINE}: payloads are stored by pydantic, by their annotations",
    "viewer_app": "the viewer is a part of the app: serve it and open /viewer/",
    "viewer_ui": "the viewer is a part of the app: serve it and open /viewer/",
    "visualizer": "the viewer draws workflows: open /viewer/",
    "integrations.graph": "use pydantic-graph in a workflow as it is: its nodes call activities",
    "integrations.llamaindex": "use romancy.integrations.pydantic_ai or romancy.integrations.llm, or call it in activities",
    "integrations.mirascope": "use romancy.integrations.llm (call, parse, define, Agent) or pydantic_ai there",
    "integrations.mcp.decorators": "use @server.durable_tool of EddaMCPServer",
}
"""Modules of Edda that are not here."""

CONTEXT: Mapping[str, str] = {
    "storage": f"{_ENGINE}: use ctx.session for your own tables, ctx.romancy.app for instances",
    "hooks": "hooks are the app's: EddaApp(hooks=...)",
    "executed_activity_ids": "use `async for entry in app.romancy.history(instance_id)`",
}

APP: Mapping[str, str] = {
    "event_handlers": "workflows that events start are marked: @workflow(event_handler=True)",
    "outbox_relayer": "with outbox_enabled=True the app relays by itself; app.romancy.list_outbox() shows what is left",
    "worker_id": "each start has an id of its own: ctx.worker_id",
}

STORAGE = (
    f"{_ENGINE}. Here are get_instance, get_history and get_pending_outbox_events; app.romancy has get_instance, history, "
    "list_instances, list_outbox, cancel_workflow and the rest, and ctx.session is for your own tables"
)
REPLAY_ENGINE = f"{_ENGINE}. Here is cancel_workflow; app.romancy has pause, resume, retry and terminate too"
WORKFLOW: Mapping[str, str] = {
    "lock_timeout_seconds": "instances are leased and the lease is renewed: EddaApp(..., lease_timeout=...) sets it"
}


class NotOfferedError(ConfigurationError, ImportError):
    """A module or a name of Edda that is not here. An `ImportError` too, so that programs may do without."""


class _MissingModuleFinder(MetaPathFinder):
    """Asked for modules that nobody else has found: of those of Edda's it says what to use instead."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        package, _, name = fullname.partition(".edda.")
        if package == __name__.removesuffix(".edda.unsupported") and name in MODULES:
            raise NotOfferedError(_sentence(f"{package}.edda", name, MODULES, ()))


def explain_missing_modules() -> None:
    """From now on. Safe to call again."""
    sys.meta_path[:] = [one for one in sys.meta_path if type(one).__qualname__ != _MissingModuleFinder.__qualname__]
    sys.meta_path.append(_MissingModuleFinder())


def no_attribute(owner: str, name: str, advice: Mapping[str, str] | str, known: Iterable[str] = ()) -> AttributeError:
    """The error for an attribute that an object of this layer has not."""
    return AttributeError(_sentence(owner, name, advice, known))


def no_name(module: str, name: str, advice: Mapping[str, str], known: Iterable[str]) -> Exception:
    """The error for a name that a module of this layer has not.

    For a name of Edda's it is no AttributeError: `from ... import name` would hide the advice.
    """
    sentence = _sentence(module, name, advice, known)
    return NotOfferedError(sentence) if name in advice else AttributeError(sentence)


def _sentence(owner: str, name: str, advice: Mapping[str, str] | str, known: Iterable[str]) -> str:
    told = advice if isinstance(advice, str) else advice.get(name)
    if told is not None:
        return f"{owner} has no {name!r}: {told}."
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"{owner} has no {name!r}." + (f" Did you mean {near[0]!r}?" if near else "")
