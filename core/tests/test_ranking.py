"""The formulas of search, against numbers worked out by hand."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from pydantic import ValidationError

from muniment.models import RankerHit
from muniment.ranking import (
    K1,
    POOL,
    TAG_WEIGHT,
    Fusion,
    Legs,
    Scores,
    Statistics,
    bm25,
    bm25_ceiling,
    fuse,
    idf,
    query_tags,
    tag_overlap,
)

STATISTICS = Statistics(documents=10, average_length=8.0, document_frequencies={"rare": 1, "common": 9})


def test_idf_is_the_published_formula() -> None:
    """ln(1 + (N - df + 0.5) / (df + 0.5)): rarer is more, nothing is negative, the impossible is bounded."""
    assert idf(10, 1) == pytest.approx(math.log(1 + 9.5 / 1.5))
    assert idf(10, 1) > idf(10, 9) > idf(10, 10) > 0
    assert idf(10, 11) == idf(10, 10)
    assert idf(0, 0) == pytest.approx(math.log(2))


def test_bm25_is_the_published_formula() -> None:
    """One term, twice in a memory of 4 words where the mean is 8: tf and length are weighed as published."""
    expected = math.log(1 + 9.5 / 1.5) * 2 * 2.8 / (2 + 1.8 * (0.25 + 0.75 * 4 / 8))
    assert bm25({"rare": 2, "other": 2}, 4, {"rare": 1}, STATISTICS) == pytest.approx(expected)
    assert bm25({"rare": 2}, 4, {"rare": 3}, STATISTICS) == pytest.approx(3 * expected)


def test_bm25_without_a_common_term_is_zero() -> None:
    """A memory that holds no term of the query has the score 0, whatever the statistics."""
    assert bm25({"other": 5}, 5, {"rare": 1}, STATISTICS) == 0.0
    assert bm25({}, 0, {"rare": 1}, Statistics(0, 0.0, {})) == 0.0
    assert bm25({"rare": 1}, 1, {"rare": 1}, Statistics(0, 0.0, {})) > 0.0


def test_the_ceiling_is_never_exceeded_and_nearly_reached() -> None:
    """No memory scores above the ceiling; one full of the query's terms comes near it."""
    query = {"rare": 2, "common": 1, "absent": 1}
    ceiling = bm25_ceiling(query, STATISTICS)
    assert ceiling == pytest.approx((2 * idf(10, 1) + idf(10, 9) + idf(10, 0)) * (K1 + 1))
    score = bm25({"rare": 10_000, "common": 10_000, "absent": 10_000}, 1, query, STATISTICS)
    assert 0.99 * ceiling < score < ceiling
    assert bm25_ceiling({}, STATISTICS) == 0.0


def test_scores_do_not_depend_on_the_order_of_a_query() -> None:
    """The same terms in any order give the same floating-point number, on every machine."""
    weights = {"rare": 1, "common": 3, "zeta": 2, "alpha": 5}
    frequencies = {"rare": 3, "common": 1, "zeta": 7, "alpha": 1}
    scores = {bm25(frequencies, 7, dict(order), STATISTICS) for order in permutations(weights.items())}
    assert len(scores) == 1


def test_tags_are_compared_whole_and_case_counts() -> None:
    """A tag is found by its own name among the query's words, and by no near miss."""
    assert tag_overlap(["acme"], query_tags("what about acme?")) == 0.5
    assert tag_overlap({"acme", "prod", "x"}, query_tags('"acme", (prod)')) == pytest.approx(2 / 3)
    assert tag_overlap(["acme"], query_tags("acme acme")) == 0.5
    assert tag_overlap([], query_tags("acme")) == 0.0
    for tag, query in (("acme", "ACME"), ("acme", "acme-corp"), ("a_b", "axb"), ("team.one", "teamXone")):
        assert tag_overlap([tag], query_tags(query)) == tag_overlap([query], query_tags(tag)) == 0.0


def test_query_tags_are_the_words_that_are_valid_tags() -> None:
    """Punctuation around a word goes, that inside stays, and what is no tag is left out."""
    assert query_tags("“urgent” (v2.4), a/b köln !! " + "x" * 65) == {"urgent", "v2.4"}
    assert ".env" in query_tags("open .env")


def test_weighted_fusion_adds_exact_parts() -> None:
    """w · cosine + (1 - w) · BM25 / ceiling + TAG_WEIGHT · overlap, for a memory of all three legs."""
    legs = Legs(meaning={"a": 0.8, "b": 0.9}, words={"a": 3.0}, tags={"a": 0.5})
    first, second = fuse(legs, ceiling=6.0, fusion=Fusion.weighted, weight=0.6)
    assert first.id == "a"
    assert first.score == pytest.approx(0.6 * 0.8 + 0.4 * 0.5 + TAG_WEIGHT * 0.5)
    assert second.score == pytest.approx(0.6 * 0.9)
    assert first.meaning == RankerHit(rank=2, score=0.8)
    assert first.words == RankerHit(rank=1, score=3.0)
    assert second.words is None
    assert second.tags is None


def test_a_memory_with_nothing_positive_is_no_match() -> None:
    """A cosine of 0, below, or not a number is no match, and takes nothing from another ranker's score."""
    legs = Legs(meaning={"a": -0.5, "b": 0.0, "c": math.nan, "d": -0.9, "e": 0.1}, words={"d": 2.0})
    for fusion in Fusion:
        hits = {hit.id: hit for hit in fuse(legs, ceiling=4.0, fusion=fusion)}
        assert set(hits) == {"d", "e"}
        assert hits["d"].meaning is None
    assert fuse(legs, ceiling=4.0, fusion=Fusion.weighted, weight=0.5)[0].score == 0.25


def test_without_the_meaning_leg_words_count_in_full() -> None:
    """With no embedder the score of a memory is BM25 / ceiling, not a share of it."""
    (hit,) = fuse(Legs(words={"a": 3.0}), ceiling=4.0, fusion=Fusion.weighted, weight=0.9)
    assert hit.score == 0.75


def test_a_ceiling_of_zero_contributes_nothing() -> None:
    """Words cannot be weighed under a ceiling of 0, which is not an error."""
    (hit,) = fuse(Legs(meaning={"a": 0.5}, words={"a": 1.0}), ceiling=0.0, fusion=Fusion.weighted, weight=0.5)
    assert hit.score == 0.25


def test_reciprocal_rank_fusion_is_the_published_formula() -> None:
    """RANK-02: the sum of 1 / (60 + rank) over the legs that have the memory."""
    legs = Legs(meaning={"a": 0.9, "b": 0.5}, words={"b": 7.0, "c": 6.0, "a": 5.0}, tags={"c": 0.5})
    scores = {hit.id: hit.score for hit in fuse(legs, ceiling=1.0, fusion=Fusion.rrf)}
    assert scores == pytest.approx({"a": 1 / 61 + 1 / 63, "b": 1 / 62 + 1 / 61, "c": 1 / 62 + 1 / 61})


def test_ties_go_by_id_in_ranks_and_in_the_result() -> None:
    """Equal scores are ranked by id, in whatever order a storage hands them over."""
    legs = Legs(meaning={"c": 0.5, "a": 0.5, "b": 0.5})
    for fusion in Fusion:
        hits = fuse(legs, ceiling=1.0, fusion=fusion)
        assert [(hit.id, hit.meaning.rank if hit.meaning else 0) for hit in hits] == [
            ("a", 1),
            ("b", 2),
            ("c", 3),
        ]


def test_ranks_end_at_the_pool() -> None:
    """Beyond the pool a rank is POOL + 1: nothing in rank fusion, still the exact score in the weighted one."""
    legs = Legs(meaning={f"{place:04}": 1.0 - place / 1000 for place in range(POOL + 5)})
    assert len(fuse(legs, ceiling=1.0, fusion=Fusion.rrf)) == POOL
    hits = fuse(legs, ceiling=1.0, fusion=Fusion.weighted, weight=1.0)
    assert len(hits) == POOL + 5
    assert hits[-1].meaning == RankerHit(rank=POOL + 1, score=1.0 - (POOL + 4) / 1000)


@pytest.mark.parametrize("fusion", Fusion)
@pytest.mark.parametrize("words", [0.0, 0.9])
def test_fewer_candidates_give_the_same_hits(fusion: Fusion, words: float) -> None:
    """The candidates for three hits give the first three of all, with ties across the end and blurred cosines."""
    count, blur = POOL + 50, 1e-3
    exact = np.round(np.random.default_rng(7).uniform(0.2, 0.9, count), 2)
    blurred = exact + np.random.default_rng(8).uniform(-blur, blur, count)
    others = np.zeros(count)
    others[int(np.argmin(exact))] = words
    scores = Scores(blurred, others, np.zeros(count), ceiling=1.0)
    few = scores.candidates(blur=blur, wanted=3)
    scores.meaning[:] = exact
    names = [f"{place:04}" for place in range(count)]
    first, whole = (
        scores.fuse({names[place]: place for place in places}, fusion=fusion, min_score=None, offset=0, limit=3)
        for places in (few, range(count))
    )
    assert first == whole
    assert len(few) < POOL or words


def test_min_score_keeps_what_reaches_it() -> None:
    """A memory at the minimum stays; one below goes."""
    legs = Legs(meaning={"a": 0.5, "b": 0.25, "c": 0.2})
    hits = fuse(legs, ceiling=0.0, fusion=Fusion.weighted, weight=1.0, min_score=0.25)
    assert [hit.id for hit in hits] == ["a", "b"]


def test_bad_weights_and_changes_are_refused() -> None:
    """A weight is between 0 and 1, and a result cannot be changed afterwards."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        fuse(Legs(), ceiling=1.0, fusion=Fusion.weighted, weight=1.5)
    (hit,) = fuse(Legs(meaning={"a": 0.5}), ceiling=0.0, fusion=Fusion.weighted)
    with pytest.raises(ValidationError):
        hit.score = 2.0  # pyright: ignore[reportAttributeAccessIssue]
