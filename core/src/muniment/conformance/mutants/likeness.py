"""Copies of what methods of the bases work with, and whether two such values are alike in all that is seen of them.

Rows, records and what the engine hands over are frozen, or typed as read-only, so they are values and shared. What is
neither known as a value nor as a container is a ``Sealed`` in a copy, and alike to nothing but itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from functools import cache
from operator import is_
from types import BuiltinFunctionType, FunctionType, MethodType, NoneType
from typing import Any

import numpy as np
from pydantic import BaseModel

from muniment.conformance.mutants.watched import Touched, WatchedDict, WatchedSet
from muniment.conformance.reference_target import CoarseClock
from muniment.reference.agent_rows import AgentData
from muniment.reference.rows import ReferenceData, Staged

_EQUAL = (NoneType, bool, int, str, bytes, timedelta, type)
_SHOWN = frozenset({float, datetime, date})
"""Of these, equal ones may still differ: in a sign, or in a time zone."""
_CALLED = (FunctionType, MethodType, BuiltinFunctionType)
_PLAIN: Mapping[type[Any], type[Any]] = {WatchedDict: dict, WatchedSet: set}
_COMPARED = frozenset({*_EQUAL, set, frozenset, WatchedSet})
"""A set has another order in another run of the same code, so its order is nothing that is seen of it."""
_OPENED = (ReferenceData, AgentData, Staged)
"""Dataclasses whose fields change."""


class Sealed:
    """Stands for a value that has no copy; whatever is done with it but handing it on raises Touched."""

    def __init__(self, original: object) -> None:
        object.__setattr__(self, "original", original)

    def __getattribute__(self, name: str) -> Any:
        raise Touched

    def __setattr__(self, name: str, value: object) -> None:
        raise Touched

    def _touched(self, *_: object) -> Any:
        raise Touched

    __repr__ = __str__ = __format__ = __eq__ = __hash__ = __bool__ = __len__ = __iter__ = __aiter__ = _touched
    __getitem__ = __contains__ = __call__ = __enter__ = __aenter__ = _touched


def sealed(value: object) -> object | None:
    """What a ``Sealed`` stands for; None for any other value."""
    return object.__getattribute__(value, "original") if type(value) is Sealed else None


@cache
def is_value(kind: type) -> bool:
    """Whether nothing changes an object of this class once it is made."""
    if kind in (*_EQUAL, *_SHOWN, *_CALLED, frozenset, np.ndarray, Sealed):
        return True
    if is_dataclass(kind) and kind not in _OPENED:
        parameters: Any = vars(kind)["__dataclass_params__"]
        return bool(parameters.frozen)
    return issubclass(kind, Enum | BaseModel | Exception | np.generic)


def _kind(value: object) -> type[Any]:
    return type(value)


class Copies:
    """Copies that belong together: what was one object is one object in them. ``sealed`` says whether any has none.

    With ``shared`` what is stored is no part of the copies: they have the very ``ReferenceData`` in them.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self._made: dict[int, Any] = {}
        self._shared = shared
        self.sealed = False

    def of(self, value: Any) -> Any:
        """The copy of a value, made when it is first asked for."""
        if is_value(_kind(value)):
            return value
        known = self._made.get(id(value), self)
        if known is self:
            known = self._made[id(value)] = self._copy(value)
        return known

    def _copy(self, value: Any) -> Any:
        kind: Any = _PLAIN.get(_kind(value), _kind(value))
        if kind in (ReferenceData, AgentData) and self._shared:
            return value
        if kind is list or kind is set or kind is tuple:
            make: Any = kind
            return make(self._each(value))
        if kind is dict:
            return dict(zip(value, self._each(value.values()), strict=True))
        if kind in _OPENED:
            return kind(**{one.name: self.of(getattr(value, one.name)) for one in fields(kind)})
        if kind is CoarseClock:
            made = CoarseClock()
            made.__dict__.update(value.__dict__)
            return made
        self.sealed = True
        return Sealed(value)

    def _each(self, values: Any) -> list[Any]:
        return [one if is_value(_kind(one)) else self.of(one) for one in values]


def alike(one: Any, other: Any) -> bool:
    """Whether nobody could tell the two apart, be it by an order, a type or a sign."""
    if one is other:
        return True
    kind = _kind(one)
    if kind is not _kind(other):
        kind = _PLAIN.get(kind, kind)
        if kind is not _PLAIN.get(_kind(other), _kind(other)):
            return (kind is Sealed and sealed(one) is other) or (type(other) is Sealed and sealed(other) is one)
    if kind in _COMPARED:
        return bool(one == other)
    if kind is list or kind is tuple:
        return _all_alike(one, other)
    if _PLAIN.get(kind, kind) is dict:
        return _all_alike([*one], [*other]) and _all_alike([*one.values()], [*other.values()])
    if kind in _SHOWN:
        return repr(one) == repr(other)
    if kind is CoarseClock:
        return bool(one.__dict__ == other.__dict__)
    return _alike_objects(one, other, kind)


def _all_alike(some: Sequence[Any], others: Sequence[Any]) -> bool:
    if len(some) != len(others):
        return False
    return all(map(is_, some, others)) or all(map(alike, some, others))


def _alike_objects(one: Any, other: Any, kind: type[Any]) -> bool:
    if issubclass(kind, np.ndarray | np.generic):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if is_dataclass(kind):
        return all(alike(getattr(one, part.name), getattr(other, part.name)) for part in fields(kind))
    if issubclass(kind, BaseModel):
        return one.model_fields_set == other.model_fields_set and alike(vars(one), vars(other))
    return issubclass(kind, Exception) and alike(one.args, other.args) and alike(vars(one), vars(other))
