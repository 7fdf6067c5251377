"""Search: one statement for the candidates of all rankers, the core's fusion, then the page's contents.

Both statements read one snapshot. The formulas are pushed down in ``sql/search.sql``; the order is ``ranking.fuse``'s.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from pgvector import Vector as PgVector

from muniment import ranking
from muniment.ports import Audience, Found, SearchQuery, Selector
from muniment_storage_postgres import records
from muniment_storage_postgres.database import Connection, Row, rows
from muniment_storage_postgres.records import Parameters

_BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


async def search(
    connection: Connection, audience: Audience, selector: Selector, query: SearchQuery, space: int | None
) -> list[Found]:
    """The fused order from ``query.offset``, at most ``query.limit``, with contents."""
    try:
        async with connection.pipeline():
            await connection.execute(_BEGIN)
            found = await rows(connection, "candidates", parameters(audience, selector, query, space))
        page = order(found, query)[query.offset : query.offset + query.limit]
        async with connection.pipeline():
            contents = await rows(connection, "contents", {"ids": [one.id for one in page]})
            await connection.execute(b"COMMIT")
    except psycopg.Error:
        if not connection.closed:
            await connection.rollback()
        raise
    memories = {row[0]: records.memory(row) for row in contents}
    return [Found(memory=memories[one.id], ranked=one) for one in page]


def parameters(audience: Audience, selector: Selector, query: SearchQuery, space: int | None) -> Parameters:
    """The parameters of ``candidates``; terms are in the order in which the core adds them up."""
    terms = sorted(query.terms)
    vector = query.vector if space is not None else None
    return {
        **records.of_audience(audience),
        "terms": terms,
        "weights": [float(query.terms[term]) for term in terms],
        "tags": sorted(query.tags),
        "must_tags": list(selector.tags),
        "scope_key": selector.scope_key,
        "scope": selector.scope.value if selector.scope else None,
        "vector": None if vector is None else PgVector(vector),
        "space": None if vector is None else space,
        "k1": ranking.K1,
        "b": ranking.B,
        "pool": ranking.POOL,
    }


def order(found: Sequence[Row], query: SearchQuery) -> list[ranking.Ranked]:
    """The rows of ``candidates`` in the core's order."""
    if not found:
        return []
    documents, average_length, frequencies = found[0][4:7]
    statistics = ranking.Statistics(
        documents=documents,
        average_length=average_length,
        document_frequencies=dict(zip(sorted(query.terms), frequencies, strict=True)),
    )
    legs = ranking.Legs(
        meaning={row[0]: row[1] for row in found if row[1] is not None},
        words={row[0]: row[2] for row in found if row[2] is not None},
        tags={row[0]: row[3] / (row[3] + 1) for row in found if row[3]},
    )
    ceiling = ranking.bm25_ceiling(query.terms, statistics)
    return ranking.fuse(legs, ceiling=ceiling, fusion=query.fusion, min_score=query.min_score)
