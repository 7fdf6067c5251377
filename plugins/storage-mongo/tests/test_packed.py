"""Raw batches as columns: the same values as documents decoded one by one, whatever their layout."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.int64 import Int64

from muniment_storage_mongo.packed import columns


def document(memory: str, number: int = 1) -> dict[str, Any]:
    """One as a query gives it."""
    return {"memory": memory, "terms.n": number, "big": Int64(number)}


ALIKE = [document("m1", 1), document("m2", 2), document("m3", 300)]


@pytest.mark.parametrize(
    "documents",
    [
        ALIKE,
        [document("m1")],
        [document("ü1", 4), document("m12", 5)],
        [document("short"), document("a longer one")],
        [document("m1"), {**document("m2"), "terms.n": Int64(1 << 40)}],
        [document(""), document("")],
    ],
    ids=["alike", "one", "texts of several bytes", "texts of several lengths", "numbers of several sizes", "no text"],
)
def test_columns_are_what_the_documents_hold(documents: list[dict[str, Any]]) -> None:
    """Texts, and both sizes of integers."""
    found = columns(b"".join(map(bson.encode, documents)))
    assert found.texts("memory") == [one["memory"] for one in documents]
    assert found.numbers("terms.n").tolist() == [one["terms.n"] for one in documents]
    assert found.numbers("big").tolist() == [one["big"] for one in documents]
    memories = {one["memory"] for one in documents}
    assert found.only("memory") == (memories.pop() if len(memories) == 1 else None)


def test_alike_sizes_are_not_alike_layouts() -> None:
    """Documents of one size whose values stand elsewhere are told apart by what stands between the values."""
    first, second = {"a": "xxxx", "b": "y"}, {"a": "x", "b": "yyyy"}
    assert len(bson.encode(first)) == len(bson.encode(second))
    found = columns(bson.encode(first) + bson.encode(second))
    assert (found.texts("a"), found.texts("b")) == (["xxxx", "x"], ["y", "yyyy"])
