"""Agent memory as only a real database can get it wrong: races, write conflicts, several processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Timestamp

from muniment import limits
from muniment.agent_models import AckOutcome, SectionName, Visibility
from muniment.errors import VersionConflict
from muniment.models import Agent
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
from muniment_storage_mongo import agent_probe
from muniment_storage_mongo.storage import MongoStorage

Clients = Callable[..., MongoStorage]


@pytest.fixture
async def other(storage: MongoStorage, clients: Clients) -> AsyncGenerator[MongoStorage]:
    """Another client on the same data."""
    made = clients()
    await made.open()
    yield made
    await made.close()


async def entries(raw: Any, agent: Agent) -> list[int]:
    """The revisions of the stored entries, oldest first."""
    envelope = await raw.envelopes.find_one({"_id": f"{agent.name} {agent.instance}"})
    return [entry["revision"] for entry in reversed(envelope["exchanges"])]


async def test_200_writers_of_two_processes_lose_nothing(
    storage: MongoStorage, raw: Any, calls: Any, processes: Any
) -> None:
    """200 appends at once to one agent: 200 revisions without a gap, and exactly the last 50 entries."""
    both = [await processes() for _ in range(2)]
    orders = (calls.tell(process, f"append ann p{number}- 100") for number, process in enumerate(both))
    answers = await asyncio.gather(*orders)
    assert sorted(int(revision) for answer in answers for revision in answer) == list(range(1, 201))
    facts = await storage.load_envelope(calls.ann, exchanges=True)
    assert facts.revision == 200
    assert [stored.exchange.revision for stored in facts.exchanges] == list(range(200, 150, -1))
    assert await entries(raw, calls.ann) == list(range(151, 201))


async def test_opposite_pairs_at_once_end_in_both(storage: MongoStorage, other: MongoStorage, calls: Any) -> None:
    """Two agents that are new, and then known, written in opposite orders by two clients: never a deadlock."""
    for turn in range(40):
        pair = [Agent(name=f"{name}{turn}", instance="1") for name in "xy"]
        for again in range(2):
            both = [
                client.append_exchange(calls.append(*order, key=f"{client_number}-{again}-{one}"))
                for one in range(3)
                for client_number, (client, order) in enumerate(((storage, pair), (other, pair[::-1])))
            ]
            async with asyncio.timeout(20):
                appended = await asyncio.gather(*both)
            assert all(len(set(one.revisions)) == 1 for one in appended)
        revisions = [(await storage.load_envelope(agent)).revision for agent in pair]
        assert revisions == [12, 12]


async def test_one_dedupe_key_at_once_is_one_entry(
    storage: MongoStorage, other: MongoStorage, raw: Any, calls: Any
) -> None:
    """Of 16 appends with one key, one counts; all answer with its revision."""
    for turn in range(10):
        made = [
            client.append_exchange(calls.append(calls.ann, calls.bob, key=f"k{turn}"))
            for client in [storage, other] * 8
        ]
        answers = await asyncio.gather(*made)
        assert [one.deduped for one in answers].count(False) == 1
        assert {one.revisions for one in answers} == {(turn + 1, turn + 1)}
    assert await entries(raw, calls.ann) == list(range(1, 11))


async def test_first_writes_at_once_have_one_winner(storage: MongoStorage, other: MongoStorage, calls: Any) -> None:
    """Both write a section for the first time, or the same version of it: one is refused with all of its changes."""

    async def write(client: MongoStorage, agent: Agent, version: int, text: str, own: SectionName) -> bool:
        changes = tuple(
            SectionChange(name, text, Visibility.PRIVATE, 5, expected)
            for name, expected in ((own, 0), (SectionName.SHARED, version))
        )
        try:
            await client.write_sections(SectionsWrite(agent, changes))
        except VersionConflict as error:
            return error.current_version != version + 1
        return True

    for turn in range(30):
        agent = Agent(name=f"agent{turn}", instance="1")
        names = [SectionName.SOUL, SectionName.LONG_TERM, SectionName.DAILY, SectionName.CYCLES]
        for version in range(2):
            owned = names[2 * version :][:2]
            won = await asyncio.gather(
                *(write(one, agent, version, name, name) for one, name in zip((storage, other), owned, strict=True))
            )
            assert sorted(won) == [False, True]
        sections = (await storage.load_envelope(agent)).sections
        assert len(sections) == 3
        assert sections[SectionName.SHARED].version == 2


async def test_32_workers_have_one_winner_per_event(storage: MongoStorage, other: MongoStorage, calls: Any) -> None:
    """100 events of one agent: every worker claims until nothing is left, and each event is claimed once."""
    for number in range(100):
        await storage.enqueue(NewEvent(f"e{number}", calls.ann, {}))
    got: list[str] = []

    async def work(client: MongoStorage, worker: int) -> None:
        turn = 0
        while taken := await calls.take(client, calls.ann, f"{worker}-{turn}a", f"{worker}-{turn}b"):
            assert taken == sorted(taken, key=lambda event: int(event[1:]))
            got.extend(taken)
            turn += 1

    await asyncio.gather(*(work(client, worker) for worker, client in enumerate([storage, other] * 16)))
    assert sorted(got) == sorted(f"e{number}" for number in range(100))


async def test_events_that_lapsed_come_before_those_that_wait(storage: MongoStorage, raw: Any, calls: Any) -> None:
    """The order is that of enqueueing, whatever happened to an event; 8 claims at once leave none of them out."""
    for number in range(9):
        await storage.enqueue(NewEvent(f"e{number}", calls.ann, {}))
    assert await calls.take(storage, calls.ann, "a", "b", "c") == ["e0", "e1", "e2"]
    assert await storage.ack(calls.ann, "e1", "b") is AckOutcome.ACKNOWLEDGED
    await agent_probe.age(raw, 3600)
    taken = await asyncio.gather(*(calls.take(storage, calls.ann, f"t{number}") for number in range(8)))
    assert sorted(event for one in taken for event in one) == ["e0", *(f"e{number}" for number in range(2, 9))]


async def after(steps: int, call: Awaitable[Any]) -> Any:
    """What a call answers that begins so many half milliseconds later."""
    await asyncio.sleep(steps * 0.0005)
    return await call


async def test_an_acknowledgement_and_a_claim_of_one_lapsed_event_agree(
    storage: MongoStorage, other: MongoStorage, raw: Any, calls: Any
) -> None:
    """Either it is acknowledged and not claimed, or claimed and the old token is stale; so it is with extending."""
    outcomes: set[AckOutcome] = set()
    for turn in range(60):
        event = f"e{turn}"
        await storage.enqueue(NewEvent(event, calls.ann, {}))
        await storage.append_exchange(calls.append(calls.ann, key=event))
        before = (await storage.load_envelope(calls.ann)).last_seen_revision
        await calls.take(storage, calls.ann, f"old{turn}")
        await agent_probe.age(raw, 3600)
        racing: list[Any] = [
            after(turn % 20, storage.ack(calls.ann, event, f"old{turn}")),
            after(2, calls.take(other, calls.ann, f"new{turn}")),
        ]
        outcome, taken = await asyncio.gather(*racing)
        outcomes.add(outcome)
        assert (outcome, taken) in [(AckOutcome.ACKNOWLEDGED, []), (AckOutcome.STALE_RECEIPT, [event])]
        seen = (await storage.load_envelope(calls.ann)).last_seen_revision
        assert seen == (turn + 1 if outcome is AckOutcome.ACKNOWLEDGED else before)
        if taken:
            extended, acked = await asyncio.gather(
                storage.extend(calls.ann, event, f"new{turn}", calls.hour), other.ack(calls.ann, event, f"new{turn}")
            )
            assert acked is AckOutcome.ACKNOWLEDGED
            assert extended[0] in {AckOutcome.ACKNOWLEDGED, AckOutcome.ALREADY_ACKED}
    assert len(outcomes) == 2, "one side won every race, so the other was not tried"


async def test_acknowledgements_at_once_end_at_the_maximum(
    storage: MongoStorage, other: MongoStorage, calls: Any
) -> None:
    """20 deliveries with growing digests, acknowledged all at once and twice: one of two counts, the highest stays."""
    for number in range(20):
        await storage.enqueue(NewEvent(f"e{number}", calls.ann, {}))
        await storage.append_exchange(calls.append(calls.ann, key=f"k{number}"))
        await calls.take(storage, calls.ann, f"t{number}")
    acks = [client.ack(calls.ann, f"e{number}", f"t{number}") for number in range(20) for client in (storage, other)]
    outcomes = await asyncio.gather(*acks)
    for first, second in zip(outcomes[::2], outcomes[1::2], strict=True):
        assert sorted([first, second]) == [AckOutcome.ACKNOWLEDGED, AckOutcome.ALREADY_ACKED]
    assert (await storage.load_envelope(calls.ann)).last_seen_revision == 20


async def test_many_pairs_with_one_agent_among_them(
    storage: MongoStorage, other: MongoStorage, raw: Any, calls: Any
) -> None:
    """60 agents each end a conversation with the same one at the same moment: all are written, to both sides."""
    peers = [Agent(name=f"peer{number}", instance="a/b") for number in range(60)]
    clients = [storage, other] * 30
    made = [
        client.append_exchange(calls.append(peer, calls.ann, key=peer.name))
        for client, peer in zip(clients, peers, strict=True)
    ]
    async with asyncio.timeout(60):
        appended = await asyncio.gather(*made)
    assert sorted(one.revisions[1] or 0 for one in appended) == list(range(1, 61))
    assert {one.revisions[0] for one in appended} == {1}
    assert await raw.exchange_keys.count_documents({}) == 120


async def test_what_cannot_be_stored_does_not_undo_what_waits_with_it(storage: MongoStorage, calls: Any) -> None:
    """Of appends that are stored together one repeats a dedupe key and one an idempotency key: the others are kept."""
    await storage.append_exchange(calls.append(calls.ann, key="used"))
    claim = ReceiptClaim("platform", "key", "body", "subject", {})
    await storage.append_exchange(replace(calls.append(calls.bob, key="claimed"), claim=claim))
    answers = await asyncio.gather(
        *(storage.append_exchange(calls.append(calls.ann, key=key)) for key in ("k1", "used", "k2", "k2")),
        storage.append_exchange(replace(calls.append(calls.ann, key="k3"), claim=claim)),
        storage.append_exchange(calls.append(calls.ann, key="k4")),
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


async def test_a_caller_that_gives_up_does_not_take_others_along(storage: MongoStorage, calls: Any) -> None:
    """Ten append at once and five are cancelled: the others have their answers, and no revision is missing."""
    tasks = [
        asyncio.ensure_future(storage.append_exchange(calls.append(calls.ann, key=f"k{number}")))
        for number in range(10)
    ]
    await asyncio.sleep(0.001)
    for task in tasks[::2]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, Appended) for one in answers[1::2])
    last = await storage.append_exchange(calls.append(calls.ann, key="last"))
    facts = await storage.load_envelope(calls.ann, exchanges=True)
    assert [one.exchange.revision for one in facts.exchanges] == list(range(last.revisions[0] or 0, 0, -1))


async def test_values_come_back_as_they_were_sent(storage: MongoStorage, calls: Any) -> None:
    """Names that mean something to the server, numbers beyond its own, and texts that begin with a dollar."""
    value = {"$set": {"a.b": "$revision"}, "": [2**70, -0.0, 1e23, 5e-324], "\x00": None, "_id": "$$NOW"}
    changes = (SectionChange(SectionName.SOUL, value, Visibility.PRIVATE, 99, 0),)
    await storage.write_sections(SectionsWrite(calls.ann, changes, sync_key="$revision"))
    facts = await storage.load_envelope(calls.ann)
    assert repr(facts.sections[SectionName.SOUL].value) == repr(value)
    assert facts.sync_key == "$revision"
    await storage.enqueue(NewEvent("e1", calls.ann, value))
    draft = replace(calls.append(calls.ann, key="$k").entries[0], takeaway="$$NOW", surface_label="$last_seen")
    await storage.append_exchange(ExchangeAppend((draft,), "$k", 50))
    claimed = await storage.claim(Claim(calls.ann, ["t"], calls.hour, 5))
    assert repr(claimed.events[0].payload) == repr(value)
    (entry,) = claimed.digest.entries
    assert (entry.takeaway, entry.surface_label) == ("$$NOW", "$last_seen")


async def test_all_sections_at_their_limit_fit(storage: MongoStorage, calls: Any) -> None:
    """Every section as large as it may be, beside a full list of exchanges."""
    text = "\u00fc" * (limits.SECTION_BYTES_MAX // 2 - 1)
    names = [name for name in SectionName if name is not SectionName.SYSTEM_EXCHANGES]
    for number in range(limits.EXCHANGES_KEPT):
        draft = replace(calls.append(calls.ann, key=f"k{number}").entries[0], takeaway="\u00fc" * 1_200)
        await storage.append_exchange(ExchangeAppend((draft,), f"k{number}", limits.EXCHANGES_KEPT))
    changes = (SectionChange(name, text, Visibility.PRIVATE, limits.SECTION_BYTES_MAX, 0) for name in names)
    await storage.write_sections(SectionsWrite(calls.ann, tuple(changes)))
    assert (await storage.append_exchange(calls.append(calls.ann, key="last"))).revisions == (51,)
    facts = await storage.load_envelope(calls.ann, exchanges=True)
    assert {len(one.value) for one in facts.sections.values()} == {len(text)}
    assert len(facts.exchanges) == limits.EXCHANGES_KEPT


async def test_a_claim_looks_at_what_waits_and_not_at_what_was(storage: MongoStorage, raw: Any, calls: Any) -> None:
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
        await storage.enqueue(NewEvent(f"e{number}", calls.ann, {}))
    await raw.command({"profile": 2})
    assert await calls.take(storage, calls.ann, "t1", "t2") == ["e0", "e1"]
    await raw.command({"profile": 0})
    looked = await raw["system.profile"].find({"op": "command", "command.aggregate": "events"}).to_list()
    assert [one["docsExamined"] <= 4 and one["keysExamined"] <= 8 for one in looked] == [True]
