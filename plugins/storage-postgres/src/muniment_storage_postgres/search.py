"""Search in one snapshot: what the rankers need, then the candidates' ids, the core's fusion, and the page's contents.

Owns the round trips, which memories are candidates, and which scopes are searched exactly: all but those that have an
index because they outgrew it. What a packed answer means is ``postings``'s, BM25 and the order are ``ranking``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import psycopg
from pgvector import Vector as PgVector

from muniment import ranking
from muniment.ports import Audience, Found, SearchQuery, Selector
from muniment_storage_postgres import approximate, keys, postings, records, settling
from muniment_storage_postgres.arrays import BigInts, bigints
from muniment_storage_postgres.database import Connection, Row, rows, sent
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
            found.update(await rows(connection, "ids", {"numbers": bigints(unknown)}))
            if len(self._known) + len(unknown) > _KNOWN_NAMES:
                self._known.clear()
            self._known.update(found)
        return [found[number] for number in numbers]


@dataclass(frozen=True, slots=True)
class Searched:
    """What was found, and the scopes whose many unsettled memories made that dearer than it need be."""

    found: list[Found]
    unsettled: list[int]


async def search(
    connection: Connection, names: Names, audience: Audience, selector: Selector, query: SearchQuery
) -> Searched:
    """The fused order from ``query.offset``, at most ``query.limit``, with contents."""
    try:
        page, unsettled = await _page(connection, names, _Asked(audience, selector, query))
        async with connection.pipeline():
            contents = await rows(connection, "contents", {"ids": [one.id for one in page]})
            await connection.execute(b"COMMIT")
    except psycopg.Error:
        if not connection.closed:
            await connection.rollback()
        raise
    memories = {row[0]: records.memory(row) for row in contents}
    return Searched([Found(memory=memories[one.id], ranked=one) for one in page], unsettled)


class _Asked:
    """A search as parameters of its statements: keys are each term, each tag of the query, each tag of the selector."""

    def __init__(self, audience: Audience, selector: Selector, query: SearchQuery) -> None:
        self.query = query
        self.terms = sorted(query.terms)
        self.tags = sorted(query.tags)
        self.required = sorted(set(selector.tags))
        self.keys = [*map(keys.key, self.terms), *map(keys.tag_key, (*self.tags, *self.required))]
        self.within: Parameters = {
            **records.of_audience(audience),
            "scope_key": selector.scope_key,
            "scope": selector.scope.value if selector.scope else None,
            "space": query.space,
        }
        self.vector = None if query.vector is None else PgVector(query.vector)
        self.dimensions = 0 if query.vector is None else len(query.vector)


class _Reach:
    """The scopes of a search, from the rows of ``scopes``: those that have ``outgrown`` exact search in its space are
    not scanned."""

    def __init__(self, asked: _Asked, scopes: Sequence[Row]) -> None:
        selected = [number for number, takes, *_ in scopes if takes]
        outgrown = {number for number, *_, large in scopes if large and asked.vector is not None}
        self.outgrown = [number for number in selected if number in outgrown]
        self.space: int | None = scopes[0][2] if scopes else None
        self.parameters: Parameters = {
            "scopes": [number for number, *_ in scopes],
            "selected": selected,
            "others": [number for number, takes, *_ in scopes if not takes],
            "scanned": [number for number in selected if number not in outgrown],
            "outgrown": self.outgrown,
            "keys": bigints(asked.keys),
            "vector": asked.vector,
            "space": self.space,
        }


async def _page(connection: Connection, names: Names, asked: _Asked) -> tuple[list[ranking.Ranked], list[int]]:
    """The asked part of the fused order, and the scopes that are to be settled."""
    async with connection.pipeline():
        await connection.execute(_BEGIN)
        scopes = await rows(connection, "scopes", asked.within)
    reach = _Reach(asked, scopes)
    answers = await _answers(connection, asked, reach)
    readable, scores = await _scores(connection, asked, reach, answers)
    places = scores.candidates()
    ids = await names.of(connection, readable.numbers[places].tolist())
    query = asked.query
    page = scores.fuse(
        dict(zip(ids, places, strict=True)),
        fusion=query.fusion,
        min_score=query.min_score,
        offset=query.offset,
        limit=query.limit,
    )
    return page, postings.unsettled(answers, settling.BATCH)


async def _scores(
    connection: Connection, asked: _Asked, reach: _Reach, answers: Sequence[Row]
) -> tuple[Readable, ranking.Scores]:
    """What is in the readable scopes, and every score of it; by meaning only of what was compared."""
    readable = postings.readable(answers)
    found = postings.by_key(answers, readable, asked.keys)
    terms, tags = len(asked.terms), len(asked.tags)
    selected = postings.holding_all(readable, found[terms + tags :])
    scores = ranking.scores_of_all(
        asked.query.terms,
        lengths=readable.lengths,
        by_term=dict(zip(asked.terms, found[:terms], strict=True)),
        matching_tags=postings.counted(readable, found[terms : terms + tags]),
        meaning=postings.nearest(answers, readable),
        selected=selected,
    )
    if not reach.outgrown:
        return readable, scores
    # Of memories that must have certain tags all are compared, since the nearest ones may have none of them. Otherwise
    # every candidate is, whichever ranker found it, and with all its passages.
    compared = np.flatnonzero(selected) if asked.required else scores.candidates()
    numbers = BigInts(readable.numbers[compared])
    compared_rows = await rows(connection, "compared", {**reach.parameters, "numbers": numbers})
    meaning = np.where(selected, postings.nearest([*answers, *compared_rows], readable), -np.inf)
    return readable, replace(scores, meaning=meaning)


async def _answers(connection: Connection, asked: _Asked, reach: _Reach) -> list[Row]:
    """The rows of ``scores``, and of each scope that is not scanned those that its index finds."""
    by_index = [] if asked.required else reach.outgrown
    async with connection.pipeline():
        cursors = [await sent(connection, "scores", reach.parameters)]
        if by_index:
            await connection.execute(approximate.SETTINGS)
        for scope in by_index:
            statement = approximate.nearest(scope, reach.space or 0, asked.dimensions)
            cursors.append(await connection.execute(statement, {"vector": asked.vector}, prepare=False, binary=True))
    answers, *nearest = [await cursor.fetchall() for cursor in cursors]
    for scope, found in zip(by_index, nearest, strict=True):
        if postings.passages(found) < approximate.FOUND:
            # The index gave up among the passages of others.
            found = await rows(connection, "scanned", {**reach.parameters, "scanned": [scope]})
        answers += found
    return answers
