"""One identity at a server that dies and comes back elsewhere: a request, until it is certain what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from muniment.conformance.target import Refused
from muniment_transport_mcp.conformance_client import McpClient, OverHttp
from tests.load.serving import REVISION

Answer = dict[str, Any]
PAUSE = 0.1
"""Seconds before a request is sent again."""


class Lost(Exception):
    """There is no answer, or the storage was unavailable: the request was done, or it was not."""


class Caller:
    """Calls operations with a token, at the ``url`` that the server has when a request is sent."""

    def __init__(self, url: Callable[[], str], token: str) -> None:
        self.answered = 0
        self.lost = 0
        """How many requests had an answer, and how many had none."""
        headers = {"authorization": f"Bearer {token}"}
        self._http = httpx2.AsyncClient(timeout=30, trust_env=False, headers=headers)
        self._url = url

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def once(self, operation: str, **payload: Any) -> Answer:
        """The answer. Raises Lost, and AssertionError for any other refusal."""
        answer = await self.asked(operation, **payload)
        assert "code" not in answer, f"{operation} was refused: {answer}"
        return answer

    async def certain(self, operation: str, **payload: Any) -> Answer:
        """The answer, asked for again as long as there is none: for what can be repeated. Raises AssertionError."""
        while True:
            try:
                return await self.once(operation, **payload)
            except Lost:
                await asyncio.sleep(PAUSE)

    async def asked(self, operation: str, **payload: Any) -> Answer:
        """The answer, or the refusal by its ``code``. Raises Lost."""
        client = McpClient(OverHttp(self._http, self._url(), REVISION), REVISION)
        try:
            answer = dict((await client.call(operation, payload)).answer)
        except Refused as refused:
            if refused.code == "storage_unavailable":
                self.lost += 1
                raise Lost from refused
            return {"code": refused.code, **refused.details}
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            self.lost += 1
            raise Lost from error
        self.answered += 1
        return answer


def read_url(file: Path) -> str:
    """Where the server is, as a file of one line says."""
    return file.read_text(encoding="utf-8")
