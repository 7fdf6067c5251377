"""PostgreSQL gives the orders of the reference storage: 200 seeded searches over 2,000 memories."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random

from muniment.conformance.orders import alike, answer, case, load
from muniment.conformance.pytest_front import not_run
from muniment.conformance.target import NotRun
from muniment.reference import HashEmbedder, ReferenceStorage
from muniment_storage_postgres.conformance import target

MEMORIES = 2_000
QUERIES = 200
SEED = 20_240_301


async def test_postgres_gives_the_reference_orders() -> None:
    """Every score within 1e-5, and every place but those of neighbours that close."""
    embedder = HashEmbedder()
    space = await embedder.space()
    made = case(Random(SEED), space, memories=MEMORIES, queries=QUERIES)
    reference = ReferenceStorage()
    async with AsyncExitStack() as stack:
        try:
            subject = await stack.enter_async_context(target().open())
        except NotRun as missing:
            not_run(str(missing))
            return
        for storage in (reference, subject.storage):
            await load(storage, made)
        hits = 0
        for number, asked in enumerate(made.asked):
            whole = await answer(reference, made, replace(asked, min_score=None), space)
            seen = await answer(subject.storage, made, asked, space)
            alike(f"the result of search {number}, {asked}", seen, whole, asked)
            hits += len(seen)
        assert hits > 20 * QUERIES
