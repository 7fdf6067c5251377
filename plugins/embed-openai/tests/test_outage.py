"""The embedder under the engine: a provider that fails stops no write and no search, and is made good afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from muniment import passages
from muniment.engine import Engine
from muniment.errors import EmbedderMismatch
from muniment.models import CallContext, Principal
from muniment.reference import HashEmbedder, ReferenceData, ReferenceStorage
from muniment_embed_openai.embedder import OpenAIEmbedder
from muniment_embed_openai.loopback_api import Behaviour, LoopbackApi, alters, refuses

Opened = Callable[..., Awaitable[OpenAIEmbedder]]

CONTEXT = CallContext(principal=Principal(user="alice"), surface="test")
BREAD = "The oven must be hot before the bread goes in."
KEYS = "The keys hang behind the door."


async def write(engine: Engine, content: str) -> str:
    """The state of the embedding of a new memory."""
    receipt: Any = await engine.call("memory.write", {"content": content}, CONTEXT)
    return receipt.embedding.value


async def search(engine: Engine, query: str) -> Any:
    """The page of hits."""
    return await engine.call("memory.search", {"query": query}, CONTEXT)


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (refuses(503), "HTTP 503"),
        (refuses(429, code="insufficient_quota"), "quota is used up"),
        (refuses(401), "refused the API key in ACME_KEY"),
    ],
    ids=["down", "quota", "key"],
)
async def test_writes_wait_for_the_provider_and_are_made_good(
    failure: Behaviour, says: str, api: LoopbackApi, opened: Opened
) -> None:
    """VEC-07: while it fails a write is pending, search goes on by words and says why; then all is embedded."""
    data = ReferenceData()
    embedder = await opened(max_retries=0)
    await embedder.space()
    async with Engine(ReferenceStorage(data), embedder, background=False) as engine:
        assert await write(engine, BREAD) == "ready"
        api.always(failure)
        assert await write(engine, KEYS) == "pending"
        page = await search(engine, "keys")
        assert [hit.memory.content for hit in page.items] == [KEYS]
        assert says in page.degraded

        api.always(None)
        assert await engine.embeddings.heal() == 1
        page = await search(engine, "keys")
        assert page.degraded is None
        assert page.items[0].memory.content == KEYS

    space = "openai:words-256:256:own:unit:2000"
    stored = {key: vector for row in data.memories.values() for key, vector in row.passages.items()}
    assert set(stored) == {(space, passages.digest(text)) for text in (BREAD, KEYS)}
    for text in (BREAD, KEYS):
        wanted = HashEmbedder(256).vector(text)
        np.testing.assert_allclose(stored[space, passages.digest(text)], wanted, atol=1e-6)


async def test_a_provider_that_is_down_at_the_start(api: LoopbackApi, opened: Opened) -> None:
    """The engine opens without it, and takes it in when it is there."""
    api.always(refuses(503))
    async with Engine(ReferenceStorage(), await opened(max_retries=0), background=False) as engine:
        assert await write(engine, BREAD) == "pending"
        api.always(None)
        assert await engine.embeddings.heal() == 1
        assert await write(engine, KEYS) == "ready"


async def test_another_model_under_the_same_name_is_refused(api: LoopbackApi, opened: Opened) -> None:
    """VEC-05: a server that serves other weights by that name gets no vector stored, unless it is named otherwise."""
    data = ReferenceData()
    async with Engine(ReferenceStorage(data), await opened(), background=False) as engine:
        assert (await engine.embeddings.space()).id == "openai:words-256:256:own:unit:2000"

    def other(answer: dict[str, Any]) -> None:
        for each in answer["data"]:
            each["embedding"] = each["embedding"][::-1]

    api.always(alters(api, other))
    async with Engine(ReferenceStorage(data), await opened(), background=False) as engine:
        with pytest.raises(EmbedderMismatch):
            await engine.embeddings.space()
    async with Engine(ReferenceStorage(data), await opened(model_name="words-turned"), background=False) as engine:
        assert (await engine.embeddings.space()).id == "openai:words-turned:256:own:unit:2000"
