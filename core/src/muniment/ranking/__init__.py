"""The formulas of search: BM25, tag overlap, and how the rankers' scores become one order.

Owns every number and every tie of a ranking, so that each storage answers in the same order. It leaves the
terms to `lexical`, the candidates and the statistics to the storages, and what a caller may read to `access`. A
storage may push `bm25` and the cosines into its engine where the conformance suite shows the same order.

Three rankers: *meaning* (cosine of the best passage), *words* (BM25), *tags* (overlap). Each hands its first
`POOL` memories to the fusion; a candidate of any of them is scored exactly by all of them.
"""

from __future__ import annotations

from muniment.ranking.fusion import POOL, RRF_K, TAG_WEIGHT, WEIGHT, Fusion, Legs, Ranked, fuse
from muniment.ranking.keeping import GrowingMatrix, Kept
from muniment.ranking.meaning import Comparison, PassageMatrix, cosines, lengths_of, margin
from muniment.ranking.scores import Scores, scores_of_all
from muniment.ranking.tags import query_tags, tag_overlap
from muniment.ranking.words import K1, B, Postings, Statistics, bm25, bm25_ceiling, bm25_of_all, idf

__all__ = [
    "K1",
    "POOL",
    "RRF_K",
    "TAG_WEIGHT",
    "WEIGHT",
    "B",
    "Comparison",
    "Fusion",
    "GrowingMatrix",
    "Kept",
    "Legs",
    "PassageMatrix",
    "Postings",
    "Ranked",
    "Scores",
    "Statistics",
    "bm25",
    "bm25_ceiling",
    "bm25_of_all",
    "cosines",
    "fuse",
    "idf",
    "lengths_of",
    "margin",
    "query_tags",
    "scores_of_all",
    "tag_overlap",
]
