"""Finds classes by name, so that a record can name `orders.errors:OutOfStock` and another process finds the class.

Names come from the database, and an attacker with write access to the database must not choose the code that this process
runs. So a name is looked up in modules that are loaded, and a module is imported only if it is in the package of the
activity to which the record belongs. The lookup runs no code of the modules and classes (`__getattr__`, descriptors).

The module that a program was started from needs special care: in that process it is `__main__`, in others it has a name.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import PurePath
from types import ModuleType


def class_path(cls: type) -> str:
    """Return `module:qualified name`, where a module started by `python -m` has its real name, not `__main__`."""
    module = cls.__module__
    if module == "__main__":
        module = _name_of_main() or module
    return f"{module}:{cls.__qualname__}"


def find_class(path: str, near: str | None = None) -> type | None:
    """Find the class of that name, or return None. Never raises, even if the import of its module fails.

    `near` is the module of the activity that raised it: modules of its package are imported if necessary, and a class that
    was recorded in `__main__` is looked up there.
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
    if name in sys.modules or not _is_in_package_of(name, near):
        return sys.modules.get(name)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit):
        return None


def _is_in_package_of(name: str, near: str | None) -> bool:
    """A module is in the activity's package. `__main__` has a name and a package only if it was started by `python -m`."""
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
