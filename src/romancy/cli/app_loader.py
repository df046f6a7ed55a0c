"""Imports the app or the workflow that an argument names, such as `MODULE:APP`."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

from romancy.app import App
from romancy.authoring.workflow import Workflow
from romancy.errors import ConfigurationError


def load_app(target: str) -> App:
    """Import the app at `MODULE:APP`; the current folder is on the path. Raises `ConfigurationError`."""
    found = _load(full_target(target), target, App)
    if not isinstance(found, App):
        raise ConfigurationError(f"{target} is {_described(found)}, not a romancy.App: give MODULE:APP.")
    return found


def load_workflow(target: str) -> Workflow[..., Any]:
    """Import the workflow at `MODULE:WORKFLOW`. Raises `ConfigurationError`."""
    if ":" not in target:
        raise ConfigurationError(f"{target!r} does not name a workflow: give MODULE:WORKFLOW, e.g. shop:checkout.")
    found = _load(target, target, Workflow)
    if not isinstance(found, Workflow):
        raise ConfigurationError(
            f"{target} is {_described(found)}, not a workflow: give a function decorated with @workflow."
        )
    return found


def _load(full: str, target: str, wanted: type) -> Any:
    module_name, _, name = full.partition(":")
    found: Any = _module(module_name)
    for part in name.split("."):
        found = _attribute(found, part, target, wanted)
    return found


def full_target(target: str) -> str:
    """Complete a target: `MODULE` means `MODULE:app`."""
    return target if ":" in target else f"{target}:app"


def find_modules_here() -> None:
    """Add the current folder to the end of the import path.

    At the front, a file in that folder could replace an installed package of the same name (`asyncpg.py`).
    """
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _module(name: str) -> ModuleType:
    find_modules_here()
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigurationError(f"{name!r} is not the name of a module: give MODULE:APP, e.g. shop:app.")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, but a module that it imports does not
        raise ConfigurationError(f"There is no module {name!r} in {os.getcwd()} or on the Python path.") from error


def _attribute(holder: Any, name: str, target: str, wanted: type) -> Any:
    try:
        return getattr(holder, name)
    except AttributeError as error:
        raise ConfigurationError(f"{target}: {_described(holder)} has no {name!r}. {_offer(holder, wanted)}") from error


def _offer(holder: Any, wanted: type) -> str:
    known = vars(holder).items() if hasattr(holder, "__dict__") else []
    names = [name for name, value in known if isinstance(value, wanted)]
    return f"Did you mean {' or '.join(names)}?" if names else f"It contains no {wanted.__name__}."


def _described(thing: Any) -> str:
    if isinstance(thing, ModuleType):
        return f"module {thing.__name__}"
    if isinstance(thing, type):
        return f"class {thing.__name__}"
    return f"an object of type {type(thing).__name__}"
