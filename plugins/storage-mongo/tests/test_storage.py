"""What the suite cannot see from the engine: races of background vectors, expired keys, large memories, any text."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from muniment import access, lexical, limits
from muniment.errors import NotFound, StorageUnavailable, VersionConflict
from muniment.models import Access, Share
from muniment.ports import (
    Audience,
    AuditDraft,
    Index,
    NewProject,
    Passages,
    PassageVector,
    ReceiptClaim,
    ReceiptTaken,
    Remove,
    SearchQuery,
    Selector,
    ShareChange,
    Space,
)
from muniment.ranking import Fusion
from muniment_storage_mongo.storage import MongoStorage

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)
ANN = Audience("ann")


async def test_background_vectors_never_survive_an_edit_that_overtook_them(
    storage: MongoStorage, writer: Any, raw: Any
) -> None:
    """An edit that meets background vectors on their way waits for them, and drops them."""
    await storage.apply(writer.create("m1", "first", index=writer.index("first", ("old",))))
    async with raw.client.start_session() as session, await session.start_transaction():
        await raw.memories.update_one({"_id": "m1"}, {"$set": {"embedded_in.spaces": []}}, session=session)
        late = {"scope_key": "u:ann", "memory": "m1", "space": SPACE.id, "hash": "late", "vector": b"\0" * 32}
        await raw.passages.insert_one(late, session=session)
        edit = asyncio.ensure_future(storage.apply(writer.edit("m1", 1, "second", writer.index("second", ("new",)))))
        await asyncio.sleep(0.3)
        assert not edit.done()
    assert (await edit).version == 2
    facts = await storage.load(ANN, "m1", space=SPACE.id)
    assert facts is not None
    assert facts.passages == {"new"}
    assert await raw.passages.count_documents({}) == 1


async def test_background_vectors_for_an_old_version_are_dropped(storage: MongoStorage, writer: Any, raw: Any) -> None:
    """Only the version that was read may get them; they change neither version nor times, and a refusal nothing."""
    await storage.apply(writer.create("m1", "first"))
    before = await storage.load(ANN, "m1", space=SPACE.id)
    late = Passages(SPACE.id, frozenset({"x"}), (PassageVector("x", np.ones(8, dtype=np.float32)),), complete=False)
    lanes = await raw.lanes.find().to_list()
    assert not await storage.store_passages("m1", 2, late)
    assert await raw.lanes.find().to_list() == lanes
    assert await storage.store_passages("m1", 1, late)
    after = await storage.load(ANN, "m1", space=SPACE.id)
    assert before is not None
    assert after is not None
    assert (after.memory, after.passages, after.embedded) == (before.memory, {"x"}, False)
    assert [one.memory_id for one in await storage.unembedded(SPACE.id, limit=9)] == ["m1"]


async def test_a_memory_complete_in_two_spaces_waits_in_neither(storage: MongoStorage, writer: Any) -> None:
    """Whichever was completed last."""
    await storage.register_space(replace(SPACE, id="other:8"), np.eye(8, dtype=np.float32)[:2])
    await storage.apply(writer.create("m1", "first"))
    other = Passages("other:8", frozenset({"x"}), (PassageVector("x", np.ones(8, dtype=np.float32)),), complete=True)
    assert await storage.unembedded("other:8", limit=9)
    assert await storage.store_passages("m1", 1, other)
    assert await storage.unembedded("other:8", limit=9) == []
    assert await storage.unembedded(SPACE.id, limit=9) == []
    facts = await storage.load(ANN, "m1", space=SPACE.id)
    assert facts is not None
    assert (facts.passages, facts.embedded) == ({"h"}, True)


async def test_an_idempotency_key_is_kept_its_time_and_no_longer(storage: MongoStorage, writer: Any, raw: Any) -> None:
    """Until then it is taken; afterwards it is free although the server has not cleared it away."""
    claim = ReceiptClaim("ann", "$key.1", "body", "m1", {"version": 1, "a.b": "$c"})
    await storage.apply(writer.create("m1", claim=claim))
    kept = await storage.find_receipt("ann", "$key.1")
    assert kept is not None
    assert (kept.subject, kept.receipt) == ("m1", claim.receipt)
    with pytest.raises(ReceiptTaken):
        await storage.apply(writer.create("m2", claim=claim))
    assert await storage.load(ANN, "m2") is None
    almost = datetime.now(UTC) - limits.IDEMPOTENCY_KEPT + timedelta(seconds=30)
    await raw.receipts.update_one({}, {"$set": {"at": almost}})
    with pytest.raises(ReceiptTaken):
        await storage.apply(writer.create("m2", claim=claim))
    await raw.receipts.update_one({}, {"$set": {"at": almost - timedelta(seconds=60)}})
    assert await storage.find_receipt("ann", "$key.1") is None
    await storage.apply(writer.create("m2", claim=ReceiptClaim("ann", "$key.1", "body", "m2", {})))
    kept = await storage.find_receipt("ann", "$key.1")
    assert kept is not None
    assert kept.subject == "m2"


async def test_a_key_that_is_taken_is_told_before_a_conflict(storage: MongoStorage, writer: Any) -> None:
    """The second of two equal edits learns that the first one was its own."""
    await storage.apply(writer.create("m1"))
    claim = ReceiptClaim("ann", "key", "body", "m1", {})
    edit = writer.edit("m1", 1, "second")
    await storage.apply(replace(edit, claim=claim))
    with pytest.raises(ReceiptTaken):
        await storage.apply(replace(edit, claim=claim, audit=writer.audit("m1", 2)))
    with pytest.raises(VersionConflict):
        await storage.apply(replace(edit, audit=writer.audit("m1", 2)))


async def test_names_and_texts_with_dollars_and_dots_are_kept_as_sent(storage: MongoStorage, writer: Any) -> None:
    """Nothing of a user's is a field or an expression to the server, in any place where a text goes."""
    odd = "$$ROOT.$set{a.b}"
    user, group = f"{odd}-user", f"{odd}-group"
    placement = access.own_placement(user)
    audit = AuditDraft("a1", user, odd, odd, odd, "m1", None, 1, (odd,), placement.scope_key, details={odd: {odd: odd}})
    create = writer.create("m1", odd, tags=(odd, "$now"), placement=placement)
    await storage.apply(replace(create, editor=user, audit=audit))
    reader = Audience(user)
    listed = await storage.list_memories(reader, Selector(tags=("$now",)), after=None, limit=5)
    assert [(one.content, one.tags, one.last_edited_by) for one in listed] == [(odd, (odd, "$now"), user)]
    assert (await storage.history(reader, "m1", before=None, limit=1))[0] == audit.record(listed[0].created_at)
    edit = writer.edit("m1", 1, f"{odd} again", writer.index(odd, (odd,)))
    await storage.apply(replace(edit, editor=odd, tags=(odd,), audit=writer.audit("m1", 2, placement.scope_key)))
    facts = await storage.load(reader, "m1", space=SPACE.id)
    assert facts is not None
    assert (facts.memory.content, facts.memory.tags, facts.passages) == (f"{odd} again", (odd,), {odd})

    await storage.register_project(NewProject(odd, f"{odd}/key", user, writer.audit(None, 1, access.project_key(odd))))
    for version, share in ((1, Share.RO), (2, Share.RW)):
        await storage.change_share(
            ShareChange(odd, version, group, share, writer.audit(None, version + 1, access.project_key(odd)))
        )
    member = Audience("bob", frozenset({group}), Access.WRITE)
    assert [one.grants for one in await storage.find_projects(member, f"{odd}/key")] == [(Share.RW,)]
    assert [one.shares for one in await storage.find_projects(reader, odd)] == [{group: Share.RW}]
    assert await storage.find_projects(Audience("bob", frozenset({"$$ROOT"})), odd) == []


async def test_the_largest_memory_fits_in_three_large_spaces(storage: MongoStorage, writer: Any, raw: Any) -> None:
    """64,000 characters, cut into 800 passages, in three spaces of 3,072 dimensions: stored, moved, found, and one
    space dropped."""
    content = " ".join(f"w{number:06}" for number in range(8_000))
    assert len(content) == limits.CONTENT_MAX - 1
    hashes = [f"{number:064}" for number in range(800)]
    random = np.random.default_rng(3)

    def passages(space: str) -> Passages:
        vectors = random.normal(size=(len(hashes), 3_072)).astype(np.float32)
        fresh = tuple(PassageVector(one, vector) for one, vector in zip(hashes, vectors, strict=True))
        return Passages(space, frozenset(hashes), fresh, complete=True)

    spaces = [f"space{number}:3072" for number in range(3)]
    for space in spaces:
        await storage.register_space(replace(SPACE, id=space, dimensions=3_072), np.eye(3_072, dtype=np.float32)[:2])
    index = Index(lexical.ANALYSER, lexical.analyse(content), passages(spaces[0]))
    await storage.apply(writer.create("m1", content, index=index))
    for space in spaces[1:]:
        assert await storage.store_passages("m1", 1, passages(space))
    audit = writer.audit(None, 1, access.project_key("p1"))
    await storage.register_project(NewProject("p1", "p1", "ann", audit))
    await storage.apply(writer.move("m1", 1, access.project_placement("p1")))
    for space in spaces:
        facts = await storage.load(ANN, "m1", space=space)
        assert facts is not None
        assert (facts.passages, facts.embedded) == (set(hashes), True)
        query = SearchQuery(
            {"w000042": 1.0}, frozenset(), np.ones(3_072, dtype=np.float32), space, Fusion.rrf, None, 0, 1
        )
        (hit,) = await storage.search(ANN, Selector(scope_key="p:p1"), query)
        assert (hit.memory.content, hit.ranked.words is not None) == (content, True)
    assert await storage.drop_space(spaces[1])
    assert await raw.passages.distinct("space") == [spaces[0], spaces[2]]


async def test_a_mutation_finds_its_memory_where_it_moved(storage: MongoStorage, writer: Any) -> None:
    """At the expected version the scope that the audit entry names may be an old one."""
    await storage.register_project(NewProject("p1", "p1", "ann", writer.audit(None, 1, access.project_key("p1"))))
    await storage.apply(writer.create("m1"))
    await storage.apply(writer.move("m1", 1, access.project_placement("p1")))
    assert (await storage.apply(writer.edit("m1", 2, "third"))).version == 3
    with pytest.raises(NotFound):
        await storage.apply(writer.edit("absent", 1, "text"))
    removal = Remove(memory_id="m1", editor="ann", audit=writer.audit("m1", 4), expected_version=3)
    await storage.apply(removal)
    with pytest.raises(NotFound):
        await storage.apply(removal)


async def test_times_do_not_go_back_with_the_server_s_clock(storage: MongoStorage, writer: Any, raw: Any) -> None:
    """An edit under a clock that was set back keeps the later time, in the audit trail as well."""
    await storage.apply(writer.create("m1"))
    ahead = datetime(2100, 1, 1, tzinfo=UTC)
    await raw.memories.update_one({"_id": "m1"}, {"$set": {"updated_at": ahead}})
    assert (await storage.apply(writer.edit("m1", 1, "second"))).updated_at == ahead
    assert (await storage.history(ANN, "m1", before=None, limit=1))[0].at == ahead


async def test_a_transaction_that_never_wins_ends(storage: MongoStorage, clients: Any, writer: Any, raw: Any) -> None:
    """It is tried for its time, and then refused with nothing stored."""
    await storage.apply(writer.create("m1"))
    hasty = clients(primary_timeout=0.5)
    await hasty.open()
    async with raw.client.start_session() as session, await session.start_transaction():
        await raw.memories.update_one({"_id": "m1"}, {"$set": {"embedded_in.spaces": []}}, session=session)
        with pytest.raises(StorageUnavailable, match="nothing of this write is stored"):
            await hasty.apply(writer.edit("m1", 1, "second"))
    assert len(await storage.history(ANN, "m1", before=None, limit=9)) == 1


async def test_engines_that_open_one_storage_at_once_share_its_client(clients: Any) -> None:
    """One of them connects; one ``close`` leaves nothing, also one that comes while the storage is being opened."""
    storage = clients()
    before = len(asyncio.all_tasks())
    await asyncio.gather(*(storage.open() for _ in range(3)))
    await storage.close()
    assert len(asyncio.all_tasks()) == before
    opening = asyncio.ensure_future(storage.open())
    await asyncio.sleep(0)
    await storage.close()
    await opening
    assert len(asyncio.all_tasks()) == before
    with pytest.raises(StorageUnavailable, match="open it first"):
        await storage.find_receipt("ann", "key")
