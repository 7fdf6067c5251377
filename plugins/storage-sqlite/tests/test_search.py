"""What a search keeps in memory is never stale, whoever wrote and whatever."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from muniment import access, lexical
from muniment.ports import (
    Audience,
    AuditDraft,
    Create,
    Found,
    Index,
    NewProject,
    Passages,
    PassageVector,
    Placement,
    Remove,
    Restore,
    Revise,
    SearchQuery,
    Selector,
    Space,
    Storage,
)
from muniment.ranking import Fusion
from muniment.reference import ReferenceStorage
from muniment_storage_sqlite.blocks import Blocks
from muniment_storage_sqlite.search import search as find

Opened = Callable[..., AbstractAsyncContextManager[Storage]]
Creation = Callable[[str, str], Create]
Revision = Callable[[str, int, str, str], Revise]
SPACE = Space(id="s", provider="p", model="m", dimensions=8, pooling="mean", normalised=False, passage_tokens=10)
WORDS = ("amber", "basalt", "cedar", "dune", "ember", "flint")
OWNER = Audience("alice")
STEPS = 120


async def test_a_search_sees_what_another_client_wrote(
    path: Path, opened: Opened, creation: Creation, revision: Revision
) -> None:
    """After each of random writes by one client, a second that searched before answers as a new third one does."""
    made = random.Random(7)
    async with opened(path) as writer, opened(path) as reader:
        await writer.register_space(SPACE, np.zeros((1, SPACE.dimensions), dtype=np.float32))
        await writer.register_project(NewProject("p-1", "acme/web", "alice", entry("project", 1)))
        writes = Writes(writer, made, creation, revision)
        for _ in range(STEPS):
            what = await writes.one()
            async with opened(path) as fresh:
                query = search_for(made)
                assert await found(reader, query) == await found(fresh, query), what
    assert writes.done == {"create", "revise", "move", "retag", "remove", "restore", "passages", "terms"}


@pytest.mark.parametrize("odd", [0.0, np.nan, np.inf, 1e-30, 1e30, 1e-42])
@pytest.mark.parametrize("fusion", Fusion)
async def test_vectors_of_any_length_rank_as_in_the_reference(
    path: Path, opened: Opened, creation: Creation, odd: float, fusion: Fusion
) -> None:
    """Scores and order are the same to the last bit: of memories whose passages are all odd, partly or not at all."""
    made = random.Random(7)
    reference = ReferenceStorage()
    async with opened(path) as storage:
        for one in (reference, storage):
            await one.register_space(SPACE, np.zeros((1, SPACE.dimensions), dtype=np.float32))
        for number in range(40):
            text = made.choice(WORDS)
            vectors = [vector(made) * np.float32(odd if made.random() < 0.5 else 1.0) for _ in range(number % 3 + 1)]
            stored = tuple(PassageVector(f"h-{place}", one) for place, one in enumerate(vectors))
            passages = Passages(SPACE.id, frozenset(one.hash for one in stored), stored, complete=True)
            create = creation(f"m-{number:02}", text)
            for one in (reference, storage):
                await one.apply(replace(create, index=replace(create.index, passages=passages)))
        for _ in range(10):
            usual = vector(made)
            for wanted in (usual, usual * np.float32(odd)):
                query = replace(search_for(made), fusion=fusion, vector=wanted)
                seen, expected = [[hit.ranked for hit in await found(one, query)] for one in (storage, reference)]
                assert seen == expected


class Writes:
    """Random writes of all kinds, of a few memories."""

    def __init__(self, storage: Storage, made: random.Random, creation: Creation, revision: Revision) -> None:
        self.done: set[str] = set()
        self._storage = storage
        self._made = made
        self._creation = creation
        self._revision = revision
        self._versions: dict[str, int] = {}
        self._deleted: set[str] = set()

    async def one(self) -> str:
        """Write once; what was done."""
        memory = f"m-{self._made.randrange(12)}"
        text = " ".join(self._made.choices(WORDS, k=self._made.randrange(3, 9)))
        if memory not in self._versions:
            self._versions[memory] = 1
            await self._storage.apply(replace(self._creation(memory, text), index=self._index(text)))
            return self._noted("create")
        version = self._versions[memory]
        if memory in self._deleted:
            audit = entry(memory, version + 1)
            await self._apply(
                Restore(memory_id=memory, editor="a", audit=audit, expected_version=version, index=self._index(text))
            )
            self._deleted.remove(memory)
            return self._noted("restore")
        revise = replace(self._revision(memory, version, text, "a"), index=self._index(text))
        part = replace(revise, content=None, index=None)
        match what := self._made.choice(("revise", "move", "retag", "remove", "passages", "terms")):
            case "revise":
                await self._apply(revise)
            case "move":
                await self._apply(replace(part, placement=self._placement()))
            case "retag":
                await self._apply(replace(part, tags=tuple(sorted(self._made.sample(WORDS, 2)))))
            case "remove":
                await self._apply(Remove(memory_id=memory, editor="a", audit=part.audit, expected_version=version))
                self._deleted.add(memory)
            case "passages":
                assert await self._storage.store_passages(memory, version, self._passages())
            case _:
                assert await self._storage.store_terms(memory, version, "other", lexical.analyse(text))
        return self._noted(what)

    async def _apply(self, mutation: Revise | Remove | Restore) -> None:
        self._versions[mutation.memory_id] = (await self._storage.apply(mutation)).version

    def _noted(self, what: str) -> str:
        self.done.add(what)
        return what

    def _placement(self) -> Placement:
        return self._made.choice((access.own_placement("alice"), access.project_placement("p-1")))

    def _index(self, text: str) -> Index:
        return Index(lexical.ANALYSER, lexical.analyse(text), self._passages())

    def _passages(self) -> Passages:
        vectors = tuple(PassageVector(f"h-{n}", vector(self._made)) for n in self._made.sample(range(6), 2))
        return Passages(SPACE.id, frozenset(one.hash for one in vectors), vectors, complete=True)


def entry(memory: str, version: int) -> AuditDraft:
    """An audit entry."""
    return AuditDraft(f"{memory}-{version}", "a", None, "test", "test", memory, None, version, (), "u:alice")


def vector(made: random.Random) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """A vector of the space, of any length."""
    return np.array([made.gauss(0, 2) for _ in range(SPACE.dimensions)], dtype=np.float32)


def search_for(made: random.Random) -> SearchQuery:
    """A query by all rankers."""
    words = made.sample(WORDS, 2)
    terms = lexical.query_terms(" ".join(words))
    return SearchQuery(terms, frozenset(words), vector(made), SPACE.id, Fusion.weighted, None, 0, 50)


async def found(storage: Storage, query: SearchQuery) -> Sequence[Found]:
    """Everything that matches, in order, with all scores."""
    return await storage.search(OWNER, Selector(), query)


async def test_a_search_takes_as_many_statements_whatever_can_be_read(
    path: Path, opened: Opened, creation: Creation
) -> None:
    """One a term, not one a term and scope."""
    query = SearchQuery({"amber": 1.0, "cedar": 1.0}, frozenset({"kept"}), None, None, Fusion.weighted, None, 0, 1)
    counts: list[int] = []
    async with opened(path) as storage:
        for number in range(1, 9):
            made = creation(f"m-{number}", "amber cedar")
            await storage.apply(replace(made, placement=access.own_placement(f"owner-{number}")))
    kept = Blocks()
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("UPDATE scopes SET user = NULL")
        for several in (2, 8):
            connection.execute("DELETE FROM projects")
            for number in range(1, several + 1):
                connection.execute("INSERT INTO projects VALUES (?, ?, 'ann', 1, 0, 0)", (f"p-{number}", f"k-{number}"))
                connection.execute("UPDATE scopes SET project = ? WHERE number = ?", (f"p-{number}", number))
            statements = list[str]()
            found = find(connection, kept, Audience("ann"), Selector(), query)
            connection.set_trace_callback(statements.append)
            assert find(connection, kept, Audience("ann"), Selector(), query) == found
            connection.set_trace_callback(None)
            assert len(found) == 1
            counts.append(len(statements))
    assert counts[0] == counts[1]
