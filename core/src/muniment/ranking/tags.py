"""The tags ranker: which words of a query could be tags, and how well a memory's tags answer them."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

_TAG = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_EDGES = re.compile(r"^[\W_]+|(?<=\w)[\W_]+$")


@lru_cache(maxsize=256)
def query_tags(query: str) -> frozenset[str]:
    """The words of a query that could be tags.

    The words between white space, as they are and without the punctuation around them (`.env` and `(urgent),`
    are both found), as far as they match `[A-Za-z0-9._-]{1,64}`; case counts.
    """
    words = query.split()
    candidates = {*words, *(_EDGES.sub("", word) for word in words)}
    return frozenset(word for word in candidates if _TAG.fullmatch(word))


def tag_overlap(tags: Collection[str], wanted: frozenset[str]) -> float:
    """How well a memory's tags answer a query: `n / (n + 1)` for n different tags among `wanted`, 0 for none.

    `wanted` is `query_tags` of the query; tags are compared whole and case-sensitively.
    """
    matching = len(wanted.intersection(tags))
    return matching / (matching + 1)
