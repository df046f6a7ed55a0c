"""Classes by name, so that a record can say `orders.errors:OutOfStock` and another process finds it.

Names come from the database, and who can write there must not choose what this process runs. So a name is looked up in
modules that are loaded, and otherwise imported only from the package of the activity that the record belongs to; and
looking up runs no code of theirs (`__getattr__`, descriptors).

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

    `near` is the module of the activity which raised it: what its package has is imported if need be, and a class that was
    recorded as `__main__` is likely to be there.
    """
    module_name, _, qualname = path.partition(":")
    for candidate in (module_name, near if module_name == "__main__" else None):
        found: object = None if candidate is None else _module(candidate, near)
        for part in qualname.split("."):
            found = _defined_in(found, part)
        if isinstance(found, type):
            return found
    return None


def _defined_in(holder: object, name: str) -> object:
    return vars(holder).get(name) if isinstance(holder, ModuleType | type) else None


def _module(name: str, near: str | None) -> ModuleType | None:
    if _is_main(name, near):
        return sys.modules["__main__"]  # importing it under its name would run the program a second time
    if name in sys.modules or not _is_of_the_package(name, near):
        return sys.modules.get(name)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit):
        return None


def _is_of_the_package(name: str, near: str | None) -> bool:
    """A module beside that of the activity. `__main__` has a name, and a package, only if it was started by `python -m`."""
    known = _name_of_main() if near == "__main__" else near
    return known is not None and name.partition(".")[0] == known.partition(".")[0]


def _is_main(name: str, near: str | None) -> bool:
    if name == _name_of_main():
        return True
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return near == "__main__" and file is not None and PurePath(file).stem == name.rpartition(".")[2]


def _name_of_main() -> str | None:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", None)
