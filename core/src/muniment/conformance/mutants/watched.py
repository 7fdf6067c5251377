"""What the reference storage keeps, watched: each change of it is noted, and can be taken back and made again.

Reading is as fast as ever. ``twins`` lets mutants make a call on what was stored before it, and compares what they
leave, which costs as much as the call changes, however much is stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter, is_
from typing import Any, TypeAlias

from muniment.reference.agent_rows import AgentData
from muniment.reference.rows import ReferenceData

_Container: TypeAlias = "WatchedDict | WatchedSet"
_WHOLE: Any = object()
"""In place of a key: everything in the container."""
_NOTHING: Any = object()
"""In place of a value: there was none."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What was in a container before it was changed: under a key, or altogether."""

    container: _Container
    key: Hashable
    before: Any


@dataclass(frozen=True)
class Effects:
    """What some changes came to: the values under the keys that were changed, the order of the new ones, and all that
    is in containers of which something was taken away. What was made meanwhile is part of what holds it."""

    values: dict[tuple[int, Hashable], Any] = field(default_factory=dict[tuple[int, Hashable], Any])
    new: dict[int, list[Hashable]] = field(default_factory=dict[int, list[Hashable]])
    wholes: dict[int, Any] = field(default_factory=dict[int, Any])


class Journal:
    """The changes of one ``ReferenceData``. ``count`` is how many there ever were; they are kept while ``open``."""

    def __init__(self) -> None:
        self.count = 0
        self._open = 0
        self._changes: list[_Change] = []

    def begin(self) -> int:
        """Keep changes from now on; the place of the next one."""
        self._open += 1
        return self.place()

    def place(self) -> int:
        """That of the next change."""
        return len(self._changes)

    def end(self) -> None:
        """Whoever began needs them no more."""
        self._open -= 1
        if not self._open:
            self._changes.clear()

    def changing(self, container: _Container, key: Hashable = _WHOLE) -> None:
        """Called before each change."""
        self.count += 1
        if self._open:
            before = _content(container) if key is _WHOLE else _at(container, key)
            self._changes.append(_Change(container, key, before))

    def effects(self, place: int, count: int) -> Effects:
        """What the changes from a place on came to; ``count`` is how many there were before them."""
        found = Effects()
        changes = [one for one in self._changes[place:] if one.container.born <= count]
        found.wholes.update((id(one.container), _content(one.container)) for one in changes if one.key is _WHOLE)
        for one in changes:
            of = id(one.container)
            if of not in found.wholes:
                found.values[of, one.key] = _at(one.container, one.key)
                if one.before is _NOTHING:
                    found.new.setdefault(of, []).append(one.key)
        return found

    def take_back(self, place: int) -> list[_Change]:
        """Undo the changes from a place on; those that make them again, for ``make_again``."""
        undone: list[_Change] = []
        while len(self._changes) > place:
            change = self._changes.pop()
            undone.append(change)
            undone.append(_exchanged(change))
        return undone

    def take_back_since(self, count: int) -> None:
        """Undo all changes but the first ``count`` that there ever were, for good."""
        self.take_back(len(self._changes) - (self.count - count))
        self.count = count

    def make_again(self, undone: list[_Change]) -> None:
        """Redo what was taken back."""
        while undone:
            after, change = undone.pop(), undone.pop()
            _exchanged(after)
            self._changes.append(change)


def _content(container: _Container) -> Any:
    return list(container.items()) if isinstance(container, WatchedDict) else set(container)


def _exchanged(change: _Change) -> _Change:
    """Put back what was before a change; the change that leads back."""
    container, key = change.container, change.key
    if isinstance(container, WatchedSet) or key is _WHOLE:
        now = _content(container)
        plain: Any = set if isinstance(container, WatchedSet) else dict
        plain.clear(container)
        plain.update(container, change.before)
    else:
        now = _at(container, key)
        if change.before is _NOTHING:
            _PAST_THE_JOURNAL.__delitem__(container, key)
        else:
            _PAST_THE_JOURNAL.__setitem__(container, key, change.before)
    return _Change(container, key, now)


def _at(container: _Container, key: Hashable) -> Any:
    return _PAST_THE_JOURNAL.get(container, key, _NOTHING)


_PAST_THE_JOURNAL: Any = dict


class WatchedDict(dict[Any, Any]):
    """A dict that tells its journal before each change; dicts in it do so as well."""

    def __init__(self, content: Mapping[Any, Any], journal: Journal) -> None:
        self.journal = journal
        self.born = journal.count
        super().__init__({key: self._watched(value) for key, value in content.items()})

    def _watched(self, value: Any) -> Any:
        return WatchedDict(value, self.journal) if type(value) is dict else value  # pyright: ignore[reportUnknownArgumentType]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.journal.changing(self, key)
        super().__setitem__(key, self._watched(value))

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value that is there, or now is."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *others: Any, **named: Any) -> None:
        """Each set by itself."""
        for key, value in dict(*others, **named).items():
            self[key] = value

    def __ior__(self, others: Any) -> WatchedDict:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.update(others)
        return self


class WatchedSet(set[Any]):
    """A set that tells its journal before each change."""

    def __init__(self, content: set[Any], journal: Journal) -> None:
        self.journal = journal
        self.born = journal.count
        super().__init__(content)


_TAKING_AWAY = {
    dict: ("__delitem__", "clear", "pop", "popitem"),
    set: (
        *("add", "clear", "discard", "pop", "remove", "update", "difference_update", "intersection_update"),
        *("symmetric_difference_update", "__iand__", "__ior__", "__isub__", "__ixor__"),
    ),
}


def _telling(plain: type[Any], name: str) -> Any:
    changes = getattr(plain, name)

    @functools.wraps(changes)
    def change(self: Any, *positional: Any, **named: Any) -> Any:
        self.journal.changing(self)
        return changes(self, *positional, **named)

    return change


for _plain, _kind in ((dict, WatchedDict), (set, WatchedSet)):
    for _name in _TAKING_AWAY[_plain]:
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


class Held:
    """Where the containers of what is stored are held, which no change of their content changes."""

    def __init__(self, data: ReferenceData) -> None:
        self._owners = data, data.agents
        self._containers = self._now()

    def _now(self) -> tuple[Any, ...]:
        data, agents = self._owners
        return _containers(data) + _agents_containers(agents)

    def put_back(self) -> bool:
        """Put each where it was; whether it was there."""
        if all(map(is_, self._now(), self._containers)):
            return True
        names = [(owner, one.name) for owner in self._owners for one in fields(owner)]
        for (owner, name), container in zip(names, self._containers, strict=True):
            setattr(owner, name, container)
        return False


_containers: Callable[[ReferenceData], tuple[Any, ...]] = attrgetter(*(one.name for one in fields(ReferenceData)))
_agents_containers: Callable[[AgentData], tuple[Any, ...]] = attrgetter(*(one.name for one in fields(AgentData)))
