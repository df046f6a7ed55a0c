"""Checks of the signatures of decorated functions, made when a function is decorated."""

from __future__ import annotations

import builtins
import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import PydanticUserError

from romancy.errors import ConfigurationError
from romancy.serde.payload import CallCodec, ValueCodec

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_context_first(fn: Any, what: str) -> None:
    """Refuse a function whose first parameter is not the context."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{fn!r} cannot be a {what}: its parameters cannot be read.") from error
    name = getattr(fn, "__qualname__", repr(fn))
    if not parameters or parameters[0].kind not in _POSITIONAL:
        raise ConfigurationError(f"{what} {name} takes no context: its first parameter must be the context, e.g. `ctx`.")
    if parameters[0].name in ("self", "cls"):
        raise ConfigurationError(
            f"{what} {name} is a method: an object cannot be stored between two runs. Use a function or a static method "
            "whose first parameter is the context."
        )
    _check_context_type(parameters[0], fn, f"{what} {name}")


def _check_context_type(parameter: inspect.Parameter, fn: Any, what: str) -> None:
    """Refuse a first parameter that is annotated with another class: the context was forgotten."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotation = getattr(fn, "__globals__", {}).get(annotation, getattr(builtins, annotation, None))
    if isinstance(annotation, type) and not _may_be_context(annotation):
        raise ConfigurationError(
            f"{what} takes no context: its first parameter {parameter.name!r} is annotated {parameter.annotation!r}. The "
            "first parameter must be the context, e.g. `ctx`."
        )


def _may_be_context(annotation: type) -> bool:
    return annotation in (object, Any, inspect.Parameter.empty) or annotation.__name__.endswith("Context")


def check_types(*codecs: CallCodec | ValueCodec[Any]) -> None:
    """Refuse types that cannot be stored. A type that is not defined yet is checked by the first call."""
    for codec in codecs:
        try:
            codec.check()
        except ConfigurationError as error:
            if not _not_defined_yet(error.__cause__):
                raise


def _not_defined_yet(cause: BaseException | None) -> bool:
    if isinstance(cause, PydanticUserError):
        return cause.code == "class-not-fully-defined"
    # pydantic's placeholder for the schema of a model whose fields have types that are not defined yet.
    return isinstance(cause, NameError | AttributeError) or "MockCoreSchema" in str(cause)


def refuse_unknown(what: str, unknown: Mapping[str, object], fn: Callable[..., Any]) -> None:
    """Refuse an option that does not exist; the error names the nearest existing option."""
    if not unknown:
        return
    name = next(iter(unknown))
    parameters = inspect.signature(fn).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else f" The options are {', '.join(known)}."
    raise ConfigurationError(f"{what}() has no option {name!r}.{hint}")
