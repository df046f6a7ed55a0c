"""Tests of requests of workflows to language models: a replay or a crash repeats no recorded request."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    ModelHTTPError,
    ModelMessage,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UsageLimits,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from tests.docs.pages import DOCS, table_of
from tests.integrations.integration_helpers import signature_of

from romancy import (
    ActivityContext,
    ActivityTimeoutError,
    DeterminismViolationError,
    RetryExhaustedError,
    RetryPolicy,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    sleep,
    wait_event,
    workflow,
)
from romancy.integrations import llm
from romancy.testing import TestEnvironment, record_history, replay_history

REFERENCE = DOCS / "reference" / "llm.md"


class ScriptedModel:
    """A model that gives prepared replies and records the requests."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.requests: list[list[ModelMessage]] = []
        self.instructions: list[str | None] = []
        self.settings: list[Any] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests.append(list(messages))
        self.instructions.append(info.instructions)
        self.settings.append(info.model_settings)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, dict):  # a model returns a value by calling the output tool
            return ModelResponse([ToolCallPart(info.output_tools[0].name, answer)])
        return ModelResponse([answer if isinstance(answer, ToolCallPart) else TextPart(answer)])

    def texts(self) -> list[list[str]]:
        """The texts of all requests."""
        text_parts = (SystemPromptPart, UserPromptPart, TextPart)
        return [
            [str(part.content) for one in messages for part in one.parts if isinstance(part, text_parts)]
            for messages in self.requests
        ]


@pytest.fixture
def script() -> Iterator[ScriptedModel]:
    """A scripted model in place of every model."""
    script = ScriptedModel()
    with llm.stand_in(FunctionModel(script)):
        yield script


class Invoice(BaseModel):
    number: str
    cents: int


@dataclass(frozen=True)
class Conversation:
    text: str
    messages: int
    requests: int


# --- call


@workflow
async def small_talk(ctx: WorkflowContext, name: str) -> Conversation:
    first = await llm.call(ctx, f"I am {name}.", model="openai:gpt-5", system="Be polite.", settings={"temperature": 0.5})
    await sleep(ctx, 3600)
    second = await llm.call(ctx, "Who am I?", model="openai:gpt-5", history=first.messages)
    return Conversation(f"{first.output} {second.output}", len(second.messages), second.usage.requests)


async def test_a_model_is_asked_once_and_the_conversation_goes_on(script: ScriptedModel) -> None:
    script.answers = ["Hello.", "Ada."]
    async with TestEnvironment(workflows=[small_talk], replay_always=True) as env:
        handle = await env.app.start_workflow(small_talk, "Ada")
        assert await handle.result() == Conversation("Hello. Ada.", 4, 1)
        names = [entry.activity_id async for entry in handle.history() if entry.kind == "activity"]
    assert names == ["llm__model.request:1", "llm__model.request:2"]
    assert script.texts() == [["I am Ada."], ["I am Ada.", "Hello.", "Who am I?"]]
    assert script.instructions[0] == "Be polite."
    assert script.settings[0]["temperature"] == 0.5


@pytest.mark.parametrize("point", ["commit.before", "commit.after", "activity.before", "activity.after"])
@pytest.mark.parametrize("nth", range(2, 6))
async def test_a_crash_repeats_no_recorded_request(script: ScriptedModel, point: str, nth: int) -> None:
    script.answers = ["Hello."] * 10
    async with TestEnvironment(workflows=[small_talk]) as env:
        handle = await env.app.start_workflow(small_talk, "Ada")
        env.crash_at(point, nth)
        assert (await handle.result()).text == "Hello. Hello."
        recorded = [entry async for entry in handle.history() if entry.kind == "activity"]
    assert len(recorded) == 2
    # A request whose result was not recorded before the crash is repeated.
    assert len(script.requests) <= (3 if point in ("commit.before", "activity.after") else 2)


@workflow
async def reminded(ctx: WorkflowContext, messages: list[llm.Message]) -> str:
    return (await llm.call(ctx, messages, model="test")).output


async def test_a_conversation_can_be_written_down(script: ScriptedModel) -> None:
    script.answers = ["Oslo."]
    messages = [
        llm.Message("system", "One word."),
        llm.Message("user", "The capital of Sweden?"),
        llm.Message("assistant", "Stockholm."),
        llm.Message("user", "And of Norway?"),
    ]
    async with TestEnvironment(workflows=[reminded], replay_always=True) as env:
        assert await (await env.app.start_workflow(reminded, messages)).result() == "Oslo."
    assert script.texts() == [[one.content for one in messages]]
    assert [type(message) for message in script.requests[0]].count(ModelResponse) == 1


@pytest.mark.parametrize("messages", [[], [llm.Message("user", "Hm?"), llm.Message("assistant", "Hm.")]])
async def test_a_conversation_ends_with_the_user(script: ScriptedModel, messages: list[llm.Message]) -> None:
    async with TestEnvironment(workflows=[reminded]) as env:
        with pytest.raises(WorkflowFailedError, match="must end with a message of the user"):
            await (await env.app.start_workflow(reminded, messages)).result()
    assert script.requests == []


@activity
async def keep(ctx: ActivityContext, messages: list[ModelMessage]) -> int:
    return len(messages)


@workflow
async def minutes(ctx: WorkflowContext) -> int:
    reply = await llm.call(ctx, [llm.Message("assistant", "Yes?"), llm.Message("user", "Hello.")], model="test")
    return await keep(ctx, reply.messages)  # the arguments must be the same in every replay


async def test_a_conversation_can_be_stored_and_is_the_same_on_replay(script: ScriptedModel) -> None:
    script.answers = ["Hello."]
    async with TestEnvironment(workflows=[minutes], replay_always=True) as env:
        assert await (await env.app.start_workflow(minutes)).result() == 3


# --- retries


@workflow
async def insist(ctx: WorkflowContext) -> str:
    try:
        return (await llm.call(ctx, "Well?", model="test", retry=RetryPolicy.fixed(3, 60))).output
    except RetryExhaustedError as error:
        return f"gave up after {error.attempts}"


async def test_an_unavailable_provider_is_retried_by_the_policy(script: ScriptedModel) -> None:
    away = ModelHTTPError(503, "gpt")
    async with TestEnvironment(workflows=[insist], replay_always=True) as env:
        script.answers = [away, away, "There."]
        assert await (await env.app.start_workflow(insist)).result() == "There."
        script.answers = [away, away, away]
        assert await (await env.app.start_workflow(insist)).result() == "gave up after 3"


@workflow
async def hurry(ctx: WorkflowContext) -> str:
    return (await llm.call(ctx, "Well?", model=FunctionModel(slow), retry=RetryPolicy.none(), timeout=5)).output


async def slow(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    await asyncio.Event().wait()
    raise AssertionError("the event is never set")


async def test_a_silent_provider_times_out() -> None:
    async with TestEnvironment(workflows=[hurry]) as env:
        with pytest.raises(WorkflowFailedError) as failed:
            await (await env.app.start_workflow(hurry)).result()
    cause = failed.value.__cause__
    assert isinstance(cause, RetryExhaustedError)
    assert isinstance(cause.__cause__, ActivityTimeoutError)


# --- parse


@workflow
async def read(ctx: WorkflowContext, text: str) -> Invoice:
    return (await llm.parse(ctx, Invoice, text, model="openai:gpt-5", name="reader")).output


async def test_a_value_comes_back_checked(script: ScriptedModel) -> None:
    script.answers = [{"number": "A-1", "cents": 4200}]
    async with TestEnvironment(workflows=[read], replay_always=True) as env:
        assert await (await env.app.start_workflow(read, "No. A-1, 42 EUR")).result() == Invoice(number="A-1", cents=4200)
    assert len(script.requests) == 1


async def test_a_value_that_does_not_fit_is_corrected_and_each_answer_is_recorded(script: ScriptedModel) -> None:
    script.answers = [{"number": "A-1", "cents": "many"}, {"number": "A-1"}, {"number": "A-1", "cents": 1}]
    async with TestEnvironment(workflows=[read], replay_always=True) as env:
        handle = await env.app.start_workflow(read, "No. A-1")
        assert (await handle.result()).cents == 1
        names = [entry.activity_id async for entry in handle.history()]
    assert names == [f"reader__model.request:{number}" for number in (1, 2, 3)]
    assert "valid integer" in str(script.requests[1][-1].parts)
    assert "Field required" in str(script.requests[2][-1].parts)


async def test_a_model_that_never_fits_is_given_up(script: ScriptedModel) -> None:
    script.answers = [{"number": "A-1"}] * 9
    async with TestEnvironment(workflows=[read]) as env:
        with pytest.raises(WorkflowFailedError, match="retries"):
            await (await env.app.start_workflow(read, "No. A-1")).result()
    assert len(script.requests) == 3


# --- define


@llm.define(model="openai:gpt-5", system="Short.")
def summarise(text: str, *, words: int = 10) -> str:
    """Make it short."""
    return f"In {words} words: {text}"


@llm.define(model="openai:gpt-5", output=list[str], name="keywords")
def words_of(text: str) -> list[llm.Message]:
    return [llm.Message("system", "Nouns."), llm.Message("user", text)]


@workflow
async def digest(ctx: WorkflowContext, text: str) -> list[str]:
    summary = await summarise(ctx, text, words=3)
    keywords = await words_of(ctx, summary.output)
    return [summary.output, *keywords.output]


async def test_a_definition_is_called_like_an_activity(script: ScriptedModel) -> None:
    script.answers = ["Tea is good.", {"response": ["tea"]}]
    async with TestEnvironment(workflows=[digest], replay_always=True) as env:
        handle = await env.app.start_workflow(digest, "A long praise of tea.")
        assert await handle.result() == ["Tea is good.", "tea"]
        names = [entry.activity_id async for entry in handle.history()]
    assert names == ["summarise__model.request:1", "keywords__model.request:1"]
    assert script.texts() == [["In 3 words: A long praise of tea."], ["Nouns.", "Tea is good."]]
    assert (summarise.name, summarise.__doc__) == ("summarise", "Make it short.")


# --- agents

done: list[str] = []


@activity
async def reserve(ctx: ActivityContext, item: str) -> str:
    """Reserve an item."""
    done.append(f"reserve {item}")
    return f"{item} is put aside"


@reserve.compensate
async def put_back(ctx: ActivityContext, item: str) -> None:
    done.append(f"put back {item}")


async def ask_customer(ctx: WorkflowContext, question: str) -> str:
    """Ask the customer."""
    return f"{(await wait_event(ctx, 'answered', subject=ctx.instance_id)).data}"


def price(item: str) -> int:
    """Return the price of an item: a tool that is a plain function."""
    done.append(f"price {item}")
    return 7


clerk = llm.Agent(
    "clerk", model="openai:gpt-5", system="Sell.", tools=[reserve, ask_customer], limits=UsageLimits(request_limit=5)
)
clerk.tool(price)


@workflow
async def sell(ctx: WorkflowContext, request: str) -> str:
    reply = await clerk(ctx, request)
    if reply.output == "No.":
        raise ValueError("not sold")
    return reply.output


CALLS = [
    ToolCallPart("price", {"item": "tea"}),
    ToolCallPart("ask_customer", {"question": "For 7?"}),
    ToolCallPart("reserve", {"item": "tea"}),
]


@pytest.mark.parametrize("end", ["Yes.", "No."])
async def test_an_agent_calls_functions_activities_and_waits(script: ScriptedModel, end: str) -> None:
    script.answers = [*CALLS, end]
    done.clear()
    async with TestEnvironment(workflows=[sell], replay_always=True) as env:
        handle = await env.app.start_workflow(sell, "Tea, please.")
        await env.settle()
        assert done == ["price tea"]
        await env.restart()
        await env.app.send_event("answered", "/shop", "Fine.", subject=handle.instance_id)
        handle = env.app.get_handle(handle.instance_id)
        if end == "Yes.":
            assert await handle.result() == "Yes."
        else:
            with pytest.raises(WorkflowFailedError, match="not sold"):
                await handle.result()
    given = [part.content for part in script.requests[-1][-1].parts if isinstance(part, ToolReturnPart)]
    assert given == ["tea is put aside"]
    assert len(script.requests) == 4
    assert done == ["price tea", "reserve tea"] + (["put back tea"] if end == "No." else [])


async def test_a_limit_ends_an_agent_that_goes_on_and_on(script: ScriptedModel) -> None:
    script.answers = [CALLS[0]] * 9
    async with TestEnvironment(workflows=[sell], replay_always=True) as env:
        with pytest.raises(WorkflowFailedError, match="request_limit of 5"):
            await (await env.app.start_workflow(sell, "Tea, please.")).result()
    assert len(script.requests) == 5


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(TypeError, match="temperature"):
        llm.Agent("helper", model="test", temperature=0.5)  # type: ignore[call-overload]


async def test_stand_ins_end_with_their_block(script: ScriptedModel) -> None:
    script.answers = ["from the script"]
    async with TestEnvironment(workflows=[reminded]) as env:
        with llm.stand_in(TestModel(custom_output_text="from the other")):
            assert await (await env.app.start_workflow(reminded, [llm.Message("user", "Who?")])).result() == "from the other"
        assert await (await env.app.start_workflow(reminded, [llm.Message("user", "Who?")])).result() == "from the script"


# --- defaults of an app


@workflow
async def plain(ctx: WorkflowContext, text: str) -> str:
    return (await llm.call(ctx, text)).output


@llm.define(system="One word.", settings={"max_tokens": 5})
def curtly(text: str) -> str:
    return text


@workflow
async def special(ctx: WorkflowContext, text: str) -> str:
    return (await curtly(ctx, text)).output


async def test_missing_options_of_a_request_come_from_the_app() -> None:
    script = ScriptedModel()
    script.answers = ["Oslo.", "Rome."]
    async with TestEnvironment(workflows=[plain, special], replay_always=True) as env:
        usual: Any = {"temperature": 0.5, "max_tokens": 100}
        llm.set_app_defaults(env.app, model=FunctionModel(script), system="Be polite.", settings=usual)
        assert await (await env.app.start_workflow(plain, "Norway?")).result() == "Oslo."
        handle = await env.app.start_workflow(special, "Italy?")
        assert await handle.result() == "Rome."
        recorded = await record_history(env.app, handle.instance_id)
        assert replay_history(special, recorded, app=env.app).verdict is not None
        with pytest.raises(DeterminismViolationError):  # without the app no model is configured
            replay_history(special, recorded)
    assert script.instructions == ["Be polite.", "One word."]
    assert script.settings == [usual, {"temperature": 0.5, "max_tokens": 5}]


async def test_defaults_are_those_of_one_app_and_can_be_cleared() -> None:
    models = [TestModel(custom_output_text="one"), TestModel(custom_output_text="two")]
    async with TestEnvironment(workflows=[special]) as env, TestEnvironment(workflows=[special]) as other:
        for each, model in zip((env, other), models, strict=True):
            llm.set_app_defaults(each.app, model=model)
        for each, reply in ((env, "one"), (other, "two"), (env, "one")):
            assert await (await each.app.start_workflow(special, "Which?")).result() == reply
        for _ in range(2):
            llm.clear_app_defaults(env.app)
        with pytest.raises(WorkflowFailedError, match="'curtly' has no model"):
            await (await env.app.start_workflow(special, "Which?")).result()
        with pytest.raises(TypeError, match="temperature"):
            llm.set_app_defaults(env.app, temperature=0.5)  # type: ignore[call-arg]


# --- the page


def test_the_reference_names_everything() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    assert all(re.search(rf"\b{name}\b", page) for name in llm.__all__)
    assert all(
        f"`{signature_of(function)}`" in page
        for function in (
            llm.call,
            llm.parse,
            llm.define,
            llm.set_app_defaults,
            llm.clear_app_defaults,
            llm.stand_in,
            llm.Agent,
        )
    )
    chosen = llm.Agent("helper", model="test")._chosen
    rows = {row[0]: row[1] for row in table_of(REFERENCE, "Options")}
    assert rows == {name: repr(getattr(chosen, name)) for name in llm.Options.__annotations__}
    assert [row[0] for row in table_of(REFERENCE, "Reply")] == [one.name for one in fields(llm.Reply)]
    assert [row[0] for row in table_of(REFERENCE, "Message")] == [one.name for one in fields(llm.Message)]
