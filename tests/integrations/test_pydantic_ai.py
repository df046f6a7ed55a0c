"""Agents inside workflows: replayed after every step, crashed in between, and no model is asked twice."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

import pytest
from mcp.server import MCPServer
from pydantic_ai import (
    Agent,
    AgentStreamEvent,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UsageLimitExceeded,
    UsageLimits,
)
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.function import AgentInfo, FunctionModel

from romancy import WorkflowContext, WorkflowFailedError, wait_event, workflow
from romancy.integrations.pydantic_ai import RomancyDurability, in_workflow
from romancy.testing import TestEnvironment

asked: list[int] = []
"""How many messages the model got, each time it was asked."""
looked: list[str] = []


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    asked.append(len(messages))
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("weather", {"city": "Oslo"}), ToolCallPart("weather", {"city": "Rome"})])
    return ModelResponse([TextPart(f"after {len(messages)} messages")])


agent = Agent(FunctionModel(answer), name="helper", capabilities=[RomancyDurability()])


@agent.tool_plain
async def weather(city: str) -> str:
    looked.append(city)
    return f"rain in {city}"


@workflow
async def advise(ctx: WorkflowContext, question: str) -> str:
    with in_workflow(ctx):
        first = await agent.run(question)
        second = await agent.run("and now?", message_history=first.all_messages())
    return f"{first.output}, {second.output}"


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    asked.clear()
    looked.clear()


async def test_every_request_and_call_is_an_activity_and_happens_once() -> None:
    async with TestEnvironment(workflows=[advise], replay_always=True) as env:
        handle = await env.app.start_workflow(advise, "How is the weather?")
        assert await handle.result() == "after 3 messages, after 5 messages"
        names = [entry.name async for entry in handle.history() if entry.kind == "activity"]
    assert asked == [1, 3, 5]
    assert sorted(looked) == ["Oslo", "Rome"]
    assert [name for name in names if name == "helper__model.request"] == ["helper__model.request"] * 3
    assert len([name for name in names if "call_tool" in name]) == 2


async def test_outside_a_workflow_it_is_an_agent_as_others() -> None:
    assert (await agent.run("How is the weather?")).output == "after 3 messages"


@pytest.mark.parametrize("point", ["commit.before", "commit.after", "activity.before"])
@pytest.mark.parametrize("nth", range(2, 8))
async def test_after_a_crash_no_recorded_request_is_made_again(point: str, nth: int) -> None:
    async with TestEnvironment(workflows=[advise]) as env:
        handle = await env.app.start_workflow(advise, "How is the weather?")
        env.crash_at(point, nth)
        assert await handle.result() == "after 3 messages, after 5 messages"
        recorded = [entry.name async for entry in handle.history() if entry.name == "helper__model.request"]
        # What was running at the crash, and not yet recorded, is done again; what was recorded is not.
        unrecorded = 1 if point == "commit.before" else 0
    assert len(recorded) == 3
    assert len(asked) <= 3 + unrecorded
    assert sorted(set(asked)) == [1, 3, 5]


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
    asked.append(len(messages))
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("pay", {"amount": 7})])
    [part] = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    return ModelResponse([TextPart(str(part.content))])


buyer = Agent(FunctionModel(buys), name="buyer", output_type=[str, DeferredToolRequests], capabilities=[RomancyDurability()])


@buyer.tool_plain(requires_approval=True)
async def pay(amount: int) -> str:
    looked.append(str(amount))
    return f"paid {amount}"


@pytest.mark.parametrize(("decision", "paid"), [(True, ["7"]), (False, [])])
async def test_a_person_approves_by_an_event_after_a_restart(decision: bool, paid: list[str]) -> None:
    async with TestEnvironment(workflows=[spend], replay_always=True) as env:
        handle = await env.app.start_workflow(spend, 7)
        await env.settle()
        assert looked == []
        await env.restart()
        await env.app.send_event("decided", "/desk", decision, subject=handle.instance_id)
        output = await env.app.get_handle(handle.instance_id).result()
    assert output == "paid 7" if decision else "denied" in output
    assert (asked, looked) == ([1, 3], paid)


@workflow
async def thrifty(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        try:
            await agent.run("How is the weather?", usage_limits=UsageLimits(request_limit=1))
        except UsageLimitExceeded:
            return "enough"
    return "all of it"


async def test_limits_hold_and_are_replayed() -> None:
    async with TestEnvironment(workflows=[thrifty], replay_always=True) as env:
        handle = await env.app.start_workflow(thrifty)
        assert await handle.result() == "enough"
    assert asked == [1]


heard: list[str] = []


async def hear(ctx: RunContext[object], events: AsyncIterable[AgentStreamEvent]) -> None:
    async for event in events:
        heard.append(type(event).__name__)


async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    asked.append(len(messages))
    yield "one "
    yield "two"


speaker = Agent(
    FunctionModel(stream_function=speak), name="speaker", capabilities=[RomancyDurability(event_stream_handler=hear)]
)


@workflow
async def dictate(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        return (await speaker.run("Speak.")).output


async def test_what_a_model_says_is_heard_once_while_it_speaks() -> None:
    heard.clear()
    async with TestEnvironment(workflows=[dictate], replay_always=True) as env:
        assert await (await env.app.start_workflow(dictate)).result() == "one two"
    assert asked == [1]
    assert heard.count("PartStartEvent") == 1


@workflow
async def surprise(ctx: WorkflowContext) -> str:
    with in_workflow(ctx):
        return (await agent.run("Hm?", toolsets=[FunctionToolset(id="more")])).output


async def test_tools_that_come_with_a_run_are_refused() -> None:
    async with TestEnvironment(workflows=[surprise]) as env:
        with pytest.raises(WorkflowFailedError, match="UserError"):
            await (await env.app.start_workflow(surprise)).result()
    assert asked == []


desk = MCPServer("desk")


@desk.tool()
def stamp() -> str:
    looked.append("stamp")
    return "stamped"


def stamps(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    asked.append(len(messages))
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
    assert (asked, looked) == ([1, 3], ["stamp"])
