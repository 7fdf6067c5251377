"""Search in one snapshot: what the rankers need, then the candidates' ids, the core's fusion, and the page's contents.

Owns the round trips, which memories are candidates, and which scopes are searched exactly: all but those that have an
index because they outgrew it. What a packed answer means is ``postings``'s, BM25 and the order are ``ranking``'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import psycopg
from pgvector import Vector as PgVector

from muniment import ranking
from muniment.ports import Audience, Found, SearchQuery, Selector
from muniment_storage_postgres import approximate, keys, postings, records, settling, vectors
from muniment_storage_postgres.arrays import BigInts, bigints
from muniment_storage_postgres.database import Connection, Row, rows, sent
from muniment_storage_postgres.postings import Readable
from muniment_storage_postgres.records import Parameters
from muniment_storage_postgres.vectors import KnownVectors, Vectors

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


class Mind:
    """What this process keeps in mind of a database: ids, and vectors up to a budget in bytes.

    A search takes both when it begins; what it still adds to them after they were forgotten is nobody's.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self.names = Names()
        self.vectors = KnownVectors(budget)

    def forget(self) -> None:
        """Begin anew."""
        self.names = Names()
        self.vectors = KnownVectors(self._budget)


@dataclass(frozen=True, slots=True)
class Searched:
    """What was found, and the scopes whose many unsettled memories made that dearer than it need be."""

    found: list[Found]
    unsettled: list[int]


async def search(
    connection: Connection, mind: Mind, audience: Audience, selector: Selector, query: SearchQuery
) -> Searched:
    """The fused order from ``query.offset``, at most ``query.limit``, with contents."""
    try:
        page, unsettled = await _page(connection, mind, _Asked(audience, selector, query))
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
        self.sought = np.zeros(0, dtype=np.float32) if query.vector is None else query.vector
        self.dimensions = len(self.sought)


class _Reach:
    """The scopes of a search, from the rows of ``scopes``, by how their passages are compared.

    Those that have ``outgrown`` exact search in its space are not scanned; of those that are ``known`` the vectors were
    kept from before, of those to be ``read`` they will be. The server compares the others.
    """

    def __init__(
        self, asked: _Asked, scopes: Sequence[Row], mind: KnownVectors, kept: Mapping[vectors.Key, Vectors]
    ) -> None:
        self.selected = [number for number, takes, *_ in scopes if takes]
        self.space: int | None = scopes[0][2] if scopes else None
        self.seen: int = scopes[0][4] if scopes else 0
        exact = [number for number, takes, _, large, *_ in scopes if takes and asked.vector is not None and not large]
        self.outgrown = [number for number in self.selected if asked.vector is not None and number not in exact]
        space = self.space or 0
        at = {number: kept.get((number, space)) for number in exact}
        self.known = {number: one for number, one in at.items() if one is not None and one.seen <= self.seen}
        others = [(number, space) for number in exact if number not in self.known]
        to_read = mind.to_read(others, asked.dimensions, beside=list(self.known.values()))
        self.read = [number for number, _ in to_read]
        scanned = [number for number in exact if number not in self.known and number not in self.read]
        self.statement = f"scores{'_known' if self.known else ''}{'_scanning' if scanned else ''}"
        self.parameters: Parameters = {
            "scopes": [number for number, *_ in scopes],
            "scanned": scanned,
            "outgrown": self.outgrown,
            "known": list(self.known),
            "since": min((one.seen for one in self.known.values()), default=0),
            "until": scopes[0][5] if scopes else 0,
            "keys": bigints(asked.keys),
            "vector": asked.vector,
            "space": self.space,
        }


async def _page(connection: Connection, mind: Mind, asked: _Asked) -> tuple[list[ranking.Ranked], list[int]]:
    """The asked part of the fused order, and the scopes that are to be settled."""
    names, known = mind.names, mind.vectors
    kept = known.now()
    async with connection.pipeline():
        await connection.execute(_BEGIN)
        scopes = await rows(connection, "scopes", asked.within)
    reach = _Reach(asked, scopes, known, kept)
    answers = await _answers(connection, asked, reach)
    readable, scores = await _scores(connection, known, asked, reach, answers)
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
    connection: Connection, mind: KnownVectors, asked: _Asked, reach: _Reach, answers: Sequence[Row]
) -> tuple[Readable, ranking.Scores]:
    """What is in the readable scopes, and every score of it; by meaning only of what was compared."""
    readable = postings.readable(answers, reach.selected)
    found = postings.by_key(answers, readable, asked.keys)
    terms, tags = len(asked.terms), len(asked.tags)
    selected = postings.holding_all(readable, found[terms + tags :])
    matrices = _matrices(mind, asked, reach, answers, readable)
    meaning = postings.nearest(answers, readable)
    for matrix in matrices.values():
        meaning = np.maximum(meaning, matrix.estimates(asked.sought))
    scores = ranking.scores_of_all(
        asked.query.terms,
        lengths=readable.lengths,
        by_term=dict(zip(asked.terms, found[:terms], strict=True)),
        matching_tags=postings.counted(readable, found[terms : terms + tags]),
        meaning=meaning,
        selected=selected,
    )
    candidates = np.array(scores.candidates(blur=ranking.margin(asked.dimensions) if matrices else 0.0), dtype=np.int64)
    compared = candidates[scores.meaning[candidates] > -np.inf]
    for scope, matrix in matrices.items():
        here = compared[readable.scopes[compared] == scope]
        scores.meaning[here] = matrix.exact(asked.sought, here)
    if not reach.outgrown:
        return readable, scores
    # Of memories that must have certain tags all are compared, since the nearest ones may have none of them. Otherwise
    # every candidate is, whichever ranker found it, and with all its passages.
    wanted = BigInts(readable.numbers[np.flatnonzero(selected) if asked.required else candidates])
    more = await rows(connection, "compared", {**reach.parameters, "numbers": wanted})
    nearest = np.maximum(scores.meaning, postings.nearest(more, readable))
    return readable, replace(scores, meaning=np.where(selected, nearest, -np.inf))


def _matrices(
    mind: KnownVectors, asked: _Asked, reach: _Reach, answers: Sequence[Row], readable: Readable
) -> Mapping[int, ranking.PassageMatrix]:
    """The passages of the scopes that this process compares, as the snapshot has them, which are kept for the next."""
    if reach.space is None or asked.vector is None:
        return {}
    counts = postings.compared(answers, readable)
    mind.note({(scope, reach.space): count for scope, count in counts.items() if scope not in reach.outgrown})
    changed = vectors.changed(answers)
    present: dict[int, Vectors] = {}
    for scope in (*reach.known, *reach.read):
        read = vectors.read(answers, scope, asked.dimensions)
        known = reach.known.get(scope)
        present[scope] = known.with_changes(reach.seen, changed, *read) if known else Vectors.of(reach.seen, *read)
        mind.keep((scope, reach.space), present[scope])
    return {scope: one.among(scope, readable) for scope, one in present.items()}


async def _answers(connection: Connection, asked: _Asked, reach: _Reach) -> list[Row]:
    """The rows of ``scores``, and of each scope that is not scanned those that its index finds."""
    by_index = [] if asked.required else reach.outgrown
    async with connection.pipeline():
        cursors = [await sent(connection, reach.statement, reach.parameters)]
        if reach.read:
            cursors.append(await sent(connection, "passages", {"scopes": reach.read, "space": reach.space}))
        if by_index:
            await connection.execute(approximate.SETTINGS)
        for scope in by_index:
            statement = approximate.nearest(scope, reach.space or 0, asked.dimensions)
            cursors.append(await connection.execute(statement, {"vector": asked.vector}, prepare=False, binary=True))
    answers, *others = [await cursor.fetchall() for cursor in cursors]
    if reach.read:
        answers += others.pop(0)
    for scope, found in zip(by_index, others, strict=True):
        if postings.passages(found) < approximate.FOUND:
            # The index gave up among the passages of others.
            found = await rows(connection, "scanned", {**reach.parameters, "scanned": [scope]})
        answers += found
    return answers
