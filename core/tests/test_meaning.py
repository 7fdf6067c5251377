"""The meaning ranker: exact cosines to the last bit, estimates within their margin, and what has no score."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from numpy.typing import NDArray

from muniment import access
from muniment.ports import SearchQuery
from muniment.ranking import Fusion, PassageMatrix, Scores, cosines, lengths_of, margin
from muniment.reference import ReferenceStorage
from muniment.reference.rows import MemoryRow

NONE = -np.inf
A, B, ZERO = (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)
NO_DIRECTION = (ZERO, (np.nan, 1.0), (np.inf, 1.0), (-np.inf, np.inf))


def floats(values: object) -> NDArray[np.float32]:
    """As vectors are stored."""
    return np.array(values, dtype=np.float32)


def passages(vectors: object, owners: list[int], memories: int) -> PassageMatrix:
    """Passages of some memories."""
    rows = floats(vectors)
    return PassageMatrix(rows, lengths_of(rows), np.array(owners, dtype=np.int64), memories)


def exact(matrix: PassageMatrix, query: object) -> list[float]:
    """Every memory's cosine."""
    return matrix.compared(floats(query)).exact(np.arange(matrix.memories)).tolist()


def test_a_cosine_is_that_of_the_directions() -> None:
    """Whatever the lengths; never above 1 nor below -1."""
    found = cosines(floats([A, B, (3.0, 4.0), (-2.0, 0.0)]), floats((7.0, 0.0)))
    assert found.tolist() == [1.0, 0.0, pytest.approx(0.6), -1.0]
    rows = np.random.default_rng(7).normal(size=(500, 384)).astype(np.float32)
    own = np.array([cosines(rows[place : place + 1], row)[0] for place, row in enumerate(rows)])
    assert own.max() <= 1.0
    assert own.min() > 1.0 - 1e-15


@pytest.mark.parametrize("dimensions", [1, 2, 7, 8, 100, 129, 384, 3_072])
def test_equal_vectors_have_equal_cosines(dimensions: int) -> None:
    """To the last bit: alone, among others, at any place, and however the rows lie in memory."""
    random = np.random.default_rng(dimensions)
    vector, query = random.normal(size=(2, dimensions)).astype(np.float32)
    (alone,) = cosines(vector[np.newaxis], query).tolist()
    for count in (2, 3, 5, 8, 33):
        rows = random.normal(size=(count, dimensions)).astype(np.float32)
        for place in range(count):
            rows[place] = vector
            assert cosines(rows, query)[place] == alone
            assert cosines(np.asfortranarray(rows), query)[place] == alone
            assert cosines(np.repeat(rows, 2, axis=0)[::2], query)[place] == alone


@pytest.mark.parametrize("vector", NO_DIRECTION)
def test_what_has_no_direction_has_no_score(vector: tuple[float, float]) -> None:
    """As a passage it takes nothing from the others of its memory; as a query it is compared with nothing."""
    matrix = passages([vector, A, vector, B], [0, 0, 1, 2], 4)
    assert exact(matrix, A) == matrix.compared(floats(A)).estimates.tolist() == [1.0, NONE, 0.0, NONE]
    assert exact(matrix, vector) == matrix.compared(floats(vector)).estimates.tolist() == [NONE] * 4


@pytest.mark.parametrize("scale", [1.0, 1e-18, 1e18, 1e-30, 1e30, 1e-40])
@pytest.mark.parametrize("of_query", [1.0, 1e-30, 1e30])
@pytest.mark.parametrize("dimensions", [3, 384, 3_072])
def test_an_estimate_is_within_its_margin(scale: float, of_query: float, dimensions: int) -> None:
    """At any length that float32 can have, beside vectors of usual lengths, whatever the direction."""
    random = np.random.default_rng(dimensions)
    rows = np.abs(random.normal(size=(300, dimensions)))
    rows[::2] *= scale
    matrix = passages(rows, list(range(300)), 300)
    query = floats(rows[1] * of_query)
    known = np.array(exact(matrix, query))
    assert np.isfinite(known).all()
    assert np.abs(matrix.compared(query).estimates - known).max() < margin(dimensions)


def test_a_memory_counts_by_its_best_passage() -> None:
    """In any order of the passages; what is nobody's counts for nobody, and what is not asked for is not given."""
    matrix = passages([B, A, A, B, A], [2, -1, 0, 0, 2], 4)
    assert exact(matrix, B) == [1.0, NONE, 1.0, NONE]
    assert matrix.compared(floats(B)).estimates.tolist() == [1.0, NONE, 1.0, NONE]
    assert matrix.compared(floats(A)).exact(np.array([2, 1])).tolist() == [1.0, NONE]
    assert matrix.compared(floats(A)).exact(np.array([], dtype=np.int64)).tolist() == []


def test_memories_without_passages_have_no_scores() -> None:
    """Also where the space has none at all, so that its dimensions are not known."""
    matrix = PassageMatrix(np.zeros((0, 0), dtype=np.float32), floats([]), np.array([], dtype=np.int64), 2)
    assert matrix.compared(floats(A)).estimates.tolist() == exact(matrix, A) == [NONE, NONE]


def test_estimates_and_margin_lose_no_candidate() -> None:
    """Near ties across the end of the result are all computed exactly: the first hits are those of all."""
    random = np.random.default_rng(7)
    query = random.normal(size=384)
    rows = query + random.normal(size=(2_000, 384)) * np.repeat((1e-6, 0.5), 1_000)[:, np.newaxis]
    matrix, wanted = passages(rows, list(range(2_000)), 2_000), floats(query)
    scores = Scores(matrix.compared(wanted).estimates, np.zeros(2_000), np.zeros(2_000), ceiling=0.0)
    places = np.array(scores.candidates(blur=margin(384), wanted=10))
    scores.meaning[places] = matrix.compared(wanted).exact(places)
    found = scores.fuse(
        {f"{place:04}": int(place) for place in places}, fusion=Fusion.weighted, min_score=None, offset=0, limit=10
    )
    whole = matrix.compared(wanted).exact(np.arange(2_000))
    assert [int(one.id) for one in found] == np.argsort(-whole, kind="stable")[:10].tolist()


def test_of_passages_that_nearly_tie_the_best_one_counts() -> None:
    """However far apart their estimates are within the margin; what is clearly worse changes nothing."""
    random = np.random.default_rng(7)
    query = random.normal(size=384)
    near = query + 1e-3 * random.normal(size=(40, 50, 384))
    far = query + random.normal(size=(40, 50, 384))
    rows = floats(np.concatenate([near, far], axis=1).reshape(-1, 384))
    matrix, wanted = passages(rows, np.repeat(np.arange(40), 100).tolist(), 40), floats(query)
    best = cosines(rows, wanted).reshape(40, 100)
    assert exact(matrix, wanted) == best.max(axis=1).tolist()
    estimates = matrix.compared(wanted).found.reshape(40, 100)
    assert (estimates.argmax(axis=1) != best.argmax(axis=1)).any()


def test_the_reference_gives_no_score_to_what_has_no_direction() -> None:
    """A memory of such passages alone has none, and one with a usual passage has that one's, whichever comes first."""
    query = SearchQuery({}, frozenset(), floats(A), "s", Fusion.weighted, None, 0, 10)
    rows = [row(f"m-{n}", [ZERO, A]) for n in range(2)] + [row("m-2", [A, ZERO]), row("m-3", [ZERO])]
    assert ReferenceStorage().meaning(rows, query) == {"m-0": 1.0, "m-1": 1.0, "m-2": 1.0}


def row(memory: str, vectors: list[tuple[float, float]]) -> MemoryRow:
    """A memory with passages in the space ``s``."""
    at = datetime(2024, 1, 1, tzinfo=UTC)
    placement = access.own_placement("ann")
    found = {("s", f"h-{place}"): floats(vector) for place, vector in enumerate(vectors)}
    return MemoryRow(memory, placement, placement.scope_key, "text", (), 1, "ann", at, at, passages=found)
