"""Agent memory as only MongoDB can get it wrong: what is stored together, names and numbers, limits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from bson import Timestamp

from muniment import limits
from muniment.agent_models import SectionName, Visibility
from muniment.conformance.agent_calls import ANN, BOB, HOUR, exchange, take
from muniment.ports import (
    Appended,
    Claim,
    ExchangeAppend,
    NewEvent,
    ReceiptClaim,
    ReceiptTaken,
    SectionChange,
    SectionsWrite,
)
from muniment_storage_mongo.storage import MongoStorage


async def test_what_cannot_be_stored_does_not_undo_what_waits_with_it(storage: MongoStorage) -> None:
    """Of appends that are stored together one repeats a dedupe key and one an idempotency key: the others are kept."""
    await storage.append_exchange(exchange(ANN, key="used"))
    claim = ReceiptClaim("platform", "key", "body", "subject", {})
    await storage.append_exchange(replace(exchange(BOB, key="claimed"), claim=claim))
    answers = await asyncio.gather(
        *(storage.append_exchange(exchange(ANN, key=key)) for key in ("k1", "used", "k2", "k2")),
        storage.append_exchange(replace(exchange(ANN, key="k3"), claim=claim)),
        storage.append_exchange(exchange(ANN, key="k4")),
        return_exceptions=True,
    )
    assert isinstance(answers[4], ReceiptTaken)
    kept = [one for one in answers if isinstance(one, Appended)]
    assert [(one.revisions, one.deduped) for one in kept] == [
        ((2,), False),
        ((1,), True),
        ((3,), False),
        ((3,), True),
        ((4,), False),
    ]


async def test_a_caller_that_gives_up_does_not_take_others_along(storage: MongoStorage) -> None:
    """Ten append at once and five are cancelled: the others have their answers, and no revision is missing."""
    tasks = [asyncio.ensure_future(storage.append_exchange(exchange(ANN, key=f"k{number}"))) for number in range(10)]
    await asyncio.sleep(0.001)
    for task in tasks[::2]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, Appended) for one in answers[1::2])
    last = await storage.append_exchange(exchange(ANN, key="last"))
    facts = await storage.load_envelope(ANN, exchanges=True)
    assert [one.exchange.revision for one in facts.exchanges] == list(range(last.revisions[0] or 0, 0, -1))


async def test_values_come_back_as_they_were_sent(storage: MongoStorage) -> None:
    """Names that mean something to the server, numbers beyond its own, and texts that begin with a dollar."""
    value = {"$set": {"a.b": "$revision"}, "": [2**70, -0.0, 1e23, 5e-324], "\x00": None, "_id": "$$NOW"}
    changes = (SectionChange(SectionName.SOUL, value, Visibility.PRIVATE, 99, 0),)
    await storage.write_sections(SectionsWrite(ANN, changes, sync_key="$revision"))
    facts = await storage.load_envelope(ANN)
    assert repr(facts.sections[SectionName.SOUL].value) == repr(value)
    assert facts.sync_key == "$revision"
    await storage.enqueue(NewEvent("e1", ANN, value))
    draft = replace(exchange(ANN, key="$k").entries[0], takeaway="$$NOW", surface_label="$last_seen")
    await storage.append_exchange(ExchangeAppend((draft,), "$k", 50))
    claimed = await storage.claim(Claim(ANN, ["t"], HOUR, 5))
    assert repr(claimed.events[0].payload) == repr(value)
    (entry,) = claimed.digest.entries
    assert (entry.takeaway, entry.surface_label) == ("$$NOW", "$last_seen")


async def test_all_sections_at_their_limit_fit(storage: MongoStorage) -> None:
    """Every section as large as it may be, beside a full list of exchanges."""
    text = "\u00fc" * (limits.SECTION_BYTES_MAX // 2 - 1)
    names = [name for name in SectionName if name is not SectionName.SYSTEM_EXCHANGES]
    for number in range(limits.EXCHANGES_KEPT):
        draft = replace(exchange(ANN, key=f"k{number}").entries[0], takeaway="\u00fc" * 1_200)
        await storage.append_exchange(ExchangeAppend((draft,), f"k{number}", limits.EXCHANGES_KEPT))
    changes = (SectionChange(name, text, Visibility.PRIVATE, limits.SECTION_BYTES_MAX, 0) for name in names)
    await storage.write_sections(SectionsWrite(ANN, tuple(changes)))
    assert (await storage.append_exchange(exchange(ANN, key="last"))).revisions == (51,)
    facts = await storage.load_envelope(ANN, exchanges=True)
    assert {len(one.value) for one in facts.sections.values()} == {len(text)}
    assert len(facts.exchanges) == limits.EXCHANGES_KEPT


async def test_a_claim_looks_at_what_waits_and_not_at_what_was(storage: MongoStorage, raw: Any) -> None:
    """With acknowledged and dead events by the hundred, and many pending, a claim examines a handful of keys."""
    old = [
        {
            "_id": {"agent": "ann 1", "id": f"{state}{number}"},
            "number": Timestamp(1, number + 1),
            "enqueued_at": datetime(2026, 1, 1, tzinfo=UTC),
            "payload": "{}",
            "state": state,
            "attempts": attempts,
            "token": f"{state}{number}",
            "lease_until": datetime(2026, 1, 1, tzinfo=UTC),
            "delivered": None,
        }
        for state, attempts in (("acked", 1), ("delivered", 5))
        for number in range(300)
    ]
    await raw.events.insert_many(old)
    for number in range(60):
        await storage.enqueue(NewEvent(f"e{number}", ANN, {}))
    await raw.command({"profile": 2})
    assert await take(storage, ANN, "t1", "t2") == ["e0", "e1"]
    await raw.command({"profile": 0})
    looked = await raw["system.profile"].find({"op": "command", "command.aggregate": "events"}).to_list()
    assert [one["docsExamined"] <= 4 and one["keysExamined"] <= 8 for one in looked] == [True]
