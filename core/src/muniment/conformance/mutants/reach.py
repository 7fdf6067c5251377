"""Which mutants a check can tell from what they are made of, found out while it runs on that alone.

A mutant is as its base in a check if, at every call from outside, it answers, stores, leaves the clock and lets others
run as the base does. Then it ends as the base does, by induction over the calls: until the first of them both did the
same, and each leaves both in the same state. Where a call reaches a method that a mutant overrides, the mutant makes
the same step beside it; what reads values alone and answers alike is the same. Where a step is another, or is no such
step, a twin makes the whole call (see ``twins``), since what a step does may be nothing to who called. What is no such
proof counts as a difference, and the check is then run on the mutant itself:

- a call of a class method or of a property, or a mutant that defines one;
- a call while which others changed something, or that was cancelled, since then the order counts;
- a twin that touched what has no copy, as an engine has none. Where a base hands a call on to one, as a transport does,
  its twins' own call is answered by what the base was answered, once and for the same arguments.

A transport's replies are read by its clients: two that say the same are alike until a check looks at their text.
What a twin does elsewhere is not seen: a mutant keeps nothing outside of itself and of what is stored.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from unittest.mock import patch

from muniment.conformance.connections import TransportClient
from muniment.conformance.mutants.asked import Ended, Ids
from muniment.conformance.mutants.core import Core
from muniment.conformance.mutants.steps import Step
from muniment.conformance.mutants.twins import Awaited, Call, Own
from muniment.serving import incidents

_call: ContextVar[Call | None] = ContextVar("call", default=None)
"""The call from outside that is under way."""


def overridden(plugin: type[Any]) -> frozenset[str] | None:
    """The names that a mutant defines; None where it defines one that no call can be noted of."""
    ignored = {"__doc__", "__module__", "__qualname__", "__annotations__", "__firstlineno__", "__static_attributes__"}
    names = frozenset(vars(plugin)) - ignored
    return None if any(name.startswith("__") for name in names) else names


class Differences:
    """The mutants of one base in one check: ``plugins`` by name, and ``found``, the names of those that differ."""

    def __init__(self, plugins: Mapping[str, type[Any]]) -> None:
        self.found = {name for name, plugin in plugins.items() if overridden(plugin) is None}
        self._plugins = plugins
        self._overriding: dict[str, set[str]] = {}
        self._twins = {name for name, plugin in plugins.items() if _has_methods_only(plugin)}
        for name, plugin in plugins.items():
            for attribute in overridden(plugin) or ():
                self._overriding.setdefault(attribute, set()).add(name)
        self._known = len(self.found)
        self._left: dict[str, frozenset[str]] = {}
        self._own: Own = {}
        self._unlike_texts: set[str] = set()
        self._texts_are_read = False

    def reached(self, attribute: str) -> None:
        """Something was used that nobody has a twin for: all that override it may differ."""
        self.found |= self._overriding.get(attribute, set())

    def undecided(self, method: str) -> frozenset[str]:
        """The mutants that override a method, have not differed yet, and have twins."""
        if self._known != len(self.found):
            self._known, self._left = len(self.found), {}
        left = self._left.get(method)
        if left is None:
            names = self._overriding.get(method, set()) - self.found
            self.found |= names - self._twins
            left = self._left[method] = frozenset(names & self._twins)
        return left

    def ended(self, call: Call, base: Ended | None) -> None:
        """A call from outside has ended so on the base; None where it was cancelled."""
        suspects = call.suspects - self.found
        if not suspects:
            return
        if base is None or base.steps is None:
            self.found |= suspects
            return
        self.found |= call.differing(sorted(suspects), self._plugins, self._own, base)
        self._unlike_texts |= call.unlike_texts
        if self._texts_are_read:
            self.found |= self._unlike_texts

    @property
    def is_decided(self) -> bool:
        """Whether all differ."""
        return len(self.found) == len(self._plugins)

    def is_overridden(self, attribute: str) -> bool:
        """Whether any mutant defines it."""
        return attribute in self._overriding

    def steps_apart(self, call: Call, step: Step, names: frozenset[str]) -> set[str]:
        """Which of some mutants do another step than their base did."""
        return {name for name in names if (id(call.instance), name) in self._own or step.differs(self._plugins[name])}

    @contextmanager
    def watching(self) -> Generator[None]:
        """While entered, a check that asks for the text of a transport's reply is noted, and incidents in a call and in
        those of its twins have the same ids."""

        def noted(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def asking(*positional: Any, **named: Any) -> Any:
                self._texts_are_read = True
                self.found |= self._unlike_texts
                return function(*positional, **named)

            return asking

        def fresh() -> str:
            call = _call.get()
            return (call.ids if call is not None else Ids()).fresh()

        with (
            patch.multiple(TransportClient, reply=noted(TransportClient.reply), send=noted(TransportClient.send)),
            patch.object(incidents, "_fresh", fresh),
        ):
            yield


def _has_methods_only(plugin: type[Any]) -> bool:
    return all(inspect.isfunction(inspect.getattr_static(plugin, name)) for name in overridden(plugin) or ())


def noting(base: type[Any], differences: Differences) -> type[Any]:
    """A subclass of ``base`` that does the same and notes which mutants do not."""
    methods = {
        name: _noted(name, inspect.getattr_static(base, name), differences)
        for name in dir(base)
        if not name.startswith("__")
    }
    return type(f"Noting{base.__name__}", (base,), methods)


def _noted(name: str, attribute: Any, differences: Differences) -> Any:
    def reached(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*positional: Any, **named: Any) -> Any:
            differences.reached(name)
            return function(*positional, **named)

        return call

    match attribute:
        case property():
            return property(reached(attribute.fget)) if attribute.fget else attribute
        case classmethod():
            return classmethod(reached(attribute.__func__))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        case staticmethod():
            return staticmethod(reached(attribute.__func__))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        case _ if inspect.iscoroutinefunction(attribute):
            return _noted_coroutine(name, attribute, differences)
        case _ if inspect.isfunction(attribute) and differences.is_overridden(name):
            return _noted_method(name, attribute, differences)
        case _:
            return attribute


def _outer(instance: Any) -> Call | None:
    """The call from outside that a call of a method is a step of. The rules of core are called from outside each."""
    call = _call.get()
    return None if call is None or call.instance is not instance or isinstance(instance, Core) else call


def _noted_method(name: str, function: Callable[..., Any], differences: Differences) -> Callable[..., Any]:
    def from_outside(self: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        call = Call(name, self, positional, named)
        call.suspects |= differences.undecided(name)
        token = _call.set(call)
        try:
            answer = function(self, *positional, **named)
        except Exception as error:
            differences.ended(call, Ended(raised=error))
            raise
        else:
            differences.ended(call, Ended(answer))
            return answer
        finally:
            _call.reset(token)
            call.journal.end()

    @functools.wraps(function)
    def method(self: Any, *positional: Any, **named: Any) -> Any:
        call = _outer(self)
        if call is None:
            if differences.is_decided:
                return function(self, *positional, **named)
            return from_outside(self, positional, named)
        names = differences.undecided(name) - call.suspects
        if not names:
            return function(self, *positional, **named)
        step = Step(name, call, positional, named)
        if not step.is_of_values:
            call.suspects |= names
            return function(self, *positional, **named)
        try:
            answer = function(self, *positional, **named)
        except Exception as error:
            step.ended = Ended(raised=error)
            raise
        else:
            step.ended = Ended(answer)
            return answer
        finally:
            call.suspects |= differences.steps_apart(call, step, names)

    return method


def _noted_coroutine(
    name: str, function: Callable[..., Coroutine[Any, Any, Any]], differences: Differences
) -> Callable[..., Any]:
    async def from_outside(self: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        call = Call(name, self, positional, named)
        call.suspects |= differences.undecided(name)
        token = _call.set(call)
        awaited = Awaited(function(self, *positional, **named), call)
        ended: Ended | None = None
        try:
            answer = await awaited
            ended = Ended(answer, steps=awaited.steps)
            return answer
        except Exception as error:
            ended = Ended(raised=error, steps=awaited.steps)
            raise
        finally:
            differences.ended(call, ended)
            _call.reset(token)
            call.journal.end()

    @functools.wraps(function)
    async def method(self: Any, *positional: Any, **named: Any) -> Any:
        call = _outer(self)
        if call is None:
            if differences.is_decided:
                return await function(self, *positional, **named)
            return await from_outside(self, positional, named)
        call.suspects |= differences.undecided(name)
        if name != call.asks:
            return await function(self, *positional, **named)
        call.handing_on = True
        try:
            answer = await function(self, *positional, **named)
        except Exception as error:
            call.handed_on((positional, named), Ended(raised=error))
            raise
        else:
            call.handed_on((positional, named), Ended(answer))
            return answer
        finally:
            call.handing_on = False

    return method
