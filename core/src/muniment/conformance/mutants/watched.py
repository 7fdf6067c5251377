"""What the reference storage keeps, so that a change of it is told of before it is made.

Reading is as fast as ever. ``reach`` lets twins of mutants read what is stored, and copies it only for calls that
change something.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from muniment.reference.rows import ReferenceData


class Touched(BaseException):
    """Something was done with a value that is not to be changed, or has no copy."""


class Journal:
    """Of one ``ReferenceData``: what is called once before the next change, and whether there may be one."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.closed = False

    def changing(self) -> None:
        """Called before each change. Raises Touched where none may be made."""
        if self.closed:
            raise Touched
        while self.waiting:
            self.waiting.pop()()


class WatchedDict(dict[Any, Any]):
    """A dict that tells its journal before each change; dicts in it do so as well."""

    def __init__(self, content: dict[Any, Any], journal: Journal) -> None:
        self.journal = journal
        super().__init__({key: self._watched(value) for key, value in content.items()})

    def _watched(self, value: Any) -> Any:
        return WatchedDict(value, self.journal) if type(value) is dict else value  # pyright: ignore[reportUnknownArgumentType]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.journal.changing()
        super().__setitem__(key, self._watched(value))

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value that is there, or now is."""
        self.journal.changing()
        return super().setdefault(key, self._watched(default))


class WatchedSet(set[Any]):
    """A set that tells its journal before each change."""

    def __init__(self, content: set[Any], journal: Journal) -> None:
        self.journal = journal
        super().__init__(content)


_CHANGES = {
    dict: ("__delitem__", "clear", "pop", "popitem", "update", "__ior__"),
    set: (
        *("add", "clear", "discard", "pop", "remove", "update", "difference_update", "intersection_update"),
        *("symmetric_difference_update", "__iand__", "__ior__", "__isub__", "__ixor__"),
    ),
}


def _telling(plain: type[Any], name: str) -> Any:
    changes = getattr(plain, name)

    @functools.wraps(changes)
    def change(self: Any, *positional: Any, **named: Any) -> Any:
        self.journal.changing()
        return changes(self, *positional, **named)

    return change


for _plain, _kind in ((dict, WatchedDict), (set, WatchedSet)):
    for _name in _CHANGES[_plain]:
        setattr(_kind, _name, _telling(_plain, _name))


def journal_of(data: ReferenceData) -> Journal:
    """The journal of what is stored, which is watched from now on."""
    if isinstance(data.memories, WatchedDict):
        return data.memories.journal
    journal = Journal()
    for owner in (data, data.agents):
        for one in fields(owner):
            value: Any = getattr(owner, one.name)
            if isinstance(value, dict):
                setattr(owner, one.name, WatchedDict(value, journal))  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(value, set):
                setattr(owner, one.name, WatchedSet(value, journal))  # pyright: ignore[reportUnknownArgumentType]
    return journal
