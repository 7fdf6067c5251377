"""A step of a call: a method that a base calls within it, and the same step by a mutant beside it.

What is decided here is only that a step is the same. Where it is not, or cannot be made twice, the whole call decides.
"""

from __future__ import annotations

from typing import Any

from muniment.conformance.mutants.asked import Ended
from muniment.conformance.mutants.likeness import alike, is_value
from muniment.conformance.mutants.twins import Call

_BY_KEY: Any = (dict,)
_LISTED: Any = (list, tuple, set, *_BY_KEY)
"""What an argument may be besides a value: it is copied, and what is in it is not."""


class Step:
    """A call of a method within a call from outside, which a mutant can make beside its base as often as it likes if
    all that it is given are values and nothing is changed by it."""

    def __init__(self, name: str, call: Call, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.ended: Ended | None = None
        self.is_of_values = all(map(_is_plain, (*positional, *named.values())))
        self._name = name
        self._call = call
        self._given = positional, named
        self._listed = any(one.__class__ in _LISTED for one in (*positional, *named.values()))
        self._before = self._copied(self._given) if self._listed and self.is_of_values else self._given
        self._count = call.journal.count
        self._readings = call.readings
        self._ids = call.ids.place

    def _copied(self, given: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        positional, named = given
        return tuple(map(_copy, positional)), {name: _copy(value) for name, value in named.items()}

    def differs(self, plugin: type[Any]) -> bool:
        """Whether a mutant does something else, or what it does is no such step."""
        call, base = self._call, self.ended
        if base is None or call.journal.count != self._count or call.readings != self._readings:
            return True
        positional, named = given = self._copied(self._before) if self._listed else self._before
        twin = call.step_twin(plugin)
        call.ids.again_from(self._ids)
        answer = raised = None
        try:
            answer = getattr(twin, self._name)(*positional, **named)
        except Exception as error:
            raised = error
        call.ids.go_on()
        changed = call.journal.count != self._count or call.readings != self._readings
        if changed:
            call.restore(self._count, self._readings)
        return (
            not call.put_back()
            or changed
            or not (answer is base.answer or alike(answer, base.answer))
            or not (raised is base.raised or alike(raised, base.raised))
            or (self._listed and not alike(given, self._given))
            or call.has_own(twin)
        )


def _is_plain(argument: Any) -> bool:
    kind: type[Any] = argument.__class__
    if is_value(kind):
        return True
    return kind in _LISTED and all(is_value(one) for one in set(map(type, _in(argument, kind))))


def _in(listed: Any, kind: type[Any]) -> Any:
    return listed.values() if kind in _BY_KEY else listed


def _copy(argument: Any) -> Any:
    kind: Any = argument.__class__
    return kind(argument) if kind in _LISTED else argument
