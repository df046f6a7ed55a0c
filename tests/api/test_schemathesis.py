"""The API keeps what its OpenAPI document says, whatever it is asked."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.api.asking import Asked, serve

from romancy import Token

TOKEN = Token("t" * 20)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
HEADERS = {"Authorization": f"Bearer {TOKEN.value}"}

schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", serve(Asked(), [TOKEN]), headers=HEADERS)


@schema.parametrize()  # pyright: ignore[reportUntypedFunctionDecorator]
@settings(max_examples=20, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_every_path(case: Any) -> None:
    case.call_and_validate(headers=HEADERS, checks=CHECKS)
