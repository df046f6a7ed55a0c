"""Names of Edda that this layer does not offer, and what to use instead."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping
from importlib.abc import MetaPathFinder

from romancy import ConfigurationError

_ENGINE = "it is an internal part of Edda's engine, and romancy's engine has no public counterpart"
_GROUPS = "groups are a feature of romancy: `from romancy import {0}`, then `await {0}(ctx.romancy, ...)`"

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
    "locking": f"{_ENGINE}: instances are claimed and fenced automatically",
    "replay": f"{_ENGINE}: romancy.testing.replay_history replays a stored history",
    "pydantic_utils": f"{_ENGINE}: payloads are stored by pydantic, by their annotations",
    "viewer_app": "the viewer is a part of the app: serve it and open /viewer/",
    "viewer_ui": "the viewer is a part of the app: serve it and open /viewer/",
    "visualizer": "the viewer draws workflows: open /viewer/",
    "integrations.graph": "use pydantic-graph directly in a workflow: its nodes call activities",
    "integrations.llamaindex": "use romancy.integrations.pydantic_ai or romancy.integrations.llm, or call it in activities",
    "integrations.mirascope": "use romancy.integrations.llm (call, parse, define, Agent) or pydantic_ai there",
    "integrations.mcp.decorators": "use @server.durable_tool of EddaMCPServer",
}
"""Modules of Edda that this layer does not have."""

CONTEXT: Mapping[str, str] = {
    "storage": f"{_ENGINE}: use ctx.session for your own tables, ctx.romancy.app for instances",
    "hooks": "hooks are the app's: EddaApp(hooks=...)",
    "executed_activity_ids": "use `async for entry in app.romancy.history(instance_id)`",
}

APP: Mapping[str, str] = {
    "event_handlers": "mark workflows that events start with @workflow(event_handler=True)",
    "outbox_relayer": "with outbox_enabled=True the app relays by itself; app.romancy.list_outbox() lists pending events",
    "worker_id": "each start of the app has its own worker id: use ctx.worker_id",
}

STORAGE = (
    f"{_ENGINE}. It offers get_instance, get_history and get_pending_outbox_events; app.romancy has get_instance, history, "
    "list_instances, list_outbox, cancel_workflow and the rest, and ctx.session is for your own tables"
)
REPLAY_ENGINE = f"{_ENGINE}. It offers cancel_workflow; app.romancy has pause, resume, retry and terminate too"
WORKFLOW: Mapping[str, str] = {
    "lock_timeout_seconds": "instances are leased and the lease is renewed: EddaApp(..., lease_timeout=...) sets it"
}


class NotOfferedError(ConfigurationError, ImportError):
    """A module or a name of Edda that is not offered. Also an `ImportError`, so that programs can treat it as optional."""


class _MissingModuleHook(MetaPathFinder):
    """The last import hook: for a missing module of Edda, raises an error that says what to use instead."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        package, _, name = fullname.partition(".edda.")
        if package == __name__.removesuffix(".edda.unsupported") and name in MODULES:
            raise NotOfferedError(_sentence(f"{package}.edda", name, MODULES, ()))


def explain_missing_modules() -> None:
    """Install the import hook. Safe to call again."""
    sys.meta_path[:] = [one for one in sys.meta_path if type(one).__qualname__ != _MissingModuleHook.__qualname__]
    sys.meta_path.append(_MissingModuleHook())


def no_attribute(owner: str, name: str, advice: Mapping[str, str] | str, known: Iterable[str] = ()) -> AttributeError:
    """Return the error for an unknown attribute of an object of this layer."""
    return AttributeError(_sentence(owner, name, advice, known))


def no_name(module: str, name: str, advice: Mapping[str, str], known: Iterable[str]) -> Exception:
    """Return the error for an unknown name of a module of this layer.

    For a name of Edda it is not an AttributeError, because `from ... import name` would hide the advice.
    """
    sentence = _sentence(module, name, advice, known)
    return NotOfferedError(sentence) if name in advice else AttributeError(sentence)


def _sentence(owner: str, name: str, advice: Mapping[str, str] | str, known: Iterable[str]) -> str:
    reason = advice if isinstance(advice, str) else advice.get(name)
    if reason is not None:
        return f"{owner} has no {name!r}: {reason}."
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"{owner} has no {name!r}." + (f" Did you mean {near[0]!r}?" if near else "")
