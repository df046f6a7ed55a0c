"""The app: a client with a worker. As the composition root it creates the worker, the relays and the HTTP application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Never, ParamSpec, TypeAlias, TypeVar, overload

from romancy.admin.bulk_actions import BulkActionRunner
from romancy.admin.descriptors import descriptor_key, write_descriptor
from romancy.admin.local import DatabaseManager
from romancy.admin.schemas import input_schema, read_input
from romancy.auth import AuthOption, Visitors
from romancy.authoring.durations import Duration
from romancy.authoring.guard import install as install_guard
from romancy.authoring.signatures import refuse_unknown
from romancy.authoring.workflow import Workflow, WorkflowRef
from romancy.brokers.base import BrokerOption
from romancy.client import Client
from romancy.clock import Clock, monotonic
from romancy.codec import NO_CODEC, CodecOption
from romancy.core import asyncio_patches
from romancy.errors import StoreError
from romancy.handle import WorkflowHandle
from romancy.hooks import HooksOption
from romancy.http.lazy_gateway import load_extra, open_guarded, open_http
from romancy.http.types import ASGIApp, HTTPSettings, Receive, Scope, Send
from romancy.ids import Ids
from romancy.messaging import Starts
from romancy.metrics.metrics import Metric, build_info, gauge
from romancy.model.admin import ConcurrencyStall
from romancy.model.messaging import Event
from romancy.model.retry import RetryPolicy
from romancy.model.status import Status
from romancy.model.transition import Accepted, Applied, ControlKind, CreateInstance, Ending, Existing, WriteResult
from romancy.outbox.relay import Relay, RelayOptions
from romancy.registry.creation import starts_of
from romancy.registry.source_capture import stored_source
from romancy.store.open import kind_of
from romancy.transaction import check_same_start
from romancy.worker.claimer import Claimer
from romancy.worker.gauges import collect_gauges
from romancy.worker.hook_dispatcher import HookDispatcher
from romancy.worker.maintenance import Maintenance
from romancy.worker.pending_writes import owned_starts
from romancy.worker.timers import TimerHeap
from romancy.worker.worker import Worker, WorkerOptions

if TYPE_CHECKING:
    from romancy.api.watcher import Watcher
    from romancy.http.gateway import ExtraRoutes
    from romancy.store.port import Store

Guard: TypeAlias = Literal["raise", "warn", "off"]
P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("romancy.http")
_HEALTH_CHECK_TIMEOUT = 5.0
"""Seconds that a health check waits for the database."""


class App(Client):
    """An app: a client with a worker, which runs workflows in this process. The default database is a SQLite file.

    Options that are not passed come from environment variables (`ROMANCY_DATABASE`, `ROMANCY_CACHE_SIZE`, ...), else the
    defaults in the reference apply. Use it as an asynchronous context manager, or call `startup()` and `shutdown()`.
    """

    _may_start_unknown = False
    _visitors: Visitors

    def __init__(
        self,
        database: str | None = None,
        *,
        workflows: Sequence[Workflow[..., Any]] | None = None,
        service_name: str | None = None,
        worker_id: str | None = None,
        broker: BrokerOption | None = None,
        hooks: HooksOption | None = None,
        outbox_interval: Duration | None = None,
        outbox_batch_size: int | None = None,
        outbox_retention: Duration | None = None,
        outbox_relay: bool | None = None,
        default_retry: RetryPolicy | None = None,
        auto_migrate: bool | None = None,
        max_concurrent_workflows: int | None = None,
        max_concurrent_activities: int | None = None,
        cache_size: int | None = None,
        heartbeat_interval: Duration | None = None,
        lease_timeout: Duration | None = None,
        max_losses: int | None = None,
        poll_interval: Duration | None = None,
        pool_size: int | None = None,
        listen_notify: bool | None = None,
        listen_dsn: str | None = None,
        shutdown_timeout: Duration | None = None,
        instance_retention: Duration | None = None,
        event_retention: Duration | None = None,
        message_retention: Duration | None = None,
        archive_history: bool | None = None,
        archive_retention: Duration | None = None,
        audit_retention: Duration | None = None,
        auth: AuthOption | None = None,
        codec: CodecOption | str | None = None,
        max_body_size: int | None = None,
        request_timeout: Duration | None = None,
        block_warning: Duration | None = None,
        guard: Guard | None = None,
        refuse_blocking_io: bool | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown("App", unknown, App)
        given = {
            "database": database,
            "service_name": service_name,
            "worker_id": worker_id,
            "broker": broker,
            "hooks": hooks,
            "outbox_interval": outbox_interval,
            "outbox_batch_size": outbox_batch_size,
            "outbox_retention": outbox_retention,
            "outbox_relay": outbox_relay,
            "default_retry": default_retry,
            "auto_migrate": auto_migrate,
            "max_concurrent_workflows": max_concurrent_workflows,
            "max_concurrent_activities": max_concurrent_activities,
            "cache_size": cache_size,
            "heartbeat_interval": heartbeat_interval,
            "lease_timeout": lease_timeout,
            "max_losses": max_losses,
            "poll_interval": poll_interval,
            "pool_size": pool_size,
            "listen_notify": listen_notify,
            "listen_dsn": listen_dsn,
            "shutdown_timeout": shutdown_timeout,
            "instance_retention": instance_retention,
            "event_retention": event_retention,
            "message_retention": message_retention,
            "archive_history": archive_history,
            "archive_retention": archive_retention,
            "audit_retention": audit_retention,
            "auth": auth,
            "codec": codec,
            "max_body_size": max_body_size,
            "request_timeout": request_timeout,
            "block_warning": block_warning,
            "guard": guard,
            "refuse_blocking_io": refuse_blocking_io,
        }
        self._configure(given, workflows, clock, ids)
        self._worker: Worker | None = None
        self._claimer: Claimer | None = None
        self._maintenance: Maintenance | None = None
        self._relays: list[Relay] = []
        self._bulk_actions: BulkActionRunner | None = None
        self._with_heartbeat = True
        self._reserved = 0
        self._http: ASGIApp | None = None
        self._visitors = Visitors()  # pyright: ignore[reportIncompatibleVariableOverride]
        self._watcher: Watcher | None = None
        self._readiness_probe: asyncio.Task[bool] | None = None
        """The query in flight that checks whether the database responds, shared by all health checks."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve as an ASGI application: events, health checks, metrics, the API and the viewer. Needs `romancy[http]`."""
        if self._http is None:
            settings = self._http_settings()
            self._http = open_http(self, settings, self._clock, partial(self._build_extra_routes, settings))
        await self._http(scope, receive, send)

    def _http_settings(self) -> HTTPSettings:
        options = self._options
        return HTTPSettings(options["max_body_size"], options["request_timeout"], options["auth"], self._visitors)

    def behind_auth(self, inner: ASGIApp, *, role: str = "admin") -> ASGIApp:
        """Wrap an ASGI application so that it serves only callers with this role in the app's `auth`.

        Without `auth`, it serves only callers on this machine. The wrapped application finds the caller in
        `scope["romancy.caller"]` (`name` and `role`). Its lifespan, or the first request, starts the app. Needs
        `romancy[http]`.
        """
        return open_guarded(inner, role, self, self._http_settings(), self._clock)

    def _build_extra_routes(self, settings: HTTPSettings) -> ExtraRoutes:
        """Create the routes of the API and the viewer."""
        api = load_extra("romancy.api.mount", needs="starlette", extra="http", what="HTTP")
        viewer = load_extra("romancy.viewer.routes", needs="jinja2", extra="http", what="The viewer")
        manager = DatabaseManager(self)
        self._watcher = api.watcher_of(self)
        pages = viewer.routes(manager, clock=self._clock, settings=settings)
        more: ExtraRoutes = api.mount(manager, pages, settings, self._clock, self._watcher)
        return more

    def _end_streams(self) -> None:
        """End all event streams, because the server or the app is stopping."""
        if self._watcher is not None:
            self._watcher.end()

    async def ready(self) -> str | None:
        """Return None while this app can do its work, otherwise the reason why it cannot."""
        if self._open_store is None or self._worker is None or self._claimer is None:
            return "the app is not running"
        if self._readiness_probe is None:  # at most one query in flight, however many health checks arrive
            self._readiness_probe = asyncio.get_running_loop().create_task(
                self._probe_database(self._open_store), name="romancy-ready"
            )
        probe = self._readiness_probe
        await asyncio.wait({probe}, timeout=_HEALTH_CHECK_TIMEOUT)
        if not probe.done():
            _log.warning("not ready: the database has not answered for %g s", _HEALTH_CHECK_TIMEOUT)
            return "the database does not answer"
        if probe.cancelled() or not probe.result():
            return "the database cannot be reached; the log says why"
        if self._worker is None or self._claimer is None:
            return "the app is not running"
        return self._worker.committer.problem or self._claimer.stalled()

    async def _probe_database(self, store: Store) -> bool:
        try:
            await store.workers()
        except StoreError as error:
            # The response to a health check is public, and the database's messages name hosts, users and paths.
            _log.warning("not ready: %s", error)
        except Exception:
            _log.exception("not ready: the database could not be queried")
        else:
            return True
        finally:
            self._readiness_probe = None
        return False

    async def _stop_readiness_probe(self) -> None:
        probe, self._readiness_probe = self._readiness_probe, None
        if probe is not None:
            probe.cancel()
            await asyncio.wait({probe})

    def metrics(self) -> list[Metric]:
        """Return the metrics of this process, as served by `GET /metrics`."""
        worker, claimer, maintenance = self._worker, self._claimer, self._maintenance
        running = worker is not None and claimer is not None and maintenance is not None
        return [
            build_info(kind_of(self._options["database"])),
            gauge("romancy_up", "1 while the app runs, 0 before and after.", int(running)),
            *(collect_gauges(worker, claimer, maintenance) if worker and claimer and maintenance else ()),
            *self._metrics.collect(self._clock.now()),
        ]

    async def refresh_metrics(self) -> None:
        """Query the database for the metrics that `metrics()` cannot know (the queue), at most once every few seconds.

        Waits for a second at most, and does not fail.
        """
        worker, claimer = self._worker, self._claimer
        if worker is not None and claimer is not None and worker.loop is asyncio.get_running_loop():
            await claimer.count_queue()

    # --- lifecycle

    async def _start(self) -> None:
        asyncio_patches.install()
        if self._options["refuse_blocking_io"]:
            install_guard(everywhere=True)
        self._registry.all()  # raises for two workflows of one name, before anything is opened
        await super()._start()
        try:
            await self._start_worker()
        except BaseException:
            await self._stop()
            raise

    def _is_resumed_here(self, instance_id: str) -> bool:
        return self._worker is not None and self._worker.is_cached(instance_id)

    async def _start_worker(self) -> None:
        assert self._committer is not None
        self._worker = Worker(
            self._store,
            self._committer,
            self._registry,
            self._worker_options(),
            clock=self._clock,
            ids=self._ids,
            timers=self._make_timers(),
            app=self,
            on_ended=self._on_ended,
            dispatcher=HookDispatcher(self._options["hooks"]) if self._options["hooks"] else None,
            crash_point=self._crash_point,
        )
        self._claimer = Claimer(self._worker)
        self._maintenance = Maintenance(self._worker, self._claimer)
        self._worker.on_death = self._revive
        for workflow in self._registry.all():
            # Export the counters as zeros from the start: the first increment of a series that is new shows no rate.
            self._metrics.workflows[workflow.name]
            code = self._registry.code(workflow)
            source = stored_source(workflow.fn)
            about, now = (workflow.name, workflow.version), self._clock.now()
            await self._store.save_source(code, *about, source, now=now)
            key, descriptor = descriptor_key(*about), write_descriptor(workflow)
            if key is not None and await self._store.source(key) != descriptor:
                await self._store.save_source(key, *about, descriptor, now=now, replace=True)
        handlers = [(workflow.name, workflow.version, workflow.event_handler) for workflow in self._registry.all()]
        await self._store.save_handlers(handlers, now=self._clock.now())
        await self._maintenance.start(heartbeat=self._with_heartbeat)
        self._claimer.start()
        self._start_relays(self._worker)
        self._bulk_actions = DatabaseManager(self).bulk_action_runner(
            self._worker.id, every=2 * self._options["poll_interval"]
        )
        if self._with_heartbeat:
            self._bulk_actions.start()

    def _start_relays(self, worker: Worker) -> None:
        options = self._options
        relay_options = RelayOptions(
            interval=options["outbox_interval"],
            batch_size=options["outbox_batch_size"],
            lease=options["lease_timeout"],
            retention=options["outbox_retention"],
        )
        self._relays = [
            Relay(
                name,
                broker,
                self._store,
                relay_options,
                claimant=worker.id,
                clock=self._clock,
                schedule=worker.timers.schedule,
                metrics=self._metrics,
            )
            for name, broker in self._brokers.items()
            if options["outbox_relay"]
        ]
        worker.on_outbox_enqueued = self._on_outbox_enqueued
        for relay in self._relays:
            relay.start()

    def _on_outbox_enqueued(self) -> None:
        for relay in self._relays:
            relay.poll_soon()

    def _concurrency_stall(self) -> ConcurrencyStall | None:
        return None if self._worker is None else self._worker.concurrency_stall()

    def _make_timers(self) -> TimerHeap:
        return TimerHeap(self._clock.now)

    def _worker_options(self) -> WorkerOptions:
        options = self._options
        return WorkerOptions(
            label=options["worker_id"] or "",
            service=options["service_name"] or "",
            max_workflows=options["max_concurrent_workflows"],
            max_activities=options["max_concurrent_activities"],
            cache_size=options["cache_size"],
            heartbeat_interval=options["heartbeat_interval"],
            lease_timeout=options["lease_timeout"],
            max_losses=options["max_losses"],
            poll_interval=options["poll_interval"],
            shutdown_timeout=options["shutdown_timeout"],
            block_warning=options["block_warning"],
            guard=options["guard"],
            instance_retention=options["instance_retention"],
            event_retention=options["event_retention"],
            message_retention=options["message_retention"],
            archive_retention=options["archive_retention"],
            audit_retention=options["audit_retention"],
            archive_history=options["archive_history"],
            brokers=tuple(self._brokers),
            codec_fingerprint=(options["codec"] or NO_CODEC).fingerprint(),
            default_retry=options["default_retry"],
        )

    def _revive(self) -> None:
        if self._worker is not None and self._maintenance is not None:
            self._worker.spawn(self._maintenance.revive())

    async def shutdown(self) -> None:
        """Stop claiming, let running activities finish within `shutdown_timeout`, and release the rest at once."""
        await super().shutdown()

    async def _stop(self) -> None:
        self._end_streams()
        await self._stop_readiness_probe()
        worker, self._worker = self._worker, None
        if worker is not None:
            assert self._claimer is not None
            assert self._maintenance is not None
            worker.stopping = True
            # First nothing new is taken up: no bulk actions, no claims, no rows of the outbox.
            await self._stop_bulk_actions()
            await self._claimer.stop()
            deadline = monotonic() + self._options["shutdown_timeout"]
            relays, self._relays = self._relays, []
            for relay in relays:
                relay.stop_claiming()
            await worker.stop()
            await asyncio.gather(*(relay.stop(deadline - monotonic()) for relay in relays))
            # The heartbeat runs until the worker and the relays are done: otherwise the lease could expire meanwhile.
            await self._maintenance.stop()
            if worker.hook_dispatcher is not None:
                await worker.hook_dispatcher.close(max(deadline - monotonic(), 1.0))
            # Last, when this worker writes nothing more: released instances may run on another worker at once.
            await self._release(worker)
        await super()._stop()

    async def _release(self, worker: Worker) -> None:
        try:
            await self._store.release(worker.id, now=self._clock.now())
        except StoreError as error:  # harmless: the lease expires instead
            _log.warning(
                "the instances of this worker could not be released; other workers claim them when its lease expires: %s",
                error,
            )
        except Exception:
            _log.exception(
                "the instances of this worker could not be released; other workers claim them when its lease expires"
            )

    async def _stop_bulk_actions(self) -> None:
        bulk_actions, self._bulk_actions = self._bulk_actions, None
        if bulk_actions is not None:
            await bulk_actions.stop()

    async def _die(self) -> None:
        """Stop as after `kill -9`: write nothing more and release nothing. Callers that wait for a result keep waiting."""
        worker, self._worker = self._worker, None
        store, self._open_store = self._open_store, None
        if store is None:
            return
        assert self._committer is not None
        store.on_remote_commit = None
        await self._stop_readiness_probe()
        await self._stop_bulk_actions()
        await self._committer.abandon()
        if worker is not None:
            assert self._claimer is not None
            assert self._maintenance is not None
            relays, self._relays = self._relays, []
            for relay in relays:
                await relay.abandon()
            await self._claimer.stop()
            await worker.abandon()
            await self._maintenance.stop()
            if worker.hook_dispatcher is not None:
                await worker.hook_dispatcher.abandon()
        await store.close()

    # --- workflows

    def input_schema(self, wf: Workflow[..., Any] | str, /) -> dict[str, Any]:
        """Return the parameters of a workflow as a JSON Schema of an object. Raises `WorkflowNotFoundError`."""
        return input_schema(self._registry.resolve(wf))

    async def start_with_input(
        self,
        wf: Workflow[..., Any] | str,
        input: Mapping[str, Any],
        /,
        *,
        instance_id: str | None = None,
        actor: str | None = None,
    ) -> WorkflowHandle[Any]:
        """Start a workflow with arguments from external JSON: an object with its parameters, as in `input_schema`.

        `actor` is the name for the audit; without it the start is not recorded there. Raises a `PayloadError` that names
        each wrong field, and the errors of `start_workflow`.
        """
        workflow = self._registry.resolve(wf)
        args, kwargs = read_input(workflow, input)
        handle = await self.start_workflow(workflow.with_options(instance_id=instance_id), *args, **kwargs)
        if actor:
            await self._record_audit(actor, "start", [(handle.instance_id, workflow.name)])
        return handle

    @overload
    async def start_workflow(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]: ...
    @overload
    async def start_workflow(self, wf: str | WorkflowRef, /, *args: Any, **kwargs: Any) -> WorkflowHandle[Any]: ...
    async def start_workflow(self, wf: Any, /, *args: Any, **kwargs: Any) -> WorkflowHandle[Any]:
        """Start a workflow as `Client.start_workflow` does; it runs in this process at once if the worker has room."""
        committer, worker = self._require_committer(), self._worker
        here = worker is not None and worker.room > self._reserved
        owner = worker.id if worker is not None and here else None
        create, workflow = self._creation(wf, args, kwargs, owner)
        assert workflow is not None
        # The callback begins the instance, not the code after the await: if the caller were cancelled meanwhile, this worker
        # would own an instance that it never runs.
        written = committer.submit(create, partial(self._on_created, create, workflow, worker if here else None))
        self._reserved += here
        if worker is not None and here:
            worker.pending_writes.begin([create.instance_id])
        answer = await written
        if isinstance(answer, Existing):
            check_same_start(create, answer, workflow, hidden=self._hides_payloads)
        return self._handle(create.instance_id, workflow)

    def _on_created(
        self, create: CreateInstance, workflow: Workflow[..., Any], worker: Worker | None, answer: WriteResult | StoreError
    ) -> None:
        if worker is not None:
            self._reserved -= 1
            worker.pending_writes.end([create.instance_id])
        if not isinstance(answer, Applied):
            return
        if worker is None:
            if self._claimer is not None:
                self._claimer.poll_soon()
        elif worker.id == create.owner and not worker.stopping:
            worker.begin(create, workflow)
        # else the worker is stopping or has lost its lease meanwhile: the instance is freed, and claimed by a later poll

    def _starts_of(self, event: Event, now: int) -> tuple[CreateInstance, ...]:
        worker = self._worker
        owner = worker.id if worker is not None and worker.room > self._reserved else None
        return starts_of(self._registry, event, self._ids, now=now, owner=owner)

    def _on_submitted(self, starts: Starts) -> None:
        if self._worker is not None:
            self._worker.pending_writes.begin(owned_starts(chain(*starts)))

    def _on_emitted(self, starts: Starts, answer: WriteResult | StoreError) -> None:
        if self._worker is None:
            return
        self._worker.pending_writes.end(owned_starts(chain(*starts)))
        if isinstance(answer, Applied | Accepted):
            self._worker.propagate(answer, [*chain(*starts)])

    def _runs_here(self, instance_id: str) -> bool:
        return self._worker is not None and self._worker.is_cached(instance_id)

    def _on_ended(self, instance_id: str, status: Status, ending: Ending) -> None:
        if self._results is not None:
            self._results.on_ended(instance_id, status, ending)

    def _on_notified(self) -> None:
        super()._on_notified()
        if self._claimer is not None:
            self._claimer.poll_soon()
        self._on_outbox_enqueued()

    def _on_bulk_action_added(self) -> None:
        if self._bulk_actions is not None:
            self._bulk_actions.wake()

    def _on_requested(self, instance_id: str, kind: ControlKind) -> None:
        self._metrics.requests[kind] += 1
        worker, claimer = self._worker, self._claimer
        if worker is None or claimer is None:
            return
        if kind is ControlKind.TERMINATE:
            worker.forget(instance_id)
            if self._results is not None:
                self._results.on_ended(instance_id, Status.TERMINATED, Ending())
        elif kind is ControlKind.PAUSE and worker.is_parked(instance_id):
            worker.forget(instance_id)
        elif not worker.wake_for_inbox(instance_id):
            claimer.poll_soon()
