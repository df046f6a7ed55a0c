"""`EddaApp`: an `App` with Edda's names and options."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, NoReturn, Self, cast

from romancy import App, Client, ConfigurationError, HTTPBroker
from romancy import RetryPolicy as Policy
from romancy.integrations.edda.addressed_events import Message, Receive, Scope, translate_targets, with_target
from romancy.integrations.edda.current_app import apps_without_broker, set_current_app, unset_current_app
from romancy.integrations.edda.facades import ReplayEngine, Storage, instance_dict
from romancy.integrations.edda.hooks import native_hooks
from romancy.integrations.edda.retry import DEFAULT_RETRY_POLICY, RetryPolicy, policy_of
from romancy.integrations.edda.unsupported import APP, no_attribute
from romancy.integrations.edda.workflow import Workflow

__all__ = ["EddaApp"]

_ATTRIBUTES = frozenset({"type", "source", "id", "time", "datacontenttype", "dataschema", "subject", "specversion"})
_BODY = frozenset({"data", "data_base64"})


class EddaApp:
    """An app with Edda's names. `romancy` is the `App` behind it, whose options are accepted too.

    With `broker_url` but without `outbox_enabled=True`, events go into the outbox, and another process relays them. Options
    for parts of Edda that romancy does not have (locks, leaders, batches, details of the pool) are accepted and ignored.
    """

    def __init__(
        self,
        service_name: str | None = None,
        db_url: str | None = None,
        outbox_enabled: bool = False,
        broker_url: str | None = None,
        hooks: object = None,
        default_retry_policy: RetryPolicy | Policy | None = None,
        message_retention_days: int = 7,
        pool_size: int | None = None,
        max_overflow: int = 10,
        pool_timeout: int = 30,
        pool_recycle: int = 3600,
        pool_pre_ping: bool = True,
        use_listen_notify: bool | None = None,
        notify_fallback_interval: int = 30,
        max_workflows_per_batch: int | str = 10,
        leader_heartbeat_interval: int = 15,
        leader_lease_duration: int = 45,
        *,
        workflows: list[Any] | None = None,
        **options: Any,
    ) -> None:
        if outbox_enabled and not broker_url:
            raise ConfigurationError("EddaApp(outbox_enabled=True) needs broker_url=, the address of the broker.")
        self._workflows = None if workflows is None else [_native(one) for one in workflows]
        self._codec = options.get("codec")
        retry = policy_of(default_retry_policy or DEFAULT_RETRY_POLICY, "default_retry_policy")
        self._attach(
            App(
                db_url,
                service_name=service_name,
                broker=HTTPBroker(broker_url) if broker_url else None,
                outbox_relay=outbox_enabled,
                hooks=native_hooks(hooks),
                default_retry=retry,
                message_retention=timedelta(days=message_retention_days),
                pool_size=pool_size,
                listen_notify=use_listen_notify,
                workflows=self._workflows,
                **options,
            ),
            db_url,
        )
        if not broker_url:
            apps_without_broker.add(self.romancy)
        self.service_name = service_name
        self.db_url = db_url
        self.outbox_enabled = outbox_enabled
        self.broker_url = broker_url
        self.hooks = hooks
        self.default_retry_policy = default_retry_policy

    @classmethod
    def over(cls, app: App) -> Self:
        """Wrap an existing app: `wf.start()` and `send_event()` use it after `initialize()`."""
        made = cls.__new__(cls)
        made._attach(app, None)
        return made

    def _attach(self, app: App, database: str | None) -> None:
        self.romancy = app
        translate_targets(app)
        self.storage = Storage(app)
        self.replay_engine = ReplayEngine(app)
        self._database = database
        self._brokerless_client: Client | None = None

    # --- lifecycle

    async def initialize(self) -> None:
        """Start the app. Safe to call again while it is running."""
        await self.romancy.startup()
        set_current_app(self.romancy)

    async def shutdown(self) -> None:
        """Stop the app: running activities finish, and instances continue with the next start."""
        unset_current_app(self.romancy)
        client, self._brokerless_client = self._brokerless_client, None
        if client is not None:
            await client.shutdown()
        await self.romancy.shutdown()

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def __call__(self, scope: Scope, receive: Receive, send: Callable[[Message], Awaitable[None]]) -> None:
        """Serve as an ASGI application. Needs `romancy[http]`."""
        if scope["type"] == "http":
            await self.initialize()
            await self.romancy(scope, receive, send)
        elif scope["type"] == "lifespan":
            set_current_app(self.romancy)
            try:
                await self.romancy(scope, receive, send)
            finally:
                unset_current_app(self.romancy)
        else:
            await self.romancy(scope, receive, send)

    # --- events

    async def handle_cloudevent(self, event: Any, wait: bool = False) -> None:
        """Accept an external event: a CloudEvent of the `cloudevents` package, or a dict of the same attributes.

        Returns when the event is durable; `wait` is ignored. The event is not sent to the broker, as it may come from there.
        """
        attributes = _attributes(event)
        extensions = {name: value for name, value in attributes.items() if name not in _ATTRIBUTES | _BODY}
        client = await self._event_client()
        await client.send_event(
            attributes["type"],
            attributes["source"],
            _data(event),
            subject=attributes.get("subject"),
            event_id=attributes["id"],
            content_type=attributes.get("datacontenttype"),
            extensions=with_target(extensions) or None,
        )

    async def _event_client(self) -> Client:
        """Return the client that accepts external events: one without a broker, so that they are not sent out again."""
        if not getattr(self, "broker_url", None):
            return self.romancy
        if self._brokerless_client is None:
            self._brokerless_client = Client(self._database, workflows=self._workflows, codec=self._codec)
            await self._brokerless_client.startup()
        return self._brokerless_client

    def on_event(self, event_type: str, proto_type: Any = None) -> NoReturn:
        """Not offered: a handler that is not a workflow would be lost when the process dies."""
        raise ConfigurationError(
            f"@app.on_event({event_type!r}) is not offered: such a handler dies with its process. Write a workflow of "
            "that name, @workflow(event_handler=True), or with romancy's own @workflow(name=..., event_handler=True)."
        )

    # --- queries

    async def find_instances(
        self,
        *,
        input_filters: Mapping[str, Any] | None = None,
        status: str | None = None,
        workflow_name: str | None = None,
        instance_id: str | None = None,
        started_after: datetime | None = None,
        started_before: datetime | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> dict[str, Any]:
        """Return a page of instances, newest first, and the token of the next page."""
        page = await self.romancy.list_instances(
            input=input_filters,
            status=status,
            workflow_name=workflow_name,
            instance_id=instance_id,
            created_after=started_after,
            created_before=started_before,
            limit=limit,
            page_token=page_token,
        )
        return {
            "instances": [instance_dict(one) for one in page.items],
            "next_page_token": page.next_page_token,
            "has_more": page.has_more,
        }

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute("EddaApp", name, APP, [one for one in dir(type(self)) if not one.startswith("_")])


def _native(one: Any) -> Any:
    return cast(Any, one).romancy if isinstance(one, Workflow) else one


def _attributes(event: Any) -> Mapping[str, Any]:
    if isinstance(event, Mapping):
        return event  # pyright: ignore[reportUnknownVariableType]
    get = getattr(event, "get_attributes", None)
    if get is None:
        raise ConfigurationError(f"handle_cloudevent() needs a CloudEvent or a dict, not {type(event).__name__}.")
    found: Mapping[str, Any] = get()
    return found


def _data(event: Any) -> Any:
    return event.get("data") if isinstance(event, Mapping) else event.get_data()  # pyright: ignore
