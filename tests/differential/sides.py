"""The storages that the differential run compares: one engine over each, given the same steps at the same time.

What is generated for each storage is made equal or renamed: the engines draw ids and tokens from a generator that every
step seeds alike, a time becomes the step in which it was stamped, the end of a lease is taken roughly, and a cursor is
followed and not compared.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any, cast
from uuid import UUID

import pytest

from muniment.conformance.target import StorageTarget, Subject
from muniment.engine import Engine
from muniment.errors import MunimentError
from muniment.reference import HashEmbedder
from tests.differential.answers import Different, difference
from tests.differential.recipes import Known, LastCursor, Token
from tests.differential.steps import CALLERS, LOSE_LEASES, OWNER, Step

TICK = 0.001
"""Seconds between two steps: what the coarsest clock can tell apart."""
PAGES = 4
"""How many pages of an answer are read."""
AGED = 10_000.0
"""Seconds; more than any lease."""
TIMES = frozenset({"created_at", "updated_at", "at", "enqueued_at", "ts"})
"""Fields that hold the time at which a step was taken."""
LEASE = "lease_until"
ANSWERED = "answered"

Answer = dict[str, Any]

_drawn: ContextVar[Random] = ContextVar("drawn")


@contextmanager
def same_ids() -> Generator[None]:
    """While entered, every engine draws ids and tokens from its task's own generator."""

    def id_drawn() -> UUID:
        return UUID(int=_drawn.get().getrandbits(128), version=4)

    def token_drawn(size: int) -> str:
        return _drawn.get().randbytes(size).hex()

    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("muniment.engine.") and hasattr(module, "uuid4"):
                patch.setattr(module, "uuid4", id_drawn)
        patch.setattr(secrets, "token_urlsafe", token_drawn)
        yield


@dataclass
class Side:
    """One storage under its engine."""

    target: StorageTarget[Any]
    subject: Subject
    engine: Engine
    cursor: str = "none"

    async def take(self, number: int, step: Step) -> Sequence[Answer]:
        """The answers to a step: one or a refusal, or the pages of one."""
        _drawn.set(Random(number))
        if step.operation == LOSE_LEASES:
            await self.target.age(self.subject, AGED)
            return []
        answers: list[Answer] = []
        sent = {name: self.cursor if isinstance(value, LastCursor) else value for name, value in step.payload.items()}
        while len(answers) < PAGES:
            try:
                answer = await self.engine.call(step.operation, sent, CALLERS[step.caller])
            except MunimentError as refusal:
                return [*answers, refusal.body()]
            answers.append(answer.model_dump(mode="json"))
            if not answers[-1].get("cursor"):
                break
            self.cursor = answers[-1]["cursor"]
            sent = {**sent, "cursor": self.cursor}
        return answers


@dataclass
class Seen:
    """What the answers to earlier steps held, the same on every side."""

    ids: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Ids by kind, the latest last."""
    owners: dict[str, str] = field(default_factory=dict[str, str])
    """Who calls for ``OWNER``, by id."""
    tokens: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The tokens of an event's deliveries, the latest last."""
    begun: list[datetime] = field(default_factory=list[datetime])
    """When each step began."""

    def resolved(self, step: Step) -> Step:
        """A step with what was seen in the place of what names it."""
        payload = self._resolved(step.payload)
        owner = self.owners.get(str(payload.get("id", payload.get("project"))), "ann")
        return Step(step.operation, owner if step.caller == OWNER else step.caller, payload)

    def _resolved(self, value: Any) -> Any:
        match value:
            case Known(kind, back):
                ids = self.ids.get(kind)
                return ids[-1 - back % len(ids)] if ids else f"no-{kind}-yet"
            case Token(back, delivery):
                tokens = self.tokens.get(self._resolved(Known("delivered", back)), [])
                return tokens[-1 - delivery % len(tokens)] if tokens else "no-token-yet"
            case dict():
                return {name: self._resolved(part) for name, part in cast("Answer", value).items()}
            case list():
                return [self._resolved(part) for part in cast("list[Any]", value)]
            case _:
                return value

    def note(self, step: Step, answers: Sequence[Answer]) -> None:
        """Remember what the answers hold."""
        for answer in answers:
            match step.operation:
                case "memory.write" if "id" in answer:
                    self._add("memory", answer["id"], step.caller)
                case "memory.delete" if "id" in answer:
                    self._add("deleted", answer["id"], step.caller)
                case "project.identify" if "project" in answer:
                    self._add("project", answer["project"]["id"], step.caller)
                case "event.enqueue" if "id" in answer:
                    self._add("event", answer["id"], "{name}/{instance}".format(**answer["agent"]))
                case "event.claim" if "items" in answer:
                    for item in answer["items"]:
                        self._add("delivered", item["id"], step.caller)
                        self.tokens.setdefault(item["id"], []).append(item["token"])
                case _:
                    pass

    def _add(self, kind: str, made: str, owner: str) -> None:
        ids = self.ids.setdefault(kind, [])
        if made in ids:
            ids.remove(made)
        ids.append(made)
        self.owners.setdefault(made, owner)

    def renamed(self, value: Any, name: str = "") -> Any:
        """An answer with a time as the step in which it was stamped, and a cursor as whether there is one."""
        match value:
            case str() if name in TIMES:
                return f"in step {bisect_right(self.begun, _to_the_tick(datetime.fromisoformat(value)))}"
            case str() if name == LEASE:
                return f"{round((datetime.fromisoformat(value) - self.begun[0]).total_seconds(), -2):+.0f} s"
            case str() if name == "cursor":
                return "more"
            case dict():
                return {key: self.renamed(part, key) for key, part in cast("Answer", value).items()}
            case list():
                return [self.renamed(part) for part in cast("list[Any]", value)]
            case _:
                return value


@dataclass
class Comparison:
    """Sides that have answered the same steps so far."""

    sides: Sequence[Side]
    seen: Seen = field(default_factory=Seen)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How often each operation was ``ANSWERED``, or refused with a code."""
    taken: list[str] = field(default_factory=list[str])

    async def take(self, step: Step) -> None:
        """Take a step on every side. Raises Different."""
        step = self.seen.resolved(step)
        self.seen.begun.append(_to_the_tick(datetime.now(UTC)))
        number = len(self.seen.begun)
        self.taken.append(f"{step}")
        every = await asyncio.gather(*(side.take(number, step) for side in self.sides))
        answers = [self.seen.renamed(given) for given in every]
        for answer in answers[1:]:
            if place := difference(answer, answers[0]):
                names = (side.target.name for side in self.sides)
                raise Different(place, self.taken, list(zip(names, answers, strict=True)))
        self.seen.note(step, every[0])
        self.outcomes.update((step.operation, answer.get("code", ANSWERED)) for answer in every[0])
        await asyncio.sleep(TICK)


@asynccontextmanager
async def comparison(targets: Sequence[StorageTarget[Any]]) -> AsyncGenerator[Comparison]:
    """A fresh subject of each target under an engine, all with the same embedder. Raises NotRun."""
    async with AsyncExitStack() as stack:
        stack.enter_context(same_ids())
        sides: list[Side] = []
        for target in targets:
            subject = await stack.enter_async_context(target.open())
            engine = Engine(subject.storage, HashEmbedder(), background=False)
            sides.append(Side(target, subject, engine))
        yield Comparison(sides)


def _to_the_tick(time: datetime) -> datetime:
    return time.replace(microsecond=time.microsecond // 1_000 * 1_000)
