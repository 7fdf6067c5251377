"""Which mutants a check can tell from what they are made of, found out while it runs on that alone.

At each call of a method that a mutant overrides, a twin makes the same call beside the base: an instance of the mutant
on what is stored (see ``watched``), with a copy of the clock and of the arguments (see ``likeness``). A mutant is as
its base in a check if at every such call its twin answered, stored, left the clock and let others run as the base did.
Then it ends as the base does, by induction over the calls: until the first of them both did the same, and each leaves
both in the same state. What is no such proof counts as a difference, and the check is then run on the mutant itself:

- a call of what is no method, of a class method or of a property, or a mutant that defines one;
- a call while which others changed something, or that was cancelled, since then the order counts;
- a twin that touched what has no copy, as an engine has none. Where a base hands a call on to one, as a transport does,
  its twins' own call of the overridden method is answered by what the base answered, once and for the same arguments.

What a twin does elsewhere is not seen: a mutant keeps nothing outside of itself and of what is stored.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muniment.conformance.mutants.likeness import Copies, alike, is_value
from muniment.conformance.mutants.watched import Journal, Touched, journal_of
from muniment.reference import ReferenceStorage

_STEPS = 10
"""No call of a base lets others run more often."""


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

    def reached(self, attribute: str) -> None:
        """Something was used that nobody has a twin for: all that override it may differ."""
        self.found |= self._overriding.get(attribute, set())

    def undecided(self, method: str) -> Sequence[str]:
        """The mutants that override a method, have not differed yet, and have twins."""
        names = self._overriding.get(method, set()) - self.found
        self.found |= names - self._twins
        return sorted(names & self._twins)

    def compare(self, call: _Call, base: _Ended, names: Sequence[str]) -> None:
        """Let the twins of some mutants make a call that has ended so on the base."""
        call.end()
        self.found.update(name for name in names if not call.ends_alike(self._plugins[name], base))


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
        case _:
            return _noted_method(name, attribute, differences) if inspect.isfunction(attribute) else attribute


def _noted_method(name: str, function: Callable[..., Any], differences: Differences) -> Callable[..., Any]:
    @functools.wraps(function)
    def method(self: Any, *positional: Any, **named: Any) -> Any:
        names = differences.undecided(name)
        if not names:
            return function(self, *positional, **named)
        call = _Call(name, self, positional, named)
        try:
            answer = function(self, *positional, **named)
        except Exception as error:
            differences.compare(call, _Ended(raised=error), names)
            raise
        differences.compare(call, _Ended(answer), names)
        return answer

    return method


def _noted_coroutine(
    name: str, function: Callable[..., Coroutine[Any, Any, Any]], differences: Differences
) -> Callable[..., Any]:
    @functools.wraps(function)
    async def method(self: Any, *positional: Any, **named: Any) -> Any:
        names = differences.undecided(name)
        if not names:
            return await function(self, *positional, **named)
        call = _Call(name, self, positional, named)
        steps = _Steps(function(self, *positional, **named), call)
        try:
            answer = await steps
        except Exception as error:
            differences.compare(call, _Ended(raised=error, steps=steps.taken), names)
            raise
        except BaseException:
            call.end()
            differences.reached(name)
            raise
        differences.compare(call, _Ended(answer, steps=steps.taken), names)
        return answer

    return method


@dataclass
class _Ended:
    """How a call ended: its answer or what it raised, and how often it let others run; None where they changed
    something meanwhile."""

    answer: Any = None
    raised: Exception | None = None
    steps: int | None = 0


class _Steps:
    """Awaits a coroutine of a base, and watches what becomes of the state while others run."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], call: _Call) -> None:
        self.taken: int | None = 0
        self._coroutine = coroutine
        self._call = call

    def __await__(self) -> Generator[Any, Any, Any]:
        step = functools.partial(self._coroutine.send, None)
        while True:
            try:
                waits_for = step()
            except StopIteration as stopped:
                return stopped.value
            undisturbed = waits_for is None and self._call.is_as_before()
            try:
                yield waits_for
                step = functools.partial(self._coroutine.send, None)
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as error:
                undisturbed = False
                step = functools.partial(self._coroutine.throw, error)
            if self.taken is not None:
                self.taken = self.taken + 1 if undisturbed and self._call.is_as_before() else None


class _Call:
    """A call of a base's method: the instance, what it is given, and a copy of both from before the call."""

    def __init__(self, name: str, instance: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        copies = Copies(shared=True)
        self._name = name
        self._awaited = inspect.iscoroutinefunction(getattr(instance, name))
        self._live: tuple[dict[str, Any], tuple[Any, ...], dict[str, Any]] = vars(instance), positional, named
        self._before = copies.of(self._live)
        self._hands_on = copies.sealed
        self._of_values = all(is_value(one.__class__) for one in (*positional, *named.values()))
        self._changes = False
        self._journal = journal_of(instance.data) if isinstance(instance, ReferenceStorage) else Journal()
        self._journal.waiting.append(self._keep)

    def _keep(self) -> None:
        """Copy what is stored, too, before it is changed."""
        self._before = Copies().of(self._before)
        self._changes = True

    def is_as_before(self) -> bool:
        """Whether nothing has changed since the call began."""
        return not self._changes and alike(self._before, self._live)

    def end(self) -> None:
        """Nothing more is changed by the call."""
        if not self._changes:
            self._journal.waiting.remove(self._keep)

    def ends_alike(self, plugin: type[Any], base: _Ended) -> bool:
        """Whether the twin of a mutant ends this call as the base did, and leaves what the base left."""
        copies = Copies(shared=not self._changes)
        state, positional, named = self._before
        state = {name: copies.of(value) for name, value in state.items()}
        if not self._of_values:
            positional, named = copies.of(positional), copies.of(named)
        twin: Any = object.__new__(_handing_on(plugin, self._name) if self._hands_on else plugin)
        twin.__dict__.update(state)
        asked = _Asked(self._live[1:], base)
        _asking.append(asked)
        self._journal.closed = not self._changes
        try:
            ended = _ended(getattr(twin, self._name), positional, named, lambda: alike(vars(twin), self._before[0]))
        except Touched:
            return False
        finally:
            _asking.pop()
            self._journal.closed = False
        return (
            ended.steps == (0 if asked.times else base.steps)
            and alike(ended.raised, base.raised)
            and alike(ended.answer, base.answer)
            and alike(vars(twin), self._live[0])
            and (self._of_values or alike((positional, named), self._live[1:]))
            and (asked.times == 1 or not self._hands_on or not (self._changes or self._awaited))
        )


def _ended(
    method: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any], undisturbed: Callable[[], bool]
) -> _Ended:
    """How a twin's call ends. Raises Touched where it cannot be told."""
    steps = 0
    try:
        answer = method(*positional, **named)
        if not inspect.iscoroutine(answer):
            return _Ended(answer)
        while True:
            waits_for = answer.send(None)
            steps += 1
            if waits_for is not None or steps > _STEPS or not undisturbed():
                answer.close()
                raise Touched
    except StopIteration as stopped:
        return _Ended(stopped.value, steps=steps)
    except Exception as error:
        return _Ended(raised=error, steps=steps)


class _Asked:
    """What twins of a call that is handed on are answered when they ask their base."""

    def __init__(self, given: tuple[Any, ...], base: _Ended) -> None:
        self.times = 0
        self._given = given
        self._base = base

    def answer(self, given: tuple[Any, ...]) -> Any:
        """What the base answered, or raised. Raises Touched where it was asked something else, or again."""
        self.times += 1
        if self.times > 1 or self._base.steps is None or not alike(given, self._given):
            raise Touched
        if self._base.raised is not None:
            raise self._base.raised
        return self._base.answer


_asking: list[_Asked] = []
"""Of the twin that makes its call just now."""


@functools.cache
def _handing_on(plugin: type[Any], name: str) -> type[Any]:
    """A mutant that asks what was answered where it would ask its base."""
    base = plugin.__bases__[0]

    def asks(self: Any, *positional: Any, **named: Any) -> Any:
        return _asking[-1].answer((positional, named))

    async def awaits(self: Any, *positional: Any, **named: Any) -> Any:
        return asks(self, *positional, **named)

    coroutine = inspect.iscoroutinefunction(getattr(base, name))
    asked = type(base.__name__, (base,), {name: awaits if coroutine else asks})
    return type(plugin.__name__, (plugin, asked), {})
