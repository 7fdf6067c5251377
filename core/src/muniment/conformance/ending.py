"""How one check ended, in words: what it raised, what its target declares, and what is known to fail.

Owns which exception means which outcome. Which outcomes are conformant is ``report``'s.
"""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass

import muniment
from muniment.config import redact
from muniment.conformance.invariant import Broken, Feature, Invariant, NotExercised, Outcome
from muniment.conformance.target import NotRun, Refused, Target
from muniment.errors import CapabilityNotSupported, MunimentError

_DETAIL = 2_000
_CORE = os.path.join(os.path.dirname(muniment.__file__), "")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a check ended, before known failures and capabilities are considered.

    ``refusal`` is the code of an operation's refusal that ended it.
    """

    outcome: Outcome
    detail: str
    expected: str | None = None
    seen: str | None = None
    steps: tuple[str, ...] = ()
    refusal: str | None = None
    cut_off: bool = False


def text_of(error: BaseException) -> str:
    """The text of an exception; where the exception cannot say it, that."""
    try:
        return str(error)
    except Exception as broken:
        return f"its __str__ raised {type(broken).__name__}"


class Escaped(Exception):
    """What is no error, such as SystemExit, came out of a plugin; let go on, it would have ended the judge."""

    def __init__(self, escaped: BaseException) -> None:
        self.escaped = escaped
        super().__init__(f"{type(escaped).__name__} came out of the plugin ({text_of(escaped)})")


def without(missing: frozenset[Feature]) -> Ended:
    """A plugin without a provider or a network has nothing to fail; a target that cannot bring a fault about is
    incomplete."""
    names = ", ".join(sorted(missing))
    if missing <= {Feature.PROVIDER}:
        return Ended(Outcome.UNDECLARED, "the embedder has no provider that could fail")
    if missing <= {Feature.NETWORK}:
        return Ended(Outcome.UNDECLARED, "the transport is not served over a network")
    return Ended(Outcome.NOT_EXERCISED, f"the target has no {names}; give it that method")


def in_words(error: Exception, steps: tuple[str, ...]) -> Ended:
    """How a check ended that raised. Raises NotRun."""
    match error:
        case NotRun():
            raise error
        case NotExercised():
            return Ended(Outcome.NOT_EXERCISED, text_of(error), steps=steps)
        case Broken():
            return Ended(Outcome.FAIL, error.what, error.expected, error.seen, steps)
        case Refused():
            detail = f"an operation that must succeed was refused: {text_of(error)}"
            return Ended(Outcome.FAIL, detail, "an answer", f"refusal {error.code}", steps, refusal=error.code)
        case MunimentError():
            return Ended(Outcome.FAIL, f"the plugin refused: {text_of(error)}", "an answer", error.code, steps)
        case Escaped():
            return _raised(error.escaped, text_of(error), steps)
        case _:
            return _raised(error, f"{_name(error)}: {text_of(error)}", steps)


def _raised(error: BaseException, detail: str, steps: tuple[str, ...]) -> Ended:
    """An exception that is no refusal, with the place that it left."""
    seen = f"{_name(error)}, raised {_place(error)}"
    expected = "an answer, or a refusal of muniment.errors"
    return Ended(Outcome.ERROR, " ".join(redact(detail).split())[:_DETAIL], expected, seen, steps)


def _name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _place(error: BaseException) -> str:
    """Where an exception came from: what core called last, else the place itself."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [place for place, frame in enumerate(frames) if frame.filename.startswith(_CORE)]
    frame = frames[min(inside[-1] + 1, len(frames) - 1) if inside else -1]
    return f"in {frame.name} ({os.path.basename(frame.filename)}, line {frame.lineno})"


def declared(target: Target, invariant: Invariant, ended: Ended) -> Ended:
    """An undeclared capability must refuse with its own code; whatever else happens is a failure."""
    undeclared = invariant.capabilities - target.capabilities
    if not undeclared:
        return ended
    names = ", ".join(sorted(undeclared))
    if ended.refusal == CapabilityNotSupported.code:
        return Ended(Outcome.UNDECLARED, f"{names} is not declared, and refused")
    expected = f"refusal {CapabilityNotSupported.code}, or a declaration"
    return Ended(Outcome.FAIL, f"{names} is not declared", expected, ended.detail, ended.steps)


def against_known(target: Target, invariant: Invariant, outcome: Outcome) -> Outcome:
    """The outcome, where it is known that the invariant does not hold: red if it does."""
    if invariant.id not in target.known_failures:
        return outcome
    match outcome:
        case Outcome.FAIL | Outcome.ERROR:
            return Outcome.KNOWN_FAILURE
        case Outcome.PASS | Outcome.UNDECLARED:
            return Outcome.STALE_KNOWN_FAILURE
        case _:
            return outcome


def with_link(target: Target, invariant: Invariant, ended: Ended) -> str:
    """The detail of a result, with the link of a known failure."""
    link = target.known_failures.get(invariant.id)
    if link is None:
        return ended.detail
    if ended.outcome in (Outcome.PASS, Outcome.UNDECLARED):
        return f"it holds now; take it out of known_failures ({link})"
    return f"{ended.detail} (known: {link})"
