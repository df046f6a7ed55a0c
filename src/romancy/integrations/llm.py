"""Language models in workflows: every request is an activity, so it is recorded, retried, and not paid for twice.

    call    returns a text for a prompt
    parse   returns a validated value of a type for a prompt
    define  makes a function from a prompt and its model, which is called like an activity
    Agent   a model with tools

    set_app_defaults    sets the default model and options for the workflows of an app

The module is based on the agents of pydantic-ai, made durable by `romancy.integrations.pydantic_ai`. It accepts every model
of pydantic-ai, by name (`"openai:gpt-5"`) or as an object. For other features, use pydantic-ai directly.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar, cast, get_type_hints, overload
from weakref import WeakKeyDictionary

from typing_extensions import Unpack

from romancy import Activity, App, ConfigurationError, Duration, InvalidWorkflowStateError, RetryPolicy, WorkflowContext

try:
    from pydantic_ai import Agent as Inner
    from pydantic_ai import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        ModelSettings,
        RunUsage,
        SystemPromptPart,
        TextPart,
        Tool,
        UsageLimits,
        UserPromptPart,
    )
    from pydantic_ai.models import Model
    from pydantic_ai.toolsets import AbstractToolset

    from romancy.integrations.pydantic_ai import RomancyDurability, in_workflow, workflow_tool
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "pydantic_ai":
        raise
    raise ConfigurationError(
        "Language models need pydantic-ai, which is not installed: pip install 'romancy[pydantic-ai]'"
    ) from error

__all__ = [
    "Agent",
    "Definition",
    "Message",
    "Options",
    "Reply",
    "call",
    "clear_app_defaults",
    "define",
    "parse",
    "set_app_defaults",
    "stand_in",
]

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_STAND_INS: list[Model] = []
"""Process-wide, because workflows run in tasks of the worker, which do not inherit context variables of the test."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a conversation, in a form that can be an argument or a result of workflows."""

    role: Literal["system", "user", "assistant"]
    content: str

    def to_model(self, now: datetime) -> ModelMessage:
        """Return the message as one of pydantic-ai."""
        match self.role:
            case "system":
                return ModelRequest([SystemPromptPart(self.content, timestamp=now)], timestamp=now)
            case "user":
                return ModelRequest([UserPromptPart(self.content, timestamp=now)], timestamp=now)
            case "assistant":
                return ModelResponse([TextPart(self.content)], timestamp=now)


Prompt: TypeAlias = str | Sequence[Message | ModelMessage]
"""A text, or a conversation that ends with a message of the user."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """The reply of a model."""

    output: T
    messages: list[ModelMessage]
    """The whole conversation: pass it as `history` to continue it."""
    usage: RunUsage
    """Requests and tokens, including those of corrections and tools."""


class Options(TypedDict, total=False):
    """Options of a request to a model."""

    system: str | None
    """The system prompt."""
    settings: ModelSettings | None
    """Settings of the model: `{"temperature": 0, "max_tokens": 500}`."""
    limits: UsageLimits | None
    """Limits on requests and tokens of one call; by default 50 requests."""
    corrections: int
    """How often an invalid reply is returned to the model with its errors; by default 2 times."""
    retry: RetryPolicy | None
    """Retry policy of each activity; by default that of the app."""
    timeout: Duration | None
    """Timeout of each attempt of an activity."""


@dataclass(frozen=True, slots=True)
class _ResolvedOptions:
    """The options, with their defaults."""

    system: str | None = None
    settings: ModelSettings | None = None
    limits: UsageLimits | None = None
    corrections: int = 2
    retry: RetryPolicy | None = None
    timeout: Duration | None = None


@dataclass(frozen=True, slots=True)
class _Defaults:
    """The default model and options of an app."""

    model: Model | str | None = None
    options: Options = field(default_factory=Options)


_NO_DEFAULTS = _Defaults()
_DEFAULTS: WeakKeyDictionary[App, _Defaults] = WeakKeyDictionary()


def set_app_defaults(app: App, *, model: Model | str | None = None, **options: Unpack[Options]) -> None:
    """Set the default model and options for the workflows of an app. Options of a single request override them.

    `settings` are merged one by one. A second call replaces all defaults of the first. Every process that runs the workflows
    must set the same defaults, because after a crash another process may continue an instance.

    >>> # llm.set_app_defaults(app, model="openai:gpt-5", settings={"max_tokens": 1024})
    """
    _ResolvedOptions(**options)  # raises an error for unknown names now
    _DEFAULTS[app] = _Defaults(model, options)


def clear_app_defaults(app: App) -> None:
    """Remove the defaults that `set_app_defaults` has set."""
    _DEFAULTS.pop(app, None)


@contextmanager
def stand_in(model: Model) -> Iterator[None]:
    """Replace every model in this process by this one, for tests.

    >>> # with stand_in(TestModel()): ...
    """
    _STAND_INS.append(model)
    try:
        yield
    finally:
        _STAND_INS.remove(model)


class Agent(Generic[T]):
    """A model with tools, which it calls until it has the reply. Every request and every tool call is an activity.

    `tools` are activities; functions whose first parameter is the workflow context, which are workflow code and may wait for
    events; and other functions, each call of which becomes an activity. `toolsets` are those of pydantic-ai, such as MCP
    servers.

    >>> helper = Agent("helper", model="openai:gpt-5", system="Be brief.")
    """

    @overload
    def __init__(
        self: Agent[str],
        name: str,
        *,
        model: Model | str | None = None,
        tools: Sequence[Tool[Any] | Callable[..., Any]] = (),
        toolsets: Sequence[AbstractToolset[Any]] = (),
        **options: Unpack[Options],
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        *,
        output: type[T],
        model: Model | str | None = None,
        tools: Sequence[Tool[Any] | Callable[..., Any]] = (),
        toolsets: Sequence[AbstractToolset[Any]] = (),
        **options: Unpack[Options],
    ) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        model: Model | str | None = None,
        output: Any = str,
        tools: Sequence[Any] = (),
        toolsets: Sequence[AbstractToolset[Any]] = (),
        **options: Unpack[Options],
    ) -> None:
        self.name = name
        self._model = model
        self._output = output
        self._tools = [_tool(one) for one in tools]
        self._toolsets = toolsets
        self._options = options
        self._chosen = _ResolvedOptions(**options)
        self._built: _BuiltAgent | None = None

    def tool(self, function: F) -> F:
        """Add a tool: a decorator. Returns the function or the activity unchanged."""
        self._tools.append(_tool(function))
        self._built = None
        return function

    async def __call__(self, ctx: WorkflowContext, prompt: Prompt, *, history: Sequence[ModelMessage] = ()) -> Reply[T]:
        """Run the agent in a workflow. Raises the errors of pydantic-ai, such as `UsageLimitExceeded`."""
        text, messages = _conversation(prompt, history, ctx.now())
        built = self._agent(_defaults_of(ctx))
        with in_workflow(ctx):
            result = await built.agent.run(text, message_history=messages, usage_limits=built.chosen.limits)
        return Reply(cast(T, result.output), result.all_messages(), result.usage)

    def _agent(self, defaults: _Defaults) -> _BuiltAgent:
        model = defaults.model if self._model is None else self._model
        if _STAND_INS:
            model = _STAND_INS[-1]
        if model is None:
            raise ConfigurationError(
                f"{self.name!r} has no model: give it model=..., or set one for the app with llm.set_app_defaults()."
            )
        if self._built is None or self._built.model is not model or self._built.defaults is not defaults:
            chosen = self._chosen if defaults is _NO_DEFAULTS else _merged(defaults.options, self._options)
            self._built = _BuiltAgent(model, defaults, chosen, self._build(model, chosen))
        return self._built

    def _build(self, model: Model | str, chosen: _ResolvedOptions) -> Inner[Any, Any]:
        durability = RomancyDurability[Any](
            model_retry=chosen.retry, model_timeout=chosen.timeout, tool_retry=chosen.retry, tool_timeout=chosen.timeout
        )
        return Inner[Any, Any](
            model,
            name=self.name,
            output_type=self._output,
            instructions=chosen.system,
            model_settings=chosen.settings,
            retries=chosen.corrections,
            tools=self._tools,
            toolsets=self._toolsets,
            capabilities=[durability],
            defer_model_check=True,
        )


@dataclass(frozen=True, slots=True)
class _BuiltAgent:
    """An agent of pydantic-ai, and the values from which it was built."""

    model: Model | str
    defaults: _Defaults
    chosen: _ResolvedOptions
    agent: Inner[Any, Any]


def _defaults_of(ctx: WorkflowContext) -> _Defaults:
    try:
        return _DEFAULTS.get(ctx.app, _NO_DEFAULTS)
    except InvalidWorkflowStateError:  # a history is replayed without an app
        return _NO_DEFAULTS


def _merged(defaults: Options, options: Options) -> _ResolvedOptions:
    merged: Options = {**defaults, **options}
    if (general := defaults.get("settings")) and (special := options.get("settings")):
        merged["settings"] = {**general, **special}
    return _ResolvedOptions(**merged)


def _tool(one: Any) -> Any:
    return workflow_tool(one) if isinstance(one, Activity) or _takes_workflow(one) else one


def _takes_workflow(one: Any) -> bool:
    if not inspect.isfunction(one):
        return False
    first = next(iter(inspect.signature(one).parameters), None)
    return first is not None and get_type_hints(one).get(first) is WorkflowContext


def _conversation(prompt: Prompt, history: Sequence[ModelMessage], now: datetime) -> tuple[str | None, list[ModelMessage]]:
    if isinstance(prompt, str):
        return prompt, list(history)
    messages = [one.to_model(now) if isinstance(one, Message) else one for one in prompt]
    if not messages or not isinstance(messages[-1], ModelRequest):
        raise ConfigurationError("A conversation that is sent to a model must end with a message of the user.")
    return None, [*history, *messages]


async def call(
    ctx: WorkflowContext,
    prompt: Prompt,
    *,
    model: Model | str | None = None,
    name: str = "llm",
    history: Sequence[ModelMessage] = (),
    **options: Unpack[Options],
) -> Reply[str]:
    """Ask a model for a text. `name` is the name of the activities in the history.

    >>> # reply = await llm.call(ctx, "Say hello.", model="openai:gpt-5")
    """
    return await Agent(name, model=model, **options)(ctx, prompt, history=history)


async def parse(
    ctx: WorkflowContext,
    output: type[T],
    prompt: Prompt,
    *,
    model: Model | str | None = None,
    name: str = "llm",
    history: Sequence[ModelMessage] = (),
    **options: Unpack[Options],
) -> Reply[T]:
    """Ask a model for a value of a type: a pydantic model, a dataclass, `list[str]`, ...

    An invalid reply is returned to the model with its errors, up to `corrections` times.

    >>> # invoice = (await llm.parse(ctx, Invoice, text, model="openai:gpt-5")).output
    """
    return await Agent(name, model=model, output=output, **options)(ctx, prompt, history=history)


class Definition(Generic[P, T]):
    """A named prompt with its model, made by `define`. Workflows call it like an activity."""

    def __init__(self, prompt: Callable[P, Prompt], agent: Agent[T]) -> None:
        functools.update_wrapper(self, prompt)
        self.name = agent.name
        self._prompt = prompt
        self._agent = agent

    async def __call__(self, ctx: WorkflowContext, /, *args: P.args, **kwargs: P.kwargs) -> Reply[T]:
        """Make the prompt from the arguments, and send it to the model."""
        return await self._agent(ctx, self._prompt(*args, **kwargs))


@overload
def define(
    *, model: Model | str | None = None, name: str | None = None, **options: Unpack[Options]
) -> Callable[[Callable[P, Prompt]], Definition[P, str]]: ...
@overload
def define(
    *, model: Model | str | None = None, output: type[T], name: str | None = None, **options: Unpack[Options]
) -> Callable[[Callable[P, Prompt]], Definition[P, T]]: ...
def define(
    *, model: Model | str | None = None, output: Any = str, name: str | None = None, **options: Unpack[Options]
) -> Callable[[Callable[P, Prompt]], Definition[P, Any]]:
    """Make a function that returns a prompt into a request that workflows can call like an activity.

    >>> # @llm.define(model="openai:gpt-5", output=Summary)
    ... # def summarise(text: str) -> str:
    ... #     return f"Summarise this: {text}"
    """

    def decorate(prompt: Callable[P, Prompt]) -> Definition[P, Any]:
        called = str(name or prompt.__name__)
        return Definition(prompt, Agent[Any](called, model=model, output=output, **options))

    return decorate
