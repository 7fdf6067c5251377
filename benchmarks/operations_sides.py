"""The operations on memories that are compared with the bare driver: the engine's calls, and what the drivers share.

The bare driver of each storage, and what runs on its server besides, is a module of its own. Whatever the engine works
out of a content by itself (terms, passages, vectors, the audit entry) the bare driver's sides have before the clock
starts; their rows are the same ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, ClassVar, Protocol
from uuid import uuid4

import event_sides
from estate import DIMENSIONS, Estate, Floats, Memory, memories
from event_sides import DRIVER, Whole
from measuring import Call

from muniment import access, lexical, limits, mutations, ranking
from muniment.engine import Engine
from muniment.engine.cutting import cut
from muniment.models import CallContext, PatchEffect, Principal
from muniment.ports import AuditDraft, Create, Index, Passages, PassageVector, Remove, Revise
from muniment.reference import HashEmbedder
from muniment.reference.embedder import PASSAGE_TOKENS

EMBEDDER = HashEmbedder(DIMENSIONS)
SPACE_ID = f"hash:{DIMENSIONS}:{PASSAGE_TOKENS}"
READERS = {"ann": 1_000, "bob": 10_000}
"""Who searches, and how many memories each may read."""
LIMIT = 10
"""Hits of a search. The engine asks the storage for one more, to know whether there is another page."""
PAGE = limits.LIST_LIMIT_DEFAULT + 1
"""Memories that a list asks the storage for."""
TAGS = ("one", "two")


@dataclass(slots=True)
class Written:
    """A memory of one side's: what it is once the calls that were prepared for it are done."""

    content: str
    id: str = ""
    version: int = 0
    index: Index | None = None
    """Of the bare driver's."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query as a client sends it and as a storage gets it, and the page that answers it."""

    user: str
    text: str
    terms: Mapping[str, float]
    tags: frozenset[str]
    vector: Floats
    page: tuple[str, ...]
    """Ids."""


class Side(Protocol):
    """One way of doing it. A method prepares a call, which is what is measured."""

    name: str

    def get(self, user: str, memory: str) -> Call:
        """One memory by its id."""
        ...

    def newest(self, user: str) -> Call:
        """The newest memories."""
        ...

    def search(self, question: Question) -> Call:
        """The first page."""
        ...

    async def write(self, one: Written) -> Call:
        """A new memory."""
        ...

    async def patch(self, one: Written, old: str, new: str) -> Call:
        """A fragment of the content becomes another one."""
        ...

    async def update(self, one: Written, content: str) -> Call:
        """Another content."""
        ...

    async def replace(self, one: Written, content: str) -> Call:
        """Another content, by the bare driver without reading the memory first."""
        ...

    def delete(self, one: Written) -> Call:
        """Hide it."""
        ...


class Ours:
    """The engine's calls."""

    name = Whole.name

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get(self, user: str, memory: str) -> Call:
        """``memory.get``."""
        return partial(self._call, "memory.get", user, id=memory)

    def newest(self, user: str) -> Call:
        """``memory.list``."""
        return partial(self._call, "memory.list", user)

    def search(self, question: Question) -> Call:
        """``memory.search``, of which embedding the query is a part."""
        return partial(self._call, "memory.search", question.user, query=question.text, limit=LIMIT)

    async def write(self, one: Written) -> Call:
        """``memory.write``."""

        async def call() -> None:
            answer = await self._call("memory.write", self.name, content=one.content, tags=[*TAGS])
            one.id = answer.id

        return call

    async def patch(self, one: Written, old: str, new: str) -> Call:
        """``memory.patch`` without a version."""
        one.content = one.content.replace(old, new)
        return partial(self._call, "memory.patch", self.name, id=one.id, old_string=old, new_string=new)

    async def update(self, one: Written, content: str) -> Call:
        """``memory.update`` without a version."""
        one.content = content
        return partial(self._call, "memory.update", self.name, id=one.id, content=content)

    replace = update

    def delete(self, one: Written) -> Call:
        """``memory.delete`` without a version."""
        return partial(self._call, "memory.delete", self.name, id=one.id)

    async def page(self, user: str, text: str) -> tuple[str, ...]:
        """The ids that a search finds, one more than a page has."""
        found = await self._call("memory.search", user, query=text, limit=LIMIT + 1)
        assert found.degraded is None
        return tuple(hit.memory.id for hit in found.items)

    async def _call(self, operation: str, user: str, **sent: Any) -> Any:
        return await self._engine.call(operation, sent, CallContext(principal=Principal(user=user)))


class Bare(ABC):
    """The bare driver: a mutation is made before the clock starts, as the engine would make it."""

    name = DRIVER

    @abstractmethod
    def get(self, user: str, memory: str) -> Call:
        """One memory by its id, if the user reads it."""

    @abstractmethod
    def newest(self, user: str) -> Call:
        """The newest memories that the user reads."""

    @abstractmethod
    def search(self, question: Question) -> Call:
        """The first page."""

    @abstractmethod
    def create(self, made: Create) -> Call:
        """All rows of a new memory."""

    @abstractmethod
    def change(self, made: Revise | Remove, *, read: bool = True) -> Call:
        """All rows of a change; ``read`` the memory first, as who decides whether it may be changed must."""

    async def write(self, one: Written) -> Call:
        """A memory of this side's own."""
        one.id, one.version, one.index = str(uuid4()), 1, await indexed(one.content)
        made = Create(
            memory_id=one.id,
            editor=DRIVER,
            audit=_audit(one, "memory.write", ("content", "tags")),
            placement=access.own_placement(DRIVER),
            content=one.content,
            tags=TAGS,
            index=one.index,
        )
        return self.create(made)

    async def patch(self, one: Written, old: str, new: str) -> Call:
        """The whole content that comes of it."""
        patched = mutations.patch(one.content, old, new)
        return self.change(await self._revised(one, patched.content, "memory.patch", patched.effect))

    async def update(self, one: Written, content: str) -> Call:
        """A compare-and-set."""
        return self.change(await self._revised(one, content, "memory.update"))

    async def replace(self, one: Written, content: str) -> Call:
        """A compare-and-set, and nothing before it."""
        return self.change(await self._revised(one, content, "memory.update"), read=False)

    def delete(self, one: Written) -> Call:
        """A compare-and-set."""
        expected, one.version = one.version, one.version + 1
        audit = _audit(one, "memory.delete", ("deleted",))
        return self.change(Remove(memory_id=one.id, editor=DRIVER, audit=audit, expected_version=expected))

    async def _revised(self, one: Written, content: str, action: str, effect: PatchEffect | None = None) -> Revise:
        passages = one.index.passages if one.index else None
        expected, one.version = one.version, one.version + 1
        one.content, one.index = content, await indexed(content, passages.hashes if passages else frozenset())
        return Revise(
            memory_id=one.id,
            editor=DRIVER,
            audit=_audit(one, action, ("content",), effect),
            expected_version=expected,
            content=content,
            index=one.index,
        )


class Ground(ABC):
    """A server of the benchmark's own, and the sides on it; ``process`` is its process id.

    In the tables of the ``crowded`` sides others have memories too; ``readable`` are ids by who reads them.
    ``of_search`` says what the bare driver leaves out of a search.
    """

    of_search: ClassVar[str]

    def __init__(
        self,
        process: int,
        sides: Sequence[Side],
        crowded: Sequence[Side],
        events: event_sides.Ground,
        readable: Mapping[str, Sequence[str]],
    ) -> None:
        self.process = process
        self.sides = sides
        self.crowded = crowded
        self.events = events
        self.readable = readable

    @abstractmethod
    async def rows(self, user: str) -> object:
        """How many rows of each kind a user's own memories have."""


def _audit(one: Written, action: str, changed: tuple[str, ...], effect: PatchEffect | None = None) -> AuditDraft:
    key = access.user_key(DRIVER)
    return AuditDraft(
        str(uuid4()), DRIVER, None, "engine", action, one.id, None, one.version, changed, key, patch=effect
    )


async def indexed(content: str, stored: frozenset[str] = frozenset()) -> Index:
    """What a content is found by, without the vectors of the passages that are ``stored``."""
    texts = await cut(content, EMBEDDER, PASSAGE_TOKENS)
    fresh = tuple(PassageVector(key, EMBEDDER.vector(text)) for key, text in texts.items() if key not in stored)
    return Index(lexical.ANALYSER, lexical.analyse(content), Passages(SPACE_ID, frozenset(texts), fresh, complete=True))


async def questions(ours: Ours, estate: Estate, user: str, count: int) -> list[Question]:
    """Queries of words and a tag with their answers."""
    made: list[Question] = []
    for one in estate.queries(count):
        text = f"{one.words} {one.tag}"
        terms, tags = lexical.query_terms(text), ranking.query_tags(text)
        made.append(Question(user, text, terms, tags, EMBEDDER.vector(text), await ours.page(user, text)))
    return made


def loads(estate: Estate, foreign: int) -> tuple[Sequence[Memory], Sequence[Memory]]:
    """The readers' memories, and the same among ``foreign`` ones of others; each has its text's one vector."""
    vectors = [EMBEDDER.vector(one.content)[None] for one in estate.texts]
    made = memories(estate, READERS, 0, seed=1, vectors=vectors.__getitem__)
    mixed = made + memories(estate, {}, foreign, seed=2, vectors=vectors.__getitem__)
    Random(3).shuffle(mixed)
    return made, mixed
