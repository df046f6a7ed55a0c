"""The OpenAPI document, schemas from the table of endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from romancy.api import requests, responses
from romancy.api.endpoints import BASE, ENDPOINTS, Endpoint
from romancy.http.access import COOKIE

_TITLE = "romancy"
_REFS = "#/components/schemas/{model}"
_STATUS_DESCRIPTIONS = {
    400: "The request or its payload is not valid; `fields` names the invalid parts, if they are known.",
    401: "The request has no valid token or session.",
    403: "The caller's role does not allow this; without tokens, the caller is another machine or a page of another origin.",
    404: "The instance, workflow or batch does not exist.",
    408: "The body did not arrive in time.",
    409: "The request conflicts with the state of the instance, the channel or the batch.",
    413: "The body is too large.",
    415: "The content type is not `application/json`, or the charset is not UTF-8.",
    431: "The address or the headers are too large.",
    503: "The database is not available, the app is not running, or there are too many requests.",
}
_EVENT_SCHEMA = {
    "type": "object",
    "properties": {
        "event": {"const": "changed"},
        "id": {"type": "string", "description": "`generation:seq:status` of the instance."},
        "data": {
            "type": "string",
            "description": "A JSON object with instance_id, generation, seq and status; `{}` in a stream of all instances.",
        },
    },
    "required": ["event", "data"],
}
_COMMON_STATUSES = (400, 401, 403, 431, 503)
_BODY_STATUSES = (408, 413, 415)


def document() -> dict[str, Any]:
    """Return the whole document."""
    schemas, definitions = _schemas(ENDPOINTS)
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(BASE + endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    paths[f"{BASE}/stream"] = {"get": _stream_operation()}
    paths[f"{BASE}/openapi.json"] = {"get": _openapi_operation()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": _TITLE,
            "version": "1",
            "description": "The management API of a romancy app: view and control its instances.",
        },
        "paths": paths,
        "components": {
            "schemas": definitions,
            "responses": {str(status): _refusal(description) for status, description in _STATUS_DESCRIPTIONS.items()},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
        },
        "security": [{"token": []}, {"session": []}, {}],
    }


_Key = tuple[str, JsonSchemaMode]


def _schemas(endpoints: Sequence[Endpoint[Any]]) -> tuple[dict[_Key, Any], dict[str, Any]]:
    """Return the schemas of requests and responses by endpoint, and the definitions that they refer to."""
    models: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        ("Problem", "serialization", TypeAdapter(responses.Problem))
    ]
    for endpoint in endpoints:
        if endpoint.method == "POST":
            models.append((endpoint.name, "validation", TypeAdapter(endpoint.request_model)))
        models.append((endpoint.name, "serialization", TypeAdapter(endpoint.response_type)))
    schemas, root = TypeAdapter.json_schemas(models, ref_template=_REFS)
    return cast(dict[_Key, Any], schemas), {name: _without_titles(schema) for name, schema in root["$defs"].items()}


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without the titles of its properties, which only repeat their names."""
    for part in schema.get("properties", {}).values():
        part.pop("title", None)
    return schema


def _operation(endpoint: Endpoint[Any], schemas: dict[_Key, Any]) -> dict[str, Any]:
    refusals = (*_COMMON_STATUSES, *endpoint.refusals, *(_BODY_STATUSES if endpoint.method == "POST" else ()))
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": f"Roles: {', '.join(endpoint.need.value)}.",
        "responses": {"200": _success(schemas[endpoint.name, "serialization"]), **_refusals(refusals)},
    }
    if endpoint.method == "GET":
        operation["parameters"] = parameters(endpoint.request_model)
    else:
        schema = schemas[endpoint.name, "validation"]
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def parameters(request_model: type[requests.RequestModel]) -> list[dict[str, Any]]:
    """Return the fields of a request as query parameters."""
    schema = request_model.model_json_schema(ref_template=_REFS)
    required = schema.get("required", [])
    return [_parameter(name, dict(part), name in required) for name, part in schema.get("properties", {}).items()]


def _parameter(name: str, part: dict[str, Any], required: bool) -> dict[str, Any]:
    part.pop("title", None)
    description = part.pop("description", None)
    # null is left out of the schema: a query cannot express it other than by omitting the parameter.
    choices = [choice for choice in part.pop("anyOf", []) if choice.get("type") != "null"]
    if choices:
        part |= choices[0]
        part.pop("default", None)
    described = {"description": description} if description else {}
    return {"name": name, "in": "query", "required": required, "schema": part, **described}


def _stream_operation() -> dict[str, Any]:
    return {
        "operationId": "get_stream",
        "summary": "Stream the changes of one instance or, without an id, of all instances, as server-sent events.",
        "parameters": [
            *parameters(requests.WatchParams),
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "schema": {"type": "string"},
                "description": "The `id` of the last event received. Browsers send it when they reconnect.",
            },
        ],
        "responses": {
            "200": {"description": "The stream.", "content": {"text/event-stream": {"schema": _EVENT_SCHEMA}}},
            **_refusals((*_COMMON_STATUSES, 404)),
        },
    }


def _openapi_operation() -> dict[str, Any]:
    return {
        "operationId": "get_openapi",
        "summary": "Get this document.",
        "responses": {"200": _success({"type": "object"}), **_refusals(_COMMON_STATUSES)},
    }


def _success(schema: Any) -> dict[str, Any]:
    return {"description": "The response.", "content": {"application/json": {"schema": schema}}}


def _refusals(statuses: Sequence[int]) -> dict[str, Any]:
    return {str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)}


def _refusal(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": {"$ref": _REFS.format(model="Problem")}}}}
