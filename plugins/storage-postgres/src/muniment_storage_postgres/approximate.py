"""What an approximate index is: its name, when it pays, how it is made and how it is asked; texts and numbers, no I/O.

An index holds the passages of one space in one partition. Index and query must spell the vector in the same way, with
the space's number as a literal, or PostgreSQL does not see that they belong together; both are made here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from muniment import ranking
from muniment_storage_postgres.layout import INDEX_OF_A_SPACE

FOUND = 2 * ranking.POOL
"""How many passages an index is asked for: a memory may have several, and a pool's worth of memories is wanted."""
_SEARCHED = 800
"""How many passages the index keeps in sight (``hnsw.ef_search``). In data that falls into separate clusters fewer miss
whole clusters; see ADR 18."""
_PATIENCE = 100_000
"""How many passages of others the index may pass by before a search goes on without it."""
_MOST = 150_000
"""An owner with more passages is searched exactly, however long that takes: with 300,000 an index of this shape lost
whole clusters, see ADR 18."""
_CONSTRUCTION = 128
"""How many passages a new one is compared with as the index grows (``ef_construction``)."""
_WHOLE, _HALF = 2_000, 4_000
"""Up to so many dimensions pgvector indexes vectors as they are, and in half precision."""

SETTINGS = f"""
SELECT
    set_config('hnsw.iterative_scan', 'relaxed_order', true),
    set_config('hnsw.ef_search', '{_SEARCHED}', true),
    set_config('hnsw.max_scan_tuples', '{_PATIENCE}', true),
    set_config('enable_sort', 'off', true)
""".encode()
"""For the rest of a transaction. Without sorting there is no way but the index; with it PostgreSQL may think an exact
search of many passages cheaper."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an index is, or could be: a partition of ``passage`` by its place among them, and a space's number."""

    partition: int
    space: int

    @property
    def table(self) -> str:
        """The partition."""
        return f"passage_{self.partition}"

    @property
    def index(self) -> str:
        """The index."""
        return f"{self.table}_near_{self.space}"


@dataclass(frozen=True, slots=True)
class Large:
    """A scope with many passages at a place, and how many all scopes there have together."""

    place: Place
    scope: int
    passages: int
    beside: int

    def pays(self, least: int, *, known: bool) -> bool:
        """Whether an index is cheaper for it than a look at every passage.

        An exact search looks at each passage of the scope, one by an index at a number that does not grow, and at as
        many more as others have passages beside. ``least`` is where the two meet for a scope that is alone. One that is
        ``known`` has an index already, and keeps it until it is clearly too small. Where an index cannot be relied on,
        since there are too many passages, there is none.
        """
        bound = least // 2 if known else least
        return bound <= self.passages <= _MOST and self.passages**2 >= bound * self.beside


def place(index: str) -> Place | None:
    """Of an index by its name; None for one that is not of a space."""
    if re.match(INDEX_OF_A_SPACE, index) is None:
        return None
    _, partition, _, space = index.split("_")
    return Place(int(partition), int(space))


def can_be(dimensions: int) -> bool:
    """Whether vectors of so many dimensions can be indexed."""
    return dimensions <= _HALF


def create(at: Place, dimensions: int) -> bytes:
    """The statement that makes an index, while others read and write."""
    kind = _type(dimensions)
    return (
        f"CREATE INDEX CONCURRENTLY {at.index} ON {at.table} "
        f"USING hnsw ((embedding::{kind}({dimensions})) {kind}_cosine_ops) WITH (ef_construction = {_CONSTRUCTION}) "
        f"WHERE space = {at.space}"
    ).encode()


def drop(at: Place) -> bytes:
    """The statement that drops an index, or what an interrupted ``create`` left of it, while others read and write."""
    return f"DROP INDEX CONCURRENTLY IF EXISTS {at.index}".encode()


def large(partition: int) -> bytes:
    """The query for the scopes that have at least ``least`` passages in a space: space, scope, passages, and all
    passages of the space in the partition. It reads the primary key only."""
    return (
        "SELECT c.space, c.scope, c.passages, c.beside FROM ("
        "SELECT p.space, p.scope, count(*) AS passages, (sum(count(*)) OVER (PARTITION BY p.space))::bigint AS beside "
        f"FROM passage_{partition} p GROUP BY p.space, p.scope"
        ") c WHERE c.passages >= %(least)s"
    ).encode()


def nearest(scope: int, space: int, dimensions: int) -> bytes:
    """The query for a scope's passages nearest to ``vector`` by the index, as ``scanned`` gives them. The distances
    are exact."""
    kind = _type(dimensions)
    return (
        "SELECT array_send(array_agg(n.memory)), array_send(array_agg(n.distance)) FROM ("
        "SELECT p.memory, p.embedding <=> %(vector)s::vector AS distance FROM passage p "
        f"WHERE p.scope = {scope} AND p.space = {space} "
        f"ORDER BY p.embedding::{kind}({dimensions}) <=> %(vector)s::vector::{kind}({dimensions}) LIMIT {FOUND}"
        ") n HAVING count(*) > 0"
    ).encode()


def memory_for(passages: Sequence[int], dimensions: int) -> int:
    """Kilobytes that building the largest of some indexes takes: vectors and their links in a graph."""
    size = (4 if dimensions <= _WHOLE else 2) * dimensions + 300
    return max(passages, default=0) * size * 5 // 4 // 1024


def _type(dimensions: int) -> str:
    return "vector" if dimensions <= _WHOLE else "halfvec"
