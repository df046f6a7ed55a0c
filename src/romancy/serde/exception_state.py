"""Taking an exception apart and putting it together again without calling the user's `__init__`.

`cls(*args)` is not the way: a class whose `__init__` takes an order id and passes a sentence to `super().__init__`
would come back with a sentence about a sentence, and no error would tell. So the built-in part is made by the first
built-in base, from `args`, and the rest is put back where it was found: in the `__dict__`, in slots, in the C struct.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

_Descriptor = types.MemberDescriptorType | types.GetSetDescriptorType

# What these hold is recorded in other ways.
_SKIPPED_OWNERS = (BaseException, BaseExceptionGroup, object)
_SKIPPED = frozenset({"__dict__", "__weakref__"})

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by a class statement


def fields_of(exc: BaseException) -> dict[str, Any]:
    """What lies in slots and in the C struct, by name: `errno`, `filename`, `name`, the user's slots."""
    found: dict[str, Any] = {}
    for name, owner, descriptor in _fields(type(exc)):
        try:
            value = descriptor.__get__(exc, type(exc))
        except AttributeError:  # a slot that was never filled
            continue
        # In C None means "not set", and setting it is not the same: OSError would print "[Errno 2] gone: None".
        if value is not None or _is_heap_type(owner):
            found[name] = value
    return found


def rebuild_exception(
    cls: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any], fields: dict[str, Any]
) -> Any:
    """An exception of that class in that state; raises if the class does not allow it."""
    base: Any = next(c for c in cls.__mro__ if not _is_heap_type(c))
    exc = base.__new__(cls, *args)
    # A group is complete after __new__, and what its __init__ takes differs between versions.
    if BaseExceptionGroup not in cls.__mro__:
        base.__init__(exc, *args)
        set_field(exc, "args", args)
    exc.__dict__.update(attributes)
    for name, _, descriptor in _fields(cls):
        if name in fields:
            descriptor.__set__(exc, fields[name])
    return exc


def set_field(exc: BaseException, name: str, value: object) -> None:
    """Set what every exception has, whatever the user's class thinks of assignments (a frozen dataclass refuses)."""
    BaseException.__setattr__(exc, name, value)


def _fields(cls: type) -> Iterator[tuple[str, type, _Descriptor]]:
    for owner in cls.__mro__:
        if owner in _SKIPPED_OWNERS:
            continue
        for name, member in vars(owner).items():
            # AttributeError.obj is the object that lacked the attribute: anything, and rarely data.
            if isinstance(member, _Descriptor) and name not in _SKIPPED and (owner, name) != (AttributeError, "obj"):
                yield name, owner, member


def _is_heap_type(cls: type) -> bool:
    return bool(cls.__flags__ & _HEAP_TYPE)
