"""The frameworks by themselves, on a port that the system chooses: one answer of a given size, and nothing behind it.

Run as a script with ``mcp`` or ``http`` and the number of characters; it prints where it serves.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent

PATH = "/floor"


async def over_mcp(listener: socket.socket, text: str) -> None:
    """The SDK: each call of any tool gives the text."""

    async def call(_: ServerRequestContext[Any, Any], _params: CallToolRequestParams) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text=text)])

    async def tools(_: ServerRequestContext[Any, Any], _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[])

    server: Server[Any] = Server("floor", version="1", on_call_tool=call, on_list_tools=tools)
    sessions = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
    async with sessions.run():
        await serve(listener, sessions.handle_request)


async def over_http(listener: socket.socket, text: str) -> None:
    """FastAPI: a route that gives the text as a member of an object."""
    app = FastAPI()

    async def get() -> dict[str, str]:
        return {"content": text}

    app.add_api_route(PATH, get, methods=["GET", "POST"])
    await serve(listener, app)


async def serve(listener: socket.socket, app: Any) -> None:
    """Until the process is ended."""
    sys.stdout.write(f"serving at http://127.0.0.1:{listener.getsockname()[1]}{PATH}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none", interface="asgi3")
    await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    # Named outright, since asyncio sends small packets at once only on what says that it is TCP.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.bind(("127.0.0.1", 0))
        asyncio.run({"mcp": over_mcp, "http": over_http}[sys.argv[1]](bound, "x" * int(sys.argv[2])))
