"""What a search costs at 1,000 and 10,000 readable memories, by leg, beside one table with three statements.

On a PostgreSQL of its own, with 0 and with OTHERS (default 100,000) memories of others in the same tables. Both answer
the same queries in the same run, one after the other; a leg of ours costs what a search without it saves. "At recall 1"
lets the other shape look into every list of its vector index. Recall is against the exact answers: of the first ten by
meaning, over the vectors that each shape keeps, and of the first ten by BM25.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import psycopg
from estate import DIMENSIONS, Estate, Memory, Query, memories
from numpy.typing import NDArray
from search_load import load_ours, load_seed
from seed_shape import SeedShape

from muniment import lexical, ranking
from muniment.ports import Audience, Found, PluginContext, SearchQuery, Selector, Space
from muniment_storage_postgres.embedded import server
from muniment_storage_postgres.storage import PostgresStorage, create

OWNED = {"ann": 1_000, "bob": 10_000}
OTHERS = int(os.environ.get("OTHERS", "100000"))
QUERIES = 24
REPEATS = 5
LIMIT = 10
SPACE = Space("bench:384", "bench", "bench", DIMENSIONS, "mean", True, 256)
SCHEMA = "muniment"
SETTINGS = ("shared_buffers = '2GB'", "max_wal_size = '8GB'")
Times = Mapping[str, Sequence[float]]


async def main() -> None:
    """Load, ask, print; with nothing of others, then with a lot."""
    directory = Path(tempfile.mkdtemp(prefix="muniment-bench-"))
    running = server(directory / "postgres")
    try:
        with psycopg.connect(running.start(), autocommit=True) as connection:
            for setting in SETTINGS:
                connection.execute(f"ALTER SYSTEM SET {setting}".encode())
        running.stop()
        conninfo = running.start()
        for others in dict.fromkeys((0, OTHERS)):
            await compare(directory, conninfo, others)
    finally:
        running.stop()
        shutil.rmtree(directory, ignore_errors=True)


async def compare(directory: Path, conninfo: str, others: int) -> None:
    """Both shapes with the readable memories and ``others`` more."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
    estate = Estate()
    made = memories(estate, OWNED, others, seed=others)
    storage = create(PluginContext(f"embedded:{directory / 'postgres'}", directory, {"approximate_from": 10_000_000}))
    await storage.open()
    try:
        await storage.register_space(SPACE, np.eye(DIMENSIONS, dtype=np.float32)[:1])
        load_ours(conninfo, SCHEMA, 1, estate, made)
        await storage.optimize()
        seed = SeedShape(conninfo)
        seed.create()
        load_seed(seed.connection, estate, made)
        seed.connection.execute(b"CHECKPOINT")
        print(f"\n{others:,} memories of others")
        row("readable", "", "ours ms", "p10", "seed ms", "p10", "ratio")
        for owner, count in OWNED.items():
            queries = estate.queries(QUERIES)
            ours, theirs = await timed(storage, seed, owner, queries)
            report(count, ours, theirs)
            mine = [one for one in made if one.owner == owner]
            await recall(storage, seed, owner, queries, mine, estate)
        seed.connection.close()
    finally:
        await storage.close()


def asked(query: Query) -> SearchQuery:
    """As the engine hands it to a storage, where words and tags come in one text."""
    text = f"{query.words} {query.tag}"
    return SearchQuery(
        terms=lexical.query_terms(text),
        tags=ranking.query_tags(text),
        vector=query.vector,
        space=SPACE.id,
        fusion=ranking.Fusion.weighted,
        min_score=None,
        offset=0,
        limit=LIMIT,
    )


def without(leg: str, query: SearchQuery) -> SearchQuery:
    """The search without a leg."""
    if leg == "meaning":
        return replace(query, vector=None, space=None)
    return replace(query, terms={}) if leg == "words" else replace(query, tags=frozenset())


async def timed(storage: PostgresStorage, seed: SeedShape, owner: str, queries: Sequence[Query]) -> tuple[Times, Times]:
    """Milliseconds by leg and in all, of every query and repeat."""
    ours: defaultdict[str, list[float]] = defaultdict(list)
    theirs: defaultdict[str, list[float]] = defaultdict(list)
    for repeat in range(-1, REPEATS):
        for query in queries:
            whole = asked(query)
            spent = {"all": await clocked(storage, owner, whole)}
            for leg in ("meaning", "words", "tags"):
                spent[leg] = max(0.0, spent["all"] - await clocked(storage, owner, without(leg, whole)))
            spent["fusion and contents"] = max(0.0, spent["all"] - sum(spent[leg] for leg in list(spent)[1:]))
            start = perf_counter()
            of_seed, _ = seed.search(owner, query.words, [query.tag], query.vector, LIMIT)
            of_seed["all"] = (perf_counter() - start) * 1e3
            exact = seed.meaning_from_all_lists(owner, query.vector)
            of_seed["all, at recall 1"] = of_seed["all"] - of_seed["meaning"] + exact
            spent["all, at recall 1"] = spent["all"]
            if repeat >= 0:
                for leg in spent:
                    ours[leg].append(spent[leg])
                    theirs[leg].append(of_seed[leg])
    return ours, theirs


async def clocked(storage: PostgresStorage, owner: str, query: SearchQuery) -> float:
    """Milliseconds of one search."""
    start = perf_counter()
    await storage.search(Audience(owner), Selector(), query)
    return (perf_counter() - start) * 1e3


def report(count: int, ours: Times, theirs: Times) -> None:
    """A line for each leg; the whole also for short queries and questions apart."""
    for leg in ("meaning", "words", "tags", "fusion and contents", "all", "all, at recall 1"):
        line(count, leg, ours[leg], theirs[leg])
    for kind, start in (("all, few words", 0), ("all, a question", 1)):
        line(count, kind, ours["all"][start::2], theirs["all"][start::2])
    for kind in ("all", "all, at recall 1"):
        print(f"{count:>8,}  mean of {kind}: {sum(ours[kind]) / sum(theirs[kind]):.2f} of the seed's time")


def line(count: int, name: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
    """One line of the table."""
    low = tuple(float(np.quantile(times, 0.1)) for times in (ours, theirs))
    ratio = median(ours) / max(median(theirs), 1e-3)
    figures = (median(ours), low[0], median(theirs), low[1], ratio)
    row(f"{count:,}", name, *(f"{figure:.2f}" for figure in figures))


def row(count: str, name: str, *figures: str) -> None:
    """Aligned text."""
    print(f"{count:>8}  {name:<20}" + "".join(f"{figure:>9}" for figure in figures), flush=True)


async def recall(
    storage: PostgresStorage,
    seed: SeedShape,
    owner: str,
    queries: Sequence[Query],
    mine: Sequence[Memory],
    estate: Estate,
) -> None:
    """Print the share of the exact first ten that each shape finds."""
    terms = [estate.texts[one.text].terms for one in mine]
    average = sum(one.length for one in terms) / len(terms)
    owners = np.repeat(np.arange(len(mine)), [len(one.vectors) for one in mine])
    passages, wholes = np.concatenate([one.vectors for one in mine]), np.stack([one.whole for one in mine])
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for query in queries:
        best = np.full(len(mine), -1.0)
        np.maximum.at(best, owners, passages @ query.vector)
        wanted = lexical.query_terms(query.words)
        frequencies = {term: sum(term in one.frequencies for one in terms) for term in wanted}
        statistics = ranking.Statistics(len(mine), average, frequencies)
        bm25 = np.array([ranking.bm25(one.frequencies, one.length, wanted, statistics) for one in terms])
        whole = asked(query)
        by_meaning = await storage.search(Audience(owner), Selector(), replace(whole, terms={}, tags=frozenset()))
        only_words = replace(without("meaning", whole), terms=wanted, tags=frozenset())
        by_words = await storage.search(Audience(owner), Selector(), only_words)
        _, found = seed.search(owner, query.words, [query.tag], query.vector, LIMIT)
        shares["meaning, ours"].append(share(ids(by_meaning), best, mine))
        shares["meaning, seed"].append(share(found["meaning"], wholes @ query.vector, mine))
        shares["words, ours"].append(share(ids(by_words), bm25, mine))
        shares["words, seed"].append(share(found["words"], bm25, mine))
    text = "; ".join(f"{name} {sum(values) / len(values):.2f}" for name, values in shares.items())
    print(f"{len(mine):>8,}  recall@10: {text}", flush=True)


def ids(found: Sequence[Found]) -> list[str]:
    """The ids of a page."""
    return [one.memory.id for one in found]


def share(found: Sequence[str], scores: NDArray[np.floating[Any]], mine: Sequence[Memory]) -> float:
    """How many of the first ten that match are found; one as good as the last of them counts, since texts repeat."""
    score = {one.id: value for one, value in zip(mine, scores.tolist(), strict=True)}
    first = [value for value in sorted(score.values(), reverse=True)[:LIMIT] if value > 0]
    return sum(score[one] >= first[-1] - 1e-5 for one in found[: len(first)]) / len(first) if first else 1.0


if __name__ == "__main__":
    asyncio.run(main())
