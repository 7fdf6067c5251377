"""Copies of what methods of the bases work with, and whether two such values are alike in all that is seen of them.

Rows, records and what the engine hands over are frozen, or typed as read-only, so they are values and shared. What is
neither known as a value nor as a container is a ``Sealed`` in a copy, and alike to nothing but itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from functools import cache
from operator import attrgetter, eq, is_
from types import BuiltinFunctionType, FunctionType, MethodType, NoneType
from typing import Any, TypeAlias

import numpy as np
from pydantic import BaseModel

from muniment.conformance.mutants.watched import WatchedDict, WatchedSet
from muniment.conformance.reference_target import CoarseClock
from muniment.conformance.reference_transport import Whole
from muniment.reference.agent_rows import AgentData
from muniment.reference.rows import ReferenceData, Staged

_EQUAL = (NoneType, bool, int, str, bytes, timedelta, type)
_SHOWN = frozenset({float, datetime, date})
"""Of these, equal ones may still differ: in a sign, or in a time zone."""
_CALLED = (FunctionType, MethodType, BuiltinFunctionType)
_PLAIN: Mapping[type[Any], type[Any]] = {WatchedDict: dict, WatchedSet: set}
_COMPARED = frozenset({*_EQUAL, set, frozenset, WatchedSet})
"""A set has another order in another run of the same code, so its order is nothing that is seen of it."""
_STORED = (ReferenceData, AgentData)
"""What is stored is shared: ``watched`` sees to it that a copy is not needed."""


class Touched(BaseException):
    """Something was done with a value that has no copy."""


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


def attributes_of(one: Any) -> dict[str, Any]:
    """What an object has in its dict."""
    return one.__dict__


def _kind(value: object) -> type[Any]:
    return type(value)


@cache
def is_value(kind: type) -> bool:
    """Whether nothing changes an object of this class once it is made."""
    if kind in (*_EQUAL, *_SHOWN, *_CALLED, frozenset, np.ndarray, Sealed):
        return True
    if kind in _STORED:
        return True
    if is_dataclass(kind) and kind is not Staged:
        parameters: Any = vars(kind)["__dataclass_params__"]
        return bool(parameters.frozen)
    return issubclass(kind, Enum | BaseModel | Exception | np.generic)


class Copies:
    """Copies that belong together: what was one object is one object in them. ``sealed`` says whether any has none."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
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
        if kind is list or kind is set or kind is tuple:
            make: Any = kind
            return make(self._each(value))
        if kind is dict:
            return dict(zip(value, self._each(value.values()), strict=True))
        if kind is Staged:
            return kind(**{one.name: self.of(getattr(value, one.name)) for one in fields(kind)})
        if kind is CoarseClock:
            made = CoarseClock()
            made.__dict__.update(value.__dict__)
            return made
        if kind is Whole:
            whole = Whole(b"")
            whole.pieces = [*value.pieces]
            return whole
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
    return _comparing(kind)(one, other)


Comparing: TypeAlias = Callable[[Any, Any], bool]


@cache
def _comparing(kind: type[Any]) -> Comparing:
    """What tells two different objects of a class apart."""
    kind = _PLAIN.get(kind, kind)
    if kind in _COMPARED:
        return eq
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    if issubclass(kind, np.ndarray | np.generic):
        return _same_numbers
    if is_dataclass(kind):
        return _same_parts(tuple(part.name for part in fields(kind)))
    if issubclass(kind, BaseModel):
        return _same_models
    return _same_errors if issubclass(kind, Exception) else _never


def _all_alike(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and (all(map(is_, some, others)) or all(map(alike, some, others)))


def _same_mappings(one: Any, other: Any) -> bool:
    return _all_alike([*one], [*other]) and _all_alike([*one.values()], [*other.values()])


def _same_floats(one: float, other: float) -> bool:
    return repr(one) == repr(other) if one == 0 or one != one else one == other


def _same_when_shown(one: object, other: object) -> bool:
    return repr(one) == repr(other)


def _same_attributes(one: object, other: object) -> bool:
    return vars(one) == vars(other)


def _same_numbers(one: Any, other: Any) -> bool:
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def _same_parts(names: tuple[str, ...]) -> Comparing:
    if len(names) < 2:
        return lambda one, other: all(alike(getattr(one, name), getattr(other, name)) for name in names)
    parts = attrgetter(*names)
    return lambda one, other: _all_alike(parts(one), parts(other))


def _same_models(one: BaseModel, other: BaseModel) -> bool:
    return one.model_fields_set == other.model_fields_set and alike(vars(one), vars(other))


def _same_errors(one: Exception, other: Exception) -> bool:
    return alike(one.args, other.args) and alike(vars(one), vars(other))


def _never(*_: object) -> bool:
    return False


_BY_KIND: Mapping[type[Any], Comparing] = {
    list: _all_alike,
    tuple: _all_alike,
    dict: _same_mappings,
    float: _same_floats,
    datetime: _same_when_shown,
    date: _same_when_shown,
    CoarseClock: _same_attributes,
    Whole: _same_attributes,
}
