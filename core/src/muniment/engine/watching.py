"""What may be watched of an engine at work: its parts, and how a watch sees each thing that they do.

A watch is told which part does what, never with what: no contents, no ids, no secrets get here. What a watch makes of
it is ``muniment.telemetry``'s.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from enum import StrEnum
from typing import Any, Protocol, TypeVar, cast

from muniment.models import CallContext

Subject = TypeVar("Subject")

UNKNOWN = "unknown"
"""What a call is called whose operation there is not: a name that a client made up names nothing."""


class Part(StrEnum):
    """What is at work. A name is that of an operation, of a search's rankers, or of a method."""

    ENTRY = "entry"
    OPERATION = "operation"
    SEARCH = "search"
    STORAGE = "storage"
    EMBEDDER = "embedder"


class Watch(Protocol):
    """What is done within the context that it gives; one that fails leaves it by its exception."""

    def __call__(self, part: Part, name: str, context: CallContext | None = None) -> AbstractContextManager[object]:
        """The context of one thing; ``context`` is an operation's caller."""
        ...


_NOTHING = nullcontext()


def unwatched(part: Part, name: str, context: CallContext | None = None) -> AbstractContextManager[object]:
    """Nobody watches."""
    return _NOTHING


def together(*watches: Watch) -> Watch:
    """All of these at once, the first one outermost."""
    if len(watches) < 2:
        return watches[0] if watches else unwatched

    def all_of_them(part: Part, name: str, context: CallContext | None = None) -> AbstractContextManager[object]:
        stack = ExitStack()
        for watch in watches:
            stack.enter_context(watch(part, name, context))
        return stack

    return all_of_them


def watched(subject: Subject, part: Part, watch: Watch) -> Subject:
    """``subject`` as the same thing watched; itself where nobody watches."""
    return subject if watch is unwatched else cast(Subject, Watched(subject, part, watch))


class Watched:
    """Another object, whose coroutine methods run watched; everything else is that object's own."""

    def __init__(self, subject: object, part: Part, watch: Watch) -> None:
        self._subject = subject
        # They are attributes of its own, so that a protocol that is asked for at run time finds them.
        for name in dir(type(subject)):
            if not name.startswith("_") and inspect.iscoroutinefunction(inspect.getattr_static(type(subject), name)):
                setattr(self, name, _within(getattr(subject, name), part, name, watch))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)


def _within(
    method: Callable[..., Awaitable[Any]], part: Part, name: str, watch: Watch
) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(method)
    async def run(*given: Any, **named: Any) -> Any:
        with watch(part, name):
            return await method(*given, **named)

    return run
