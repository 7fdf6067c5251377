"""Search in one snapshot: what the rankers need, then the candidates' ids, the core's fusion, and the page's contents.

Owns the round trips and which memories are candidates. What a packed answer means is ``postings``'s, BM25 and the order
are ``ranking``'s.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from pgvector import Vector as PgVector

from muniment import ranking
from muniment.ports import Audience, Found, SearchQuery, Selector
from muniment_storage_postgres import postings, records
from muniment_storage_postgres.database import Connection, Row, rows
from muniment_storage_postgres.postings import Readable
from muniment_storage_postgres.records import Parameters

_KNOWN_NAMES = 100_000
"""Ids that are kept in mind, of some 100 bytes each."""
_BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Names:
    """The ids of memories by their numbers. A number is given once and for ever, so what was read stays true."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}

    async def of(self, connection: Connection, numbers: Sequence[int]) -> list[str]:
        """The id of each; only those that are new here are asked for."""
        found = {number: self._known[number] for number in numbers if number in self._known}
        unknown = [number for number in numbers if number not in found]
        if unknown:
            # As text, since a list of as many numbers would be written out one by one.
            listed = "{" + ",".join(map(str, unknown)) + "}"
            found.update(await rows(connection, "ids", {"numbers": listed}))
            if len(self._known) + len(unknown) > _KNOWN_NAMES:
                self._known.clear()
            self._known.update(found)
        return [found[number] for number in numbers]


async def search(
    connection: Connection, names: Names, audience: Audience, selector: Selector, query: SearchQuery, space: int | None
) -> list[Found]:
    """The fused order from ``query.offset``, at most ``query.limit``, with contents."""
    try:
        page = await _page(connection, names, _Asked(audience, selector, query, space))
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


async def _page(connection: Connection, names: Names, asked: _Asked) -> list[ranking.Ranked]:
    """The asked part of the fused order."""
    readable, scores = await _scores(connection, asked)
    places = scores.candidates()
    ids = await names.of(connection, readable.numbers[places].tolist())
    query = asked.query
    return scores.fuse(
        dict(zip(ids, places, strict=True)),
        fusion=query.fusion,
        min_score=query.min_score,
        offset=query.offset,
        limit=query.limit,
    )


async def _scores(connection: Connection, asked: _Asked) -> tuple[Readable, ranking.Scores]:
    """What is in the readable scopes, and every score of it."""
    async with connection.pipeline():
        await connection.execute(_BEGIN)
        scopes = await rows(connection, "scopes", asked.within)
    answers = await rows(connection, "scores", asked.of_scopes(scopes))
    readable = postings.readable(answers)
    found = postings.by_key(answers, readable, len(asked.keys))
    terms, tags = len(asked.terms), len(asked.tags)
    return readable, ranking.scores_of_all(
        asked.query.terms,
        lengths=readable.lengths,
        by_term=dict(zip(asked.terms, found[:terms], strict=True)),
        matching_tags=postings.counted(readable, found[terms : terms + tags]),
        meaning=postings.nearest(answers, readable),
        selected=postings.holding_all(readable, found[terms + tags :]),
    )
