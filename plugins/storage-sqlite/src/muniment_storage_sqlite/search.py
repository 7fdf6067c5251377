"""A search: every readable memory is scored by all rankers, from one snapshot; ``muniment.ranking`` makes the order.

Cosines are estimated for all passages at once, and computed exactly for those of the candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from sqlite3 import Connection

import numpy as np
from numpy.typing import NDArray

from muniment.ports import Audience, Found, SearchQuery, Selector
from muniment.ranking import Comparison, Postings, Scores, margin, scores_of_all
from muniment_storage_sqlite.audiences import listed
from muniment_storage_sqlite.blocks import Blocks, Memories, Numbers, fetch, places
from muniment_storage_sqlite.memories import HAS_ALL_TAGS, records, scopes_of


@dataclass(frozen=True, slots=True)
class _Part:
    """One scope of the audience; its memories have the places from ``start`` on."""

    scope: int
    start: int
    memories: Memories

    @property
    def end(self) -> int:
        return self.start + len(self.memories.numbers)


class _Readable:
    """The live memories of all parts; a place counts through these."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self.parts = parts
        self.numbers = np.concatenate([part.memories.numbers for part in parts])
        self.lengths = np.concatenate([part.memories.lengths for part in parts])
        self.scopes = listed(part.scope for part in parts)
        self._order = np.argsort(self.numbers, kind="stable")
        self._ascending = self.numbers[self._order]

    def places(self, numbers: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
        """The places of the live memories among ``numbers``, and which of them these are."""
        at, live = places(self._ascending, numbers)
        return self._order[at], live


def search(
    connection: Connection, blocks: Blocks, audience: Audience, selector: Selector, query: SearchQuery
) -> Sequence[Found]:
    """The fused order from ``query.offset``, at most ``query.limit``, with contents."""
    generations = dict(scopes_of(connection, audience, Selector()))
    parts: list[_Part] = []
    for scope, generation in sorted(generations.items()):
        start = parts[-1].end if parts else 0
        parts.append(_Part(scope, start, blocks.memories(connection, scope, generation)))
    if not parts or not parts[-1].end:
        return []
    readable = _Readable(parts)
    meaning = np.full(len(readable.numbers), -np.inf)
    passages = _passages(connection, blocks, parts, query)
    for part, of_part in passages:
        meaning[part.start : part.end] = of_part.estimates
    scores = scores_of_all(
        query.terms,
        lengths=readable.lengths,
        by_term=_postings(connection, readable, query),
        matching_tags=_matching_tags(connection, readable, query),
        meaning=meaning,
        selected=_selected(connection, readable, audience, selector),
    )
    candidates = _measured(scores, passages, query)
    by_id = _by_id(connection, readable.numbers, candidates)
    ranked = scores.fuse(by_id, fusion=query.fusion, min_score=query.min_score, offset=query.offset, limit=query.limit)
    found = records(connection, [int(readable.numbers[by_id[one.id]]) for one in ranked])
    return [Found(memory, one) for memory, one in zip(found, ranked, strict=True)]


def _passages(
    connection: Connection, blocks: Blocks, parts: Sequence[_Part], query: SearchQuery
) -> Sequence[tuple[_Part, Comparison]]:
    """The passages of each part in the query's space beside the query; none where it is not compared by meaning."""
    row = connection.execute("SELECT number, dimensions FROM spaces WHERE id = ?", (query.space,)).fetchone()
    if row is None or query.vector is None:
        return []
    number, dimensions = row
    vectors = [blocks.vectors(connection, part.scope, part.memories, number, dimensions) for part in parts]
    return [(part, one.passages.compared(query.vector)) for part, one in zip(parts, vectors, strict=True)]


def _measured(scores: Scores, passages: Sequence[tuple[_Part, Comparison]], query: SearchQuery) -> Numbers:
    """The places of the candidates, whose scores by meaning are exact then."""
    blur = 0.0 if query.vector is None else margin(len(query.vector))
    candidates = np.array(scores.candidates(blur=blur, wanted=query.offset + query.limit), dtype=np.int64)
    for part, of_part in passages:
        here = candidates[(candidates >= part.start) & (candidates < part.end)]
        compared = here[scores.meaning[here] > -np.inf]
        scores.meaning[compared] = of_part.exact(compared - part.start)
    return candidates


def _postings(connection: Connection, readable: _Readable, query: SearchQuery) -> dict[str, Postings]:
    """The readable live memories that hold each term of the query."""
    found: dict[str, Postings] = {}
    for term in query.terms:
        memories, frequencies = fetch(
            connection,
            """
            SELECT memory, frequency FROM json_each(?) AS readable
            CROSS JOIN terms ON scope = readable.value AND term = ?
            """,
            (readable.scopes, term),
        )
        held_by, live = readable.places(memories)
        if len(held_by):
            found[term] = Postings(held_by, frequencies[live])
    return found


def _matching_tags(connection: Connection, readable: _Readable, query: SearchQuery) -> Numbers:
    """How many of the query's tags each memory has."""
    matching = np.zeros(len(readable.numbers), dtype=np.int64)
    if not query.tags:
        return matching
    memories, counts = fetch(
        connection,
        """
        SELECT memory, count(*) FROM json_each(?) AS readable
        CROSS JOIN tags ON scope = readable.value AND tag IN (SELECT value FROM json_each(?))
        GROUP BY memory
        """,
        (readable.scopes, listed(query.tags)),
    )
    tagged, live = readable.places(memories)
    matching[tagged] = counts[live]
    return matching


def _selected(connection: Connection, readable: _Readable, audience: Audience, selector: Selector) -> NDArray[np.bool_]:
    """Which memories the selector covers."""
    selected = np.zeros(len(readable.numbers), dtype=np.bool_)
    covered = {scope for scope, _ in scopes_of(connection, audience, selector)}
    if not selector.tags:
        for part in readable.parts:
            selected[part.start : part.end] = part.scope in covered
        return selected
    memories, _ = fetch(
        connection,
        f"""
        SELECT number, 0 FROM json_each(:scopes) AS covered
        CROSS JOIN memories ON scope = covered.value AND deleted = 0 AND {HAS_ALL_TAGS}
        """,
        {"scopes": listed(covered), "tags": listed(selector.tags)},
    )
    selected[readable.places(memories)[0]] = True
    return selected


def _by_id(connection: Connection, numbers: Numbers, candidates: Numbers) -> dict[str, int]:
    """The places of the candidates by the ids of their memories."""
    places = {int(numbers[place]): place for place in candidates.tolist()}
    rows = connection.execute(
        "SELECT id, number FROM memories WHERE number IN (SELECT value FROM json_each(?))", (listed(places),)
    )
    return {id_: places[number] for id_, number in rows}
