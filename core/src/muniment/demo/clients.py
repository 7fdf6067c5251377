"""MCP clients of servers that are started as any client starts them: a command, over its standard streams."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muniment.config import PREFIX, variable
from muniment.errors import PluginError, StorageUnavailable

if TYPE_CHECKING:
    from mcp import Client

PLUGINS = variable("plugins")
"""Plugins' options are the machine's, such as whether root may start a database; all else is the demo's."""
READ_TIMEOUT = 180.0
"""Seconds for one answer; a first one may wait for a database and a model."""


class Refused(Exception):
    """A tool's refusal: its code, its message and its details, as the client sees them."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.code = str(body["code"])
        self.details: Mapping[str, Any] = body.get("details", {})
        super().__init__(str(body["message"]))


@dataclass(frozen=True, slots=True)
class Answer:
    """A result, the characters of the call's arguments, and the characters of the reply's text."""

    value: Mapping[str, Any]
    sent: int
    received: int


class Person:
    """Somebody at a client of their own."""

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self._client = client

    async def call(self, tool: str, **arguments: Any) -> Answer:
        """Call a tool. Raises Refused."""
        result = await self._client.call_tool(tool, arguments)
        text = "".join(getattr(block, "text", "") for block in result.content)
        structured = "" if result.structured_content is None else json.dumps(result.structured_content)
        if result.is_error:
            raise Refused(json.loads(text))
        sent = len(json.dumps(arguments, ensure_ascii=False))
        return Answer(json.loads(text), sent, len(text) + len(structured))


@asynccontextmanager
async def connected(name: str, options: Sequence[str], directory: Path, config: Path) -> AsyncGenerator[Person, None]:
    """Somebody with a client and a server, which is started with ``options``, until the end.

    Raises PluginError, StorageUnavailable.
    """
    try:
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client
    except ImportError:
        raise PluginError("The demo speaks MCP and needs its plugin; pip install muniment-transport-mcp.") from None
    arguments = ["-m", "muniment", "serve", "--config", str(config), *options]
    environment = {key: value for key, value in os.environ.items() if key == PLUGINS or not _is_setting(key)}
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment, cwd=directory)
    log = directory / f"{name}.log"
    with log.open("w", encoding="utf-8") as errors:
        client = Client(stdio_client(server, errlog=errors), read_timeout_seconds=READ_TIMEOUT)
        started = False
        try:
            async with client:
                started = True
                yield Person(name, client)
        except Exception:
            if started:
                raise
            raise StorageUnavailable(f"The server of {name} did not start: {_last_line(log)}") from None


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("muniment: ") if lines else "it said nothing; run muniment doctor."


def _is_setting(name: str) -> bool:
    return name.upper().startswith(PREFIX)
