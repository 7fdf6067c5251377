"""Many clients at once, and a server killed in the middle of their requests, over both protocols.

MUNIMENT_LOAD_SECONDS says how long the clients go on; a few seconds show a lost update, minutes a leak.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.load.serving import Client, Server, answered

SECONDS = float(os.environ.get("MUNIMENT_LOAD_SECONDS", "6"))
CLIENTS = 64
DOCUMENTS = 16
LEAK = 1.3
"""How much more memory the server may have in the end than once every client has been busy for a while."""
WARM = 0.3
"""The part of the time that the server is given to reach its size."""
EXPECTED = {"version_conflict", "content_too_long"}

pytestmark = pytest.mark.timeout(300 + 4 * SECONDS)


@pytest.fixture(params=["http", "mcp"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Server]:
    """A server over one of the protocols."""
    made = Server(request.param, tmp_path)
    await made.start()
    yield made
    await made.stop()


@dataclass
class Shared:
    """What all clients edit, and what they were told of it."""

    documents: list[str]
    ends: float
    marks: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Acknowledged marks by document."""
    conflicts: int = 0
    number: count[int] = field(default_factory=count)

    @property
    def over(self) -> bool:
        return asyncio.get_running_loop().time() > self.ends


async def test_64_clients_lose_no_update_and_leave_no_memory(server: Server) -> None:
    """No 5xx, each acknowledged edit is there once, and the server does not grow with what it has answered."""
    now = asyncio.get_running_loop().time
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(server.connect()) for _ in range(CLIENTS)]
        contents = [f"Document {number}.\nEnd." for number in range(DOCUMENTS)]
        written = [await answered(clients[0], "memory.write", content=content) for content in contents]
        shared = Shared([one["id"] for one in written], now() + SECONDS)

        working = asyncio.gather(*(work(client, shared) for client in clients))
        await asyncio.sleep(SECONDS * WARM)
        before = server.resident()
        await working
        after = server.resident()
        for document in shared.documents:
            content = (await answered(clients[0], "memory.get", id=document))["content"]
            kept = content.splitlines()[1:-1]
            assert sorted(kept) == sorted(shared.marks.get(document, [])), "an update was lost, or done twice"
    assert shared.conflicts > 0, "no two clients met"
    assert shared.marks, "nothing was edited"
    assert not [status for status in server.statuses if status >= 500], server.statuses
    assert after < before * LEAK, f"{before} bytes became {after}"


async def work(client: Client, shared: Shared) -> None:
    """Read, search, write, and add marks to what others edit too."""
    dice = random.Random(next(shared.number))
    while not shared.over:
        document = dice.choice(shared.documents)
        match dice.randrange(10):
            case 0:
                written = await answered(client, "memory.write", content=f"A note of {dice.random()}.")
                assert written["version"] == 1, written
            case 1 | 2:
                found = await answered(client, "memory.search", query="document end", limit=3)
                assert found["items"], found
            case 3 | 4 | 5:
                await mark(client, shared, document)
            case _:
                read = await answered(client, "memory.get", id=document)
                assert read["id"] == document, read


async def mark(client: Client, shared: Shared, document: str) -> None:
    """Add a line by the version that was read; whoever was slower is told so."""
    read = await answered(client, "memory.get", id=document)
    line = f"m{next(shared.number)}"
    done = await answered(
        client, "memory.patch", id=document, old_string="\nEnd.", new_string=f"\n{line}\nEnd.", version=read["version"]
    )
    if "code" not in done:
        shared.marks.setdefault(document, []).append(line)
    else:
        assert done["code"] in EXPECTED, done
        shared.conflicts += 1


async def test_a_server_killed_in_the_middle_of_requests_leaves_nothing_half_done(server: Server) -> None:
    """What was acknowledged is there; what was not is there whole or not at all, and its repetition is done once."""
    words = ["q" + "".join("abcdefghij"[int(digit)] for digit in str(number)) for number in range(CLIENTS * 6)]
    sent = [{"content": f"Kept word {word}.", "idempotency_key": word} for word in words]
    told: dict[str, Mapping[str, Any]] = {}
    due = asyncio.Event()

    async def write(client: Client, payload: dict[str, str]) -> None:
        try:
            told[payload["idempotency_key"]] = await answered(client, "memory.write", **payload)
        except httpx2.TransportError:
            return
        if len(told) == len(sent) // 4:
            due.set()

    async def kill() -> None:
        await due.wait()
        await server.kill()

    async with server.connect() as client:
        await asyncio.gather(kill(), *(write(client, payload) for payload in sent))
    assert len(sent) // 4 <= len(told) < len(sent), "the kill was not in the middle"
    await server.start()
    async with server.connect() as client:
        again = [await answered(client, "memory.write", **payload) for payload in sent]
        for payload, receipt in zip(sent, again, strict=True):
            first = told.get(payload["idempotency_key"], receipt)
            assert (receipt["id"], receipt["version"]) == (first["id"], 1), "an acknowledged write was done again"
            assert (await answered(client, "memory.get", id=receipt["id"]))["content"] == payload["content"]
            (entry,) = (await answered(client, "memory.history", id=receipt["id"]))["items"]
            assert entry["action"] == "memory.write"
        for word in words[::40]:
            found = await answered(client, "memory.search", query=word, limit=5)
            assert [hit["memory"]["content"] for hit in found["items"] if hit["words"]] == [f"Kept word {word}."]
    assert len({receipt["id"] for receipt in again}) == len(sent)
