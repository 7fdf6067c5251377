"""A server with OpenAI's API on loopback, and embedders on it through the real client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from muniment.conformance.pytest_front import not_run
from muniment_embed_openai.embedder import OpenAIEmbedder
from muniment_embed_openai.loopback_api import KEY, MODEL, LoopbackApi
from muniment_embed_openai.options import Options

if TYPE_CHECKING:
    from muniment_embed_openai.loopback import Loopback

Opened = Callable[..., Awaitable[OpenAIEmbedder]]


@pytest.fixture(scope="session")
def server() -> Generator[Loopback]:
    """The server; without uvicorn the test is "not run", and failed where that is required."""
    if find_spec("uvicorn") is None:
        not_run('uvicorn is not installed; pip install "muniment-embed-openai[conformance]".')
    from muniment_embed_openai.loopback import Loopback

    made = Loopback()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def api(server: Loopback) -> LoopbackApi:
    """The server's application, which behaves until it is told otherwise."""
    server.api.reset()
    return server.api


@pytest.fixture
async def opened(server: Loopback, api: LoopbackApi) -> AsyncGenerator[Opened]:
    """Opens an embedder on the server: ``await opened(model, dimensions=64)``."""
    async with AsyncExitStack() as stack:

        async def opened(model: str = MODEL, **options: Any) -> OpenAIEmbedder:
            at = {"base_url": server.base_url, "api_key_env": "ACME_KEY"}
            made = OpenAIEmbedder(model, Options.model_validate({**at, **options}), environ={"ACME_KEY": KEY})
            await made.open()
            stack.push_async_callback(made.close)
            return made

        yield opened
