"""How well search finds: nDCG@10, recall@10 and MRR on Cranfield, for each ranker and the fusions.

Through the engine, on the configured storage and embedder (embedded PostgreSQL and MiniLM by default). Set CRANFIELD to
the folder of the collection. Weights of the weighted fusion are chosen on the queries with odd numbers and reported on
the even ones too.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import cranfield

from muniment import access, lexical, ranking
from muniment.config import Settings
from muniment.engine import Engine
from muniment.models import CallContext, Principal, Receipt
from muniment.plugins import Plugins
from muniment.ports import SearchQuery, Selector

READER = CallContext(principal=Principal(user="reader"))
WEIGHTS = tuple(step / 20 for step in range(21))
EVERYTHING = 10 * ranking.POOL


async def main(folder: Path) -> None:
    """Load the collection, ask every query, print the table."""
    collection = cranfield.load(folder)
    plugins = Plugins.load()
    with tempfile.TemporaryDirectory(prefix="muniment-bench-") as directory:
        Path(directory).chmod(0o755)
        settings = Settings.load({"data_dir": Path(directory)})
        storage = plugins.storage(settings.storage, settings)
        embedder = plugins.embedder(settings.embedder, settings)
        async with Engine(storage, embedder, embed_timeout=600, background=False) as engine:
            await engine.embeddings.space()
            names = await fill(engine, collection.documents)
            found = {query: await legs(engine, text, names) for query, text in collection.queries.items()}
    report(collection, found)


async def fill(engine: Engine, documents: Mapping[str, str]) -> dict[str, str]:
    """Write every document; the document of each memory id."""
    names: dict[str, str] = {}
    for document, text in documents.items():
        receipt = await engine.call("memory.write", {"content": text}, READER)
        assert isinstance(receipt, Receipt)
        names[receipt.id] = document
    return names


async def legs(engine: Engine, text: str, names: Mapping[str, str]) -> list[ranking.Ranked]:
    """Every candidate of one query with its exact scores, named by document."""
    meaning = await engine.embeddings.query(text)
    while meaning.degraded:
        meaning = await engine.embeddings.query(text)
    query = SearchQuery(
        terms=lexical.query_terms(text),
        tags=frozenset(),
        vector=meaning.vector,
        space=meaning.space,
        fusion=ranking.Fusion.weighted,
        min_score=None,
        offset=0,
        limit=EVERYTHING,
    )
    found = await engine.storage.search(access.audience(READER.principal), Selector(), query)
    return [one.ranked.model_copy(update={"id": names[one.ranked.id]}) for one in found]


def report(collection: cranfield.Collection, found: Mapping[str, Sequence[ranking.Ranked]]) -> None:
    """Print each ranker and fusion on all queries, and the chosen weight on either half."""
    ceilings = ceiling_by_query(collection)

    def fused(query: str, weight: float, fusion: ranking.Fusion) -> list[str]:
        ranked = found[query]
        given = ranking.Legs(
            meaning={one.id: one.meaning.score for one in ranked if one.meaning},
            words={one.id: one.words.score for one in ranked if one.words},
        )
        order = ranking.fuse(given, ceiling=ceilings[query], fusion=fusion, weight=weight)
        return [one.id for one in order]

    def measured(queries: Sequence[str], weight: float, fusion: ranking.Fusion) -> cranfield.Quality:
        return cranfield.quality({query: fused(query, weight, fusion) for query in queries}, collection.relevant)

    everything = list(collection.queries)
    odd, even = everything[::2], everything[1::2]
    weighted, rrf = ranking.Fusion.weighted, ranking.Fusion.rrf
    row("ranker", "nDCG@10", "recall@10", "MRR")
    row("words", *figures(measured(everything, 0.0, weighted)))
    row("meaning", *figures(measured(everything, 1.0, weighted)))
    row("reciprocal rank fusion", *figures(measured(everything, ranking.WEIGHT, rrf)))
    row(f"weighted, {ranking.WEIGHT}", *figures(measured(everything, ranking.WEIGHT, weighted)))
    chosen = max(WEIGHTS, key=lambda weight: measured(odd, weight, weighted).ndcg)
    row(f"weighted, {chosen} (best on the odd), on the odd", *figures(measured(odd, chosen, weighted)))
    row(f"weighted, {chosen} (best on the odd), on the even", *figures(measured(even, chosen, weighted)))
    row(f"weighted, {ranking.WEIGHT}, on the even", *figures(measured(even, ranking.WEIGHT, weighted)))


def ceiling_by_query(collection: cranfield.Collection) -> dict[str, float]:
    """The normaliser of each query's words score, from statistics counted here over the same documents."""
    analysed = [lexical.analyse(text) for text in collection.documents.values()]
    ceilings: dict[str, float] = {}
    for query, text in collection.queries.items():
        terms = lexical.query_terms(text)
        statistics = ranking.Statistics(
            documents=len(analysed),
            average_length=sum(one.length for one in analysed) / len(analysed),
            document_frequencies={term: sum(term in one.frequencies for one in analysed) for term in terms},
        )
        ceilings[query] = ranking.bm25_ceiling(terms, statistics)
    return ceilings


def figures(quality: cranfield.Quality) -> tuple[str, str, str]:
    """The three measures as text."""
    return f"{quality.ndcg:.4f}", f"{quality.recall:.4f}", f"{quality.mrr:.4f}"


def row(name: str, ndcg: str, recall: str, mrr: str) -> None:
    """One line of the table."""
    print(f"{name:<48} {ndcg:>8} {recall:>10} {mrr:>8}")


if __name__ == "__main__":
    where = os.environ.get("CRANFIELD")
    if where is None:
        sys.exit("bench retrieval: set CRANFIELD to the folder with docs.jsonl, queries.jsonl and qrels.tsv")
    asyncio.run(main(Path(where)))
