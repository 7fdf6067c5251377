"""How PostgreSQL answers the hot statements of a grown database: never by reading a big table from end to end.

What the storage really sends is caught where it sends it and asked for its plan with the same parameters, and once more
for the plan for any parameters, which is what a connection may settle on. The plans are compared with ``plans.txt``, a
line a node; MUNIMENT_PLANS=write writes that file anew. The database is that of ``plans.sql``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psycopg
import pytest

from muniment import access, lexical, limits
from muniment.agent_models import SectionName, Visibility
from muniment.conformance.agent_calls import ANN, BOB, HOUR, exchange
from muniment.conformance.loading import project
from muniment.errors import MunimentError
from muniment.models import Scope
from muniment.ports import (
    Audience,
    Claim,
    NewEvent,
    Position,
    ReceiptClaim,
    Remove,
    Restore,
    Revise,
    SearchQuery,
    SectionChange,
    SectionsWrite,
    Selector,
)
from muniment.ranking import Fusion
from muniment_storage_postgres import database, mind, search
from muniment_storage_postgres.connection import Connection
from muniment_storage_postgres.records import Parameters
from muniment_storage_postgres.sql import STATEMENTS, in_partition
from muniment_storage_postgres.storage import PostgresStorage

HERE = Path(__file__).parent
STORED = HERE / "plans.txt"
BIG = 1_000
"""Rows from which on a table, or a partition of one, is not to be read from end to end."""
SPACE = "test:8"
PROJECT = "project-7"
AUDIENCE = Audience("ann", frozenset({"group-7"}))
VECTOR = np.linspace(-1, 1, 8, dtype=np.float32)
_PARAMETER = re.compile(rb"%\((\w+)\)[sbt]")
_PARTITION = re.compile(r"^(passage|search_entry|search_keys|posting)_\d+")
_TABLES = (
    b"SELECT relname, reltuples FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
)
_PLANNER = b"SELECT set_config('jit', 'off', false), set_config('max_parallel_workers_per_gather', '0', false)"

Node = Mapping[str, Any]
Raw = psycopg.AsyncConnection[Any]


@dataclass
class Plans:
    """The plans of what was sent: of each statement all that it got, by name."""

    rows: Mapping[str, float]
    """Of every table and partition."""
    found: dict[str, list[Node]] = field(default_factory=dict[str, list[Node]])

    def add(self, statement: str, plan: Node) -> None:
        """A plan of a statement."""
        self.found.setdefault(statement, []).extend(_nodes(plan))

    def lines(self) -> list[str]:
        """A line for each way in which a statement looks into a table; partitions of a table are one."""
        return sorted(
            {f"{name}: {_shown(node)}" for name, nodes in self.found.items() for node in nodes if _table(node)}
        )

    def whole_reads(self) -> list[str]:
        """The statements that read a big table from end to end."""
        whole = [
            (name, _table(node))
            for name, nodes in self.found.items()
            for node in nodes
            if node["Node Type"] == "Seq Scan"
        ]
        big = {(name, table) for name, table in whole if self.rows[table] >= BIG}
        return sorted(f"{name} reads all {self.rows[table]:,.0f} rows of {table}" for name, table in big)


def _nodes(plan: Node) -> Iterator[Node]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


def _table(node: Node) -> str:
    """What a node looks into: an index, or a table; nothing where it looks into other nodes, or changes a table."""
    if node["Node Type"] == "ModifyTable":
        return ""
    return node.get("Index Name", node.get("Relation Name", ""))


def _shown(node: Node) -> str:
    return " ".join((node["Node Type"], _PARTITION.sub(r"\1", _table(node))))


@pytest.fixture
async def grown(storage: PostgresStorage, raw: Raw) -> Mapping[str, float]:
    """The rows of each table and partition of the grown database, whose statistics stay as they are."""
    text = (HERE / "plans.sql").read_text(encoding="utf-8").replace("{analyser}", lexical.ANALYSER)
    async with raw.transaction():
        for statement in text.split(";"):
            await raw.execute(statement.encode())
    tables = (
        "SELECT relname, reltuples FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
    )
    for name, _ in await (await raw.execute(tables.encode())).fetchall():
        await raw.execute(f"ALTER TABLE {name} SET (autovacuum_enabled = off)".encode())
        await raw.execute(f"VACUUM ANALYZE {name}".encode())
    return dict(await (await raw.execute(_TABLES)).fetchall())


@pytest.fixture
def plans(grown: Mapping[str, float], monkeypatch: pytest.MonkeyPatch) -> Plans:
    """The plans of whatever a storage sends from now on."""
    made = Plans(grown)
    really = database.sent

    async def sent(connection: Connection, statement: str, parameters: Parameters, **where: int) -> Any:
        text = in_partition(statement, **where) if where else STATEMENTS[statement]
        cursor = await connection.execute(b"EXPLAIN (FORMAT JSON) " + text, parameters)
        ((plan,),) = await cursor.fetchall()
        made.add(statement, plan[0]["Plan"])
        return await really(connection, statement, parameters, **where)

    for module in (database, search):
        monkeypatch.setattr(module, "sent", sent)
    monkeypatch.setattr(mind, "WORTH", 10)
    return made


async def for_any_parameters(raw: Raw, plans: Plans) -> None:
    """Add what PostgreSQL does when it does not look at the parameters."""
    await raw.execute(_PLANNER)
    for statement in list(plans.found):
        names: list[bytes] = []

        def number(match: re.Match[bytes], names: list[bytes] = names) -> bytes:
            if match[1] not in names:
                names.append(match[1])
            return b"$%d" % (names.index(match[1]) + 1)

        text = _PARAMETER.sub(number, STATEMENTS[statement]).replace(b"%%", b"%")
        cursor = await raw.execute(b"EXPLAIN (GENERIC_PLAN, FORMAT JSON) " + text)
        ((plan,),) = await cursor.fetchall()
        plans.add(f"{statement}, any parameters", plan[0]["Plan"])


async def edits(storage: PostgresStorage, writer: Any) -> None:
    """Every mutation of a memory, with and without a receipt."""

    def claim(memory: str) -> ReceiptClaim:
        return ReceiptClaim("ann", f"key of {memory}", "hash", memory, {})

    def revise(memory: str, expected: int, **fields: Any) -> Revise:
        audit = writer.audit(memory, expected + 1)
        return Revise(memory_id=memory, editor="ann", audit=audit, expected_version=expected, **fields)

    await storage.apply(writer.create("one", tags=["red"]))
    await storage.apply(writer.create("two", "other words", tags=["blue"], claim=claim("two")))
    await storage.apply(writer.edit("one", 1, "new words"))
    await storage.apply(replace(writer.edit("two", 1, "newer words"), claim=claim("an edit")))
    await storage.apply(revise("one", 2, tags=("green",)))
    await storage.apply(revise("one", 3, placement=access.project_placement(PROJECT)))
    new, another = (project("ann", key, Random(key)) for key in ("new", "another"))
    await storage.apply(replace(writer.create("three", placement=access.project_placement(new.id)), registers=new))
    placement = access.project_placement(another.id)
    await storage.apply(replace(revise("two", 2, placement=placement), registers=another))
    removed = Remove(
        memory_id="two", editor="ann", audit=writer.audit("two", 4, placement.scope_key), expected_version=3
    )
    await storage.apply(removed)
    back = writer.index("newer words")
    await storage.apply(
        Restore(
            memory_id="two",
            editor="ann",
            audit=writer.audit("two", 5, placement.scope_key),
            expected_version=4,
            index=back,
        )
    )
    with pytest.raises(MunimentError):
        await storage.apply(writer.edit("two", 1, "too late"))


async def reads(storage: PostgresStorage, writer: Any) -> None:
    """Reads of memories, of projects, of trails and of receipts."""
    assert await storage.load(AUDIENCE, "m-6", space=SPACE)
    assert await storage.load(AUDIENCE, "m-6")
    (first, *_) = await storage.list_memories(AUDIENCE, Selector(), after=None, limit=5)
    after = Position(first.created_at, first.id)
    assert await storage.list_memories(AUDIENCE, Selector(), after=after, limit=5)
    assert await storage.list_memories(AUDIENCE, Selector(access.user_key("ann")), after=None, limit=5)
    assert await storage.list_memories(AUDIENCE, Selector(tags=("tag-6",)), after=None, limit=5)
    assert await storage.history(AUDIENCE, "m-6", before=None, limit=5)
    assert await storage.history(AUDIENCE, "m-6", before=2, limit=5)
    assert await storage.trail(access.project_key(PROJECT), after=None, limit=5)
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert await storage.trail(access.project_key(PROJECT), after=Position(now, "a"), limit=5)
    assert await storage.find_receipt("ann", "key 6")
    assert await storage.find_projects(AUDIENCE, "key-7")
    assert await storage.list_projects(AUDIENCE, after=None, limit=5)


async def searches(storage: PostgresStorage, writer: Any) -> None:
    """Searches by meaning, by words, by tags, by all of them, and narrowed; the second one begins to keep scopes."""
    nothing = SearchQuery({}, frozenset(), None, None, Fusion.weighted, None, 0, 5)
    by_meaning = replace(nothing, vector=VECTOR, space=SPACE)
    by_words = replace(nothing, terms={"word-203": 1.0, "word-220": 1.0})
    by_tags = replace(nothing, tags=frozenset({"tag-6"}))
    everything = replace(by_meaning, terms=by_words.terms, tags=by_tags.tags)
    for query in (by_meaning, by_meaning, by_words, by_tags, everything):
        assert await storage.search(AUDIENCE, Selector(), query)
    assert await storage.search(AUDIENCE, Selector(scope=Scope.USER), everything)
    assert await storage.search(AUDIENCE, Selector(tags=("tag-6",)), everything)


async def agents(storage: PostgresStorage, writer: Any) -> None:
    """Exchanges, events and sections."""
    await storage.append_exchange(exchange(ANN, BOB, key="new"))
    claimed = ReceiptClaim("platform", "exchange", "hash", "id", {})
    await storage.append_exchange(replace(exchange(ANN, key="newer"), claim=claimed))
    await storage.enqueue(NewEvent("new", ANN, {}))
    await storage.enqueue(NewEvent("newer", ANN, {}, replace(claimed, key="event")))
    (event, *_) = (await storage.claim(Claim(ANN, ["t1", "t2"], HOUR, limits.ATTEMPTS_MAX))).events
    await storage.extend(ANN, event.id, event.token, HOUR)
    await storage.ack(ANN, event.id, event.token)
    await storage.ack(ANN, event.id, event.token)
    await storage.raise_last_seen(ANN, 25)
    await storage.load_envelope(ANN, exchanges=True)
    await storage.load_envelope(ANN, sections=[SectionName.SOUL])
    change = SectionChange(SectionName.SOUL, "text", Visibility.PRIVATE, 6, 1)
    await storage.write_sections(SectionsWrite(ANN, (change,)))
    assert await storage.agents_waiting([ANN, BOB], attempts_max=limits.ATTEMPTS_MAX) == {ANN, BOB}
    await storage.dead_events(ANN, attempts_max=limits.ATTEMPTS_MAX, after=None, limit=5)


Calls = Callable[[PostgresStorage, Any], Awaitable[None]]
HOT: tuple[Calls, ...] = (reads, searches, edits, agents)


async def test_hot_statements_read_no_big_table_from_end_to_end(
    storage: PostgresStorage, raw: Raw, writer: Any, plans: Plans
) -> None:
    """And each looks into the same tables by the same indexes as before."""
    for calls in HOT:
        await calls(storage, writer)
    await for_any_parameters(raw, plans)
    assert plans.whole_reads() == []
    if os.environ.get("MUNIMENT_PLANS") == "write":
        STORED.write_text("".join(f"{line}\n" for line in plans.lines()), encoding="utf-8")
    assert plans.lines() == STORED.read_text(encoding="utf-8").splitlines()


async def test_an_index_that_is_gone_is_found(storage: PostgresStorage, raw: Raw, writer: Any, plans: Plans) -> None:
    """By the names of the statement and of the table, or, where another index serves, by a plan that is another one."""
    gone = ("memory_page", "audit_memory", "receipt_at", "event_pending")
    for index in gone:
        await raw.execute(f"DROP INDEX {index}".encode())
    for calls in (reads, edits, agents):
        await calls(storage, writer)
    found = "\n".join(plans.whole_reads())
    for statement, table in (("list_memories", "memory"), ("history", "audit"), ("create_once", "receipt")):
        assert re.search(rf"^{statement} reads all [\d,]+ rows of {table}$", found, re.MULTILINE)
    stored = STORED.read_text(encoding="utf-8").splitlines()
    assert "claim_events: Index Scan event_pending" in set(stored) - set(plans.lines())
