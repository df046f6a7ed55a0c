"""The OpenAPI document, made from the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from romancy.api import requests as ask
from romancy.api import responses
from romancy.api.endpoints import BASE, ENDPOINTS, Endpoint
from romancy.http.access import COOKIE

_TITLE = "romancy"
_REFS = "#/components/schemas/{model}"
_WHY = {
    400: "The request or its payload is not valid.",
    401: "The request has no valid token.",
    403: "The caller's role does not allow this; without tokens, the caller is another machine or a page of another origin.",
    404: "The instance, workflow or batch does not exist.",
    408: "The body did not arrive in time.",
    409: "The status of the instance does not allow this.",
    413: "The body is too large.",
    415: "The content type of the body is not JSON.",
    431: "The address or the headers are too large.",
    503: "The database is not available, the app is not running, or there are too many requests.",
}
_EVENT_SCHEMA = {
    "type": "object",
    "properties": {
        "event": {"const": "changed"},
        "id": {"type": "string", "description": "`generation:seq:status` of the instance."},
        "data": {"type": "string", "description": "JSON: instance_id, generation, seq, status; `{}` if all are watched."},
    },
    "required": ["event", "data"],
}
_OF_ALL = (400, 401, 403, 431, 503)
_OF_BODIES = (408, 413, 415)


def document() -> dict[str, Any]:
    """The whole document."""
    schemas, definitions = _schemas(ENDPOINTS)
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(BASE + endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    paths[f"{BASE}/stream"] = {"get": _stream()}
    paths[f"{BASE}/openapi.json"] = {"get": _itself()}
    return {
        "openapi": "3.1.0",
        "info": {"title": _TITLE, "version": "1", "description": "The interface for operators: view and control instances."},
        "paths": paths,
        "components": {
            "schemas": definitions,
            "responses": {str(status): _refusal(why) for status, why in _WHY.items()},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
        },
        "security": [{"token": []}, {"session": []}, {}],
    }


_Key = tuple[str, JsonSchemaMode]


def _schemas(endpoints: Sequence[Endpoint[Any]]) -> tuple[dict[_Key, Any], dict[str, Any]]:
    """The schemas of questions and answers by endpoint, and what they refer to."""
    wanted: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        ("Problem", "serialization", TypeAdapter(responses.Problem))
    ]
    for endpoint in endpoints:
        if endpoint.method == "POST":
            wanted.append((endpoint.name, "validation", TypeAdapter(endpoint.request_model)))
        wanted.append((endpoint.name, "serialization", TypeAdapter(endpoint.response_type)))
    made, top = TypeAdapter.json_schemas(wanted, ref_template=_REFS)
    return cast(dict[_Key, Any], made), {name: _open(schema) for name, schema in top["$defs"].items()}


def _open(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the words that only Python needs."""
    for part in schema.get("properties", {}).values():
        part.pop("title", None)
    return schema


def _operation(endpoint: Endpoint[Any], schemas: dict[_Key, Any]) -> dict[str, Any]:
    refusals = (*_OF_ALL, *endpoint.refusals, *(_OF_BODIES if endpoint.method == "POST" else ()))
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": f"Roles: {', '.join(endpoint.need.value)}.",
        "responses": {"200": _answered(schemas[endpoint.name, "serialization"]), **_refusals(refusals)},
    }
    if endpoint.method == "GET":
        operation["parameters"] = parameters(endpoint.request_model)
    else:
        schema = schemas[endpoint.name, "validation"]
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def parameters(request_model: type[ask.RequestModel]) -> list[dict[str, Any]]:
    """The parts of a question as parameters of a path."""
    schema = request_model.model_json_schema(ref_template=_REFS)
    required = schema.get("required", [])
    return [_parameter(name, dict(part), name in required) for name, part in schema.get("properties", {}).items()]


def _parameter(name: str, part: dict[str, Any], required: bool) -> dict[str, Any]:
    part.pop("title", None)
    said = part.pop("description", None)
    # A parameter that is left out is none: there is no way to write null.
    choices = [one for one in part.pop("anyOf", []) if one.get("type") != "null"]
    if choices:
        part |= choices[0]
        part.pop("default", None)
    described = {"description": said} if said else {}
    return {"name": name, "in": "query", "required": required, "schema": part, **described}


def _stream() -> dict[str, Any]:
    return {
        "operationId": "get_stream",
        "summary": "A stream of server-sent events: each change of one instance or, without an id, changes of any.",
        "parameters": [
            *parameters(ask.WatchParams),
            {"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"}},
        ],
        "responses": {
            "200": {"description": "The stream.", "content": {"text/event-stream": {"schema": _EVENT_SCHEMA}}},
            **_refusals((*_OF_ALL, 404)),
        },
    }


def _itself() -> dict[str, Any]:
    return {
        "operationId": "get_openapi",
        "summary": "This document.",
        "responses": {"200": _answered({"type": "object"}), **_refusals(_OF_ALL)},
    }


def _answered(schema: Any) -> dict[str, Any]:
    return {"description": "The response.", "content": {"application/json": {"schema": schema}}}


def _refusals(statuses: Sequence[int]) -> dict[str, Any]:
    return {str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)}


def _refusal(why: str) -> dict[str, Any]:
    return {"description": why, "content": {"application/json": {"schema": {"$ref": _REFS.format(model="Problem")}}}}
