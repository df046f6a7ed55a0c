"""Classes by name, so that a record can say `orders.errors:OutOfStock` and another process finds it.

The module that a program was started from is the hard case: here it is `__main__`, elsewhere it has a name.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import PurePath
from types import ModuleType


def class_path(cls: type) -> str:
    """`module:qualified name`; a module started by `python -m` goes by its real name, not `__main__`."""
    module = cls.__module__
    if module == "__main__":
        module = _name_of_main() or module
    return f"{module}:{cls.__qualname__}"


def find_class(path: str, near: str | None = None) -> type | None:
    """The class of that name, or None. Never raises, whatever importing its module does.

    `near` is a module that knows the class if it was recorded as `__main__`: that of the activity which raised it.
    """
    module_name, _, qualname = path.partition(":")
    for candidate in (module_name, near if module_name == "__main__" else None):
        found: object = None if candidate is None else _module(candidate, near)
        for part in qualname.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type):
            return found
    return None


def _module(name: str, near: str | None) -> ModuleType | None:
    if _is_main(name, near):
        return sys.modules["__main__"]  # importing it under its name would run the program a second time
    try:
        return sys.modules.get(name) or importlib.import_module(name)
    except (Exception, SystemExit):
        return None


def _is_main(name: str, near: str | None) -> bool:
    if name == _name_of_main():
        return True
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return near == "__main__" and file is not None and PurePath(file).stem == name.rpartition(".")[2]


def _name_of_main() -> str | None:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", None)
