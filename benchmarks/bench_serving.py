"""What get, search and write cost over MCP and over HTTP, beside the framework's own floor and the engine's call.

Every server is a process of its own on loopback, and all of ours share one PostgreSQL, on which the engine and, for
get, the bare driver run in this process. The floor is the framework (the MCP SDK, FastAPI) with an answer of the same
size and nothing behind it. Within a round all take turns, call by call. A figure is the median of ROUNDS rounds; "of
the floor" is, round by round, the transport's time over that of its floor and the driver's get together, for search and
write over that of its floor and the engine's call.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import httpx2
import psycopg

from muniment.engine import Engine
from muniment.models import CallContext, Principal
from muniment.ports import PluginContext
from muniment.reference import HashEmbedder
from muniment_storage_postgres.embedded import server
from muniment_storage_postgres.storage import create
from muniment_transport_http.conformance_client import HttpClient
from muniment_transport_mcp.conformance_client import McpClient, OverHttp, call_of

ROUNDS = int(os.environ.get("ROUNDS", "15"))
CALLS = 40
MEMORIES = 1_000
SIZE = 1_000
REVISION = "2026-07-28"
USER = "ann"
WORDS = ["river", "basalt", "lantern", "orchard", "meadow", "copper", "violin", "harbour", "thistle", "granite"]
Call = Callable[[], Awaitable[object]]
_ADDRESS = re.compile(rb"at (http://\S+)")


def content(number: int) -> str:
    """A memory of SIZE characters."""
    words = (WORDS[(number * 7 + place * (number % 5 + 1)) % len(WORDS)] for place in range(SIZE))
    return f"memory {number} {' '.join(words)}"[:SIZE]


@asynccontextmanager
async def process(*command: str) -> AsyncGenerator[str]:
    """A server, by its address."""
    started = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=PIPE, stderr=STDOUT)
    assert started.stdout is not None
    try:
        said = b""
        while not (found := _ADDRESS.search(said)):
            line = await started.stdout.readline()
            assert line, said.decode()
            said += line
        yield found[1].decode()
    finally:
        started.terminate()
        await started.communicate()


async def main() -> None:
    """Start, fill, measure, print."""
    directory = Path(tempfile.mkdtemp(prefix="muniment-bench-"))
    try:
        async with AsyncExitStack() as stack:
            report(await rounds(await sides(stack, directory)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def sides(stack: AsyncExitStack, directory: Path) -> Mapping[str, Mapping[str, Call]]:
    """Each operation's ways, by name."""
    storage = create(PluginContext(f"embedded:{directory / 'postgres'}", directory))
    engine = await stack.enter_async_context(Engine(storage, HashEmbedder(), background=False))
    context = CallContext(principal=Principal(user=USER))
    made = [await engine.call("memory.write", {"content": content(number)}, context) for number in range(MEMORIES)]
    ids = [str(one.model_dump()["id"]) for one in made]
    serve = ("-m", "muniment", "serve", "--no-auth", "--user", USER, "--embedder", "hash:", "--http", "127.0.0.1:0")
    ours = (*serve, "--data-dir", str(directory), "--storage", f"embedded:{directory / 'postgres'}")
    floors = str(Path(__file__).with_name("serving_floors.py"))
    urls = {name: await stack.enter_async_context(process(*ours, "--transport", name)) for name in ("mcp", "http")}
    bare = {name: await stack.enter_async_context(process(floors, name, str(SIZE))) for name in ("mcp", "http")}
    http = await stack.enter_async_context(httpx2.AsyncClient(timeout=60, trust_env=False))
    mcp = McpClient(OverHttp(http, urls["mcp"], REVISION), REVISION)
    mcp_floor = OverHttp(http, bare["mcp"], REVISION)
    rest = HttpClient(http, urls["http"])
    conninfo = await asyncio.to_thread(server(directory / "postgres").start)
    raw = await stack.enter_async_context(
        await psycopg.AsyncConnection.connect(conninfo, autocommit=True, prepare_threshold=0)
    )
    numbers = iter(range(10**9))
    select = b"SELECT id, content, tags, version, created_at, updated_at FROM muniment.memory WHERE id = %s"

    async def driver() -> object:
        return await (await raw.execute(select, (ids[next(numbers) % MEMORIES],))).fetchone()

    async def floor_of_mcp() -> object:
        return await mcp_floor.ask(call_of("memory.get", {"id": ids[0]}, REVISION))

    inputs: Mapping[str, Callable[[], Mapping[str, object]]] = {
        "memory.get": lambda: {"id": ids[next(numbers) % MEMORIES]},
        "memory.search": lambda: {"query": f"{WORDS[next(numbers) % 10]} {WORDS[next(numbers) % 7]}", "limit": 5},
        "memory.write": lambda: {"content": content(next(numbers))},
    }

    def ways(operation: str) -> Mapping[str, Call]:
        make = inputs[operation]
        return {
            "engine": lambda: engine.call(operation, make(), context),
            "SDK floor": floor_of_mcp,
            "MCP": lambda: mcp.call(operation, make()),
            "FastAPI floor": lambda: http.get(bare["http"]),
            "HTTP": lambda: rest.call(operation, make()),
        }

    return {"memory.get": {"driver": driver, **ways("memory.get")}} | {
        name: ways(name) for name in inputs if name != "memory.get"
    }


async def rounds(sides: Mapping[str, Mapping[str, Call]]) -> Mapping[tuple[str, str], Sequence[float]]:
    """The p10 of each way's calls in each round, in milliseconds; the first round does not count."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(ROUNDS + 1):
        for operation, ways in sides.items():
            times: dict[str, list[float]] = defaultdict(list)
            for _ in range(CALLS):
                for name, call in ways.items():
                    began = perf_counter()
                    await call()
                    times[name].append(perf_counter() - began)
            if number:
                for name, taken in times.items():
                    found[operation, name].append(quantiles(taken, n=10)[0] * 1e3)
    return found


def report(found: Mapping[tuple[str, str], Sequence[float]]) -> None:
    """The table."""
    print(f"p10 of a call in milliseconds, medians of {ROUNDS} rounds; {MEMORIES:,} memories of {SIZE:,} characters")
    for operation, name in found:
        ratio = ""
        if name in ("MCP", "HTTP"):
            floor = found[operation, "SDK floor" if name == "MCP" else "FastAPI floor"]
            behind = found[operation, "driver" if operation == "memory.get" else "engine"]
            whole = zip(found[operation, name], floor, behind, strict=True)
            ratio = f"{median(ours / (bare + work) for ours, bare, work in whole):.2f} of the floor"
        print(f"{operation:<14} {name:<14} {median(found[operation, name]):>7.2f}  {ratio}")


if __name__ == "__main__":
    asyncio.run(main())
