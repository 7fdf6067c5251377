"""``muniment serve`` as a client starts it: whose it is, which project is the default, and broken plugins beside it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from muniment.operations import OPERATIONS

BROKEN = {
    "raises": "raise RuntimeError('no such driver')",
    "other_major": (
        "from muniment.hookspecs import Descriptor, hookimpl\n@hookimpl\ndef muniment_plugins():\n"
        "    return [Descriptor(name='storage-acme', kind='storage', schemes=('acme',), factory='x:y', summary='',"
        " contract='7.0')]\n"
    ),
}


def environment(**more: str) -> dict[str, str]:
    """This process's variables, those of the configuration left out."""
    return {key: value for key, value in os.environ.items() if not key.startswith("MUNIMENT_")} | more


def install(directory: Path, source: str) -> dict[str, str]:
    """A distribution ``storage-acme`` in ``directory``, and the variable that puts it on the path."""
    (directory / "storage_acme.py").write_text(source, encoding="utf-8")
    info = directory / "storage_acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: storage-acme\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[muniment]\nstorage-acme = storage_acme\n", encoding="utf-8")
    return {"PYTHONPATH": str(directory)}


@asynccontextmanager
async def served(cwd: Path, *arguments: str, **variables: str) -> AsyncGenerator[Client, None]:
    """A client of a server in memory, started in ``cwd``."""
    command = ["-m", "muniment", "serve", "--storage", "memory:", "--embedder", "hash:", *arguments]
    server = StdioServerParameters(command=sys.executable, args=command, env=environment(**variables), cwd=cwd)
    with (cwd / "log").open("w", encoding="utf-8") as log:
        async with Client(stdio_client(server, errlog=log), read_timeout_seconds=60) as client:
            yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """A tool's answer or refusal, as data."""
    result = await client.call_tool(tool, arguments)
    (block,) = result.content
    return json.loads(getattr(block, "text", ""))


@pytest.mark.parametrize(("arguments", "key"), [((), "acme/web"), (("--project", "acme/api"), "acme/api")])
async def test_the_default_project(tmp_path: Path, arguments: tuple[str, ...], key: str) -> None:
    """A write without a scope goes to ``--project``, else to what the file above the working directory says."""
    (tmp_path / ".muniment-project").write_text("acme/web\n", encoding="utf-8")
    cwd = tmp_path / "src"
    cwd.mkdir()

    async with served(cwd, *arguments) as client:
        refused = await call(client, "memory_write", content="Too early.")
        project = (await call(client, "project_identify", project=key))["project"]
        written = await call(client, "memory_write", content="In time.")

    assert refused["code"] == "unknown_project"
    assert written["project_id"] == project["id"]


async def test_the_user_is_the_configured_one(tmp_path: Path) -> None:
    """Without a project memories are the user's own, and the audit trail names the user and the surface."""
    async with served(tmp_path, "--user", "alice") as client:
        written = await call(client, "memory_write", content="Mine.")
        (entry,) = (await call(client, "memory_history", id=written["id"]))["items"]

    assert written["project_id"] is None
    assert (entry["actor"], entry["surface"], entry["scope_key"]) == ("alice", "mcp", "u:alice")


@pytest.mark.parametrize(
    ("arguments", "variables", "audience"),
    [
        ((), {}, None),
        (("--agent", "ada/1"), {}, "agent"),
        ((), {"MUNIMENT_AGENT": "ada/1"}, "agent"),
        (("--platform",), {}, "platform"),
        (("--no-platform",), {"MUNIMENT_PLATFORM": "true"}, None),
    ],
)
async def test_the_caller_is_the_configured_one(
    tmp_path: Path, arguments: tuple[str, ...], variables: dict[str, str], audience: str | None
) -> None:
    """Who a client is, an agent, the platform or neither, is what the configuration says; so are its tools."""
    async with served(tmp_path, *arguments, **variables) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        own = await call(client, "section_read", sections=["soul"])

    assert tools == {name.replace(".", "_") for name, one in OPERATIONS.items() if one.audience in ("user", audience)}
    assert own.get("agent") == ({"name": "ada", "instance": "1"} if audience == "agent" else None)


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_plugin_beside_it(tmp_path: Path, source: str) -> None:
    """A plugin that raises on import, or is of another major, does not keep the others from serving."""
    async with served(tmp_path, **install(tmp_path, source)) as client:
        assert len((await client.list_tools()).tools) > 0


NOISY = "import os\nprint('noise')\nos.write(1, b'noise')\nos.system('echo noise')\nraise RuntimeError('no driver')"


async def test_what_a_plugin_prints_is_no_protocol(tmp_path: Path) -> None:
    """The first line that a client reads is the server's answer, whatever plugins print when they are imported."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muniment", "serve", "--storage", "memory:", "--embedder", "none"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(**install(tmp_path, NOISY)),
    )
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}

    out, errors = await asyncio.wait_for(process.communicate(json.dumps(call).encode() + b"\n"), 60)

    assert [json.loads(line)["id"] for line in out.splitlines()] == [1]
    assert errors.count(b"noise") == 3


@pytest.mark.parametrize(
    ("arguments", "first"),
    [(["plugins", "list"], "embed-local "), (["doctor", "--storage", "memory:", "--embedder", "none"], "muniment ")],
)
def test_what_a_plugin_prints_is_no_output(tmp_path: Path, arguments: list[str], first: str) -> None:
    """What lists plugins prints its own lines alone; what plugins print goes to standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "muniment", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env=environment(**install(tmp_path, NOISY)),
    )

    assert done.stdout.startswith(first)
    assert "noise" not in done.stdout
    assert done.stderr.count("noise") == 3


@pytest.mark.parametrize(
    ("source", "cause"),
    [(BROKEN["raises"], "RuntimeError: no such driver"), (BROKEN["other_major"], "contract 7.0")],
    ids=BROKEN.keys(),
)
@pytest.mark.parametrize("toml", ['storage = "acme://host"\n', "[plugins.storage-acme]\npool = 3\n"])
def test_a_broken_plugin_that_is_configured(tmp_path: Path, source: str, cause: str, toml: str) -> None:
    """Named by its scheme or its table it stops the start: one line with its cause, and exit code 2."""
    variables = install(tmp_path, source)
    (tmp_path / "muniment.toml").write_text(toml, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "muniment", "serve", "--embedder", "none"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("muniment: The configuration asks for ")
    assert cause in done.stderr
    assert done.stderr.count("\n") == 1
