"""The workflows one app knows, by name and version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from romancy.authoring.workflow import Workflow, WorkflowRef, imported
from romancy.errors import ConfigurationError, WorkflowNotFoundError
from romancy.registry.fingerprint import fingerprint
from romancy.store.port import Runnable

AnyWorkflow = Workflow[..., Any]


class Registry:
    """Workflows by name and version. Without an explicit list, everything that was imported."""

    def __init__(self, workflows: Iterable[AnyWorkflow] | None) -> None:
        self._explicit = workflows is not None
        self._known: dict[tuple[str, str], AnyWorkflow] = {}
        self._codes: dict[tuple[str, str], str] = {}
        self._imported = 0
        for workflow in workflows or ():
            self.add(workflow)

    def add(self, workflow: AnyWorkflow) -> None:
        """Register a workflow. Another function under its name and version is an error that names both."""
        if not isinstance(workflow, Workflow):
            raise ConfigurationError(f"{workflow!r} is not a workflow: decorate it with @workflow.")
        self._explicit = True
        self._register(workflow)

    def _register(self, workflow: AnyWorkflow, *, anew: bool = False) -> None:
        key = (workflow.name, workflow.version)
        other = self._known.get(key)
        if other is not None and other.fn is not workflow.fn and not (anew and _redefined(other, workflow)):
            raise ConfigurationError(
                f"Two workflows are called {workflow.label!r}: {other.location} and {workflow.location}. "
                "Give one of them another name=, or a version=."
            )
        self._known[key] = workflow
        self._codes.pop(key, None)

    def refresh(self) -> None:
        """Take in what was imported since, when no workflow was named explicitly."""
        if not self._explicit and len(imported) > self._imported:
            for workflow in imported[self._imported :]:
                self._register(workflow, anew=True)
            self._imported = len(imported)

    def find(self, name: str, version: str) -> AnyWorkflow | None:
        """The workflow of that name and version."""
        return self._known.get((name, version))

    def resolve(self, target: AnyWorkflow | WorkflowRef | str) -> AnyWorkflow:
        """A registered workflow, by itself or by name (the version registered last)."""
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
        raise WorkflowNotFoundError(f"No workflow is called {target!r}. Known here: {names}.")

    def handlers(self, event_type: str) -> list[AnyWorkflow]:
        """The workflow that an event of this type starts, if one does: of several versions the one registered last."""
        self.refresh()
        found = [one for (name, _), one in self._known.items() if name == event_type and one.event_handler]
        return found[-1:]

    def code(self, workflow: AnyWorkflow) -> str:
        """The fingerprint of the workflow's code, worked out once."""
        key = (workflow.name, workflow.version)
        if key not in self._codes:
            self._codes[key] = fingerprint(workflow.fn)
        return self._codes[key]

    def all(self) -> list[AnyWorkflow]:
        """Every registered workflow."""
        self.refresh()
        return list(self._known.values())

    def runnable(self) -> list[Runnable]:
        """What a worker may claim."""
        return [Runnable(one.name, one.version, self.code(one)) for one in self.all()]


def _redefined(old: AnyWorkflow, new: AnyWorkflow) -> bool:
    """The same function of the same module, defined again (a reload, a notebook cell), or one that says it replaces."""
    return new.replaces or (old.fn.__module__, old.fn.__qualname__) == (new.fn.__module__, new.fn.__qualname__)
