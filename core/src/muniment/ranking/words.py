"""The words ranker: BM25, of one memory and of many at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

K1: Final = 1.8
"""How soon a repeated term stops counting (BM25)."""
B: Final = 0.75
"""How much a long memory is held against its terms, 0 to 1 (BM25)."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What BM25 knows of the memories that the caller can read, before any filter.

    `documents` counts them, `average_length` is the mean of their `Terms.length`, and `document_frequencies`
    says in how many of them each term of the query occurs; a term that is missing there occurs in none.
    """

    documents: int
    average_length: float
    document_frequencies: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Postings:
    """The memories that hold one term: their places in an array of `lengths`, each once, and how often it occurs."""

    places: NDArray[np.int64]
    frequencies: NDArray[np.int64]


def idf(documents: int, frequency: int) -> float:
    """How rare a term is: `ln(1 + (N - df + 0.5) / (df + 0.5))`, never negative.

    Robertson and Spärck Jones' weight as in Robertson and Zaragoza, "The Probabilistic Relevance Framework:
    BM25 and Beyond" (2009), with Lucene's 1 inside the logarithm. A `frequency` above `documents` counts as
    `documents`.
    """
    known = min(frequency, documents)
    return math.log(1.0 + (documents - known + 0.5) / (known + 0.5))


def bm25(frequencies: Mapping[str, int], length: int, query: Mapping[str, float], statistics: Statistics) -> float:
    """The words score of one memory: 0 when it holds no term of the query, else positive.

    `sum over t of qtf · idf · tf · (K1 + 1) / (tf + K1 · (1 - B + B · length / average_length))`, with `tf`
    from `frequencies` and `qtf` from `query` (Robertson and Zaragoza 2009, equation 3.15, linear in the
    query's counts). Terms are added in their sorted order, so that a sum is the same on every machine.
    """
    relative = length / statistics.average_length if statistics.average_length > 0 else 1.0
    saturation = K1 * (1.0 - B + B * relative)
    score = 0.0
    for term in sorted(query):
        count = frequencies.get(term, 0)
        if count > 0:
            rarity = idf(statistics.documents, statistics.document_frequencies.get(term, 0))
            score += query[term] * rarity * count * (K1 + 1.0) / (count + saturation)
    return score


def bm25_of_all(
    postings: Mapping[str, Postings], lengths: NDArray[np.int64], query: Mapping[str, float], statistics: Statistics
) -> NDArray[np.float64]:
    """`bm25` of many memories at once, term by term, for a storage that keeps postings: shape `(memories,)`.

    `lengths` has the memories' `Terms.length`. Every number is computed in the order in which `bm25` does it, so
    that the scores are the same to the last bit, and memories tie here exactly when they tie there.
    """
    terms = sorted(query.keys() & postings.keys())
    if not terms:
        return np.zeros(len(lengths), dtype=np.float64)
    average = statistics.average_length
    relative = lengths / average if average > 0 else np.ones(len(lengths), dtype=np.float64)
    saturation = K1 * (1.0 - B + B * relative)
    holders = [postings[term] for term in terms]
    places = np.concatenate([one.places for one in holders])
    counts = np.concatenate([one.frequencies for one in holders])
    frequencies = statistics.document_frequencies
    weights = [query[term] * idf(statistics.documents, frequencies.get(term, 0)) for term in terms]
    weight = np.repeat(weights, [len(one.places) for one in holders])
    parts = weight * counts * (K1 + 1.0) / (counts + saturation[places])
    return np.bincount(places, weights=parts, minlength=len(lengths)).astype(np.float64, copy=False)


def bm25_ceiling(query: Mapping[str, float], statistics: Statistics) -> float:
    """What no memory's `bm25` can exceed for this query: `sum over t of qtf · idf · (K1 + 1)`.

    Terms that occur nowhere count too, so a memory that answers half of the query stays near one half. A query
    without terms has 0.
    """
    return sum(
        query[term] * idf(statistics.documents, statistics.document_frequencies.get(term, 0)) * (K1 + 1.0)
        for term in sorted(query)
    )
