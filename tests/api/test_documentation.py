"""The reference documents every path of the API, with its parameters and the roles that may call it."""

from __future__ import annotations

from tests.docs.pages import DOCS, table_of

from romancy.api.endpoints import ENDPOINTS
from romancy.api.openapi import document
from romancy.http.access import Need


def test_every_path_is_in_the_reference() -> None:
    rows = table_of(DOCS / "reference" / "http.md", "The API")
    documented = [
        (row[0], sorted(part.strip("`") for part in row[1].split("`, `") if part), row[3].replace("`", "")) for row in rows
    ]
    assert documented == [
        (f"{one.method} {one.path}", sorted(one.request_model.model_fields), roles(one.need)) for one in ENDPOINTS
    ]


def roles(need: Need) -> str:
    return ", ".join(need.value)


def test_names_in_the_document_are_unique() -> None:
    operations = [operation for item in document()["paths"].values() for operation in item.values()]
    names = [one["operationId"] for one in operations]
    assert len(set(names)) == len(names)
    assert all(one["summary"] for one in operations)
