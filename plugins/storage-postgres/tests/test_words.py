"""Words that are kept in mind, by themselves: whoever holds a key is found, however the memories came and went."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np
import pytest

from muniment_storage_postgres import words
from muniment_storage_postgres.arrays import Numbers
from muniment_storage_postgres.keys import FREQUENCY_BITS
from muniment_storage_postgres.words import Entries, Words

Held = Mapping[int, int]
"""How often each key is held."""
KEYS = np.arange(40)


def entries(memories: Mapping[int, Held]) -> Entries:
    """As the server would answer, in no order; a memory's length is its number of keys."""
    packed = [key << FREQUENCY_BITS | count for held in memories.values() for key, count in held.items()]
    counts = np.array([len(held) for held in memories.values()], dtype=np.int64)
    return Entries(np.array([*memories], dtype=np.int64), counts, counts, np.array(packed, dtype=np.int64))


def holders(kept: Words, keys: Numbers) -> dict[int, Held]:
    """What is kept, by memory."""
    part = kept.part(1, keys)
    held: dict[int, dict[int, int]] = {number: {} for number in part.numbers.tolist()}
    for key, of_key in zip(keys.tolist(), part.postings, strict=True):
        for place, frequency in zip(of_key.places.tolist(), of_key.frequencies.tolist(), strict=True):
            held[int(part.numbers[place])][key] = frequency
    return dict(held)


@pytest.mark.parametrize("segment", [20, 1 << 18])
def test_a_history_is_kept_as_it_is(segment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memories that come, change and go, with segments that are put together and slots that are given back."""
    monkeypatch.setattr(words, "_SEGMENT", segment)
    monkeypatch.setattr(words, "_GONE_SLOTS", 5)
    dice = Random(segment)
    there: dict[int, Held] = {}
    kept = Words.of(1, 0, entries(there))

    def drawn() -> Held:
        return {key: dice.randint(1, 9) for key in dice.sample(KEYS.tolist(), dice.randint(0, 12))}

    for step in range(150):
        chosen = dice.sample(range(60), dice.randint(0, 4))
        there |= (changed := {memory: drawn() for memory in chosen})
        kept = kept.with_changes(step, entries(changed))
        for memory in dice.sample(sorted(there), min(len(there), dice.randint(0, 3))):
            del there[memory]
        kept = kept.only(np.array([*there], dtype=np.int64))
        assert (kept.live, kept.seen) == (len(there), step)
        assert holders(kept, KEYS) == there
    part = kept.part(1, KEYS)
    assert part.numbers.tolist() == sorted(there)
    assert part.lengths.tolist() == [len(there[number]) for number in sorted(there)]
    assert len(kept.content.memories) <= 2 * len(there) + 5
    if segment > 20:
        assert len(kept.content.segments) <= 1 + int(np.log2(sum(map(len, there.values()))))


def test_keys_that_nobody_holds_have_no_holders() -> None:
    """Whether they lie between keys that are held or beyond them, and where there are no keys at all."""
    kept = Words.of(1, 0, entries({7: {10: 1, 30: 2}}))
    assert [len(one.places) for one in kept.part(1, np.array([0, 10, 20, 30, 40])).postings] == [0, 1, 0, 1, 0]
    assert kept.part(1, np.zeros(0, dtype=np.int64)).postings == []
    assert [len(one.places) for one in Words.of(1, 0, entries({7: {}})).part(1, KEYS[:2]).postings] == [0, 0]
    assert [len(one.places) for one in Words.of(1, 0, entries({})).part(1, KEYS[:2]).postings] == [0, 0]
