"""Scores and orders over arrays, against the same written out for one memory at a time: equal to the last bit."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from muniment.models import RankerHit
from muniment.ranking import (
    POOL,
    RRF_K,
    TAG_WEIGHT,
    WEIGHT,
    Fusion,
    Postings,
    Ranked,
    Scores,
    Statistics,
    bm25,
    bm25_ceiling,
    scores_of_all,
)

MEMORIES = 700
TERMS = [f"term{number}" for number in range(9)]
NEVER = -math.inf


def estate(dice: random.Random) -> tuple[list[dict[str, int]], list[int]]:
    """The frequencies of each memory's terms, from common to rare, and the memories' lengths."""
    frequencies = [
        {term: dice.randint(1, 9) for rank, term in enumerate(TERMS) if dice.random() < 1 / (1 + rank)}
        for _ in range(MEMORIES)
    ]
    return frequencies, [sum(one.values()) + dice.randint(0, 300) for one in frequencies]


def scored(dice: random.Random, query: Mapping[str, float], *, tagged: bool) -> tuple[Scores, Scores]:
    """The scores over arrays, and those one by one."""
    frequencies, lengths = estate(dice)
    held = [dice.choice((0, 0, 1, 2)) if tagged else 0 for _ in range(MEMORIES)]
    meaning = [dice.choice((NEVER, round(dice.uniform(-0.3, 0.9), 2), dice.random())) for _ in range(MEMORIES)]
    selected = [dice.random() < 0.9 for _ in range(MEMORIES)]
    holding = {term: [place for place, one in enumerate(frequencies) if term in one] for term in query}
    found = scores_of_all(
        query,
        lengths=np.array(lengths, dtype=np.int64),
        by_term={
            term: Postings(
                np.array(places, dtype=np.int64),
                np.array([frequencies[place][term] for place in places], dtype=np.int64),
            )
            for term, places in holding.items()
            if places or dice.random() < 0.5
        },
        matching_tags=np.array(held, dtype=np.int64),
        meaning=np.array(meaning),
        selected=np.array(selected),
    )
    statistics = Statistics(
        MEMORIES, sum(lengths) / MEMORIES, {term: len(places) for term, places in holding.items() if places}
    )
    words = [bm25(*one, query, statistics) for one in zip(frequencies, lengths, strict=True)]
    plain = Scores(
        meaning=np.array([one if taken else NEVER for one, taken in zip(meaning, selected, strict=True)]),
        words=np.array([one if taken else 0.0 for one, taken in zip(words, selected, strict=True)]),
        tags=np.array([one / (one + 1) if taken else 0.0 for one, taken in zip(held, selected, strict=True)]),
        ceiling=bm25_ceiling(query, statistics),
    )
    return found, plain


def ranked(leg: Sequence[float], above: float, among: Sequence[int], names: Sequence[str]) -> dict[int, int]:
    """The rank of each memory with a score above this, ties by name, from 1 to one beyond the pool."""
    order = sorted((place for place in among if leg[place] > above), key=lambda place: (-leg[place], names[place]))
    return {place: min(rank, POOL + 1) for rank, place in enumerate(order, 1)}


def order(scores: Scores, names: Sequence[str], fusion: Fusion, min_score: float | None) -> list[Ranked]:
    """The whole fused order: the pools of the rankers, then every memory that is in one."""
    legs = [leg.tolist() for leg in (scores.meaning, scores.words, scores.tags)]
    everyone = range(len(names))
    pools = [ranked(leg, above, everyone, names) for leg, above in zip(legs, (NEVER, 0.0, 0.0), strict=True)]
    among = sorted({place for pool in pools for place, rank in pool.items() if rank <= POOL})
    ranks = [ranked(leg, 0.0, among, names) for leg in legs]
    share = WEIGHT if any(legs[0][place] > NEVER for place in among) else 0.0
    found: list[Ranked] = []
    for place in among:
        meaning, words, tags = (leg[place] if place in of_leg else 0.0 for leg, of_leg in zip(legs, ranks, strict=True))
        if fusion is Fusion.rrf:
            score = sum(1.0 / (RRF_K + of_leg[place]) for of_leg in ranks if of_leg.get(place, POOL + 1) <= POOL)
        else:
            of_words = words / scores.ceiling if scores.ceiling > 0 else 0.0
            score = share * meaning + (1.0 - share) * of_words + TAG_WEIGHT * tags
        if score > 0 and score >= (min_score or 0.0):
            hits = [
                RankerHit(rank=of_leg[place], score=leg[place]) if place in of_leg else None
                for leg, of_leg in zip(legs, ranks, strict=True)
            ]
            found.append(Ranked(id=names[place], score=score, meaning=hits[0], words=hits[1], tags=hits[2]))
    return sorted(found, key=lambda one: (-one.score, one.id))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("terms", [0, 1, 3, 10])
def test_scores_over_arrays_are_those_of_each_memory(seed: int, terms: int) -> None:
    """RANK-01: BM25, tags, meaning and ceiling have the same bits computed at once as memory by memory."""
    dice = random.Random(seed)
    query = {term: dice.choice((0.05, 1.0, 2.0)) for term in ["absent", *TERMS][:terms]}
    found, plain = scored(dice, query, tagged=seed % 2 == 0)
    for name in ("meaning", "words", "tags"):
        np.testing.assert_array_equal(getattr(found, name), getattr(plain, name), err_msg=name, strict=True)
    assert found.ceiling == plain.ceiling


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("fusion", Fusion)
@pytest.mark.parametrize("terms", [0, 2, 9])
def test_the_fused_order_is_the_one_written_out(seed: int, fusion: Fusion, terms: int) -> None:
    """RANK-02: candidates, ranks, scores and ties are those of the definition, on every page and from every place."""
    dice = random.Random(100 + seed)
    scores, _ = scored(dice, dict.fromkeys(TERMS[:terms], 1.0), tagged=seed % 2 == 0)
    # Nothing by meaning, hardly anything above zero, or as it was drawn.
    scores.meaning[:] += (NEVER, -0.8, 0.0)[seed % 3]
    names = sorted((f"{dice.getrandbits(64):016x}" for _ in range(MEMORIES)), key=lambda _: dice.random())
    min_score = dice.choice((None, 0.0, 0.3))
    whole = order(scores, names, fusion, min_score)
    for places in (scores.candidates(), list(range(MEMORIES))):
        by_name = {names[place]: place for place in places}
        for offset, limit in ((0, 11), (7, 300), (0, 2 * MEMORIES)):
            page = scores.fuse(by_name, fusion=fusion, min_score=min_score, offset=offset, limit=limit)
            assert page == whole[offset : offset + limit]


@pytest.mark.parametrize("seed", range(6))
def test_candidates_are_each_pool_and_its_ties(seed: int) -> None:
    """RANK-02: the first of each ranker's scores and all that equal the last of them, ascending, and nothing else."""
    scores, _ = scored(random.Random(200 + seed), dict.fromkeys(TERMS[seed:], 1.0), tagged=True)
    expected: set[int] = set()
    for leg, above in ((scores.meaning, NEVER), (scores.words, 0.0), (scores.tags, 0.0)):
        least = sorted(leg.tolist(), reverse=True)[POOL - 1]
        expected |= {place for place, score in enumerate(leg.tolist()) if score > above and score >= least}
    assert scores.candidates() == sorted(expected)
    assert all(type(place) is int for place in scores.candidates())
