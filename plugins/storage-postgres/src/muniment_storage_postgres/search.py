"""Search in one snapshot: what the rankers need, then the candidates' ids, the core's fusion, and the page's contents.

Owns the round trips and which memories are candidates. What a packed answer means is ``postings``'s, BM25 and the order
are ``ranking``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import Vector as PgVector

from muniment import ranking
from muniment.ports import Audience, Found, SearchQuery, Selector
from muniment_storage_postgres import postings, records
from muniment_storage_postgres.database import Connection, Row, rows
from muniment_storage_postgres.postings import Readable
from muniment_storage_postgres.records import Parameters

_BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


async def search(
    connection: Connection, audience: Audience, selector: Selector, query: SearchQuery, space: int | None
) -> list[Found]:
    """The fused order from ``query.offset``, at most ``query.limit``, with contents."""
    try:
        page = await _page(connection, _Asked(audience, selector, query, space))
        async with connection.pipeline():
            contents = await rows(connection, "contents", {"ids": [one.id for one in page]})
            await connection.execute(b"COMMIT")
    except psycopg.Error:
        if not connection.closed:
            await connection.rollback()
        raise
    memories = {row[0]: records.memory(row) for row in contents}
    return [Found(memory=memories[one.id], ranked=one) for one in page]


class _Asked:
    """A search as parameters of its statements: keys are each term, each tag of the query, each tag of the selector."""

    def __init__(self, audience: Audience, selector: Selector, query: SearchQuery, space: int | None) -> None:
        self.query = query
        self.terms = sorted(query.terms)
        self.tags = sorted(query.tags)
        self.keys = [*self.terms, *map(postings.tag_key, (*self.tags, *sorted(set(selector.tags))))]
        self.within: Parameters = {
            **records.of_audience(audience),
            "scope_key": selector.scope_key,
            "scope": selector.scope.value if selector.scope else None,
        }
        self._vector = None if query.vector is None or space is None else PgVector(query.vector)
        self._space = space

    def of_scopes(self, scopes: Sequence[Row]) -> Parameters:
        """The parameters of ``scores`` from the rows of ``scopes``."""
        return {
            "scopes": [number for number, _ in scopes],
            "selected": [number for number, selected in scopes if selected],
            "others": [number for number, selected in scopes if not selected],
            "keys": self.keys,
            "vector": self._vector,
            "space": self._space,
        }


@dataclass(frozen=True)
class _Scores:
    """Each ranker's score of every readable memory, or what is below any: -inf by meaning, 0 by words and tags."""

    readable: Readable
    meaning: NDArray[np.float64]
    words: NDArray[np.float64]
    tags: NDArray[np.float64]
    ceiling: float

    def candidates(self) -> list[int]:
        """The places of each ranker's pool, and of all that tie with its last."""
        first = postings.first
        return sorted({*first(self.meaning), *first(self.words, above=0.0), *first(self.tags, above=0.0)})


async def _page(connection: Connection, asked: _Asked) -> list[ranking.Ranked]:
    """The asked part of the fused order."""
    scores = await _scores(connection, asked)
    places = scores.candidates()
    numbers = scores.readable.numbers[places].tolist()
    named = dict(await rows(connection, "ids", {"numbers": numbers})) if numbers else {}
    by_id = {named[number]: place for number, place in zip(numbers, places, strict=True)}
    exact = {
        "meaning": _leg(by_id, scores.meaning, above=-np.inf),
        "words": _leg(by_id, scores.words, above=0.0),
        "tags": _leg(by_id, scores.tags, above=0.0),
    }
    kept = {memory_id for leg in exact.values() for memory_id in postings.best(leg)}
    legs = ranking.Legs(**{name: {one: leg[one] for one in leg.keys() & kept} for name, leg in exact.items()})
    query = asked.query
    return ranking.fuse(
        legs,
        ceiling=scores.ceiling,
        fusion=query.fusion,
        min_score=query.min_score,
        offset=query.offset,
        limit=query.limit,
    )


async def _scores(connection: Connection, asked: _Asked) -> _Scores:
    """Every score of what is in the readable scopes."""
    async with connection.pipeline():
        await connection.execute(_BEGIN)
        scopes = await rows(connection, "scopes", asked.within)
    answers = await rows(connection, "scores", asked.of_scopes(scopes))
    readable = postings.readable(answers)
    found = postings.by_key(answers, readable, len(asked.keys))
    return _scored(asked, readable, found, postings.nearest(answers, readable))


def _scored(
    asked: _Asked, readable: Readable, found: Sequence[ranking.Postings], nearest: NDArray[np.float64]
) -> _Scores:
    """Words and tags scored, and what the selector leaves out taken out."""
    terms, tags = len(asked.terms), len(asked.tags)
    by_term = dict(zip(asked.terms, found[:terms], strict=True))
    statistics = ranking.Statistics(
        documents=len(readable.lengths),
        average_length=readable.average_length,
        document_frequencies={term: len(one.places) for term, one in by_term.items()},
    )
    selected = postings.holding_all(readable, found[terms + tags :])
    matching = postings.counted(readable, found[terms : terms + tags])
    return _Scores(
        readable=readable,
        meaning=np.where(selected, nearest, -np.inf),
        words=ranking.bm25_of_all(by_term, readable.lengths, asked.query.terms, statistics) * selected,
        tags=matching / (matching + 1) * selected,
        ceiling=ranking.bm25_ceiling(asked.query.terms, statistics),
    )


def _leg(by_id: dict[str, int], scores: NDArray[np.float64], above: float) -> dict[str, float]:
    """The candidates that a ranker has a score for."""
    values = scores[list(by_id.values())].tolist()
    return {memory_id: score for memory_id, score in zip(by_id, values, strict=True) if score > above}
