"""A peer in a process of its own, in whose environment it is installed: does what it is told by lines of JSON.

Started with the name of one of ``PEERS`` and the URL of an empty database. Each line has an operation (``load``,
``write``, ``update``, ``search``), and the calls of it that are to be done one after the other; the answer is a line
with the milliseconds of each call, and what each search found.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import perf_counter
from typing import Any
from uuid import uuid4

import stub

FOUND = 10


class Peer(ABC):
    """A store of texts by user."""

    @abstractmethod
    async def load(self, user: str, texts: Sequence[str]) -> None:
        """Write many at once; not timed."""

    @abstractmethod
    async def write(self, user: str, text: str) -> str:
        """Write one; its id."""

    @abstractmethod
    async def update(self, user: str, id_: str, text: str) -> None:
        """Give one another text."""

    @abstractmethod
    async def search(self, user: str, query: str) -> list[str]:
        """The texts of the ten best."""


class LangGraph(Peer):
    """LangGraph's store on PostgreSQL: a namespace for each user, an index of vectors with its defaults."""

    def __init__(self, store: Any) -> None:
        self._store = store

    indexed = True
    """Whether it keeps its approximate index, which finds some of what is near."""

    @classmethod
    @asynccontextmanager
    async def opened(cls, url: str) -> AsyncGenerator[Peer]:
        """With one connection, as its documentation has it."""

        async def embed(texts: list[str]) -> list[list[float]]:
            return [stub.vector(text).tolist() for text in texts]

        index: Any = {"dims": stub.DIMENSIONS, "embed": embed, "fields": ["text"]}
        async with _of("langgraph.store.postgres.aio").AsyncPostgresStore.from_conn_string(url, index=index) as store:
            await store.setup()
            if not cls.indexed:
                await store.conn.execute("DROP INDEX store_vectors_embedding_idx")
            yield cls(store)

    async def load(self, user: str, texts: Sequence[str]) -> None:
        put: Any = _of("langgraph.store.base").PutOp
        for start in range(0, len(texts), 200):
            await self._store.abatch([put((user,), uuid4().hex, {"text": text}) for text in texts[start : start + 200]])

    async def write(self, user: str, text: str) -> str:
        id_ = uuid4().hex
        await self._store.aput((user,), id_, {"text": text})
        return id_

    async def update(self, user: str, id_: str, text: str) -> None:
        await self._store.aput((user,), id_, {"text": text})

    async def search(self, user: str, query: str) -> list[str]:
        found = await self._store.asearch((user,), query=query, limit=FOUND)
        return [one.value["text"] for one in found]


class ExactLangGraph(LangGraph):
    """The same without that index, so that a search finds what is nearest. Its setting for this, `flat`, is refused by
    the asynchronous store's `setup`."""

    indexed = False


class Mem0(Peer):
    """mem0 on PostgreSQL, without the language model that would rewrite what it is told."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    @classmethod
    @asynccontextmanager
    async def opened(cls, url: str) -> AsyncGenerator[Peer]:
        """With the stub in the place of its embedder; it sends nothing anywhere."""
        os.environ.setdefault("MEM0_TELEMETRY", "False")
        os.environ.setdefault("OPENAI_API_KEY", "none")
        with tempfile.TemporaryDirectory() as directory:
            os.environ["MEM0_DIR"] = directory
            kept = {"connection_string": url, "embedding_model_dims": stub.DIMENSIONS, "collection_name": "memories"}
            memory: Any = _of("mem0").AsyncMemory.from_config(
                {
                    "vector_store": {"provider": "pgvector", "config": kept},
                    "history_db_path": os.path.join(directory, "history.db"),
                }
            )
            if asyncio.iscoroutine(memory):
                memory = await memory
            memory.embedding_model = _Stub()
            yield cls(memory)

    async def load(self, user: str, texts: Sequence[str]) -> None:
        lemmatised: Any = _of("mem0.memory.main").lemmatize_for_bm25
        at = datetime.now(UTC).isoformat()
        for start in range(0, len(texts), 200):
            part = texts[start : start + 200]
            self._memory.vector_store.insert(
                vectors=[stub.vector(text).tolist() for text in part],
                ids=[str(uuid4()) for _ in part],
                payloads=[
                    {
                        "user_id": user,
                        "data": text,
                        "hash": "",
                        "created_at": at,
                        "updated_at": at,
                        "text_lemmatized": lemmatised(text),
                    }
                    for text in part
                ],
            )

    async def write(self, user: str, text: str) -> str:
        added = await self._memory.add(text, user_id=user, infer=False)
        return added["results"][0]["id"]

    async def update(self, user: str, id_: str, text: str) -> None:
        await self._memory.update(id_, text=text)

    async def search(self, user: str, query: str) -> list[str]:
        found = await self._memory.search(query, top_k=FOUND, filters={"user_id": user})
        return [one["memory"] for one in found["results"]]


class _Stub:
    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """The stub's vector."""
        return stub.vector(text).tolist()

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        """The stub's vectors."""
        return [stub.vector(text).tolist() for text in texts]


def _of(module: str) -> Any:
    """A module that only the peers' own environment has."""
    return importlib.import_module(module)


PEERS: dict[str, Any] = {"langgraph": LangGraph, "langgraph_exact": ExactLangGraph, "mem0": Mem0}


async def main() -> None:
    """Serve the lines of standard input until it ends."""
    name, url = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    written: list[str] = []
    async with PEERS[name].opened(url) as peer:
        while line := await asyncio.to_thread(sys.stdin.readline):
            asked: dict[str, Any] = json.loads(line)
            times: list[float] = []
            found: list[list[str]] = []
            for call in asked["calls"]:
                began = perf_counter()
                match asked["operation"]:
                    case "load":
                        await peer.load(call["user"], call["texts"])
                    case "write":
                        written.append(await peer.write(call["user"], call["text"]))
                    case "update":
                        await peer.update(call["user"], written[call["number"]], call["text"])
                    case _:
                        found.append(await peer.search(call["user"], call["query"]))
                times.append((perf_counter() - began) * 1e3)
            answers.write(json.dumps({"times": times, "found": found}) + "\n")
            answers.flush()


if __name__ == "__main__":
    asyncio.run(main())
