"""The registry: the workflows of an app by name and version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from romancy.authoring.workflow import Workflow, WorkflowRef, imported
from romancy.errors import ConfigurationError, WorkflowNotFoundError
from romancy.registry.fingerprint import fingerprint
from romancy.store.port import Runnable

AnyWorkflow = Workflow[..., Any]


class Registry:
    """The workflows of an app by name and version; without an explicit list, all that were imported."""

    def __init__(self, workflows: Iterable[AnyWorkflow] | None) -> None:
        self._explicit = workflows is not None
        self._known: dict[tuple[str, str], AnyWorkflow] = {}
        self._codes: dict[tuple[str, str], str] = {}
        self._imported = 0
        for workflow in workflows or ():
            self.add(workflow)

    def add(self, workflow: AnyWorkflow) -> None:
        """Register a workflow. Raises a `ConfigurationError` if its name and version belong to another function."""
        if not isinstance(workflow, Workflow):
            raise ConfigurationError(f"{workflow!r} is not a workflow: decorate it with @workflow.")
        self._explicit = True
        self._register(workflow)

    def _register(self, workflow: AnyWorkflow, *, may_redefine: bool = False) -> None:
        key = (workflow.name, workflow.version)
        other = self._known.get(key)
        if other is not None and other.fn is not workflow.fn and not (may_redefine and _redefined(other, workflow)):
            raise ConfigurationError(
                f"Two workflows are named {workflow.label!r}: {other.location} and {workflow.location}. "
                "Give one of them another name=, or a version=."
            )
        self._known[key] = workflow
        self._codes.pop(key, None)

    def refresh(self) -> None:
        """Register the workflows that were imported since the last call, if none was registered explicitly."""
        if not self._explicit and len(imported) > self._imported:
            for workflow in imported[self._imported :]:
                self._register(workflow, may_redefine=True)
            self._imported = len(imported)

    def find(self, name: str, version: str) -> AnyWorkflow | None:
        """Return the workflow with this name and version, if it is registered."""
        return self._known.get((name, version))

    def resolve(self, target: AnyWorkflow | WorkflowRef | str) -> AnyWorkflow:
        """Return a registered workflow, given itself or its name (the version that was registered last)."""
        self.refresh()
        if isinstance(target, WorkflowRef):
            return self.resolve(target.name).with_options(instance_id=target.instance_id)
        if isinstance(target, Workflow):
            known = self._known.get((target.name, target.version))
            if known is None or known.fn is not target.fn:
                raise WorkflowNotFoundError(
                    f"{target!r} is not registered with this app. Pass it in App(workflows=[...]) or app.register(...)."
                )
            return target
        if not isinstance(target, str):
            raise ConfigurationError(f"{target!r} is not a workflow: give one decorated with @workflow, or its name.")
        for (name, _), workflow in reversed(self._known.items()):
            if name == target:
                return workflow
        names = ", ".join(sorted({name for name, _ in self._known})) or "none"
        raise WorkflowNotFoundError(f"There is no workflow {target!r}. The workflows of this process are {names}.")

    def handlers(self, event_type: str) -> list[AnyWorkflow]:
        """Return the handler for events of this type, if there is one: of several versions the one registered last."""
        self.refresh()
        found = [workflow for (name, _), workflow in self._known.items() if name == event_type and workflow.event_handler]
        return found[-1:]

    def code(self, workflow: AnyWorkflow) -> str:
        """Return the fingerprint of the workflow's code, which is computed once."""
        key = (workflow.name, workflow.version)
        if key not in self._codes:
            self._codes[key] = fingerprint(workflow.fn)
        return self._codes[key]

    def all(self) -> list[AnyWorkflow]:
        """Return every registered workflow."""
        self.refresh()
        return list(self._known.values())

    def runnable(self) -> list[Runnable]:
        """Return the workflows whose instances a worker may claim."""
        return [Runnable(workflow.name, workflow.version, self.code(workflow)) for workflow in self.all()]


def _redefined(old: AnyWorkflow, new: AnyWorkflow) -> bool:
    """Whether `new` may replace `old`: the same function defined again (a reload, a notebook cell), or `replaces` is set."""
    return new.replaces or (old.fn.__module__, old.fn.__qualname__) == (new.fn.__module__, new.fn.__qualname__)
