"""Replies as columns: the same values as documents decoded one by one, whatever their layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bson
import numpy as np
import pytest
from bson.binary import Binary
from bson.int64 import Int64
from bson.timestamp import Timestamp

from muniment_storage_mongo.packed import Columns, reply


def document(memory: str, number: int = 1, vector: Sequence[float] = (1.0, -2.0)) -> dict[str, Any]:
    """One as a query gives it."""
    packed = Binary(np.array(vector, dtype="<f4").tobytes())
    return {"memory": memory, "terms.n": number, "big": Int64(number), "vector": packed}


def cursor(documents: Sequence[dict[str, Any]], *, identity: int = 0, batch: str = "firstBatch") -> bytes:
    """The cursor of a reply, as a server writes it in a snapshot."""
    return bson.encode({batch: documents, "atClusterTime": Timestamp(1, 1), "id": Int64(identity), "ns": "d.c"})


def of(documents: Sequence[dict[str, Any]]) -> Columns:
    """The columns of a reply."""
    found, _ = reply(cursor(documents))
    assert found is not None
    return found


def many(count: int) -> list[dict[str, Any]]:
    """Alike documents."""
    return [document(f"m{number:05}", number, (number, -number)) for number in range(count)]


@pytest.mark.parametrize(
    "documents",
    [
        [document("m1", 1), document("m2", 2), document("m3", 300)],
        [document("m1")],
        *(many(count) for count in (9, 10, 11, 99, 100, 101, 1_234)),
        [document("ü1", 4), document("m12", 5)],
        [document("short"), document("a longer one")],
        [document("m1"), {**document("m2"), "terms.n": Int64(1 << 40)}],
        [*many(10), {**document("other"), "one": "more"}],
        [*many(500), document("m00500", 1 << 40)],
        [document(""), document("")],
    ],
    ids=[
        *("alike", "one", "9", "10", "11", "99", "100", "101", "1,234", "texts of several bytes"),
        *(
            "texts of several lengths",
            "numbers of several sizes",
            "another layout after ten",
            "another size at the end",
        ),
        "no text",
    ],
)
def test_columns_are_what_the_documents_hold(documents: list[dict[str, Any]]) -> None:
    """Texts, both sizes of integers, and vectors; also of documents that were decoded before."""
    for found in (of(documents), Columns.of(documents)):
        assert found.texts("memory") == [one["memory"] for one in documents]
        assert found.numbers("terms.n").tolist() == [one["terms.n"] for one in documents]
        assert found.numbers("big").tolist() == [one["big"] for one in documents]
        vectors = found.vectors("vector")
        assert vectors.dtype == np.float32
        assert vectors.tolist() == [np.frombuffer(one["vector"], dtype="<f4").tolist() for one in documents]
        memories = {one["memory"] for one in documents}
        assert found.only("memory") == (memories.pop() if len(memories) == 1 else None)


def test_what_has_no_column_is_decoded_as_usual() -> None:
    """Beside the columns there may be values of any type, one whose size BSON does not say among them."""
    documents = [{"a": bson.Regex("x"), "memory": memory, "list": [1]} for memory in ("m1", "m2")]
    assert of(documents).texts("memory") == ["m1", "m2"]


def test_alike_sizes_are_not_alike_layouts() -> None:
    """Documents of one size whose values stand elsewhere are told apart by what stands between the values."""
    first, second = {"a": "xxxx", "b": "y"}, {"a": "x", "b": "yyyy"}
    assert len(bson.encode(first)) == len(bson.encode(second))
    found = of([first, second])
    assert (found.texts("a"), found.texts("b")) == (["xxxx", "x"], ["y", "yyyy"])


def test_sizes_that_even_out_are_told_apart() -> None:
    """Two documents of other sizes that together are as long as two alike ones."""
    found = of([{"a": "xxxx"}, {"a": "xxxxx"}, {"a": "xxx"}])
    assert found.texts("a") == ["xxxx", "xxxxx", "xxx"]


def test_a_reply_says_what_follows() -> None:
    """The cursor's id, in a first and in a later batch; an empty batch has no columns."""
    identity = -(1 << 40)
    for batch in ("firstBatch", "nextBatch"):
        found, following = reply(memoryview(cursor(many(3), identity=identity, batch=batch)))
        assert (found.texts("memory") if found else None, following) == (["m00000", "m00001", "m00002"], identity)
        assert reply(cursor([], batch=batch)) == (None, 0)
