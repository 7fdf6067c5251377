"""What the vectors and token counts of the real model keep to, whichever engine computes them."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muniment import passages
from muniment.errors import EmbedderUnavailable, InvalidInput
from muniment_embed_local import engines
from muniment_embed_local.embedder import LocalEmbedder
from muniment_embed_local.model import EngineName
from muniment_embed_local.options import Options


@pytest.fixture(params=["onnx", "torch"])
def engine(request: pytest.FixtureRequest) -> EngineName:
    """Each of the two."""
    return request.param


ODD = [
    "",
    " ",
    "\n\t \r\n",
    "\u200b",
    "😀👩‍👩‍👧‍👦" * 40,
    "记忆是一种证据" * 80,
    "e\u0301\u202eאבג",
    "x" * 64_000,
    "word " * 12_800,
]
TRIPLES = [
    ("The backups run every night at two.", "Each night a backup is made.", "She bought a red bicycle."),
    ("How do I reset my password?", "Steps to change a forgotten password", "The river floods in spring."),
    ("Postgres refused the connection", "the database could not be reached", "a recipe for lentil soup"),
    ("The cat sleeps on the sofa", "A kitten is napping on the couch", "Interest rates rose by a quarter point"),
    ("deploy to production on Friday", "the release goes live at the end of the week", "penguins live in the south"),
]


async def test_dimensions_and_length_are_as_declared(embedder: LocalEmbedder) -> None:
    """EMB-01: the declared dimensions are the real ones; numbers are finite, float32, of unit length."""
    space = await embedder.space()
    vectors = await embedder.embed_passages(["one", "two words", "and some three"])
    query = await embedder.embed_query("one")
    assert vectors.shape == (3, space.dimensions)
    assert query.shape == (space.dimensions,)
    assert vectors.dtype == query.dtype == np.float32
    assert space.normalised
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


async def test_a_batch_equals_its_singles_in_order(embedder: LocalEmbedder) -> None:
    """EMB-02: neither the company of longer texts nor the order changes a vector by more than 1e-5."""
    texts = [f"{'word ' * (7 * place % 90)}number {place}" for place in range(40)]
    batch = await embedder.embed_passages(texts)
    for place in (0, 1, 12, 13, 25, 39):
        single = await embedder.embed_passages([texts[place]])
        np.testing.assert_allclose(batch[place], single[0], atol=1e-5)
    np.testing.assert_allclose(batch[::-1], await embedder.embed_passages(texts[::-1]), atol=1e-5)


async def test_an_empty_batch_is_empty(embedder: LocalEmbedder) -> None:
    """EMB-02: no texts give no vectors and no counts, in the right shape."""
    space = await embedder.space()
    assert (await embedder.embed_passages([])).shape == (0, space.dimensions)
    assert await embedder.count_tokens([]) == []


async def test_any_text_has_a_vector(embedder: LocalEmbedder) -> None:
    """EMB-03: white space, 64,000 characters, emoji, CJK and right-to-left texts give finite unit vectors."""
    vectors = await embedder.embed_passages(ODD)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-4)
    for text in ODD:
        assert np.isfinite(await embedder.embed_query(text)).all()


async def test_half_a_surrogate_pair_is_refused(embedder: LocalEmbedder) -> None:
    """EMB-03: what is no text is a typed refusal, and the embedder goes on working."""
    for call in (
        embedder.embed_passages(["a", "\ud800"]),
        embedder.embed_query("\udfff"),
        embedder.count_tokens(["\ud800"]),
    ):
        with pytest.raises(InvalidInput, match="surrogate"):
            await call
    assert len(await embedder.embed_query("still there")) == 384


@pytest.mark.parametrize(("anchor", "near", "far"), TRIPLES)
async def test_near_texts_are_nearer_than_far_ones(embedder: LocalEmbedder, anchor: str, near: str, far: str) -> None:
    """EMB-05: a paraphrase is nearer than an unrelated sentence, by a margin, for queries and for passages."""
    beside, away = await embedder.embed_passages([near, far])
    query = await embedder.embed_query(anchor)
    assert float(query @ beside) > float(query @ away) + 0.1


async def test_counts_are_the_models_and_have_no_limit(
    embedder: LocalEmbedder, capfd: pytest.CaptureFixture[str]
) -> None:
    """EMB-04: special tokens are left out, long texts are counted whole, and nothing is printed about it."""
    assert await embedder.count_tokens(["", "hello world", "tokenization", "word " * 12_800]) == [0, 2, 2, 12_800]
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "longer than" not in printed.err


async def test_passages_are_never_truncated(embedder: LocalEmbedder) -> None:
    """EMB-04: a passage cut to ``passage_tokens`` is read by the model to its last word."""
    limit = (await embedder.space()).passage_tokens
    content = "\n\n".join(
        f"## Part {part}\n\n"
        + " ".join(f"Sentence {part}.{n} of v2.{n}.1-rc{part} names_the thing; 记忆{n}." for n in range(part % 23 + 3))
        for part in range(60)
    )
    pieces = await _cut(embedder, content, limit)
    assert "".join(pieces) == content
    sizes = await embedder.count_tokens(pieces)
    assert max(sizes) <= limit
    assert max(sizes) > limit // 2
    longest = pieces[sizes.index(max(sizes))]
    whole, changed = await embedder.embed_passages([longest, re.sub(r"\w+\W*$", "zebra", longest)])
    assert not np.allclose(whole, changed, atol=1e-6)


async def test_the_limit_is_exact(embedder: LocalEmbedder) -> None:
    """EMB-04: the last token within ``passage_tokens`` counts, the first beyond it does not."""
    limit = (await embedder.space()).passage_tokens
    full = ["word"] * limit
    same, last, beyond = await embedder.embed_passages(
        [" ".join(full), " ".join([*full[:-1], "zebra"]), " ".join([*full, "zebra"])]
    )
    assert not np.allclose(same, last, atol=1e-6)
    np.testing.assert_allclose(same, beyond, atol=1e-5)


async def test_a_query_overtakes_a_long_batch(embedder: LocalEmbedder) -> None:
    """A query that comes while many passages are embedded is answered before they are done."""
    await embedder.space()
    batch = asyncio.create_task(embedder.embed_passages(["a rather long passage of ordinary words " * 20] * 48))
    await asyncio.sleep(0.05)
    started = time.monotonic()
    await embedder.embed_query("short")
    waited = time.monotonic() - started
    assert not batch.done()
    await batch
    assert waited < (time.monotonic() - started) / 2


def test_counting_holds_for_any_text(place: Path, engine: EngineName) -> None:
    """EMB-03, EMB-04: any text of whole characters is counted and embedded, in any script."""
    model = engines.load("all-MiniLM-L6-v2", place, Options(engine=engine))

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
    @given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), min_size=1, max_size=4))
    def check(texts: list[str]) -> None:
        assert all(count >= 0 for count in model.count(texts))
        assert np.isfinite(model.passages(texts)).all()

    check()


async def _cut(embedder: LocalEmbedder, content: str, limit: int) -> list[str]:
    units = passages.split(content)
    return passages.group(units, await embedder.count_tokens(units), limit)


@pytest.mark.parametrize("prompt", ["document", "passage"])
async def test_prompts_of_a_model_are_used_and_leave_room(
    place: Path, engine: EngineName, copied: Callable[[Path], Path], prompt: str
) -> None:
    """A model with prompts makes queries and passages with its own, and a passage's takes from ``passage_tokens``."""
    directory = copied(place)
    (directory / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "search query: ", prompt: "search document: "}})
    )
    embedder = LocalEmbedder(str(directory), Options(engine=engine, model_name="prompted"))
    await embedder.open()
    assert (await embedder.space()).passage_tokens == 254 - 3
    plain = LocalEmbedder(str(place), Options(engine=engine))
    await plain.open()
    for made, wanted in (
        ((await embedder.embed_passages(["lentil soup"]))[0], "search document: lentil soup"),
        (await embedder.embed_query("lentil soup"), "search query: lentil soup"),
    ):
        np.testing.assert_allclose(made, await plain.embed_query(wanted), atol=1e-5)
    await embedder.close()
    await plain.close()


async def test_a_model_without_a_limit_and_special_tokens(tmp_path: Path) -> None:
    """A model of word vectors has a limit of ours; a text in which it knows no word is a typed refusal, never NaN."""
    directory = tmp_path / "static"
    _save_static(directory)
    embedder = LocalEmbedder(str(directory))
    await embedder.open()
    space = await embedder.space()
    assert (space.dimensions, space.passage_tokens) == (8, 512)
    assert await embedder.count_tokens(["red blue", "red " * 2_000]) == [2, 2_000]
    np.testing.assert_allclose(np.linalg.norm(await embedder.embed_passages(["red", "red blue"]), axis=1), 1, atol=1e-5)
    with pytest.raises(EmbedderUnavailable, match="no token"):
        await embedder.embed_passages(["red", " "])
    await embedder.close()


def _save_static(directory: Path) -> None:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "model": 1, "red": 2, "blue": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    module = StaticEmbedding(tokenizer, embedding_weights=torch.eye(4, 8).numpy())
    SentenceTransformer(modules=[module], device="cpu").save(str(directory), create_model_card=False)
