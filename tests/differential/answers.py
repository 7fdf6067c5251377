"""Where two storages' answers differ, and how a difference is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from muniment.conformance.trail import brief

SCORE = "score"
TOLERANCE = 1e-5
"""How far two scores of one hit may be apart."""
_SHOWN = 1_500


def difference(answer: Any, other: Any, place: str = "") -> str | None:
    """The first place in which two answers differ, numbers by their type too and scores by more than ``TOLERANCE``."""
    if type(answer) is not type(other):
        return place or "the whole"
    match answer:
        case dict() if answer.keys() == other.keys():
            fields = cast("dict[str, Any]", answer).items()
            inside = (difference(part, other[key], f"{place}.{key}") for key, part in fields)
            return next(filter(None, inside), None)
        case list() if len(cast("list[Any]", answer)) == len(other):
            items = enumerate(cast("list[Any]", answer))
            inside = (difference(item, other[at], f"{place}[{at}]") for at, item in items)
            return next(filter(None, inside), None)
        case float() if place.endswith(SCORE):
            equal = abs(answer - other) <= TOLERANCE
        case _:
            equal = answer == other
    return None if equal else place or "the whole"


class Different(AssertionError):
    """Storages answered a step differently: the steps so far, and the answers side by side."""

    def __init__(self, place: str, steps: Sequence[str], answers: Sequence[tuple[str, Any]]) -> None:
        taken = "\n".join(f"{number:4}. {step}" for number, step in enumerate(steps, 1))
        given = "\n".join(f"{name:>18}: {brief(answer, _SHOWN)}" for name, answer in answers)
        super().__init__(f"the storages differ in {place} of the last step's answer\n{taken}\n{given}")
        self.length = len(steps)
