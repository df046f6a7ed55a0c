"""A process with an agent whose model records each request in a file; the tests of agents start it and kill it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from pydantic_ai import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from romancy import App, WorkflowContext, workflow
from romancy.integrations import llm

FOLDER = Path(sys.argv[1])


def note(line: str) -> None:
    with (FOLDER / "notes").open("a") as notes:
        notes.write(f"{line}\n")


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool first; then wait for the file `gate` before the final reply."""
    note(f"asked with {len(messages)}")
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("look", {"where": "the shelf"})])
    (FOLDER / f"thinking-{os.getpid()}").touch()
    while not (FOLDER / "gate").exists():
        await asyncio.sleep(0.02)
    return ModelResponse([TextPart("It is there.")])


async def look(where: str) -> str:
    note(f"looked on {where}")
    return "something"


searcher = llm.Agent("searcher", model=FunctionModel(answer), tools=[look])


@workflow
async def find(ctx: WorkflowContext) -> str:
    return (await searcher(ctx, "Where is it?")).output


async def main() -> None:
    async with App(f"sqlite:///{FOLDER / 'agents.db'}", heartbeat_interval=0.2, lease_timeout=1) as app:
        print(await (await app.start_workflow(find.with_options(instance_id="find-1"))).result())


if __name__ == "__main__":
    asyncio.run(main())
