"""Search in one snapshot: what the rankers need, then the candidates' ids, the core's fusion, and the page's contents.

Owns the round trips, and which memories are candidates. How each scope is answered for is ``reach``'s, what an answer
means is ``postings``', ``words``' and ``vectors``', BM25 and the order are ``ranking``'s.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import psycopg

from muniment import ranking
from muniment.ports import Audience, Found, SearchQuery, Selector
from muniment_storage_postgres import approximate, postings, records, settling, vectors
from muniment_storage_postgres.arrays import NUMBER, BigInts, bigints, elements
from muniment_storage_postgres.connection import Connection, Row, keep_cursor
from muniment_storage_postgres.database import rows, sent
from muniment_storage_postgres.mind import Mind, Names, Scope, Scopes, sizes
from muniment_storage_postgres.reach import Asked, Known, Reach
from muniment_storage_postgres.readable import Readable, whole
from muniment_storage_postgres.vectors import Vectors
from muniment_storage_postgres.words import Entries, Words

_MANY = 100_000
"""Bytes of keys from which on they are put in order in a thread."""
_BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


@dataclass(frozen=True, slots=True)
class Searched:
    """What was found, and the scopes whose many unsettled memories made that dearer than it need be."""

    found: list[Found]
    unsettled: list[int]


@dataclass(frozen=True, slots=True)
class _Answers:
    """The rows of each statement that was sent: who holds what, what changed, and what is near."""

    changes: dict[int, Row]
    holders: list[Row] = field(default_factory=list[Row])
    words: list[Row] = field(default_factory=list[Row])
    passages: list[Row] = field(default_factory=list[Row])
    scanned: list[Row] = field(default_factory=list[Row])
    nearest: list[Row] = field(default_factory=list[Row])


async def search(
    connection: Connection, mind: Mind, audience: Audience, selector: Selector, query: SearchQuery
) -> Searched:
    """The fused order from ``query.offset``, at most ``query.limit``, with contents."""
    asked = Asked(audience, selector, query)
    for statement in ("scopes", "contents"):
        keep_cursor(connection, statement)
    try:
        page, unsettled = await _page(connection, mind, asked)
        async with connection.pipeline():
            contents = await rows(connection, "contents", {"ids": [one.id for one in page]})
            await connection.execute(b"COMMIT")
    except Exception:
        mind.scopes.drop(asked.who)
        if not connection.closed:
            await connection.rollback()
        raise
    memories = {row[0]: records.memory(row) for row in contents}
    return Searched([Found(memory=memories[one.id], ranked=one) for one in page], unsettled)


async def _page(connection: Connection, mind: Mind, asked: Asked) -> tuple[list[ranking.Ranked], list[int]]:
    """The asked part of the fused order, and the scopes that are to be settled."""
    names, scopes = mind.names, mind.scopes
    kept = scopes.now()
    foretold = Known(asked, scopes.reached(asked.who), kept, seen=sys.maxsize)
    async with connection.pipeline():
        await connection.execute(_BEGIN)
        of_audience = await sent(connection, "scopes", asked.within)
        asking = {scope: await _ask(connection, foretold, scope) for scope in foretold.kept}
    found = await of_audience.fetchall()
    if found and not mind.is_of(found[0][5]):
        names, scopes, kept = mind.names, mind.scopes, dict[int, Scope]()
    reach = Reach(asked, found, kept, scopes)
    scopes.reach(asked.who, [row for row in found if row[0] in reach.kept or row[0] in reach.words_read])
    changes = {
        scope: (await cursor.fetchall())[0]
        for scope, cursor in asking.items()
        if scope in reach.kept and reach.since(scope) == foretold.since(scope)
    }
    answers = await _answers(connection, asked, reach, changes)
    present = await _present(connection, asked, reach, answers)
    readable, scores = await _scores(connection, scopes, asked, reach, answers, present)
    places = scores.candidates()
    identities = await ids(connection, names, readable.numbers[places].tolist())
    query = asked.query
    page = scores.fuse(
        dict(zip(identities, places, strict=True)),
        fusion=query.fusion,
        min_score=query.min_score,
        offset=query.offset,
        limit=query.limit,
    )
    late = [scope for scope, one in present.items() if one.words.late >= settling.BATCH]
    return page, [*postings.unsettled(answers.holders, settling.BATCH), *late]


async def _answers(connection: Connection, asked: Asked, reach: Reach, changes: dict[int, Row]) -> _Answers:
    """What else the search needs of the server, in one round trip; some ``changes`` are known."""
    statements = {
        "holders": reach.held,
        "words": reach.words_read,
        "passages": reach.vectors_read,
        "scanned": reach.scanned,
    }
    wanted = [name for name, scopes in statements.items() if scopes]
    unasked = [scope for scope in reach.kept if scope not in changes]
    by_index = [] if asked.required else reach.outgrown
    answers = _Answers(changes)
    if not (wanted or unasked or by_index):
        return answers
    async with connection.pipeline():
        cursors = {name: await sent(connection, name, reach.parameters) for name in wanted}
        asking = {scope: await _ask(connection, reach, scope) for scope in unasked}
        if by_index:
            await connection.execute(approximate.SETTINGS)
        near: list[psycopg.AsyncCursor[Row]] = []
        for scope in by_index:
            statement = approximate.nearest(scope, reach.space or 0, asked.dimensions)
            near.append(await connection.execute(statement, {"vector": asked.vector}, prepare=False, binary=True))
    answers = _Answers(changes, **{name: await cursor.fetchall() for name, cursor in cursors.items()})
    for scope, cursor in asking.items():
        (changes[scope],) = await cursor.fetchall()
    for scope, cursor in zip(by_index, near, strict=True):
        found = await cursor.fetchall()
        if postings.passages(found) < approximate.FOUND:
            # The index gave up among the passages of others.
            found = await rows(connection, "scanned", {**reach.parameters, "scanned": [scope]})
        answers.nearest.extend(found)
    return answers


async def _ask(connection: Connection, known: Known, scope: int) -> psycopg.AsyncCursor[Row]:
    """What has become of a scope of which something is kept."""
    return await sent(connection, "changes", known.since(scope), partition=known.kept[scope].words.partition)


async def _present(connection: Connection, asked: Asked, reach: Reach, answers: _Answers) -> dict[int, Scope]:
    """What the snapshot has of the scopes that are kept, and of those that are from now on."""
    words, passages = dict[int, Words](), dict[int, Vectors]()
    if answers.words or answers.passages:
        # What has many entries is sorted for a while, in which others are to be served.
        words, passages = await asyncio.to_thread(_read, reach.seen, answers, asked.dimensions)
    present = {scope: Scope(one) for scope, one in words.items()}
    for scope, (live, *entries, memories, values) in answers.changes.items():
        kept = reach.kept[scope]
        changed, known = await _changed(kept.words, reach.seen, entries)
        known = await _without_gone(connection, scope, known, live)
        present[scope] = replace(kept, words=known)
        if scope in reach.vectors:
            now = vectors.read(memories, values, asked.dimensions)
            compared = reach.vectors[scope].with_changes(reach.seen, changed.memories, *now)
            present[scope] = Scope(known, reach.space, compared)
    for scope in present.keys() & set(reach.vectors_read):
        present[scope] = Scope(present[scope].words, reach.space, passages.get(scope))
    return present


def _read(seen: int, answers: _Answers, dimensions: int) -> tuple[dict[int, Words], dict[int, Vectors]]:
    """The words and the vectors of the scopes of which all was read."""
    return (
        {scope: _words(seen, answer) for scope, *answer in answers.words},
        {
            scope: Vectors.of(seen, *vectors.read(memories, values, dimensions))
            for scope, memories, values in answers.passages
        },
    )


def _words(seen: int, answer: Sequence[Any]) -> Words:
    """From an answer of ``words``."""
    *entries, partition = answer
    return Words.of(seen, partition, Entries.of(*entries))


async def _changed(words: Words, seen: int, answer: Sequence[Any]) -> tuple[Entries, Words]:
    """What has changed, and the words as they are with it; many changes are put in order in a thread, too."""

    def made() -> tuple[Entries, Words]:
        changed = Entries.of(*answer)
        return changed, words.with_changes(seen, changed)

    *_, packed = answer
    return made() if len(packed or b"") < _MANY else await asyncio.to_thread(made)


async def _without_gone(connection: Connection, scope: int, known: Words, live: int) -> Words:
    """The words of the memories that are live, who are ``live`` in number."""
    if known.live == live:
        return known
    ((numbers,),) = await rows(connection, "live", {"number": scope})
    known = await asyncio.to_thread(known.only, elements(numbers, NUMBER))
    if known.live == live:
        return known
    # Somebody is there whom no transaction of this server has put there, as while a dump is being restored.
    for _, *rest in await rows(connection, "words", {"words_read": [scope]}):
        known = await asyncio.to_thread(_words, known.seen, rest)
    return known


async def _scores(
    connection: Connection, mind: Scopes, asked: Asked, reach: Reach, answers: _Answers, present: Mapping[int, Scope]
) -> tuple[Readable, ranking.Scores]:
    """What is in the readable scopes, and every score of it; by meaning only of what was compared."""
    keys = np.array(asked.keys, dtype=np.int64)
    answered = postings.part(answers.holders, asked.keys) if reach.held or not present else None
    parts = [one.words.part(scope, keys) for scope, one in present.items()]
    readable, found = whole(parts if answered is None else [answered, *parts])
    passages = postings.counts(answers.scanned, readable)
    mind.note(sizes(answered, passages, reach.space, asked.dimensions))
    terms, tags = len(asked.terms), len(asked.tags)
    required = found[terms + tags :]
    selected = np.isin(readable.scopes, reach.selected) & (readable.counted(required) == len(required))
    matrices = {
        scope: one.among(scope, readable)
        for scope in reach.compared & present.keys()
        if (one := present[scope].vectors) is not None
    }
    _keep(mind, present, matrices)
    meaning = postings.nearest([*answers.scanned, *answers.nearest], readable)
    comparisons = {scope: matrix.compared(asked.sought) for scope, matrix in matrices.items()}
    for one in comparisons.values():
        meaning = np.maximum(meaning, one.estimates)
    scores = ranking.scores_of_all(
        asked.query.terms,
        lengths=readable.lengths,
        by_term=dict(zip(asked.terms, found[:terms], strict=True)),
        matching_tags=readable.counted(found[terms : terms + tags]),
        meaning=meaning,
        selected=selected,
    )
    candidates = np.array(scores.candidates(blur=ranking.margin(asked.dimensions) if matrices else 0.0), dtype=np.int64)
    compared = candidates[scores.meaning[candidates] > -np.inf]
    for scope, one in comparisons.items():
        here = compared[readable.scopes[compared] == scope]
        scores.meaning[here] = one.exact(here)
    if not reach.outgrown:
        return readable, scores
    # Of memories that must have certain tags all are compared, since the nearest ones may have none of them. Otherwise
    # every candidate is, whichever ranker found it, and with all its passages.
    wanted = BigInts(readable.numbers[np.flatnonzero(selected) if asked.required else candidates])
    more = await rows(connection, "compared", {**reach.parameters, "numbers": wanted})
    nearest = np.maximum(scores.meaning, postings.nearest(more, readable))
    return readable, replace(scores, meaning=np.where(selected, nearest, -np.inf))


def _keep(mind: Scopes, present: Mapping[int, Scope], matrices: Mapping[int, ranking.PassageMatrix]) -> None:
    """What the snapshot has of these scopes, for later ones; of what was compared without whoever is gone."""
    for scope, one in present.items():
        if one.words.late >= settling.BATCH:
            one = replace(one, words=replace(one.words, late=0))
        if scope in matrices and one.vectors is not None:
            one = replace(one, vectors=one.vectors.only(matrices[scope].owners >= 0))
        mind.keep(scope, one)


async def ids(connection: Connection, names: Names, numbers: Sequence[int]) -> list[str]:
    """The id of each memory; only those that are new here are asked for."""
    found = names.known(numbers)
    unknown = [number for number, name in zip(numbers, found, strict=True) if name is None]
    new = dict[int, str](await rows(connection, "ids", {"numbers": bigints(unknown)})) if unknown else {}
    names.learn(new)
    return [new[number] if name is None else name for number, name in zip(numbers, found, strict=True)]
