"""Agent memory as only a real database can get it wrong: races, old snapshots, several processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import psycopg
import pytest

from muniment.agent_models import AckOutcome, SectionName, Visibility
from muniment.errors import VersionConflict
from muniment.models import Agent
from muniment.ports import Claim, NewEvent, SectionChange, SectionsWrite
from muniment_storage_postgres.storage import PostgresStorage

Clients = Callable[..., PostgresStorage]


@pytest.fixture
async def other(storage: PostgresStorage, clients: Clients) -> AsyncGenerator[PostgresStorage]:
    """Another client on the same data."""
    made = clients()
    await made.open()
    yield made
    await made.close()


async def entries(raw: psycopg.AsyncConnection[Any], agent: Agent) -> list[int]:
    """The revisions of the stored rows."""
    cursor = await raw.execute("SELECT revision FROM exchange WHERE agent_name = %s ORDER BY 1", (agent.name,))
    return [row[0] for row in await cursor.fetchall()]


async def test_200_writers_of_two_processes_lose_nothing(
    storage: PostgresStorage, raw: Any, calls: Any, processes: Any
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


async def test_the_cap_holds_although_a_statement_trims_by_an_old_snapshot(
    storage: PostgresStorage, raw: Any, url: str, schema: str, calls: Any
) -> None:
    """Appends that waited for one another see none of each other's entries; still no more than the cap is kept."""
    await storage.append_exchange(calls.append(calls.ann, key="first", kept=2))
    async with await psycopg.AsyncConnection.connect(url) as holder:
        await holder.execute(f"SET search_path = {schema}, public".encode())
        await holder.execute("SELECT FROM envelope FOR UPDATE")
        waiting = [storage.append_exchange(calls.append(calls.ann, key=f"k{number}", kept=2)) for number in range(8)]
        tasks = [asyncio.ensure_future(one) for one in waiting]
        await asyncio.sleep(0.5)
        assert not any(task.done() for task in tasks)
        await holder.commit()
    assert sorted([(await task).revisions[0] or 0 for task in tasks]) == list(range(2, 10))
    facts = await storage.load_envelope(calls.ann, exchanges=True)
    assert [stored.exchange.revision for stored in facts.exchanges] == [9, 8]
    assert await entries(raw, calls.ann) == [8, 9]


async def test_what_the_cap_took_is_gone_though_its_row_is_there(
    storage: PostgresStorage, raw: Any, calls: Any
) -> None:
    """Neither a read nor a digest shows a row that a trim has missed."""
    for number in range(3):
        await storage.append_exchange(calls.append(calls.ann, key=f"k{number}", kept=2))
    await raw.execute(
        "INSERT INTO exchange SELECT agent_name, instance_id, 1, at, kind, surface_pod_id, surface_label,"
        " peers, takeaway, size FROM exchange WHERE revision = 2"
    )
    facts = await storage.load_envelope(calls.ann, exchanges=True)
    assert [stored.exchange.revision for stored in facts.exchanges] == [3, 2]
    digest = (await storage.claim(Claim(calls.ann, ["t"], calls.hour, 5))).digest
    assert ([entry.revision for entry in digest.entries], digest.evicted) == ([2, 3], 1)


async def test_opposite_pairs_at_once_end_in_both(storage: PostgresStorage, other: PostgresStorage, calls: Any) -> None:
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
    storage: PostgresStorage, other: PostgresStorage, raw: Any, calls: Any
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


async def test_first_writes_at_once_have_one_winner(
    storage: PostgresStorage, other: PostgresStorage, calls: Any
) -> None:
    """Both write a section for the first time, or the same version of it: one is refused with all of its changes."""

    async def write(client: PostgresStorage, agent: Agent, version: int, text: str, own: SectionName) -> bool:
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


async def test_32_workers_have_one_winner_per_event(
    storage: PostgresStorage, other: PostgresStorage, calls: Any
) -> None:
    """100 events of one agent: every worker claims until nothing is left, and each event is claimed once."""
    for number in range(100):
        await storage.enqueue(NewEvent(f"e{number}", calls.ann, {}))
    got: list[str] = []

    async def work(client: PostgresStorage, worker: int) -> None:
        turn = 0
        while taken := await calls.take(client, calls.ann, f"{worker}-{turn}a", f"{worker}-{turn}b"):
            assert taken == sorted(taken, key=lambda event: int(event[1:]))
            got.extend(taken)
            turn += 1

    await asyncio.gather(*(work(client, worker) for worker, client in enumerate([storage, other] * 16)))
    assert sorted(got) == sorted(f"e{number}" for number in range(100))


async def test_events_that_lapsed_come_before_those_that_wait(storage: PostgresStorage, raw: Any, calls: Any) -> None:
    """The order is that of enqueueing, whatever happened to an event; 8 claims at once leave none of them out."""
    for number in range(9):
        await storage.enqueue(NewEvent(f"e{number}", calls.ann, {}))
    assert await calls.take(storage, calls.ann, "a", "b", "c") == ["e0", "e1", "e2"]
    assert await storage.ack(calls.ann, "e1", "b") is AckOutcome.ACKNOWLEDGED
    await calls.lapse(raw)
    taken = await asyncio.gather(*(calls.take(storage, calls.ann, f"t{number}") for number in range(8)))
    assert sorted(event for one in taken for event in one) == ["e0", *(f"e{number}" for number in range(2, 9))]


async def after(steps: int, call: Awaitable[Any]) -> Any:
    """What a call answers that begins so many half milliseconds later."""
    await asyncio.sleep(steps * 0.0005)
    return await call


async def test_an_acknowledgement_and_a_claim_of_one_lapsed_event_agree(
    storage: PostgresStorage, other: PostgresStorage, raw: Any, calls: Any
) -> None:
    """Either it is acknowledged and not claimed, or claimed and the old token is stale; so it is with extending."""
    outcomes: set[AckOutcome] = set()
    for turn in range(60):
        event = f"e{turn}"
        await storage.enqueue(NewEvent(event, calls.ann, {}))
        await storage.append_exchange(calls.append(calls.ann, key=event))
        before = (await storage.load_envelope(calls.ann)).last_seen_revision
        await calls.take(storage, calls.ann, f"old{turn}")
        await calls.lapse(raw)
        racing: list[Any] = [
            after(turn % 6, storage.ack(calls.ann, event, f"old{turn}")),
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
    storage: PostgresStorage, other: PostgresStorage, calls: Any
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
