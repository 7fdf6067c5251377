"""A server on a loopback socket over the reference storage, and clients of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest

from muniment.engine import Engine
from muniment.models import Agent, CallContext, Principal
from muniment.ports import Callers
from muniment.reference import HashEmbedder, ReferenceStorage
from muniment.serving.addresses import Address, listening
from muniment.serving.http import serve_app
from muniment_transport_http.served import Served
from muniment_transport_http.transport import Options, application

Open = Callable[..., AbstractAsyncContextManager[httpx2.AsyncClient]]


@asynccontextmanager
async def served_to(
    engine: Engine, callers: Callers, ending: asyncio.Event | None = None, **options: Any
) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client of ``engine``, served to ``callers``."""
    asked = ending or asyncio.Event()
    settings = Options.model_validate(options)
    with listening(Address("127.0.0.1", 0)) as listener:
        address = Address.of_listener(listener)
        served = Served(engine, callers, address.url, settings.projects, asked)
        running = asyncio.create_task(serve_app(listener, application(served, address, settings), asked))
        try:
            async with httpx2.AsyncClient(base_url=address.url, timeout=30, trust_env=False) as client:
                yield client
        finally:
            asked.set()
            await running


@pytest.fixture
def serve() -> Open:
    """``serve(engine, callers, **options)``: a client of an engine that is served to them."""
    return served_to


@pytest.fixture
async def engine() -> AsyncGenerator[Engine]:
    """An open engine over an empty reference storage."""
    async with Engine(ReferenceStorage(), HashEmbedder(), background=False) as opened:
        yield opened


@pytest.fixture
def connect(engine: Engine) -> Open:
    """``connect(user, *groups, agent=, platform=, **options)``: a client that acts as that principal."""

    @asynccontextmanager
    async def connected(
        user: str = "alice",
        *groups: str,
        agent: Agent | None = None,
        platform: bool = False,
        ending: asyncio.Event | None = None,
        **options: Any,
    ) -> AsyncGenerator[httpx2.AsyncClient]:
        principal = Principal(user=user, groups=frozenset(groups), agent=agent, platform=platform)
        async with served_to(engine, Callers(CallContext(principal=principal)), ending, **options) as client:
            yield client

    return connected


@pytest.fixture
async def client(connect: Open) -> AsyncGenerator[httpx2.AsyncClient]:
    """alice's client."""
    async with connect() as opened:
        yield opened
