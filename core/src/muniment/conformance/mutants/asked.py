"""What a twin is answered where its base hands a call on to what has no copy, as a transport does to its engine."""

from __future__ import annotations

import functools
import inspect
import secrets
from dataclasses import dataclass
from typing import Any

from muniment.conformance.mutants.likeness import Touched, alike
from muniment.conformance.reference_transport import record_of
from muniment.conformance.target import Refused


@dataclass
class Ended:
    """How a call ended: its answer or what it raised, and how often it let others run; None where they changed
    something meanwhile."""

    answer: Any = None
    raised: Exception | None = None
    steps: int | None = 0


class Ids:
    """The ids of incidents in a call of a base, and the same ones once more for its twins."""

    def __init__(self) -> None:
        self.place = 0
        self._drawn: list[str] = []

    def again_from(self, place: int) -> None:
        """Give those from a place on again."""
        self.place = place

    def go_on(self) -> None:
        """Give others from now on."""
        self.place = len(self._drawn)

    def fresh(self) -> str:
        """The next id."""
        if self.place == len(self._drawn):
            self._drawn.append(secrets.token_hex(6))
        self.place += 1
        return self._drawn[self.place - 1]


class Asked:
    """What a twin is answered when it hands on what its base has handed on."""

    def __init__(self, answered: tuple[tuple[Any, ...], Ended] | None) -> None:
        self.times = 0
        self._answered = answered

    def answer(self, given: tuple[Any, ...]) -> Any:
        """What the base was answered, or raised. Raises Touched where it was asked something else, or again."""
        self.times += 1
        if self.times > 1 or self._answered is None:
            raise Touched
        asked, ended = self._answered
        if ended.steps is None or not alike(given, asked):
            raise Touched
        if ended.raised is not None:
            raise ended.raised
        return ended.answer


under_way: list[Asked] = []
"""Of the twin that makes its call just now."""


@functools.cache
def asking(plugin: type[Any], name: str) -> type[Any]:
    """A mutant that asks what was answered where it would ask its base."""
    base = plugin.__bases__[0]

    def asks(self: Any, *positional: Any, **named: Any) -> Any:
        return under_way[-1].answer((positional, named))

    async def awaits(self: Any, *positional: Any, **named: Any) -> Any:
        return asks(self, *positional, **named)

    coroutine = inspect.iscoroutinefunction(getattr(base, name))
    asked = type(base.__name__, (base,), {name: awaits if coroutine else asks})
    return type(plugin.__name__, (plugin, asked), {})


def read(reply: Any) -> Any:
    """What a client reads from a reply: a record, or a refusal."""
    try:
        return record_of(reply)
    except Refused as refusal:
        return refusal.code, refusal.message, dict(refusal.details)
    except Exception:
        return None, reply
