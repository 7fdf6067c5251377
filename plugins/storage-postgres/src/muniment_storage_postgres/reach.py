"""How each scope of a search is answered for: by what this process keeps in mind of it, or by the server. No I/O.

Of what is kept the search reads what has changed since; of what is to be kept from now on it reads all. The server
looks up the words of the others, and compares their vectors: one by one, or by an index where the scope has outgrown
that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pgvector import Vector as PgVector

from muniment.ports import Audience, SearchQuery, Selector
from muniment_storage_postgres import keys, records
from muniment_storage_postgres.arrays import bigints
from muniment_storage_postgres.mind import Scopes, Snapshot
from muniment_storage_postgres.records import Parameters, Row


class Asked:
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
        self.who = (audience.user, audience.groups, audience.need, selector.scope_key, selector.scope, query.space)
        self.vector = None if query.vector is None else PgVector(query.vector)
        self.sought = np.zeros(0, dtype=np.float32) if query.vector is None else query.vector
        self.dimensions = len(self.sought)


class Known:
    """What this process keeps of the scopes of a search, which are rows of ``scopes``.

    Nothing of it is ahead of a snapshot in which all transactions before ``seen`` were over.
    """

    def __init__(self, asked: Asked, scopes: Sequence[Row], kept: Snapshot, *, seen: int) -> None:
        self.scopes = [number for number, *_ in scopes]
        self.selected = [number for number, takes, *_ in scopes if takes]
        self.space: int | None = scopes[0][2] if scopes else None
        self.seen = seen
        near = self.selected if asked.vector is not None else []
        large = {number for number, _, _, large, *_ in scopes if large}
        self.outgrown = [number for number in near if number in large]
        self.exact = [number for number in near if number not in large]
        found = {number: kept[number] for number in self.scopes if number in kept}
        self.kept = {number: one for number, one in found.items() if one.words.seen <= seen}
        compared_here = {
            number: self.kept[number].vectors_in(self.space) for number in self.exact if number in self.kept
        }
        self.vectors = {
            number: one
            for number, one in compared_here.items()
            if one is not None and one.seen <= seen and one.dimensions == asked.dimensions
        }

    def since(self, scope: int) -> Parameters:
        """What ``changes`` is asked of a scope."""
        words, vectors = self.kept[scope].words, self.vectors.get(scope)
        since = words.seen if vectors is None else min(words.seen, vectors.seen)
        return {"number": scope, "since": since, "space": None if vectors is None else self.space}


class Reach(Known):
    """The scopes of a search by how each is answered for: those that are known, those of which words or vectors are
    read to be kept, those whose words the server looks up, and those whose passages it scans; ``compared`` are the ones
    whose vectors this process compares."""

    def __init__(self, asked: Asked, scopes: Sequence[Row], kept: Snapshot, mind: Scopes) -> None:
        super().__init__(asked, scopes, kept, seen=scopes[0][4] if scopes else 0)
        beside = list(self.kept.values())
        chosen = mind.to_read([(number, None) for number in self.scopes if number not in self.kept], beside=beside)
        self.words_read = [number for number, _ in chosen]
        known = {*self.kept, *self.words_read}
        self.held = [number for number in self.scopes if number not in known]
        # Vectors are kept with words alone: what has become of both is asked at once.
        unknown = [number for number in self.exact if number in known and number not in self.vectors]
        chosen = mind.to_read([(number, self.space) for number in unknown], beside=beside)
        self.vectors_read = [number for number, _ in chosen]
        self.compared = {*self.vectors, *self.vectors_read}
        self.scanned = [number for number in self.exact if number not in self.compared]
        self.parameters: Parameters = {
            "words_read": self.words_read,
            "vectors_read": self.vectors_read,
            "held": self.held,
            "scanned": self.scanned,
            "outgrown": self.outgrown,
            "keys": bigints(asked.keys),
            "vector": asked.vector,
            "space": self.space,
        }
