"""The `Manager` that calls the HTTP API of an app.

Each call is one request on its own connection, in a thread. A command makes few calls, so the HTTP client of the standard
library suffices. Responses become the same records, and refusals the same errors, as with a database.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlencode, urlsplit

from pydantic import TypeAdapter, ValidationError

from romancy import errors
from romancy.admin.records import (
    ActionKind,
    ActionResult,
    AuditPage,
    BulkAction,
    ChannelPage,
    Explanation,
    Finding,
    GroupPage,
    HistoryPage,
    InputError,
    InstanceDetail,
    InstancePage,
    MemberPage,
    OutboxPage,
    Overview,
    Preview,
    SendResult,
    StartResult,
    SubscriberPage,
    Timeline,
    WorkerSummary,
    WorkflowSummary,
)
from romancy.errors import ConfigurationError, RomancyError, StoreError

T = TypeVar("T")

_BASE = "/api/v1"
_TIMEOUT = 30.0
_JSON = "application/json"
_UNAUTHENTICATED, _FORBIDDEN, _NOT_FOUND, _UNAVAILABLE = 401, 403, 404, 503


class AccessError(RomancyError):
    """The app does not know the caller, or does not permit the call."""


class HttpManager:
    """The queries and actions of an operator, on an app that is served at a URL.

    `timeout`: seconds without data from the app after which a call fails.

    >>> manager = HttpManager("http://127.0.0.1:8000", token=None)
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = _TIMEOUT) -> None:
        self._url = _parse_url(url)
        self._host = self._url.hostname or ""
        self._token = _printable(token)
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"HttpManager({self._address!r})"

    @property
    def _address(self) -> str:
        return f"{self._url.scheme}://{self._url.netloc}{self._url.path.rstrip('/')}"

    # --- queries

    async def overview(self) -> Overview:
        """Return what needs attention, the current rates, and the workers and workflows."""
        return await self._get("/overview", Overview)

    async def list_instances(self, filter: str = "", *, limit: int = 50, page_token: str | None = None) -> InstancePage:
        """Return the instances that match a filter, newest first. A search by content has a time limit."""
        return await self._get("/instances", InstancePage, filter=filter, limit=limit, page_token=page_token)

    async def get_instance(self, instance_id: str, *, generation: int | None = None) -> InstanceDetail:
        """Return an instance, in its latest generation or an earlier one."""
        return await self._get("/instance", InstanceDetail, id=instance_id, generation=generation)

    async def get_history(
        self, instance_id: str, *, generation: int | None = None, after: int = 0, limit: int = 200
    ) -> HistoryPage:
        """Return a page of the history of an instance, in order."""
        return await self._get(
            "/instance/history", HistoryPage, id=instance_id, generation=generation, after=after, limit=limit
        )

    async def get_timeline(self, instance_id: str, *, generation: int | None = None) -> Timeline:
        """Return the timeline of an instance."""
        return await self._get("/instance/timeline", Timeline, id=instance_id, generation=generation)

    async def get_source(self, instance_id: str) -> str | None:
        """Return the source code that the instance runs; None if it is not stored."""
        return (await self._get("/instance/source", dict[str, str | None], id=instance_id)).get("source")

    async def explain(self, instance_id: str) -> Explanation:
        """Explain the status of an instance, and what will change it."""
        return await self._get("/instance/explain", Explanation, id=instance_id)

    async def list_workflows(self) -> list[WorkflowSummary]:
        """Return the workflows that live workers have, or that have instances in flight."""
        return (await self._get("/workflows", dict[str, list[WorkflowSummary]]))["items"]

    async def get_schema(self, workflow: str) -> dict[str, Any] | None:
        """Return the JSON Schema of a workflow's input; None if the app does not know it."""
        return (await self._get("/workflow/schema", dict[str, dict[str, Any] | None], name=workflow)).get("schema")

    async def get_event_schema(self, instance_id: str, op: str) -> dict[str, Any] | None:
        """Return the JSON Schema of the data that a wait expects; None if the wait has no model, or if it is not known."""
        answer = await self._get("/instance/event-schema", dict[str, dict[str, Any] | None], id=instance_id, op=op)
        return answer.get("schema")

    async def list_workers(self) -> list[WorkerSummary]:
        """Return the worker processes."""
        return (await self._get("/workers", dict[str, list[WorkerSummary]]))["items"]

    async def list_channels(self, *, after: str = "", limit: int = 50) -> ChannelPage:
        """Return the channels by name."""
        return await self._get("/channels", ChannelPage, after=after, limit=limit)

    async def list_subscribers(self, channel: str, *, after: str = "", limit: int = 50) -> SubscriberPage:
        """Return the subscribers of a channel by instance id."""
        return await self._get("/channel/subscribers", SubscriberPage, name=channel, after=after, limit=limit)

    async def list_groups(self, *, after: str = "", limit: int = 50) -> GroupPage:
        """Return the groups by name."""
        return await self._get("/groups", GroupPage, after=after, limit=limit)

    async def list_members(self, group: str, *, after: str = "", limit: int = 50) -> MemberPage:
        """Return the members of a group by instance id."""
        return await self._get("/group/members", MemberPage, name=group, after=after, limit=limit)

    async def list_outbox(self, *, dead: bool | None = None, after: int = 0, limit: int = 50) -> OutboxPage:
        """Return the undelivered events and the dead letters, oldest first; with `dead`, only one of the two."""
        wanted = None if dead is None else str(dead).lower()
        return await self._get("/outbox", OutboxPage, dead=wanted, after=after, limit=limit)

    async def list_bulk_actions(self) -> list[BulkAction]:
        """Return the latest bulk actions, newest first."""
        return (await self._get("/batches", dict[str, list[BulkAction]]))["items"]

    async def get_bulk_action(self, batch_id: str) -> BulkAction:
        """Return a bulk action."""
        return await self._get("/batch", BulkAction, id=batch_id)

    async def list_audit(self, *, instance_id: str | None = None, before: int | None = None, limit: int = 50) -> AuditPage:
        """Return the audit, newest first."""
        return await self._get("/audit", AuditPage, id=instance_id, before=before, limit=limit)

    async def doctor(self) -> list[Finding]:
        """Run every check, and return the findings with their remedies."""
        return (await self._get("/doctor", dict[str, list[Finding]]))["items"]

    # --- actions; `actor` is not sent, because the app takes the actor from the token

    async def start(
        self, workflow: str, input: dict[str, Any], *, instance_id: str | None = None, actor: str = ""
    ) -> StartResult:
        """Start a workflow. Raises `PayloadError`, which names the fields that are not valid."""
        return await self._post("/workflows/start", StartResult, workflow=workflow, input=input, instance_id=instance_id)

    async def send_event(
        self,
        type: str,
        data: Any = None,
        *,
        source: str = "romancy",
        subject: str | None = None,
        to: str | None = None,
        actor: str = "",
    ) -> SendResult:
        """Send an event, only to the instance `to` if it is given."""
        return await self._post("/events", SendResult, type=type, data=data, source=source, subject=subject, to=to)

    async def publish(self, channel: str, data: Any, *, to: str | None = None, actor: str = "") -> SendResult:
        """Publish a message to a channel, or send it only to the instance `to`."""
        return await self._post("/messages", SendResult, channel=channel, data=data, to=to)

    async def preview(self, action: ActionKind, instance_id: str) -> Preview:
        """Return the effects that an action would have on an instance."""
        return await self._post("/preview", Preview, action=action.value, id=instance_id)

    async def apply(
        self, action: ActionKind, ids: Sequence[str], *, reason: str | None = None, actor: str = ""
    ) -> list[ActionResult]:
        """Apply an action to each of the instances; return one result for each."""
        if not ids:
            return []
        answer = await self._post(
            "/instances/do", dict[str, list[ActionResult]], action=action.value, ids=list(ids), reason=reason
        )
        return answer["items"]

    async def start_bulk_action(
        self, action: ActionKind, filter: str, *, reason: str | None = None, actor: str = ""
    ) -> BulkAction:
        """Begin to apply an action to every instance that matches a filter."""
        return await self._post("/batches/start", BulkAction, action=action.value, filter=filter, reason=reason)

    async def abort_bulk_action(self, batch_id: str, *, actor: str = "") -> BulkAction:
        """Abort a bulk action. What it has already done is not reverted."""
        return await self._post("/batches/abort", BulkAction, id=batch_id)

    async def requeue_outbox(self, ids: Sequence[int] | None = None, *, actor: str = "") -> int:
        """Requeue dead letters, all of them without `ids`; return how many."""
        wanted = None if ids is None else list(ids)
        return (await self._post("/outbox/requeue", dict[str, int], ids=wanted))["count"]

    async def prune(self, *, older_than: float, actor: str = "") -> int:
        """Delete the instances that ended more than `older_than` seconds ago; return how many."""
        return (await self._post("/prune", dict[str, int], older_than=older_than))["count"]

    # --- requests

    async def _get(self, path: str, answer_type: type[T], **parameters: Any) -> T:
        given = {name: value for name, value in parameters.items() if value is not None}
        query = _encoded(given)
        return self._parse_answer(await self._request("GET", f"{path}?{query}" if query else path), answer_type)

    async def _post(self, path: str, answer_type: type[T], **values: Any) -> T:
        body = json.dumps({name: value for name, value in values.items() if value is not None}).encode()
        return self._parse_answer(await self._request("POST", path, body), answer_type)

    def _parse_answer(self, body: bytes, answer_type: type[T]) -> T:
        try:
            read: T = _adapter(answer_type).validate_json(body)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, wrong["loc"]))
            raise StoreError(
                f"The response of {self._address} is not valid ({where}: {wrong['msg']}). The app may run another release "
                "of romancy."
            ) from error
        return read

    async def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        connection = self._connection()
        exchange = asyncio.ensure_future(asyncio.to_thread(self._exchange, connection, method, path, body))
        try:
            return await asyncio.shield(exchange)
        except asyncio.CancelledError:
            # The thread cannot be interrupted. Without its socket it ends soon, and does not delay the exit of the program.
            _shut(connection)
            exchange.add_done_callback(_retrieve)
            raise

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        return kind(self._host, self._url.port, timeout=self._timeout)

    def _exchange(self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None) -> bytes:
        try:
            connection.request(method, f"{self._url.path.rstrip('/')}{_BASE}{path}", body, self._headers(body))
            answer = connection.getresponse()
            content = answer.read()
        except TimeoutError as error:
            raise _unavailable(f"{self._address} did not respond within {self._timeout:g} s.") from error
        except (OSError, http.client.HTTPException) as error:
            raise _unavailable(f"{self._address} cannot be reached: {_reason(error)}.") from error
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise self._error_for(answer.status, content)
        if not (answer.getheader("content-type") or "").startswith(_JSON):
            raise ConfigurationError(f"The server at {self._address} is not a romancy app: its response is not JSON.")
        return content

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": _JSON, "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = _JSON
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _error_for(self, status: int, content: bytes) -> Exception:
        problem = _problem(content)
        text = str(problem.get("error") or f"{self._address} answered {status} ({http.client.responses.get(status, '?')}).")
        if status in (_UNAUTHENTICATED, _FORBIDDEN):
            return AccessError(f"{self._address}: {text}")
        kind = getattr(errors, str(problem.get("error_type")), None)
        if problem.get("fields") and kind is None and problem.get("error_type") == InputError.__name__:
            return InputError(text, dict(problem["fields"]))
        if isinstance(kind, type) and issubclass(kind, RomancyError) and kind is not StoreError:
            return kind(text)
        if status >= 500:
            return (
                _unavailable(f"{self._address}: {text}")
                if status == _UNAVAILABLE
                else StoreError(f"{self._address}: {text}")
            )
        if status == _NOT_FOUND:
            return ConfigurationError(f"There is no romancy API at {self._address}{_BASE}. {text}")
        return ConfigurationError(text)


def _adapter(answer_type: Any) -> TypeAdapter[Any]:
    return _adapters(answer_type)


@cache
def _adapters(answer_type: Any) -> TypeAdapter[Any]:
    return TypeAdapter(answer_type)


def _encoded(values: Mapping[str, Any]) -> str:
    try:
        return urlencode(values)
    except UnicodeEncodeError as error:
        raise ConfigurationError("A value contains a lone surrogate, which cannot be encoded.") from error


def _parse_url(url: str) -> SplitResult:
    """Parse and check the URL of an app. The errors do not contain the URL, because it may hold a password."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 0) >= 0
    except ValueError:
        usable = False
        parts = urlsplit("")
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigurationError("Give the URL of an app with http:// or https:// and a host, e.g. http://127.0.0.1:8000.")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigurationError("The URL of an app has no user, password, query or fragment. Give the token separately.")
    return parts


def _printable(token: str | None) -> str | None:
    if token is not None and not (token and token.isascii() and token.isprintable()):
        raise ConfigurationError("The token must be a non-empty string of printable ASCII characters.")
    return token


def _problem(content: bytes) -> dict[str, Any]:
    try:
        problem = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return problem if isinstance(problem, dict) else {}


def _unavailable(text: str) -> StoreError:
    error = StoreError(text)
    error.retryable = True
    return error


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "the host name cannot be resolved"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")


def _shut(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def _retrieve(exchange: asyncio.Future[bytes]) -> None:
    if not exchange.cancelled():
        exchange.exception()  # otherwise asyncio would log that it was never retrieved
