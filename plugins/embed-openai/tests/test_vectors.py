"""What vectors come back, from which requests: order, batches, dimensions, encodings, tokens, the space."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muniment import passages
from muniment.errors import ConfigurationError, EmbedderUnavailable, InvalidInput
from muniment.reference import HashEmbedder
from muniment_embed_openai.embedder import OpenAIEmbedder, batches
from muniment_embed_openai.loopback_api import KEY, Asked, LoopbackApi, Reply, alters, refuses

Opened = Callable[..., Awaitable[OpenAIEmbedder]]
TEXTS = [f"note {place} about {'bread' if place % 2 else 'keys'}" for place in range(25)]


def sent(api: LoopbackApi) -> list[list[str]]:
    """The texts of each request."""
    return [asked.texts for asked in api.asked]


def shuffled(answer: dict[str, Any]) -> None:
    """The vectors in another order, their indices right."""
    answer["data"].reverse()


async def test_vectors_are_those_of_the_texts_whatever_their_order(api: LoopbackApi, opened: Opened) -> None:
    """EMB-02: an answer is read by its indices, not by its order."""
    embedder = await opened()
    await embedder.space()
    api.then(alters(api, shuffled))
    np.testing.assert_allclose(
        await embedder.embed_passages(TEXTS), await HashEmbedder(256).embed_passages(TEXTS), atol=1e-6
    )


async def test_requests_are_cut_by_texts_and_by_bytes(api: LoopbackApi, opened: Opened) -> None:
    """No request has more texts or more bytes than set, and each text is sent once, in order."""
    embedder = await opened(batch_texts=4, batch_bytes=8_192, concurrency=1)
    await embedder.space()
    api.asked.clear()
    texts = [*TEXTS, "é" * 1_000, "é" * 1_000, "é" * 3_000, "é" * 100]
    vectors = await embedder.embed_passages(texts)

    assert [text for part in sent(api) for text in part] == texts
    assert [len(part) for part in sent(api)] == [4, 4, 4, 4, 4, 4, 3, 2]
    np.testing.assert_allclose(vectors, await HashEmbedder(256).embed_passages(texts), atol=1e-6)


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 9), st.integers(1, 120))
def test_batches_hold_everything_once(sizes: list[int], texts: int, size: int) -> None:
    """The runs join to the whole row; only a single text may be larger than a run."""
    runs = list(batches(sizes, texts, size))

    assert [place for start, end in runs for place in range(start, end)] == list(range(len(sizes)))
    for start, end in runs:
        assert end - start <= texts
        assert sum(sizes[start:end]) <= size or end - start == 1


async def test_the_dimensions_of_a_model_are_learnt(api: LoopbackApi, opened: Opened) -> None:
    """EMB-01: the space's dimensions are those that the model gives, and nothing is asked for unless it is set."""
    embedder = await opened("words-64-only")
    space = await embedder.space()

    assert (space.dimensions, space.id) == (64, "openai:words-64-only:64:own:unit:2000")
    assert (await embedder.embed_query("bread")).shape == (64,)
    assert not [asked for asked in api.asked if "dimensions" in asked.body]


async def test_shorter_vectors_are_asked_for_and_of_unit_length(api: LoopbackApi, opened: Opened) -> None:
    """EMB-01: ``dimensions`` goes with each request, and what the model only cuts off is brought to unit length."""
    embedder = await opened(dimensions=32)
    vectors = await embedder.embed_passages(TEXTS)
    whole = await HashEmbedder(256).embed_passages(TEXTS)

    assert (await embedder.space()).id == "openai:words-256:32:own:unit:2000"
    assert {asked.body["dimensions"] for asked in api.asked} == {32}
    assert float(np.linalg.norm(whole[:, :32], axis=1).max()) < 0.9
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(vectors, whole[:, :32] / np.linalg.norm(whole[:, :32], axis=1, keepdims=True), atol=1e-6)


async def test_dimensions_that_the_model_does_not_give_are_refused(api: LoopbackApi, opened: Opened) -> None:
    """Refused by the provider, or ignored by it: both are a setting that somebody must correct."""
    for embedder in (await opened("words-64-only", dimensions=32), await opened(dimensions=1_024)):
        with pytest.raises(ConfigurationError, match=r"does not give .* dimensions .*correct or remove"):
            await embedder.space()

    embedder = await opened(dimensions=32)
    api.always(alters(api, lambda answer: [each.update(embedding=[0.5] * 48) for each in answer["data"]]))
    with pytest.raises(ConfigurationError, match="48 dimensions, not the 32"):
        await embedder.space()


async def test_a_space_has_from_8_to_4096_dimensions(api: LoopbackApi, opened: Opened) -> None:
    """A model of fewer or more dimensions than any space has is refused, with the remedy."""
    for dimensions in (7, 4_097):
        row = [0.5] * dimensions
        api.always(alters(api, lambda answer, row=row: [each.update(embedding=row) for each in answer["data"]]))
        with pytest.raises(ConfigurationError, match=f"{dimensions} dimensions, and a space has 8 to 4,096"):
            await (await opened()).space()


async def test_numbers_instead_of_base64(api: LoopbackApi, opened: Opened) -> None:
    """A server that answers numbers to a request for base64 is read all the same; one that refuses is asked again,
    and from then on for numbers."""
    wanted = await HashEmbedder(256).embed_passages(TEXTS)
    api.always(alters(api, lambda _: None))
    np.testing.assert_allclose(await (await opened()).embed_passages(TEXTS), wanted, atol=1e-6)

    api.reset()
    api.then(refuses(400, "encoding_format must be float", param="encoding_format"))
    embedder = await opened()
    np.testing.assert_allclose(await embedder.embed_passages(TEXTS), wanted, atol=1e-6)
    assert [asked.body["encoding_format"] for asked in api.asked] == ["base64", "float", "float"]


async def test_a_server_that_says_no_index_is_read_text_by_text(api: LoopbackApi, opened: Opened) -> None:
    """Of several vectors without their texts nothing is guessed; with ``batch_texts = 1`` there is nothing to guess."""

    def unnumbered(answer: dict[str, Any]) -> None:
        for each in answer["data"]:
            del each["index"]

    api.always(alters(api, unnumbered))
    with pytest.raises(EmbedderUnavailable, match="batch_texts = 1"):
        await (await opened()).space()
    vectors = await (await opened(batch_texts=1)).embed_passages(TEXTS)
    np.testing.assert_allclose(vectors, await HashEmbedder(256).embed_passages(TEXTS), atol=1e-6)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=99), max_size=9))
async def test_tokens_are_bounded_by_bytes(texts: list[str]) -> None:
    """EMB-04: no token of a byte-level tokeniser is shorter than a byte; counting needs neither a key nor a network."""
    embedder = OpenAIEmbedder("text-embedding-3-small", environ={})
    assert await embedder.count_tokens(texts) == [len(text.encode()) for text in texts]


async def test_passages_fit_into_every_limit_of_the_api(api: LoopbackApi, opened: Opened) -> None:
    """EMB-04: the longest memory, of characters of four bytes, is cut into passages that a server takes which counts
    every byte as a token; so is the longest query."""
    embedder = await opened()
    limit = (await embedder.space()).passage_tokens
    content = "".join(f"😀😀😀😀😀{place}。" for place in range(6_000))[:64_000]
    units = passages.split(content)
    texts = passages.group(units, await embedder.count_tokens(units), limit)

    assert limit // 2 < max(len(text.encode()) for text in texts) <= limit == 2_000
    assert "".join(texts) == content
    assert len(await embedder.embed_passages(texts)) == len(texts)
    assert len(await embedder.embed_query("😀" * 2_000)) == 256


async def test_a_model_that_reads_less_than_a_passage_is_refused(api: LoopbackApi, opened: Opened) -> None:
    """EMB-04: where a server cuts texts off, or refuses long ones, that is found out before a vector is stored."""

    async def truncating(asked: Asked, reply: Reply) -> None:
        await api.behave(Asked(asked.headers, {**asked.body, "input": [text[:512] for text in asked.texts]}), reply)

    api.always(truncating)
    with pytest.raises(ConfigurationError, match=r"whole text of 2,000 tokens.*passage_bytes"):
        await (await opened()).space()
    assert (await (await opened(passage_bytes=510)).space()).id == "openai:words-256:256:own:unit:510"
    api.always(refuses(413, "At most 512 tokens."))
    with pytest.raises(ConfigurationError, match=r"whole text of 2,000 tokens.*passage_bytes.*HTTP 413: At most 512"):
        await (await opened()).space()


async def test_a_text_that_is_too_long_is_a_typed_refusal(api: LoopbackApi, opened: Opened) -> None:
    """EMB-03: nothing is cut off: a text beyond the model's limit is refused, and others are taken all the same."""
    embedder = await opened()
    with pytest.raises(InvalidInput, match=r"^text: .*maximum context length is 8192"):
        await embedder.embed_passages(["short", "too long " * 1_000])
    with pytest.raises(InvalidInput, match="maximum context length is 8192"):
        await embedder.embed_query("too long " * 1_000)
    assert len(await embedder.embed_passages(["short"])) == 1


async def test_what_has_no_meaning_or_is_no_text_is_never_sent(api: LoopbackApi, opened: Opened) -> None:
    """EMB-03: an empty text, which the API refuses, and half of a surrogate pair are typed refusals."""
    embedder = await opened()
    for text in ("", "half \ud83d"):
        with pytest.raises(InvalidInput, match=r"^text: "):
            await embedder.embed_passages(["whole", text])
        with pytest.raises(InvalidInput, match=r"^text: "):
            await embedder.embed_query(text)
    assert not api.asked
    assert (await embedder.embed_passages([])).shape == (0, 256)
    assert (await embedder.embed_query(" \t")).shape == (256,)


async def test_requests_at_a_time_are_bounded(api: LoopbackApi, opened: Opened) -> None:
    """Passages go out in as many requests at once as set, and a query does not wait behind them."""
    embedder = await opened(batch_texts=1, concurrency=3)
    await embedder.space()
    api.asked.clear()
    begun, let_go = threading.Semaphore(0), threading.Event()

    async def held(asked: Asked, reply: Reply) -> None:
        if asked.texts != ["a query"]:
            begun.release()
            await asyncio.to_thread(let_go.wait, 30)
        await api.behave(asked, reply)

    api.always(held)
    making = asyncio.create_task(embedder.embed_passages(TEXTS))
    try:
        for _ in range(3):
            assert await asyncio.to_thread(begun.acquire, timeout=30)
        await embedder.embed_query("a query")
        assert sorted(sent(api)) == sorted([["a query"], *([text] for text in TEXTS[:3])])
    finally:
        let_go.set()
    assert len(await making) == len(TEXTS)


async def test_the_key_and_what_is_about_openai_go_where_they_are_meant(
    api: LoopbackApi, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A named server gets the key that is named for it, and nothing of OpenAI's own variables."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-openai")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-openai")
    await (await opened()).space()
    await (await opened(organization="acme", project="notes")).space()
    api.key = None
    await (await opened(api_key_env=None)).space()
    api.key = KEY

    shown = ("authorization", "openai-organization", "openai-project")
    assert [tuple(asked.headers.get(name) for name in shown) for asked in api.asked] == [
        (f"Bearer {KEY}", None, None),
        (f"Bearer {KEY}", "acme", "notes"),
        (None, None, None),
    ]
