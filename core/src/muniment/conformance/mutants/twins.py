"""A call of a base, from outside, and the same call by the twins of mutants that may differ in it.

A twin is an instance of the mutant with what its base's instance had before the call. It makes the call once the base's
has ended: what the base changed of what is stored is taken back, the twin changes it, and all is put as the base left
it. What a mutant keeps in attributes of its own, its twin keeps from one call to the next.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Coroutine, Generator, Mapping, Sequence
from typing import Any

from muniment.conformance.mutants.asked import Asked, Ended, Ids, asking, read, under_way
from muniment.conformance.mutants.likeness import Copies, Sealed, Touched, alike, attributes_of, is_value
from muniment.conformance.mutants.watched import Effects, Held, Journal, journal_of
from muniment.conformance.reference_target import CoarseClock
from muniment.conformance.reference_transport import ReferenceTransport
from muniment.reference import ReferenceStorage

_STEPS = 10
"""No call of a base lets others run more often."""
_ASKS = {(ReferenceTransport, "serve"): "called"}
"""The method by which a base hands a call on to what has no copy, where it is another than the one that is called."""

Plugins = Mapping[str, type[Any]]
Own = dict[tuple[int, str], tuple[Any, dict[str, Any]]]
"""What twins keep for themselves, by the base's instance and the mutant's name; beside it the instance, so that its id
stays its own."""


class Call:
    """A call of a base's method from outside: the instance, what it is given, and what both were before it.

    ``suspects`` are the mutants that did something else in one of its steps, so that it is known by the whole call
    alone whether they differ. ``unlike_texts`` are those whose replies say the same in another text. While
    ``handing_on`` it is not the base's doing how often others run.
    """

    def __init__(self, name: str, instance: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.name = name
        self.suspects: set[str] = set()
        self.unlike_texts: set[str] = set()
        self.handing_on = False
        self.ids = Ids()
        self.journal = journal_of(instance.data) if isinstance(instance, ReferenceStorage) else Journal()
        self.instance = instance
        self._given = positional, named
        self._of_values = all(is_value(one.__class__) for one in (*positional, *named.values()))
        copies = Copies()
        self._copy_attributes(copies)
        self._given_before = self._given if self._of_values else copies.of(self._given)
        base = type(instance).__bases__[0]
        self.asks = _ASKS.get((base, name), name)
        self._hands_on = copies.sealed
        self._answered: tuple[tuple[Any, ...], Ended] | None = None
        self._held = Held(instance.data) if isinstance(instance, ReferenceStorage) else None
        self._is_late = False
        clock = attributes_of(instance).get("clock")
        self._clock = clock if isinstance(clock, CoarseClock) else None
        self._step_twins: dict[type[Any], Any] = {}
        self._place = self.journal.begin()
        self._count = self.journal.count

    def handed_on(self, given: tuple[Any, ...], ended: Ended) -> None:
        """What was answered where the call was handed on."""
        self._answered = (given, ended) if self._answered is None else ((), Ended(steps=None))

    @property
    def readings(self) -> int:
        """How far the instance's clock is."""
        return self._clock.readings if self._clock is not None else 0

    def step_twin(self, plugin: type[Any]) -> Any:
        """An instance of a mutant with the very attributes of the base's."""
        twin = self._step_twins.get(plugin)
        if twin is None:
            twin = self._step_twins[plugin] = object.__new__(plugin)
            twin.__dict__.update(attributes_of(self.instance))
        return twin

    def has_own(self, twin: Any) -> bool:
        """Whether a step has changed a twin's attributes."""
        if attributes_of(twin) == attributes_of(self.instance):
            return False
        del self._step_twins[type(twin)]
        return True

    def put_back(self) -> bool:
        """Put the containers of what is stored where they were; whether each was there."""
        return self._held is None or self._held.put_back()

    def restore(self, count: int, readings: int) -> None:
        """Take back what was changed since there were ``count`` changes and the clock was so far."""
        self.journal.take_back_since(count)
        if self._clock is not None:
            self._clock.readings = readings

    def is_as_before(self) -> bool:
        """Whether nothing has changed since the call began."""
        return (
            self.journal.count == self._count
            and self._has_attributes(self.instance)
            and (self._of_values or alike(self._given_before, self._given))
        )

    def _copy_attributes(self, copies: Copies) -> None:
        """Keep the instance's attributes: those that are values, and copies of the others."""
        attributes = attributes_of(self.instance)
        self._values = {key: value for key, value in attributes.items() if is_value(value.__class__)}
        self._copies = {key: copies.of(value) for key, value in attributes.items() if key not in self._values}

    def _has_attributes(self, one: Any) -> bool:
        """Whether an instance has the attributes that were kept; a twin may have others of its own besides."""
        attributes = attributes_of(one)
        return all(attributes.get(key, self) is value for key, value in self._values.items()) and all(
            alike(attributes.get(key, self), copy) for key, copy in self._copies.items()
        )

    def _leaves_attributes(self, twin: Any) -> bool:
        """Whether a twin has left its attributes as its base left the instance's."""
        left = attributes_of(self.instance)
        attributes = attributes_of(twin)
        return left.keys() <= attributes.keys() and all(
            attributes[key] is value or alike(attributes[key], value) for key, value in left.items()
        )

    def begun_anew(self) -> bool:
        """Let the call begin now: it did nothing before others ran for the first time. Not so where they changed what
        it was given."""
        if not self._of_values and not alike(self._given_before, self._given):
            return False
        self._copy_attributes(Copies())
        self._place, self._count = self.journal.place(), self.journal.count
        self._is_late = True
        return True

    def differing(self, names: Sequence[str], plugins: Plugins, own: Own, base: Ended) -> set[str]:
        """Which of some mutants do not end this call as the base did, or leave something else; ``own`` is changed."""
        journal = self.journal
        left, count = journal.effects(self._place, self._count), journal.count
        undone = journal.take_back(self._place)
        if self.asks == self.name:
            self._answered = self._given, base
        try:
            return {name for name in names if not self._ends_alike(name, plugins[name], own, base, left)}
        finally:
            journal.make_again(undone)
            journal.count = count

    def _ends_alike(self, name: str, plugin: type[Any], own: Own, base: Ended, left: Effects) -> bool:
        journal, copies = self.journal, Copies()
        key = id(self.instance), name
        kept = own[key][1] if key in own else {}
        state = {**self._values, **{name: copies.of(value) for name, value in self._copies.items()}, **copies.of(kept)}
        positional, named = self._given_before if self._of_values else copies.of(self._given_before)
        twin: Any = object.__new__(asking(plugin, self.asks) if self._hands_on else plugin)
        twin.__dict__.update(state)
        asked = Asked(self._answered)
        under_way.append(asked)
        self.ids.again_from(0)
        journal.count = self._count
        try:
            ended = self._twin_ended(twin, positional, named)
            effects = journal.effects(self._place, self._count)
        except Touched:
            return False
        finally:
            under_way.pop()
            journal.take_back(self._place)
            intact = self.put_back()
        left_by_base = attributes_of(self.instance)
        if len(attributes_of(twin)) > len(left_by_base):
            mine = {name: value for name, value in attributes_of(twin).items() if name not in left_by_base}
            own[key] = self.instance, mine
        return (
            intact
            and (not self._hands_on or asked.times == (self._answered is not None))
            and ended.steps == (0 if asked.times else base.steps)
            and alike(ended.raised, base.raised)
            and self._answers_alike(name, ended.answer, base.answer)
            and self._leaves_attributes(twin)
            and (self._of_values or alike((positional, named), self._given))
            and same_effects(effects, left)
        )

    def _answers_alike(self, name: str, one: Any, other: Any) -> bool:
        if alike(one, other):
            return True
        if not isinstance(self.instance, ReferenceTransport) or self.name != "serve":
            return False
        self.unlike_texts.add(name)
        return alike(read(one), read(other))

    def _twin_ended(self, twin: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> Ended:
        """How a twin's call ends. Raises Touched where it cannot be told."""
        steps = 0
        state = dict(attributes_of(twin))
        if self._is_late:
            # Nor may it have looked at anything before.
            twin.__dict__.update({key: Sealed(value) for key, value in state.items()})
        try:
            answer = getattr(twin, self.name)(*positional, **named)
            if not inspect.iscoroutine(answer):
                return Ended(answer)
            while True:
                waits_for = answer.send(None)
                if self._is_late and not steps:
                    twin.__dict__.update(state)
                steps += 1
                changed = self.journal.count != self._count or not self._has_attributes(twin)
                if waits_for is not None or steps > _STEPS or changed:
                    answer.close()
                    raise Touched
        except StopIteration as stopped:
            return Ended(stopped.value, steps=steps)
        except Exception as error:
            return Ended(raised=error, steps=steps)


class Awaited:
    """Awaits a coroutine of a base, and watches what becomes of the state while others run."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], call: Call) -> None:
        self.steps: int | None = 0
        self._coroutine = coroutine
        self._call = call

    def __await__(self) -> Generator[Any, Any, Any]:
        step = functools.partial(self._coroutine.send, None)
        while True:
            try:
                waits_for = step()
            except StopIteration as stopped:
                return stopped.value
            counts = self.steps is not None and not self._call.handing_on
            undisturbed = counts and waits_for is None and self._call.is_as_before()
            try:
                yield waits_for
                step = functools.partial(self._coroutine.send, None)
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as error:
                undisturbed = False
                step = functools.partial(self._coroutine.throw, error)
            if counts:
                self.steps = self._after(undisturbed)

    def _after(self, undisturbed: bool) -> int | None:
        """How often others ran by now, after they did so once more."""
        if undisturbed and self._call.is_as_before():
            return (self.steps or 0) + 1
        return 1 if undisturbed and self.steps == 0 and self._call.begun_anew() else None


def same_effects(some: Effects, others: Effects) -> bool:
    """Whether changes came to the same."""
    if (
        some.new != others.new
        or some.values.keys() != others.values.keys()
        or some.wholes.keys() != others.wholes.keys()
    ):
        return False
    pairs = [(value, others.values[key]) for key, value in some.values.items()]
    pairs += [(whole, others.wholes[key]) for key, whole in some.wholes.items()]
    return all(alike(one, other) for one, other in pairs)
