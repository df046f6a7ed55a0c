"""Language models: typed replies and tools, with each request recorded. Without a key, a fake model replies.

`MODEL=openai:gpt-5 python llm.py` uses a real one: `pip install 'pydantic-ai-slim[openai]'`, and OPENAI_API_KEY.

Output:
    looked up order 42
    Order 42 is on its way. We are sorry.
    llm__model.request:1
    clerk__model.request:1
    look_up:1
    clerk__model.request:2
"""

import asyncio
import os

from pydantic import BaseModel
from pydantic_ai import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from romancy import ActivityContext, App, WorkflowContext, activity, workflow
from romancy.integrations import llm


class Letter(BaseModel):
    """The data that the model extracts from a letter."""

    order: int
    angry: bool


def pretend(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Reply in place of a model."""
    if info.output_tools:
        return ModelResponse([ToolCallPart(info.output_tools[0].name, {"order": 42, "angry": True})])
    text = TextPart("Order 42 is on its way. We are sorry.")
    return ModelResponse([ToolCallPart("look_up", {"order": 42}) if len(messages) == 1 else text])


MODEL = os.environ.get("MODEL") or FunctionModel(pretend)


@activity
async def look_up(ctx: ActivityContext, order: int) -> str:
    """Find an order. An activity can be used directly as a tool."""
    print("looked up order", order)
    return f"order {order} is on its way"


clerk = llm.Agent("clerk", model=MODEL, system="Answer the customer.", tools=[look_up])


@workflow
async def answer(ctx: WorkflowContext, text: str) -> str:
    """Read a letter and answer it."""
    letter = (await llm.parse(ctx, Letter, text, model=MODEL)).output
    return (await clerk(ctx, f"Where is order {letter.order}? The customer is angry: {letter.angry}.")).output


async def main() -> None:
    """Answer a letter twice: the second app takes everything from the history."""
    lines: list[str] = []
    for _ in range(2):
        async with App("sqlite:///llm.db") as app:
            handle = await app.start_workflow(answer.with_options(instance_id="letter-1"), "Where is my order 42?!")
            lines = [await handle.result(), *[entry.activity_id async for entry in handle.history()]]
    print(*lines, sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
