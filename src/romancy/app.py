"""The app: a client with a worker. The composition root."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Never, ParamSpec, TypeAlias, TypeVar, overload

from romancy.auth import AuthOption, Visitors
from romancy.authoring.durations import Duration
from romancy.authoring.guard import install as install_guard
from romancy.authoring.signatures import refuse_unknown
from romancy.authoring.sources import stored_source
from romancy.authoring.starting import starts_of
from romancy.authoring.workflow import Workflow, WorkflowRef
from romancy.broker import BrokerOption
from romancy.client import Client
from romancy.clock import Clock, monotonic
from romancy.codec import PLAIN, CodecOption
from romancy.core import patch
from romancy.errors import StoreError
from romancy.figures import Figure, build_info, gauge
from romancy.handle import WorkflowHandle
from romancy.hooks import HooksOption
from romancy.ids import Ids
from romancy.ingress.entrance import load_extra, open_guarded, open_http
from romancy.ingress.types import ASGIApp, HTTPSettings, Receive, Scope, Send
from romancy.manage.batches import Batches
from romancy.manage.cards import card_key, written_card
from romancy.manage.schemas import input_schema, read_input
from romancy.manage.service import DatabaseManager
from romancy.model.operators import Jam
from romancy.model.policy import RetryPolicy
from romancy.model.status import Status
from romancy.model.talk import Event
from romancy.model.transition import Accepted, Answer, Applied, Create, Ending, Existing, RequestKind
from romancy.outbox.relay import Relay, RelayOptions
from romancy.sending import Starts
from romancy.store.open import kind_of
from romancy.using import check_same
from romancy.worker.alarms import Alarms
from romancy.worker.figures import figures_of
from romancy.worker.finder import Finder
from romancy.worker.telling import Teller
from romancy.worker.unanswered import begun_by
from romancy.worker.upkeep import Upkeep
from romancy.worker.worker import Worker, WorkerOptions

if TYPE_CHECKING:
    from romancy.api.watch import Watcher
    from romancy.ingress.asgi import More
    from romancy.store.port import Store

Guard: TypeAlias = Literal["raise", "warn", "off"]
P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("romancy.http")
_HEALTH = 5.0
"""Seconds that a health check waits for the database."""


class App(Client):
    """Runs workflows in this process, on SQLite unless told otherwise.

    Options not given come from environment variables (`ROMANCY_DATABASE`, `ROMANCY_CACHE_SIZE`, ...), then from the defaults
    in the reference. Use it as an asynchronous context manager, or call `startup()` and `shutdown()`.
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
        self._finder: Finder | None = None
        self._upkeep: Upkeep | None = None
        self._relays: list[Relay] = []
        self._batches: Batches | None = None
        self._with_heart = True
        self._reserved = 0
        self._http: ASGIApp | None = None
        self._visitors = Visitors()  # pyright: ignore[reportIncompatibleVariableOverride]
        self._watcher: Watcher | None = None
        self._asking: asyncio.Task[bool] | None = None
        """Asks the database whether it answers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve as an ASGI application: events in, health out. Needs `romancy[http]`."""
        if self._http is None:
            settings = self._http_settings()
            self._http = open_http(self, settings, self._clock, partial(self._for_operators, settings))
        await self._http(scope, receive, send)

    def _http_settings(self) -> HTTPSettings:
        options = self._options
        return HTTPSettings(options["max_body_size"], options["request_timeout"], options["auth"], self._visitors)

    def behind_auth(self, inner: ASGIApp, *, role: str = "admin") -> ASGIApp:
        """An ASGI application of yours, for callers of this role by the app's `auth`; without `auth`, for this machine.

        It finds who calls in `scope["romancy.caller"]` (`name` and `role`). The app is started by its lifespan, or with the
        first request. Needs `romancy[http]`.
        """
        return open_guarded(inner, role, self, self._http_settings(), self._clock)

    def _for_operators(self, settings: HTTPSettings) -> More:
        """The API and the viewer."""
        api = load_extra("romancy.api.mount", needs="starlette", extra="http", what="HTTP")
        viewer = load_extra("romancy.viewer.routes", needs="jinja2", extra="http", what="The viewer")
        manager = DatabaseManager(self)
        self._watcher = api.watcher_of(self)
        pages = viewer.routes(manager, clock=self._clock, settings=settings)
        more: More = api.mount(manager, pages, settings, self._clock, self._watcher)
        return more

    def _end_streams(self) -> None:
        """Let nobody watch any longer: the server stops, or the app."""
        if self._watcher is not None:
            self._watcher.end()

    async def ready(self) -> str | None:
        """None while this app can do its work; otherwise why it cannot."""
        if self._opened is None or self._worker is None or self._finder is None:
            return "the app is not running"
        if self._asking is None:  # one question at a time, however often and by whomever this is asked
            self._asking = asyncio.get_running_loop().create_task(self._ask(self._opened), name="romancy-ready")
        asking = self._asking
        await asyncio.wait({asking}, timeout=_HEALTH)
        if not asking.done():
            _log.warning("not ready: the database has not answered for %g s", _HEALTH)
            return "the database does not answer"
        if asking.cancelled() or not asking.result():
            return "the database cannot be reached; the log says why"
        if self._worker is None or self._finder is None:
            return "the app is not running"
        return self._worker.committer.trouble or self._finder.stalled()

    async def _ask(self, store: Store) -> bool:
        try:
            await store.workers()
        except StoreError as error:
            # Health checks are for everybody, and the database's words name hosts, users and paths.
            _log.warning("not ready: %s", error)
        except Exception:
            _log.exception("not ready: the database could not be asked")
        else:
            return True
        finally:
            self._asking = None
        return False

    async def _stop_asking(self) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.wait({asking})

    def figures(self) -> list[Figure]:
        """What this process counts, for `GET /metrics`."""
        worker, finder, upkeep = self._worker, self._finder, self._upkeep
        running = worker is not None and finder is not None and upkeep is not None
        return [
            build_info(kind_of(self._options["database"])),
            gauge("romancy_up", "1 while the app runs, 0 before and after.", int(running)),
            *(figures_of(worker, finder, upkeep) if worker and finder and upkeep else ()),
            *self._tally.figures(self._clock.now()),
        ]

    async def refresh_figures(self) -> None:
        """Ask the database what `figures()` cannot know: once in 5 s at most, for a second at most, and never failing."""
        worker, finder = self._worker, self._finder
        if worker is not None and finder is not None and worker.loop is asyncio.get_running_loop():
            await finder.count_queue()

    # --- life

    async def _start(self) -> None:
        patch.install()
        if self._options["refuse_blocking_io"]:
            install_guard(everywhere=True)
        self._registry.all()  # two workflows under one name are told before anything is opened
        await super()._start()
        try:
            await self._start_worker()
        except BaseException:
            await self._stop()
            raise

    def _goes_on(self, instance_id: str) -> bool:
        return self._worker is not None and self._worker.has(instance_id)

    async def _start_worker(self) -> None:
        assert self._committer is not None
        self._worker = Worker(
            self._store,
            self._committer,
            self._registry,
            self._worker_options(),
            clock=self._clock,
            ids=self._ids,
            alarms=self._alarms(),
            app=self,
            on_ended=self._ended,
            teller=Teller(self._options["hooks"]) if self._options["hooks"] else None,
            crash_point=self._crash_point,
        )
        self._finder = Finder(self._worker)
        self._upkeep = Upkeep(self._worker, self._finder)
        self._worker.on_death = self._revive
        for workflow in self._registry.all():
            self._tally.workflows[workflow.name]  # shown from the start, with zeros: or the first of each would not be seen
            code = self._registry.code(workflow)
            source = stored_source(workflow.fn)
            about, now = (workflow.name, workflow.version), self._clock.now()
            await self._store.save_source(code, *about, source, now=now)
            key, card = card_key(*about), written_card(workflow)
            if key is not None and await self._store.source(key) != card:
                await self._store.save_source(key, *about, card, now=now, replace=True)
        handlers = [(one.name, one.version, one.event_handler) for one in self._registry.all()]
        await self._store.save_handlers(handlers, now=self._clock.now())
        await self._upkeep.start(heart=self._with_heart)
        self._finder.start()
        self._start_relays(self._worker)
        self._batches = DatabaseManager(self).batches(self._worker.id, every=2 * self._options["poll_interval"])
        if self._with_heart:
            self._batches.start()

    def _start_relays(self, worker: Worker) -> None:
        options = self._options
        how = RelayOptions(
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
                how,
                claimant=worker.id,
                clock=self._clock,
                ring=worker.alarms.at,
                tally=self._tally,
            )
            for name, broker in self._brokers.items()
            if options["outbox_relay"]
        ]
        worker.on_put_out = self._put_out
        for relay in self._relays:
            relay.start()

    def _put_out(self) -> None:
        for relay in self._relays:
            relay.look()

    def _jam(self) -> Jam | None:
        return None if self._worker is None else self._worker.jam()

    def _alarms(self) -> Alarms:
        return Alarms(self._clock.now)

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
            decodes=(options["codec"] or PLAIN).fingerprint(),
            default_retry=options["default_retry"],
        )

    def _revive(self) -> None:
        if self._worker is not None and self._upkeep is not None:
            self._worker.spawn(self._upkeep.revive())

    async def shutdown(self) -> None:
        """Stop claiming, let running activities finish within `shutdown_timeout`, and release the rest at once."""
        await super().shutdown()

    async def _stop(self) -> None:
        self._end_streams()
        await self._stop_asking()
        worker, self._worker = self._worker, None
        if worker is not None:
            assert self._finder is not None
            assert self._upkeep is not None
            worker.stopping = True
            await self._stop_batches()
            await self._finder.stop()
            deadline = monotonic() + self._options["shutdown_timeout"]
            relays, self._relays = self._relays, []
            for relay in relays:
                relay.hold()
            await worker.stop()
            await asyncio.gather(*(relay.stop(deadline - monotonic()) for relay in relays))
            await self._upkeep.stop()
            if worker.teller is not None:
                await worker.teller.close(max(deadline - monotonic(), 1.0))
            await self._release(worker)
        await super()._stop()

    async def _release(self, worker: Worker) -> None:
        try:
            await self._store.release(worker.id, now=self._clock.now())
        except StoreError as error:  # the lease will run out instead
            _log.warning(
                "what this worker owns could not be given back, others take it when its lease has run out: %s", error
            )
        except Exception:
            _log.exception("what this worker owns could not be given back, others take it when its lease has run out")

    async def _stop_batches(self) -> None:
        batches, self._batches = self._batches, None
        if batches is not None:
            await batches.stop()

    async def _die(self) -> None:
        """Stop as `kill -9` would: nothing more is written, nothing is released. Who waits for a result goes on waiting."""
        worker, self._worker = self._worker, None
        store, self._opened = self._opened, None
        if store is None:
            return
        assert self._committer is not None
        store.on_foreign_commit = None
        await self._stop_asking()
        await self._stop_batches()
        await self._committer.abandon()
        if worker is not None:
            assert self._finder is not None
            assert self._upkeep is not None
            relays, self._relays = self._relays, []
            for relay in relays:
                await relay.abandon()
            await self._finder.stop()
            await worker.abandon()
            await self._upkeep.stop()
            if worker.teller is not None:
                await worker.teller.abandon()
        await store.close()

    # --- workflows

    def input_schema(self, wf: Workflow[..., Any] | str, /) -> dict[str, Any]:
        """What a workflow takes, as JSON Schema: an object with its parameters. Raises `WorkflowNotFoundError`."""
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
        """Start a workflow with JSON from outside: an object with its parameters, as `input_schema` describes it.

        `actor` says who starts it, for the audit; without one nothing is written down there. Raises `PayloadError` that says
        what is wrong with each field, and what `start_workflow` raises.
        """
        workflow = self._registry.resolve(wf)
        args, kwargs = read_input(workflow, input)
        handle = await self.start_workflow(workflow.with_options(instance_id=instance_id), *args, **kwargs)
        if actor:
            await self._note(actor, "start", [(handle.instance_id, workflow.name)])
        return handle

    @overload
    async def start_workflow(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]: ...
    @overload
    async def start_workflow(self, wf: str | WorkflowRef, /, *args: Any, **kwargs: Any) -> WorkflowHandle[Any]: ...
    async def start_workflow(self, wf: Any, /, *args: Any, **kwargs: Any) -> WorkflowHandle[Any]:
        """Start a workflow; it runs here at once if there is room. As `Client.start_workflow` otherwise."""
        committer, worker = self._write(), self._worker
        here = worker is not None and worker.room > self._reserved
        owner = worker.id if worker is not None and here else None
        create, workflow = self._creation(wf, args, kwargs, owner)
        assert workflow is not None
        # Begun by the answer, not after the await: a caller that goes away meanwhile must not leave it ours and never begun.
        written = committer.submit(create, partial(self._created, create, workflow, worker if here else None))
        self._reserved += here
        if worker is not None and here:
            worker.unanswered.ask([create.instance_id])
        answer = await written
        if isinstance(answer, Existing):
            check_same(create, answer, workflow, hidden=self._hides)
        return self._handle(create.instance_id, workflow)

    def _created(
        self, create: Create, workflow: Workflow[..., Any], worker: Worker | None, answer: Answer | StoreError
    ) -> None:
        if worker is not None:
            self._reserved -= 1
            worker.unanswered.answered([create.instance_id])
        if not isinstance(answer, Applied):
            return
        if worker is None:
            if self._finder is not None:
                self._finder.look()
        elif worker.id == create.owner and not worker.stopping:
            worker.begin(create, workflow)
        # else the worker changed meanwhile: whoever looks next finds the instance without an owner

    def _starts_of(self, event: Event, now: int) -> tuple[Create, ...]:
        worker = self._worker
        owner = worker.id if worker is not None and worker.room > self._reserved else None
        return starts_of(self._registry, event, self._ids, now=now, owner=owner)

    def _saying(self, starts: Starts) -> None:
        if self._worker is not None:
            self._worker.unanswered.ask(begun_by(chain(*starts)))

    def _said(self, starts: Starts, answer: Answer | StoreError) -> None:
        if self._worker is None:
            return
        self._worker.unanswered.answered(begun_by(chain(*starts)))
        if isinstance(answer, Applied | Accepted):
            self._worker.spread(answer, [*chain(*starts)])

    def _runs_here(self, instance_id: str) -> bool:
        return self._worker is not None and self._worker.has(instance_id)

    def _ended(self, instance_id: str, status: Status, ending: Ending) -> None:
        if self._results is not None:
            self._results.ended(instance_id, status, ending)

    def _heard(self) -> None:
        super()._heard()
        if self._finder is not None:
            self._finder.look()
        self._put_out()

    def _batch_begun(self) -> None:
        if self._batches is not None:
            self._batches.look()

    def _requested(self, instance_id: str, kind: RequestKind) -> None:
        self._tally.requests[kind] += 1
        worker, finder = self._worker, self._finder
        if worker is None or finder is None:
            return
        if kind is RequestKind.TERMINATE:
            worker.forget(instance_id)
            if self._results is not None:
                self._results.ended(instance_id, Status.TERMINATED, Ending())
        elif kind is RequestKind.PAUSE and worker.parked(instance_id):
            worker.forget(instance_id)
        elif not worker.nudge(instance_id):
            finder.look()
