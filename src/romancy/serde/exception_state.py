"""Reads the state of an exception, and restores an exception from it without calling the user's `__init__`.

`cls(*args)` would not restore it. If `__init__` takes an order id and passes a message to `super().__init__`, then `args`
holds the message: `__init__` would take the message for an order id and make a second message from it, without an error. So
the first built-in base makes the built-in part from `args`, and the other fields are put back where they were: in
`__dict__`, in slots, in the C struct.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

_Descriptor = types.MemberDescriptorType | types.GetSetDescriptorType

# The fields of these classes are recorded separately: args, cause, context, notes, the members of a group.
_SKIPPED_OWNERS = (BaseException, BaseExceptionGroup, object)
_SKIPPED = frozenset({"__dict__", "__weakref__"})

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by a class statement


def fields_of(exc: BaseException) -> dict[str, Any]:
    """Return the fields in slots and in the C struct by name: `errno`, `filename`, `name`, the slots of user classes."""
    found: dict[str, Any] = {}
    for name, owner, descriptor in _fields(type(exc)):
        try:
            value = descriptor.__get__(exc, type(exc))
        except AttributeError:  # a slot that was never filled
            continue
        # A C field that is not set reads as None, but must not be set to None: OSError would print "[Errno 2] gone: None".
        if value is not None or _is_heap_type(owner):
            found[name] = value
    return found


def rebuild_exception(
    cls: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any], fields: dict[str, Any]
) -> Any:
    """Make an exception of a class with a state. Raises if the class does not allow it."""
    base: Any = next(c for c in cls.__mro__ if not _is_heap_type(c))
    exc = base.__new__(cls, *args)
    # A group is complete after __new__, and the parameters of its __init__ differ between versions of Python.
    if BaseExceptionGroup not in cls.__mro__:
        base.__init__(exc, *args)
        set_field(exc, "args", args)
    exc.__dict__.update(attributes)
    for name, _, descriptor in _fields(cls):
        if name in fields:
            descriptor.__set__(exc, fields[name])
    return exc


def set_field(exc: BaseException, name: str, value: object) -> None:
    """Set a field that every exception has, even if the user's class refuses assignments (as a frozen dataclass does)."""
    BaseException.__setattr__(exc, name, value)


def _fields(cls: type) -> Iterator[tuple[str, type, _Descriptor]]:
    for owner in cls.__mro__:
        if owner in _SKIPPED_OWNERS:
            continue
        for name, member in vars(owner).items():
            # AttributeError.obj is the object that lacked the attribute: it may be of any type, and rarely is data.
            if isinstance(member, _Descriptor) and name not in _SKIPPED and (owner, name) != (AttributeError, "obj"):
                yield name, owner, member


def _is_heap_type(cls: type) -> bool:
    return bool(cls.__flags__ & _HEAP_TYPE)
