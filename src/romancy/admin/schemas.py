"""JSON Schemas of the inputs of workflows, and the conversion of input from outside into arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from romancy.admin.records import InputError
from romancy.authoring.workflow import Workflow
from romancy.errors import RomancyError
from romancy.serde.external import takes_objects
from romancy.serde.payload import CallCodec, complaint

AnyWorkflow = Workflow[..., Any]


def input_schema(workflow: AnyWorkflow) -> dict[str, Any]:
    """Return the JSON Schema of a workflow's input: an object with the parameters as its properties."""
    codec = workflow.codec
    adapters: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(annotation) for name, annotation in codec.annotations.items()}
    found, shared = TypeAdapter.json_schemas([(name, "validation", adapter) for name, adapter in adapters.items()])
    defaults = codec.defaults
    properties: dict[str, Any] = {}
    for name in adapters:
        properties[name] = {"title": name, **found[name, "validation"]}
        if name in defaults:
            properties[name] |= _default(adapters[name], defaults[name])
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": workflow.name,
        "type": "object",
        "properties": properties,
        "required": [name for name in adapters if name not in codec.optional],
        "additionalProperties": codec.takes_more,
    }
    if workflow.__doc__:
        schema["description"] = inspect.cleandoc(workflow.__doc__)
    return schema | ({"$defs": shared["$defs"]} if "$defs" in shared else {})


def _default(adapter: TypeAdapter[Any], value: Any) -> dict[str, Any]:
    try:
        return {"default": adapter.dump_python(value, mode="json", warnings=False)}
    except Exception:  # a default that JSON cannot represent is left out
        return {}


def read_input(workflow: AnyWorkflow, input: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a workflow from a JSON object by parameter, or from the fields of its only argument.

    The input of another instance is accepted too, in the form in which it is shown. Raises `InputError`, which gives the
    problem of each field.
    """
    codec = workflow.codec
    given = _wrap_sole_parameter(codec, dict(input))
    values: dict[str, Any] = {}
    wrong = {name: "is missing" for name in codec.annotations if name not in given and name not in codec.optional}
    for name, value in given.items():
        if name not in codec.annotations:
            wrong[name] = f"is not a parameter; the parameters are {', '.join(codec.parameters) or 'none'}"
            continue
        try:
            values[name] = TypeAdapter(codec.annotations[name]).validate_json(_json(value))
        except ValidationError as error:
            wrong |= _problems(name, error)
        except Exception as error:  # the user's validators may raise any error
            wrong[name] = complaint(error)
    if not wrong:
        return codec.split_arguments(values)
    as_stored = _as_stored(codec, given)
    if as_stored is None:
        problems = "; ".join(f"{path}: {why}" for path, why in list(wrong.items())[:5])
        raise InputError(f"The input is not valid for workflow {workflow.label!r}: {problems}.", wrong)
    return as_stored


def _wrap_sole_parameter(codec: CallCodec, input: dict[str, Any]) -> dict[str, Any]:
    sole = codec.parameters[0] if len(codec.parameters) == 1 and not codec.takes_more else None
    if sole is not None and input and sole not in input and takes_objects(codec.annotations[sole]):
        return {sole: input}
    return codec.gather(input) if codec.takes_more else input


def _as_stored(codec: CallCodec, given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments if the input has the stored form, for example with the names of fields instead of aliases."""
    if set(given) - set(codec.parameters) or set(codec.parameters) - set(given) - codec.optional:
        return None
    try:
        return codec.decode(_json(given))
    except RomancyError:
        return None


def _problems(name: str, error: ValidationError) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        found.setdefault(".".join([name, *map(str, one["loc"])]), one["msg"])
    return found


def _json(value: Any) -> bytes:
    try:
        return to_json(value, inf_nan_mode="constants")
    except Exception as error:
        raise InputError(f"The input is not valid JSON: {complaint(error)}", {"": complaint(error)}) from error
