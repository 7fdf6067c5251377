"""What a write, an update of the content and a search cost beside other memories for agents on the same PostgreSQL.

Of MEMORIES (default 10,000) the user that is measured owns 3,000, and 20 more the others, with the same texts and the
same stub embedder everywhere (`peers/stub.py`); each side has a database of its own on one server, and the peers run in
processes and an environment of their own, ours in this process. Within a round the sides take turns. A figure is the
median of ROUNDS rounds of their medians; "slower" is, round by round, the peer's time over ours. Recall is of the ten
nearest vectors of the user's: for ours that of the ranker by meaning, for the peers of what they return. LangGraph's
store is there with its index, as it ships, and without it, so that it finds all that is near, as ours does.

PEERS_PYTHON is the interpreter of an environment with `peers/requirements.txt`; `nox -s bench -- peers` makes one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import psycopg
from estate import Estate
from peers import stub

from muniment.engine import Engine
from muniment.models import CallContext, Principal
from muniment.ports import PluginContext, Space, Vector, Vectors
from muniment_storage_postgres.embedded import server
from muniment_storage_postgres.storage import create

MEMORIES = int(os.environ.get("MEMORIES", "10000"))
OWNED, USERS = 3 * MEMORIES // 10, 20
ROUNDS = int(os.environ.get("ROUNDS", "7"))
CALLS = 30
OURS, PEERS = "muniment", ("langgraph", "langgraph_exact", "mem0")
OWNER = "owner"
OPERATIONS = ("write", "update", "search")
Call = dict[str, Any]
Answer = Mapping[str, Any]


class StubEmbedder:
    """``muniment.ports.Embedder`` that gives the stub's vectors; a text is one passage."""

    name, ready = "stub:", True

    async def open(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to release."""

    async def space(self) -> Space:
        """One of 384 dimensions."""
        return Space("stub:384", "stub", "sha256", stub.DIMENSIONS, "none", True, 100_000)

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Words."""
        return [len(text.split()) for text in texts]

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """The stub's."""
        return np.stack([stub.vector(text) for text in texts]) if texts else np.zeros((0, stub.DIMENSIONS), np.float32)

    async def embed_query(self, text: str) -> Vector:
        """The stub's."""
        return stub.vector(text)


class Ours:
    """The engine, with access, audit, versions and all three rankers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._written: list[str] = []

    async def ask(self, operation: str, calls: Sequence[Call]) -> Answer:
        """As a peer's process answers."""
        written = self._written
        times: list[float] = []
        found: list[list[str]] = []
        for call in calls:
            began = perf_counter()
            match operation:
                case "load":
                    await asyncio.gather(*(self._load(call["user"], call["texts"][part::8]) for part in range(8)))
                case "write":
                    written.append((await self._call("memory.write", call["user"], content=call["text"]))["id"])
                case "update":
                    await self._call("memory.update", call["user"], id=written[call["number"]], content=call["text"])
                case _:
                    page = await self._call("memory.search", call["user"], query=call["query"])
                    found.append([hit["memory"]["content"] for hit in page["items"]])
            times.append((perf_counter() - began) * 1e3)
        return {"times": times, "found": found}

    async def nearest(self, query: str) -> list[str]:
        """The texts that the ranker by meaning puts first; the fused order may have them on any page."""
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await self._call("memory.search", OWNER, query=query, limit=50, cursor=cursor)
            hits = [hit for hit in page["items"] if hit["meaning"] and hit["meaning"]["rank"] <= 10]
            found += [hit["memory"]["content"] for hit in hits]
            cursor = page["cursor"]
            if cursor is None or len(found) == 10:
                return found

    async def _load(self, user: str, texts: Sequence[str]) -> None:
        for text in texts:
            await self._call("memory.write", user, content=text)

    async def _call(self, operation: str, user: str, **sent: Any) -> dict[str, Any]:
        context = CallContext(principal=Principal(user=user))
        return (await self._engine.call(operation, sent, context)).model_dump()


class Process:
    """A peer's process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, operation: str, calls: Sequence[Call]) -> Answer:
        """Send the calls, and wait for what they took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"operation": operation, "calls": list(calls)}).encode() + b"\n")
        await self._process.stdin.drain()
        line = await self._process.stdout.readline()
        if not line:
            raise SystemExit("a peer ended; its message is above")
        return json.loads(line)


async def main() -> None:
    """Start, load, measure, print."""
    python = os.environ.get("PEERS_PYTHON")
    if python is None:
        raise SystemExit("PEERS_PYTHON names no interpreter; run nox -s bench -- peers")
    estate, dice = Estate(), Random(5)
    texts = [f"{number} {estate.texts[number % len(estate.texts)].content}" for number in range(MEMORIES)]
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        postgres = server(directory / "postgres")
        uri = await asyncio.to_thread(postgres.start)
        stack.callback(postgres.stop)
        engine = await stack.enter_async_context(
            Engine(create(PluginContext("embedded:", directory)), StubEmbedder(), background=False)
        )
        sides: dict[str, Any] = {OURS: Ours(engine)}
        for name in PEERS:
            sides[name] = Process(await _started(stack, python, name, _database(uri, name)))
        owners = {OWNER: texts[:OWNED]} | {f"user-{n}": texts[OWNED + n :: USERS] for n in range(USERS)}
        for name, side in sides.items():
            print(f"loading {name}", file=sys.stderr)
            await side.ask("load", [{"user": user, "texts": owned} for user, owned in owners.items()])
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
        recall = await recalls(sides, texts[:OWNED], estate, dice)
        report(await measured(sides, estate, dice), recall)


async def measured(sides: Mapping[str, Any], estate: Estate, dice: Random) -> dict[tuple[str, str], list[float]]:
    """The median time of each operation and side, round by round; the first round does not count."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    written = 0
    for number in range(ROUNDS + 1):
        news = [f"new {number} {turn} {dice.choice(estate.texts).content}" for turn in range(2 * CALLS)]
        queries = [dice.choice(estate.queries(8)).words for _ in range(CALLS)]
        calls: dict[str, list[Call]] = {
            "write": [{"user": OWNER, "text": text} for text in news[:CALLS]],
            "update": [
                {"user": OWNER, "number": written + turn, "text": text} for turn, text in enumerate(news[CALLS:])
            ],
            "search": [{"user": OWNER, "query": query} for query in queries],
        }
        written += CALLS
        for operation in OPERATIONS:
            for name in list(sides)[:: 1 if number % 2 else -1]:
                answer = await sides[name].ask(operation, calls[operation])
                if number:
                    found[operation, name].append(median(answer["times"]))
    return found


async def recalls(sides: Mapping[str, Any], owned: Sequence[str], estate: Estate, dice: Random) -> dict[str, float]:
    """Of the ten memories of the owner that are nearest to a query, the share that is found."""
    matrix = np.stack([stub.vector(text) for text in owned])
    queries = [dice.choice(estate.queries(8)).words for _ in range(CALLS)]
    best = [{owned[row] for row in np.argsort(-(matrix @ stub.vector(query)))[:10]} for query in queries]
    found: dict[str, list[list[str]]] = {OURS: [await sides[OURS].nearest(query) for query in queries]}
    for name in PEERS:
        found[name] = (await sides[name].ask("search", [{"user": OWNER, "query": one} for one in queries]))["found"]
    return {
        name: float(np.mean([len(want & set(texts)) / 10 for want, texts in zip(best, each, strict=True)]))
        for name, each in found.items()
    }


def report(found: Mapping[tuple[str, str], list[float]], recall: Mapping[str, float]) -> None:
    """The table, and how much slower each peer is."""
    print(
        f"{MEMORIES} memories, {OWNED} of them the owner's; medians of {ROUNDS} rounds of {CALLS} calls, milliseconds"
    )
    names = (OURS, *PEERS)
    print(f"{'':<8}", *(f"{name:>15}" for name in names), *(f"{name + ' slower':>22}" for name in PEERS))
    for operation in OPERATIONS:
        ours = found[operation, OURS]
        figures = [f"{median(found[operation, name]):>15.2f}" for name in names]
        ratios = [
            median(theirs / own for theirs, own in zip(found[operation, name], ours, strict=True)) for name in PEERS
        ]
        print(f"{operation:<8}", *figures, *(f"{ratio:>22.2f}" for ratio in ratios))
    print(f"{'recall':<8}", *(f"{recall[name]:>15.2f}" for name in names))


def _database(uri: str, name: str) -> str:
    """The URL of a new, empty database on the server, with its extension."""
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE peer_{name}".encode())
        parts = connection.info
        made = f"host={parts.host} port={parts.port} user={parts.user} dbname=peer_{name}"
    with psycopg.connect(made, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    return made


async def _started(stack: AsyncExitStack, python: str, name: str, url: str) -> asyncio.subprocess.Process:
    script = Path(__file__).parent / "peers" / "side.py"
    process = await asyncio.create_subprocess_exec(
        python, str(script), name, url, stdin=PIPE, stdout=PIPE, limit=100_000_000
    )

    async def end() -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()

    stack.push_async_callback(end)
    return process


if __name__ == "__main__":
    asyncio.run(main())
