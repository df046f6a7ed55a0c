"""Tests of agents inside workflows: a replay or a crash repeats no recorded request."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
import sys
from collections.abc import AsyncIterable, AsyncIterator
from datetime import date, datetime, timedelta
from typing import Annotated

import pytest
from mcp.server import MCPServer
from pydantic_ai import (
    Agent,
    AgentStreamEvent,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ModelHTTPError,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UsageLimitExceeded,
    UsageLimits,
    UserError,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.docs.pages import DOCS, table_of
from tests.integrations.integration_helpers import signature_of

from romancy import (
    ActivityContext,
    ConfigurationError,
    RetryPolicy,
    TerminalError,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    wait_event,
    workflow,
)
from romancy.integrations import pydantic_ai as module
from romancy.integrations.pydantic_ai import ActivityOptions, RomancyDurability, in_workflow, workflow_tool
from romancy.testing import TestEnvironment

REFERENCE = DOCS / "reference" / "pydantic-ai.md"

requests: list[int] = []
"""The number of messages in each request to a model."""
tool_calls: list[str] = []


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    requests.append(len(messages))
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("forecast", {"city": "Oslo"}), ToolCallPart("forecast", {"city": "Rome"})])
    return ModelResponse([TextPart(f"after {len(messages)} messages")])


agent = Agent(FunctionModel(answer), name="helper", capabilities=[RomancyDurability()])


@agent.tool_plain
async def forecast(city: str) -> str:
    tool_calls.append(city)
    return f"rain in {city}"


@workflow
async def advise(ctx: WorkflowContext, question: str) -> str:
    with in_workflow(ctx):
        first = await agent.run(question)
        second = await agent.run("and now?", message_history=first.all_messages())
    return f"{first.output}, {second.output}"


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    requests.clear()
    tool_calls.clear()


async def test_every_request_and_call_is_an_activity_and_happens_once() -> None:
    async with TestEnvironment(workflows=[advise], replay_always=True) as env:
        handle = await env.app.start_workflow(advise, "How is the forecast?")
        assert await handle.result() == "after 3 messages, after 5 messages"
        names = [entry.name async for entry in handle.history() if entry.kind == "activity"]
    assert requests == [1, 3, 5]
    assert sorted(tool_calls) == ["Oslo", "Rome"]
    assert [name for name in names if name == "helper__model.request"] == ["helper__model.request"] * 3
    assert len([name for name in names if "call_tool" in name]) == 2


async def test_outside_a_workflow_an_agent_works_as_usual() -> None:
    assert (await agent.run("How is the forecast?")).output == "after 3 messages"


@pytest.mark.parametrize("point", ["commit.before", "commit.after", "activity.before"])
@pytest.mark.parametrize("nth", range(2, 8))
async def test_a_crash_repeats_no_recorded_model_request(point: str, nth: int) -> None:
    async with TestEnvironment(workflows=[advise]) as env:
        handle = await env.app.start_workflow(advise, "How is the forecast?")
        env.crash_at(point, nth)
        assert await handle.result() == "after 3 messages, after 5 messages"
        recorded = [entry.name async for entry in handle.history() if entry.name == "helper__model.request"]
        # A request whose result was not recorded before the crash is repeated; a recorded one is not.
        unrecorded = 1 if point == "commit.before" else 0
    assert len(recorded) == 3
    assert len(requests) <= 3 + unrecorded
    assert sorted(set(requests)) == [1, 3, 5]


@workflow
async def spend(ctx: WorkflowContext, amount: int) -> str:
    """The agent asks for approval; a person answers with an event."""
    with in_workflow(ctx):
        first = await buyer.run(f"Spend {amount}.")
        assert isinstance(first.output, DeferredToolRequests)
        decided = await wait_event(ctx, "decided", subject=ctx.instance_id)
        [call] = first.output.approvals
        results = DeferredToolResults(approvals={call.tool_call_id: bool(decided.data)})
        last = await buyer.run(message_history=first.all_messages(), deferred_tool_results=results)
    return str(last.output)


def buys(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    requests.append(len(messages))
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("pay", {"amount": 7})])
    [part] = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    return ModelResponse([TextPart(str(part.content))])


buyer = Agent(FunctionModel(buys), name="buyer", output_type=[str, DeferredToolRequests], capabilities=[RomancyDurability()])


@buyer.tool_plain(requires_approval=True)
async def pay(amount: int) -> str:
    tool_calls.append(str(amount))
    return f"paid {amount}"


@pytest.mark.parametrize(("decision", "paid"), [(True, ["7"]), (False, [])])
async def test_a_person_approves_by_an_event_after_a_restart(decision: bool, paid: list[str]) -> None:
    async with TestEnvironment(workflows=[spend], replay_always=True) as env:
        handle = await env.app.start_workflow(spend, 7)
        await env.settle()
        assert tool_calls == []
        await env.restart()
        await env.app.send_event("decided", "/desk", decision, subject=handle.instance_id)
        output = await env.app.get_handle(handle.instance_id).result()
    assert output == "paid 7" if decision else "denied" in output
    assert (requests, tool_calls) == ([1, 3], paid)


@workflow
async def thrifty(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        try:
            await agent.run("How is the forecast?", usage_limits=UsageLimits(request_limit=1))
        except UsageLimitExceeded:
            return "enough"
    return "all of it"


async def test_limits_hold_and_are_replayed() -> None:
    async with TestEnvironment(workflows=[thrifty], replay_always=True) as env:
        handle = await env.app.start_workflow(thrifty)
        assert await handle.result() == "enough"
    assert requests == [1]


stream_events: list[str] = []


async def record_events(ctx: RunContext[object], events: AsyncIterable[AgentStreamEvent]) -> None:
    async for event in events:
        stream_events.append(type(event).__name__)


async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    requests.append(len(messages))
    yield "one "
    yield "two"


speaker = Agent(
    FunctionModel(stream_function=speak),
    name="speaker",
    capabilities=[RomancyDurability(event_stream_handler=record_events)],
)


@workflow
async def dictate(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        return (await speaker.run("Speak.")).output


async def test_stream_events_are_delivered_once() -> None:
    stream_events.clear()
    async with TestEnvironment(workflows=[dictate], replay_always=True) as env:
        assert await (await env.app.start_workflow(dictate)).result() == "one two"
    assert requests == [1]
    assert stream_events.count("PartStartEvent") == 1


@workflow
async def surprise(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        return (await agent.run("Hm?", toolsets=[FunctionToolset(id="more")])).output


async def test_tools_that_come_with_a_run_are_refused() -> None:
    async with TestEnvironment(workflows=[surprise]) as env:
        with pytest.raises(WorkflowFailedError, match="UserError"):
            await (await env.app.start_workflow(surprise)).result()
    assert requests == []


desk = MCPServer("desk")


@desk.tool()
def stamp() -> str:
    tool_calls.append("stamp")
    return "stamped"


def stamps(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    requests.append(len(messages))
    return ModelResponse([ToolCallPart("stamp", {})] if len(messages) == 1 else [TextPart("done")])


clerk = Agent(
    FunctionModel(stamps), name="clerk", toolsets=[MCPToolset(desk, id="desk")], capabilities=[RomancyDurability()]
)


@workflow
async def office(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        return (await clerk.run("Stamp it.")).output


async def test_calls_to_mcp_servers_are_activities_too() -> None:
    async with TestEnvironment(workflows=[office], replay_always=True) as env:
        handle = await env.app.start_workflow(office)
        assert await handle.result() == "done"
        names = [entry.name async for entry in handle.history()]
    assert "clerk__mcp_server__desk.get_tools" in names
    assert (requests, tool_calls) == ([1, 3], ["stamp"])


# --- retries


failing: list[Exception] = []
"""The errors that the model raises, one for each request."""


def fails_first(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    requests.append(len(messages))
    if failing:
        raise failing.pop(0)
    return ModelResponse([TextPart("at last")])


patient = Agent(FunctionModel(fails_first), name="patient", capabilities=[RomancyDurability()])


@workflow
async def insist(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        return (await patient.run("Well?")).output


@pytest.mark.parametrize("error", [ModelHTTPError(503, "m"), ModelHTTPError(429, "m"), ConnectionError("away")])
async def test_an_unavailable_provider_is_retried(error: Exception) -> None:
    failing[:] = [error, error]
    async with TestEnvironment(workflows=[insist], replay_always=True) as env:
        assert await (await env.app.start_workflow(insist)).result() == "at last"
    assert requests == [1, 1, 1]


@pytest.mark.parametrize("error", [ModelHTTPError(401, "m", {"error": "no such key"}), UserError("no such setting")])
async def test_a_refused_request_is_not_retried(error: Exception) -> None:
    failing[:] = [error]
    async with TestEnvironment(workflows=[insist]) as env:
        with pytest.raises(WorkflowFailedError, match="no such") as failed:
            await (await env.app.start_workflow(insist)).result()
    assert isinstance(failed.value.__cause__, TerminalError)
    assert requests == [1]


class NotEncodable:
    """A value that cannot be encoded as JSON."""


def calls_once(tool: str, **args: object) -> FunctionModel:
    """A model that calls a tool and then replies with the tool's result."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        requests.append(len(messages))
        if len(messages) == 1:
            return ModelResponse([ToolCallPart(tool, args)])
        parts = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        return ModelResponse([TextPart(str(parts[0].content))])

    return FunctionModel(answer)


mute = Agent(calls_once("murmur"), name="mute", capabilities=[RomancyDurability()])


@mute.tool_plain
async def murmur() -> object:
    tool_calls.append("murmur")
    return NotEncodable()


@workflow
async def whisper(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        return (await mute.run("Say it.")).output


async def test_a_result_that_cannot_be_recorded_fails_at_once() -> None:
    async with TestEnvironment(workflows=[whisper]) as env:
        with pytest.raises(WorkflowFailedError, match="cannot be recorded as JSON"):
            await (await env.app.start_workflow(whisper)).result()
    assert tool_calls == ["murmur"]


shaky = Agent(
    calls_once("knock"), name="shaky", capabilities=[RomancyDurability(tool_retry=RetryPolicy.fixed(3, 1), tool_timeout=60)]
)


@shaky.tool_plain
async def knock() -> str:
    tool_calls.append("knock")
    if len(tool_calls) < 3:
        raise ConnectionError("no reply")
    return "come in"


@workflow
async def visit(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        return (await shaky.run("Knock.")).output


async def test_a_tool_that_fails_is_called_again_by_the_policy_of_tools() -> None:
    async with TestEnvironment(workflows=[visit], replay_always=True) as env:
        assert await (await env.app.start_workflow(visit)).result() == "come in"
    assert (requests, tool_calls) == ([1, 3], ["knock"] * 3)


own: ActivityOptions = {"retry": RetryPolicy.none(), "timeout": 5}
brittle = Agent(calls_once("press"), name="brittle", capabilities=[RomancyDurability()])


@brittle.tool_plain(metadata={"romancy": own})
async def press() -> str:
    tool_calls.append("press")
    raise ConnectionError("broken")


@workflow
async def pressing(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        return (await brittle.run("Press.")).output


async def test_a_tool_may_have_a_policy_of_its_own() -> None:
    async with TestEnvironment(workflows=[pressing]) as env:
        with pytest.raises(WorkflowFailedError, match="broken"):
            await (await env.app.start_workflow(pressing)).result()
    assert tool_calls == ["press"]


odd = Agent(calls_once("twist"), name="odd", capabilities=[RomancyDurability()])


@odd.tool_plain(metadata={"romancy": {"retries": 3}})
async def twist() -> str:
    raise AssertionError("never called")


@workflow
async def twisting(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        return (await odd.run("Twist.")).output


async def test_unknown_options_of_a_tool_are_reported() -> None:
    async with TestEnvironment(workflows=[twisting]) as env:
        with pytest.raises(WorkflowFailedError, match="give `retry`, `timeout`"):
            await (await env.app.start_workflow(twisting)).result()


# --- messages and streams


@activity
async def keep(ctx: ActivityContext, messages: bytes) -> int:
    return len(messages)


@workflow
async def diary(ctx: WorkflowContext) -> list[datetime]:
    with in_workflow(ctx):
        first = await agent.run("How is the forecast?")
        await keep(ctx, first.all_messages_json())  # the arguments must be the same in every replay
        second = await agent.run("And now?", message_history=first.all_messages())
        await keep(ctx, second.all_messages_json())
    return [
        message.timestamp for message in second.all_messages() if isinstance(message, ModelRequest) and message.timestamp
    ]


async def test_messages_are_the_same_on_every_replay_with_the_time_of_the_workflow() -> None:
    async with TestEnvironment(workflows=[diary], replay_always=True) as env:
        handle = await env.app.start_workflow(diary)
        times = await handle.result()
        instance = await env.app.get_instance(handle.instance_id)
    assert instance is not None
    assert times == sorted(times)
    assert len(times) == 3
    assert all(abs(time - instance.created_at) < timedelta(minutes=5) for time in times)


@workflow
async def several(ctx: WorkflowContext) -> list[str]:
    with in_workflow(ctx):
        results = await asyncio.gather(*[agent.run("How is the forecast?") for _ in range(3)])
    return [result.output for result in results]


async def test_agents_run_beside_each_other() -> None:
    async with TestEnvironment(workflows=[several], replay_always=True) as env:
        assert await (await env.app.start_workflow(several)).result() == ["after 3 messages"] * 3
    assert sorted(requests) == [1, 1, 1, 3, 3, 3]


@workflow
async def step_by_step(ctx: WorkflowContext) -> list[str]:
    with in_workflow(ctx):
        async with agent.iter("How is the forecast?") as run:
            return [type(node).__name__ async for node in run]


async def test_the_steps_of_a_run_can_be_gone_through() -> None:
    async with TestEnvironment(workflows=[step_by_step], replay_always=True) as env:
        nodes = await (await env.app.start_workflow(step_by_step)).result()
    assert nodes[-1] == "End"
    assert requests == [1, 3]


@workflow
async def streamed(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        async with speaker.run_stream("Speak.") as response:
            return await response.get_output()


async def test_a_stream_in_the_workflow_gives_what_was_recorded() -> None:
    async with TestEnvironment(workflows=[streamed], replay_always=True) as env:
        assert await (await env.app.start_workflow(streamed)).result() == "one two"
    assert requests == [1]


boss = Agent(calls_once("delegate"), name="boss", capabilities=[RomancyDurability()])


@boss.tool_plain
async def delegate() -> str:
    return (await agent.run("How is the forecast?")).output


@workflow
async def bossing(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        return (await boss.run("See to it.")).output


async def test_an_agent_that_a_tool_runs_is_a_part_of_the_tools_activity() -> None:
    async with TestEnvironment(workflows=[bossing], replay_always=True) as env:
        handle = await env.app.start_workflow(bossing)
        assert await handle.result() == "after 3 messages"
        names = [entry.name async for entry in handle.history()]
    assert [name.partition("__")[0] for name in names] == ["boss"] * 3


# --- tools that run as part of the workflow


@activity(retry=RetryPolicy.none())
async def book(ctx: ActivityContext, seat: Annotated[int, "which one"], at: date | None = None) -> str:
    """Book a seat."""
    tool_calls.append(f"book {seat} {ctx.activity_id}")
    return f"seat {seat}"


@book.compensate
async def release(ctx: ActivityContext, result: str, seat: int, at: date | None = None) -> None:
    tool_calls.append(f"release {result}")


async def ask_a_person(ctx: WorkflowContext, question: str) -> str:
    """Ask a person."""
    answer = await wait_event(ctx, "answered", subject=ctx.instance_id)
    return f"{question} {answer.data}"


traveller = Agent(
    calls_once("book", seat=7), name="traveller", tools=[workflow_tool(book)], capabilities=[RomancyDurability()]
)
curious = Agent(
    calls_once("ask", question="Tea?"),
    name="curious",
    tools=[workflow_tool(ask_a_person, name="ask", description="Ask.")],
    capabilities=[RomancyDurability()],
)


@workflow
async def travel(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        told = (await traveller.run("Book.")).output
    raise ValueError(f"no train after all, though {told}")


async def test_an_activity_as_a_tool_keeps_its_compensation() -> None:
    async with TestEnvironment(workflows=[travel], replay_always=True) as env:
        with pytest.raises(WorkflowFailedError, match="though seat 7"):
            await (await env.app.start_workflow(travel)).result()
    assert tool_calls == ["book 7 book:1", "release seat 7"]


def test_a_model_sees_the_parameters_of_an_activity_without_the_context() -> None:
    definition = workflow_tool(book).tool_def
    assert (definition.name, definition.description) == ("book", "Book a seat.")
    assert list(definition.parameters_json_schema["properties"]) == ["seat", "at"]
    assert definition.parameters_json_schema["required"] == ["seat"]


@workflow
async def wonder(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        return (await curious.run("Ask a person.")).output


async def test_a_tool_waits_for_an_event_and_outlives_the_process() -> None:
    async with TestEnvironment(workflows=[wonder], replay_always=True) as env:
        handle = await env.app.start_workflow(wonder)
        await env.settle()
        await env.restart()
        await env.app.send_event("answered", "/desk", "Please.", subject=handle.instance_id)
        assert await env.app.get_handle(handle.instance_id).result() == "Tea? Please."
    assert requests == [1, 3]


async def test_an_unsuitable_workflow_tool_is_reported() -> None:
    with pytest.raises(ConfigurationError, match="give an activity, or an `async def`"):
        workflow_tool(lambda ctx: None)  # type: ignore[arg-type, return-value]

    async def alone() -> None: ...

    with pytest.raises(ConfigurationError, match="takes no context"):
        workflow_tool(alone)
    with pytest.raises(ConfigurationError, match="run its agent inside `in_workflow"):
        await traveller.run("Book.")


async def let_decide(ctx: RunContext[WorkflowContext], requests: DeferredToolRequests) -> DeferredToolResults:
    decided = await wait_event(ctx.deps, "decided", subject=ctx.deps.instance_id)
    return DeferredToolResults(approvals={call.tool_call_id: bool(decided.data) for call in requests.approvals})


cashier = Agent(
    calls_once("pay_out", amount=7),
    name="cashier",
    deps_type=WorkflowContext,
    capabilities=[RomancyDurability[WorkflowContext](), HandleDeferredToolCalls(let_decide)],
)


@cashier.tool_plain(requires_approval=True)
async def pay_out(amount: int) -> str:
    tool_calls.append(str(amount))
    return f"paid {amount}"


@workflow
async def till(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        return (await cashier.run("Pay.", deps=ctx)).output


async def test_a_person_approves_in_the_middle_of_a_run() -> None:
    async with TestEnvironment(workflows=[till], replay_always=True) as env:
        handle = await env.app.start_workflow(till)
        await env.settle()
        assert tool_calls == []
        await env.restart()
        await env.app.send_event("decided", "/desk", True, subject=handle.instance_id)
        assert await env.app.get_handle(handle.instance_id).result() == "paid 7"
    assert (requests, tool_calls) == ([1, 3], ["7"])


# --- the page, and the extra


def test_the_reference_names_everything() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    assert all(re.search(rf"\b{name}\b", page) for name in module.__all__)
    rows = {row[0]: row[1] for row in table_of(REFERENCE, "RomancyDurability")}
    arguments = inspect.signature(RomancyDurability).parameters
    assert rows == {name: repr(one.default) for name, one in arguments.items()}
    assert [row[0] for row in table_of(REFERENCE, "ActivityOptions")] == list(ActivityOptions.__annotations__)
    assert f"`{signature_of(workflow_tool)}`" in page


@pytest.mark.parametrize("name", ["pydantic_ai", "llm"])
def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for integration in ("pydantic_ai", "llm"):
        monkeypatch.delitem(sys.modules, f"romancy.integrations.{integration}", raising=False)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'romancy\[pydantic-ai\]'"):
        importlib.import_module(f"romancy.integrations.{name}")
