"""The arguments that decorators, contexts and the registry accept, and their errors for all others."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

import romancy
from romancy import (
    Activity,
    ActivityContext,
    App,
    Client,
    ConfigurationError,
    InvalidWorkflowStateError,
    RetryPolicy,
    Workflow,
    WorkflowContext,
    WorkflowNotFoundError,
    register_compensation,
    sleep,
    sleep_until,
)
from romancy.authoring import workflow as workflow_module
from romancy.core.commands import Fail, Finish, Resolution
from romancy.core.loop import Run, new_run
from romancy.model.history import Kind
from romancy.registry import registry as registry_module
from romancy.registry.registry import Registry

T = TypeVar("T")
SECOND = 1_000_000

# Most of the following calls are wrong, and a type checker would reject them.
activity: Any = romancy.activity
workflow: Any = romancy.workflow


@pytest.fixture(autouse=True)
def imported(monkeypatch: pytest.MonkeyPatch) -> list[Workflow[..., Any]]:
    """An empty list of imported workflows, so that tests do not see each other's."""
    made: list[Workflow[..., Any]] = []
    for module in (workflow_module, registry_module):
        monkeypatch.setattr(module, "imported", made)
    return made


class Order(BaseModel):
    id: str


@dataclass
class Receipt:
    total: int


class Unstorable:
    """A type that pydantic does not know."""


async def charge(ctx: ActivityContext, order: Order, *, tip: int = 0) -> Receipt:
    return Receipt(tip)


async def greet(ctx: WorkflowContext, name: str) -> str:
    return f"Hello, {name}"


def refusal(act: Callable[[], object]) -> str:
    """The message with which the call is refused."""
    with pytest.raises(ConfigurationError) as caught:
        act()
    return str(caught.value)


# --- decorators


def test_an_activity_keeps_the_function_and_its_name() -> None:
    made = activity(charge)
    assert isinstance(made, Activity)
    assert made.fn is charge
    assert made.name == made.__name__ == "charge"
    assert made.compensation is None
    assert repr(made) == "<activity charge>"


def test_a_workflow_keeps_the_function_and_its_name() -> None:
    made = workflow(greet)
    assert isinstance(made, Workflow)
    assert made.fn is greet
    assert (made.name, made.version, made.timeout, made.event_handler) == ("greet", "", None, False)
    assert repr(made) == "<workflow greet>"


def test_names_and_options_can_be_given() -> None:
    one = activity(name="charge-eu", timeout=1.5, heartbeat_timeout=timedelta(seconds=2))(charge)
    assert one.name == "charge-eu"
    assert (one.options.timeout, one.options.heartbeat_timeout) == (1.5 * SECOND, 2 * SECOND)
    two = workflow(name="hello", version="2", timeout=timedelta(days=1))(greet)
    assert (two.name, two.version, two.timeout) == ("hello", "2", 86_400 * SECOND)
    assert repr(two) == "<workflow hello version 2>"


async def test_the_plain_functions_can_be_called() -> None:
    assert await activity(charge).fn(ActivityContext(), Order(id="1"), tip=3) == Receipt(3)
    assert await workflow(greet).fn(WorkflowContext(), "you") == "Hello, you"

    def weigh(ctx: ActivityContext, grams: int) -> float:
        return grams / 1000

    made = activity(weigh)
    assert not made.is_async
    assert made.fn(ActivityContext(), 500) == 0.5


def test_a_function_that_returns_a_coroutine_is_async() -> None:
    def by_hand(ctx: ActivityContext, order: Order) -> Coroutine[Any, Any, Receipt]:
        return charge(ctx, order)

    assert activity(by_hand).is_async


@pytest.mark.parametrize("decorate", [activity, activity(), workflow, workflow()])
def test_methods_are_refused(decorate: Any) -> None:
    class Shop:
        async def sell(self, ctx: ActivityContext, order: Order) -> None: ...

    message = refusal(lambda: decorate(Shop.sell))
    assert "Shop.sell is a method" in message
    assert "static method" in message


def test_static_methods_are_functions() -> None:
    class Shop:
        @staticmethod
        @romancy.activity
        async def sell(ctx: ActivityContext, order: Order) -> None: ...

    assert Shop.sell.name == "sell"


@pytest.mark.parametrize("decorate", [activity, workflow])
def test_a_context_is_asked_for(decorate: Any) -> None:
    async def nothing() -> None: ...
    async def by_name(*, ctx: ActivityContext) -> None: ...
    async def spread(*ctx: ActivityContext) -> None: ...

    for fn in (nothing, by_name, spread):
        message = refusal(lambda fn=fn: decorate(fn))  # type: ignore[misc]
        assert fn.__name__ in message
        assert "first parameter must be the context" in message


def test_a_workflow_is_an_async_def() -> None:
    def plain(ctx: WorkflowContext) -> int:
        return 1

    assert "must be an `async def`" in refusal(lambda: workflow(plain))
    assert "must be an `async def`" in refusal(lambda: workflow(3))


@pytest.mark.parametrize("what", ["charge", 3])
def test_what_is_no_function_is_refused(what: object) -> None:
    message = refusal(lambda: activity(what))
    assert f"not {what!r}" in message
    assert "@activity(name=...)" in message


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: activity(retires=3), "activity() has no option 'retires'. Did you mean 'retry'?"),
        (lambda: workflow(nmae="x"), "workflow() has no option 'nmae'. Did you mean 'name'?"),
        (
            lambda: workflow(colour="red"),
            "workflow() has no option 'colour'. The options are name, event_handler, timeout, ",
        ),
        (lambda: activity(charge).with_options(activityid="x"), "charge.with_options() has no option 'activityid'. Did"),
        (lambda: workflow(greet).with_options(id="x"), "greet.with_options() has no option 'id'."),
        (lambda: App(workflow=[]), "App() has no option 'workflow'. Did you mean 'workflows'?"),  # type: ignore[arg-type]  # pyright: ignore
        (lambda: Client(worker_id="x"), "Client() has no option 'worker_id'."),  # type: ignore[arg-type]  # pyright: ignore
    ],
)
def test_an_unknown_option_is_refused_with_a_hint(make: Callable[[], object], hint: str) -> None:
    assert hint in refusal(make)


@pytest.mark.parametrize("retry", [3, "twice", RetryPolicy, {"max_attempts": 3}])
def test_a_retry_policy_is_a_retry_policy(retry: object) -> None:
    for make in (lambda: activity(retry=retry)(charge), lambda: activity(charge).with_options(retry=retry)):
        message = refusal(make)
        assert f"retry={retry!r} of activity 'charge'" in message
        assert "RetryPolicy.fixed" in message


@pytest.mark.parametrize("duration", ["5s", True, float("nan"), float("inf"), datetime(2030, 1, 1), -1, -0.5, 0, [1]])
def test_bad_durations_are_refused(duration: object) -> None:
    for make, name in (
        (lambda: activity(timeout=duration)(charge), "timeout of activity 'charge'"),
        (lambda: activity(heartbeat_timeout=duration)(charge), "heartbeat_timeout of activity 'charge'"),
        (lambda: activity(charge).with_options(timeout=duration), "timeout of activity 'charge'"),
        (lambda: workflow(timeout=duration)(greet), "timeout of workflow 'greet'"),
    ):
        message = refusal(make)
        assert message.startswith(f"{name} is {duration!r}: ")


@pytest.mark.parametrize("name", ["", 3, b"x"])
def test_names_are_texts(name: object) -> None:
    assert f"name={name!r} of activity charge" in refusal(lambda: activity(name=name)(charge))
    assert f"name={name!r} of workflow greet" in refusal(lambda: workflow(name=name)(greet))
    assert f"version={name!r} of workflow greet" in refusal(lambda: workflow(version=name)(greet))
    assert f"activity_id={name!r}" in refusal(lambda: activity(charge).with_options(activity_id=name))
    assert f"instance_id={name!r}" in refusal(lambda: workflow(greet).with_options(instance_id=name))


def test_options_of_a_call_leave_the_activity_alone() -> None:
    made = activity(timeout=3, retry=RetryPolicy.none())(charge)
    other = made.with_options(activity_id="charge:eu", timeout=1)
    assert (made.options.activity_id, made.options.timeout) == (None, 3 * SECOND)
    assert (other.options.activity_id, other.options.timeout) == ("charge:eu", SECOND)
    assert other.options.retry == RetryPolicy.none()
    assert other.fn is charge


# --- types that cannot be stored


@pytest.mark.parametrize("decorate", [activity, workflow])
def test_type_variables_are_refused(decorate: Any) -> None:
    async def first(ctx: Any, items: list[T]) -> int: ...  # type: ignore[empty-body]
    async def last(ctx: Any, number: int) -> T: ...  # type: ignore[empty-body]  # pyright: ignore

    message = refusal(lambda: decorate(first))
    assert "parameter 'items'" in message
    assert "'first'" in message
    assert "type variable ~T" in message
    assert "the result" in refusal(lambda: decorate(last))


@pytest.mark.parametrize("decorate", [activity, workflow])
def test_types_that_pydantic_does_not_know_are_refused(decorate: Any) -> None:
    async def takes(ctx: Any, it: Unstorable) -> None: ...
    async def gives(ctx: Any) -> Unstorable: ...  # type: ignore[empty-body]

    assert "argument 'it'" in refusal(lambda: decorate(takes))
    assert "Unstorable" in refusal(lambda: decorate(gives))


@pytest.mark.parametrize("decorate", [activity, workflow])
def test_a_type_may_be_defined_later(decorate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def takes(ctx: Any, it: Later) -> Later: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore
    async def of_module(ctx: Any, it: romancy.Later) -> None: ...  # type: ignore[name-defined]  # pyright: ignore

    made, other = decorate(takes), decorate(of_module)
    assert "cannot be resolved" in refusal(made.codec.check)
    monkeypatch.setitem(globals(), "Later", Order)
    monkeypatch.setattr(romancy, "Later", Order, raising=False)
    raw = made.codec.encode((Order(id="1"),), {})
    assert made.codec.decode(raw) == ((Order(id="1"),), {})
    made.result.check()
    other.codec.check()


class Parcel(BaseModel):
    inside: Thing  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore


@dataclass
class Crate:
    inside: Thing  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore


def test_a_model_may_be_completed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(ctx: ActivityContext, parcel: Parcel) -> None: ...
    async def send_all(ctx: ActivityContext, parcels: list[Parcel]) -> None: ...
    async def answer(ctx: ActivityContext) -> Parcel: ...  # type: ignore[empty-body]
    async def ship(ctx: ActivityContext, crate: Crate) -> Crate: ...  # type: ignore[empty-body]

    made = [activity(fn) for fn in (send, send_all, answer, ship)]
    monkeypatch.setitem(globals(), "Thing", Order)
    Parcel.model_rebuild()
    for one in made:
        one.codec.check()
        one.result.check()


# --- compensations


async def refund(ctx: ActivityContext, order: Order, *, tip: int = 0) -> None: ...
async def refund_of(ctx: ActivityContext, result: Receipt, order: Order, *, tip: int = 0) -> None: ...
async def refund_more(ctx: ActivityContext, order: Order, *, tip: int = 0, why: str = "") -> None: ...


@pytest.mark.parametrize(("fn", "wants_result"), [(refund, False), (refund_of, True), (refund_more, False)])
def test_a_compensation_takes_the_arguments_and_maybe_the_result(fn: Any, wants_result: bool) -> None:
    by_option = activity(compensation=fn)(charge)
    by_decorator = activity(charge)
    assert by_decorator.compensate(fn) is fn
    for made in (by_option, by_decorator):
        assert made.compensation is fn
        assert made.compensation_spec.wants_result is wants_result


def test_an_activity_can_be_a_compensation_and_keeps_its_policy() -> None:
    undo = activity(retry=RetryPolicy.none())(refund)
    made = activity(compensation=undo)(charge)
    assert made.compensation is refund
    assert made.compensation_spec.options.retry == RetryPolicy.none()


async def takes_nothing(ctx: ActivityContext) -> None: ...
async def no_tip(ctx: ActivityContext, order: Order) -> None: ...
async def other_name(ctx: ActivityContext, o: Order, *, tip: int = 0) -> None: ...
async def one_more(ctx: ActivityContext, order: Order, more: int, *, tip: int = 0) -> None: ...
async def result_last(ctx: ActivityContext, order: Order, result: Receipt, *, tip: int = 0) -> None: ...


@pytest.mark.parametrize("fn", [takes_nothing, no_tip, other_name, one_more, result_last])
def test_a_compensation_that_does_not_fit_is_refused_by_both_names(fn: Any) -> None:
    for make in (lambda: activity(compensation=fn)(charge), lambda: activity(charge).compensate(fn)):
        message = refusal(make)
        assert message.startswith(f"{fn.__name__}(ctx")
        assert "cannot compensate activity 'charge'" in message
        assert "tip: 'int' = 0" in message


def test_a_compensation_whose_parameter_is_of_another_type_is_refused() -> None:
    async def reserve(ctx: ActivityContext, room: str, nights: int) -> None: ...

    async def unfit(ctx: ActivityContext, room: int, nights: int) -> None: ...
    async def fit(ctx: ActivityContext, room: Any, nights: bool) -> None: ...

    made: Any = activity(reserve)
    message = refusal(lambda: made.compensate(unfit))
    assert "cannot compensate activity 'reserve'" in message
    assert message.endswith("there 'room' is of type str, not int.")
    assert made.compensate(fit) is fit


def test_a_compensation_that_takes_another_model_is_refused() -> None:
    async def unfit(ctx: ActivityContext, order: Receipt, *, tip: int = 0) -> None: ...
    async def raw(ctx: ActivityContext, order: dict, *, tip: int = 0) -> None: ...  # type: ignore[type-arg]
    async def fit(ctx: ActivityContext, order: Order, *, tip: int = 0) -> None: ...

    made: Any = activity(charge)
    assert refusal(lambda: made.compensate(unfit)).endswith("there 'order' is of type Order, not Receipt.")
    assert refusal(lambda: made.compensate(raw)).endswith("there 'order' is of type Order, not dict.")
    assert made.compensate(fit) is fit


def test_a_compensation_needs_a_context() -> None:
    assert "compensation" in refusal(lambda: activity(compensation=lambda: None)(charge))


def test_a_compensation_may_be_annotated_wider_than_what_is_stored() -> None:
    async def undo(ctx: ActivityContext, order: Unstorable | Order, *, tip: int = 0) -> None: ...

    assert activity(compensation=undo)(charge).compensation is undo  # the types of the activity apply


# --- outside of a workflow


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (lambda ctx: activity(charge)(ctx, Order(id="1")), "activity 'charge'"),
        (lambda ctx: sleep(ctx, 1), "sleep()"),
        (lambda ctx: sleep_until(ctx, datetime(2030, 1, 1, tzinfo=UTC)), "sleep_until()"),
        (lambda ctx: register_compensation(ctx, takes_nothing), "register_compensation()"),
    ],
)
@pytest.mark.parametrize(
    ("ctx", "why"),
    [
        (WorkflowContext(), "a context that belongs to no running workflow"),
        (ActivityContext(), "inside an activity"),
        (3, "without a workflow's context (got int)"),
        (None, "without a workflow's context (got NoneType)"),
    ],
)
def test_durable_calls_outside_a_workflow_say_so(use: Callable[[Any], object], what: str, ctx: object, why: str) -> None:
    with pytest.raises(InvalidWorkflowStateError) as caught:
        use(ctx)
    assert str(caught.value).startswith(f"{what} was used")
    assert why in str(caught.value)


async def test_a_workflow_called_outside_a_workflow_says_so() -> None:
    with pytest.raises(InvalidWorkflowStateError, match="workflow 'greet' was used"):
        await workflow(greet)(WorkflowContext(), "you")


@pytest.mark.parametrize("ctx", [WorkflowContext(), ActivityContext()])
def test_a_context_made_by_hand_has_no_app(ctx: WorkflowContext | ActivityContext) -> None:
    with pytest.raises(InvalidWorkflowStateError, match="belongs to no app"):
        _ = ctx.app


# --- inside of a workflow


def run_body(body: Callable[[WorkflowContext], Coroutine[Any, Any, Any]], *, at: int = 0, replaying: bool = False) -> Run:
    """Run a body up to its first wait."""
    ctx = WorkflowContext(instance_id="order-1", workflow_name="checkout", run=None)
    run = new_run(lambda: body(ctx), "checkout (order-1)")
    ctx._run = run
    run.replaying = replaying
    try:
        run.advance(Resolution(Kind.START, "", at))
    finally:
        run.evict()
    return run


def result_of(body: Callable[[WorkflowContext], Coroutine[Any, Any, Any]], *, at: int = 0) -> Any:
    verdict = run_body(body, at=at).body_outcome
    assert isinstance(verdict, Finish)
    return verdict.value


def error_of(body: Callable[[WorkflowContext], Coroutine[Any, Any, Any]]) -> BaseException:
    verdict = run_body(body).body_outcome
    assert isinstance(verdict, Fail)
    return verdict.error


def test_a_naive_time_is_refused() -> None:
    async def body(ctx: WorkflowContext) -> None:
        await sleep_until(ctx, datetime(2030, 1, 1))

    error = error_of(body)
    assert isinstance(error, ConfigurationError)
    assert "aware" in str(error)


@pytest.mark.parametrize("duration", ["5s", None, float("nan"), True])
def test_sleep_refuses_what_is_no_duration(duration: Any) -> None:
    async def body(ctx: WorkflowContext) -> None:
        await sleep(ctx, duration)

    error = error_of(body)
    assert isinstance(error, ConfigurationError)
    assert repr(duration) in str(error)


def test_a_workflow_called_in_a_workflow_is_a_part_of_it() -> None:
    made = workflow(greet)

    async def body(ctx: WorkflowContext) -> object:
        return await made(ctx, "you")

    assert result_of(body) == "Hello, you"


def test_now_is_the_recorded_time() -> None:
    async def body(ctx: WorkflowContext) -> datetime:
        return ctx.now()

    assert result_of(body, at=1_700_000_000 * SECOND) == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def test_chance_and_ids_are_the_same_in_every_replay() -> None:
    def drawn(ctx: WorkflowContext) -> list[object]:
        return [ctx.uuid4(), ctx.random().random(), ctx.uuid4(), ctx.random().randint(1, 1000)]

    first = drawn(WorkflowContext(instance_id="order-1"))
    random.seed(3)
    assert drawn(WorkflowContext(instance_id="order-1")) == first
    others = (WorkflowContext(instance_id="order-2"), WorkflowContext(instance_id="order-1", generation=2))
    for other in others:
        assert not set(drawn(other)) & set(first)


def test_ids_do_not_depend_on_how_much_was_drawn() -> None:
    one, two = WorkflowContext(instance_id="order-1"), WorkflowContext(instance_id="order-1")
    two.random().random()
    made = one.uuid4()
    assert two.uuid4() == made
    assert (made.version, made.variant) == (4, uuid.RFC_4122)
    assert one.random() is one.random()


def test_the_log_is_silent_while_replaying(caplog: pytest.LogCaptureFixture) -> None:
    async def body(ctx: WorkflowContext) -> None:
        assert ctx.log.isEnabledFor(logging.INFO) is not ctx.is_replaying
        ctx.log.info("charging %s", "order", extra={"amount": 3})
        ctx.log.error("too late")

    caplog.set_level(logging.INFO, logger="romancy.workflow")
    assert isinstance(run_body(body, replaying=True).body_outcome, Finish)
    assert caplog.messages == []
    assert isinstance(run_body(body).body_outcome, Finish)
    assert caplog.messages == ["charging order", "too late"]
    record: Any = caplog.records[0]
    assert (record.instance_id, record.workflow_name, record.amount) == ("order-1", "checkout", 3)


def test_the_log_of_an_activity_names_the_attempt(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="romancy.activity")
    ActivityContext(instance_id="order-1", activity_id="charge:1", attempt=2).log.info("again")
    record: Any = caplog.records[0]
    assert (record.instance_id, record.activity_id, record.attempt) == ("order-1", "charge:1", 2)


# --- the registry


def greeters() -> tuple[Workflow[..., Any], Workflow[..., Any]]:
    """Two functions with one name."""

    async def one(ctx: WorkflowContext) -> None: ...
    async def two(ctx: WorkflowContext) -> None: ...

    return workflow(name="greeter")(one), workflow(name="greeter")(two)


def test_two_workflows_under_one_name_are_refused_by_their_places() -> None:
    one, two = greeters()
    message = refusal(lambda: Registry([one, two]))
    assert "Two workflows are named 'greeter'" in message
    for made in (one, two):
        assert made.fn.__qualname__ in message
        assert f"{__file__}:{made.fn.__code__.co_firstlineno}" in message
    assert "version=" in message


def test_two_imported_workflows_under_one_name_are_refused() -> None:
    greeters()
    registry = Registry(None)
    assert "Two workflows are named 'greeter'" in refusal(registry.refresh)


def test_versions_stand_side_by_side() -> None:
    old, new = workflow(version="1")(greet), workflow(version="2")(greet)

    async def other(ctx: WorkflowContext) -> None: ...

    plain = workflow(name="greet")(other)
    registry = Registry([old, new, plain])
    assert registry.find("greet", "1") is old
    assert registry.find("greet", "2") is new
    assert registry.find("greet", "") is plain
    assert registry.find("greet", "3") is None
    assert registry.resolve("greet") is plain  # the one that was registered last
    assert sorted((one.workflow, one.version) for one in registry.runnable()) == [
        ("greet", ""),
        ("greet", "1"),
        ("greet", "2"),
    ]


def test_the_same_function_may_be_defined_again() -> None:
    def cell() -> Workflow[..., Any]:
        async def again(ctx: WorkflowContext) -> None: ...

        return romancy.workflow(again)

    old, new = cell(), cell()
    registry = Registry(None)
    assert registry.resolve("again") is new
    assert registry.all() == [new]
    with pytest.raises(WorkflowNotFoundError, match="not registered"):
        registry.resolve(old)


def test_two_functions_of_one_factory_are_two_workflows() -> None:
    def made() -> Workflow[..., Any]:
        async def same(ctx: WorkflowContext) -> None: ...

        return romancy.workflow(same)

    with pytest.raises(ConfigurationError, match="Two workflows are named 'same'"):
        Registry([made(), made()])


def test_one_workflow_may_be_registered_twice_and_with_options() -> None:
    made = workflow(greet)
    registry = Registry([made, made])
    named = made.with_options(instance_id="order-42")
    assert (made.instance_id, named.instance_id) == (None, "order-42")
    assert registry.resolve(named) is named


def test_without_a_list_what_was_imported_is_known() -> None:
    made = workflow(greet)
    registry = Registry(None)
    assert registry.resolve("greet") is made

    @romancy.workflow
    async def later(ctx: WorkflowContext) -> None: ...

    assert registry.resolve("later") is later
    assert registry.all() == [made, later]


def test_with_a_list_nothing_else_is_known() -> None:
    made = workflow(greet)

    @romancy.workflow
    async def unlisted(ctx: WorkflowContext) -> None: ...

    registry = Registry([made])
    with pytest.raises(
        WorkflowNotFoundError, match=r"There is no workflow 'unlisted'\. The workflows of this process are greet\."
    ):
        registry.resolve("unlisted")
    with pytest.raises(WorkflowNotFoundError, match="not registered with this app"):
        registry.resolve(unlisted)
    assert Registry([]).all() == []


def test_registering_one_makes_the_list_explicit() -> None:
    made = workflow(greet)

    @romancy.workflow
    async def unlisted(ctx: WorkflowContext) -> None: ...

    app = App("sqlite:///unused.db")
    app.register(made)
    assert app.get_workflow("greet") is made
    with pytest.raises(WorkflowNotFoundError):
        app.get_workflow("unlisted")


@pytest.mark.parametrize("what", [charge, activity(charge), "greet", None])
def test_only_workflows_are_registered(what: Any) -> None:
    assert "is not a workflow: decorate it with @workflow" in refusal(lambda: Registry([what]))
    assert "is not a workflow" in refusal(lambda: Registry([]).add(what))


def test_only_workflows_and_names_are_looked_up() -> None:
    lookup: Any = Registry([workflow(greet)]).resolve
    assert "give one decorated with @workflow, or its name" in refusal(lambda: lookup(greet))
