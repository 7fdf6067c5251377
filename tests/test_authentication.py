"""``muniment serve`` over HTTP and ``muniment token``: who is let in, over both transports, as an operator has it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from muniment.conformance.target import Refused, Server
from muniment_transport_http.conformance import HttpServer
from muniment_transport_mcp.conformance import McpServer

CONFIGURATION = 'storage = "sqlite:team.db"\nembedder = "none"\nuser = "olga"\n'
TRANSPORTS = ("mcp", "http")
SECONDS = 60


def environment() -> dict[str, str]:
    """This process's variables, those of the configuration left out."""
    return {key: value for key, value in os.environ.items() if not key.startswith("MUNIMENT_")}


def muniment(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``muniment`` as somebody runs it in a directory."""
    return subprocess.run(
        [sys.executable, "-m", "muniment", *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where a server is configured that accepts API tokens."""
    (tmp_path / "muniment.toml").write_text(f"{CONFIGURATION}[auth]\n", encoding="utf-8")
    return tmp_path


@contextmanager
def serving(cwd: Path, transport: str, *arguments: str) -> Generator[tuple[Server, Path]]:
    """A server of its own process, as clients reach it, and what it says."""
    command = ["-m", "muniment", "serve", "--transport", transport, "--http", "127.0.0.1:0", *arguments]
    log = cwd / "log"
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen([sys.executable, *command], cwd=cwd, env=environment(), stderr=errors)
    try:
        url = _address(process, log)
        yield (HttpServer(url) if transport == "http" else McpServer(url, MODERN_PROTOCOL_VERSIONS[-1])), log
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    while process.poll() is None:
        if found := re.search(r"serving \w+ at (http://\S+)\n", log.read_text(encoding="utf-8")):
            return found[1]
    raise AssertionError(log.read_text(encoding="utf-8"))


async def listed(server: Server, authorization: str | None) -> list[str]:
    """The contents that a caller lists. Raises Refused."""
    async with server.connect(authorization) as client:
        return [one["content"] for one in (await client.call("memory.list", {})).answer["items"]]


async def refusal(server: Server, authorization: str | None) -> str:
    """The code by which a caller is refused."""
    with pytest.raises(Refused) as refused:
        await listed(server, authorization)
    return refused.value.code


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_token_lets_its_user_in_until_it_is_revoked(directory: Path, transport: str) -> None:
    """Made and revoked by the command while the server runs; the configured user is nobody over HTTP."""
    made = muniment(directory, "token", "create", "--user", "alice", "--scope", "write")
    assert made.returncode == 0, made.stderr
    header = f"Bearer {made.stdout.strip()}"
    with serving(directory, transport) as (server, log):
        assert await refusal(server, None) == "unauthenticated"
        async with server.connect(header) as client:
            await client.call("memory.write", {"content": "A deed of alice's."})
        assert await listed(server, header) == ["A deed of alice's."]

        later = muniment(directory, "token", "create", "--user", "bob", "--scope", "read")
        assert await listed(server, f"Bearer {later.stdout.strip()}") == []
        rows = muniment(directory, "token", "list").stdout.splitlines()[1:]
        ids = {row.split()[-2]: row.split()[0] for row in rows}
        assert muniment(directory, "token", "revoke", ids["alice"]).returncode == 0
        assert await refusal(server, header) == "unauthenticated"
        assert made.stdout.strip() not in log.read_text(encoding="utf-8")


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_nobody_is_asked_where_that_was_said_by_name(directory: Path, transport: str) -> None:
    """Whatever reaches the address is the configured user, and the server says so when it starts."""
    with serving(directory, transport, "--no-auth") as (server, log):
        assert await listed(server, None) == []
        assert "nobody is asked for credentials" in log.read_text(encoding="utf-8")
        assert "olga" in log.read_text(encoding="utf-8")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("configuration", "arguments", "says"),
    [
        (CONFIGURATION, ["--http", "127.0.0.1:0"], "--no-auth"),
        (CONFIGURATION, ["--http", "0.0.0.0:0"], "nobody is asked"),
        (CONFIGURATION, ["--http", "0.0.0.0:0", "--no-auth"], "nobody is asked"),
        (f"{CONFIGURATION}[auth]\n", ["--http", "0.0.0.0:0"], "set url in [auth]"),
    ],
)
def test_what_is_not_served(
    tmp_path: Path, transport: str, configuration: str, arguments: list[str], says: str
) -> None:
    """Nothing is listened at before it is clear who may call, and by which name."""
    (tmp_path / "muniment.toml").write_text(configuration, encoding="utf-8")
    done = muniment(tmp_path, "serve", "--transport", transport, *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "serving" not in done.stderr
