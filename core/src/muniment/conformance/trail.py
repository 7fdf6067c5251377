"""What a check did, step by step, for the report of a failure.

Owns how a step reads: operations with their inputs and answers, long texts elided. It keeps the latest steps
only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

_TEXT = 60
_STEPS = 30
_VALUE = 600


class Trail:
    """The latest steps of one check."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, Callable[[], str]]] = deque(maxlen=_STEPS)
        self._count = 0

    def add(self, step: str) -> None:
        """Record that something was done."""
        self._put(lambda: step)

    def calling(self, user: str, operation: str, payload: Mapping[str, Any]) -> Callable[[str], None]:
        """Record that an operation is called; what came back is told to the answer, once there is something."""
        came_back = "no answer"

        def answer(text: str) -> None:
            nonlocal came_back
            came_back = text

        def step() -> str:
            fields = ", ".join(f"{name}={brief(value)}" for name, value in payload.items())
            return f"{user}: {operation}({fields}) -> {came_back}"

        self._put(step)
        return answer

    def steps(self) -> tuple[str, ...]:
        """The recorded steps, oldest first, numbered from the check's beginning."""
        return tuple(f"{number}. {step()}" for number, step in tuple(self._steps))

    def _put(self, step: Callable[[], str]) -> None:
        """Keep a step, which is put into words only if somebody asks."""
        self._count += 1
        self._steps.append((self._count, step))


def answered(answer: Mapping[str, Any]) -> str:
    """An operation's answer on one short line: what identifies it, or how much it held."""
    if "items" in answer:
        more = ", more" if answer.get("cursor") else ""
        return f"{len(answer['items'])} items{more}"
    shown: Mapping[str, Any] = answer.get("project") or answer
    return f"{shown.get('id')} at version {shown.get('version')}"


def brief(value: object, length: int = _TEXT) -> str:
    """A value on one line of about ``length`` characters; longer ones show their beginning, end and size."""
    text = ascii(value) if isinstance(value, str) else repr(value)
    if len(text) <= length:
        return text
    size = f" ({len(value)} characters)" if isinstance(value, str) else ""
    return f"{text[: length * 2 // 3]}…{text[-length // 3 :]}{size}"


def apart(seen: object, expected: object) -> tuple[str, str]:
    """Two values that differ, in words; of long texts the part around the first difference."""
    if isinstance(seen, str) and isinstance(expected, str) and max(len(seen), len(expected)) > _VALUE:
        place = next(
            (at for at, (one, other) in enumerate(zip(seen, expected, strict=False)) if one != other),
            min(len(seen), len(expected)),
        )
        start = max(0, place - 20)
        return _around(seen, start, place + 60), _around(expected, start, place + 60)
    return brief(seen, _VALUE), brief(expected, _VALUE)


def _around(text: str, start: int, end: int) -> str:
    return f"{len(text)} characters, from {start} on {text[start:end]!a}"
