"""EMB-01 to EMB-05: what vectors an embedder gives."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from muniment.conformance.invariant import Feature
from muniment.conformance.rules import EMBEDDER, Rules
from muniment.conformance.texts import document
from muniment.conformance.world import World, holds, same
from muniment.errors import EmbedderUnavailable, InvalidInput
from muniment.ports import Embedder, Vector

RULES = Rules(EMBEDDER)
TOLERANCE = 1e-5
UNIT_TOLERANCE = 1e-3

PLAIN = (
    "The backup runs every night at two.",
    "Our database is PostgreSQL.",
    "naïve café, 数据库, 😀",
)
ODD = {
    "a space": " ",
    "white space": " \t\r\n\u3000 ",
    "one character": "x",
    "a full stop": ".",
    "emoji": "😀👨\u200d👩\u200d👧" * 20,
    "combining marks": "e" + "\u0301" * 200,
    "CJK": "我们选择了数据库" * 100,
    "right to left": "שלום עולם " * 50,
    "one word of 5,000 letters": "a" * 5_000,
    "64,000 characters": "many words " * 5_818 + "ab",
}
TRIPLES = (
    ("The cat sleeps on the sofa.", "A kitten is napping on the couch.", "The invoice is due on Friday."),
    ("How do I reset my password?", "Steps to recover a forgotten password.", "The river floods each spring."),
    ("We deploy on Tuesdays.", "Releases go out every Tuesday.", "The soup needs more salt."),
    ("The server ran out of disk space.", "The disk of the server is full.", "She plays the violin."),
    ("Revenue grew by ten percent.", "Sales increased 10%.", "The dog chased a ball in the park."),
    ("Use tabs for indentation.", "Indent the code with tab characters.", "The train to the coast is late."),
)
ALLOWED_WRONG = 1


@RULES(
    "EMB-01",
    "Declared dimensions are the real ones; numbers are finite float32; vectors are of unit length if declared "
    "normalised; the space is the same each time it is asked.",
)
async def declared_shape(world: World) -> None:
    embedder = world.embedder.inner
    space = await embedder.space()
    same("the space asked again", await embedder.space(), space)
    async with world.embedder_target.open() as other:
        same("the space of another one of the same configuration", await other.space(), space)
    same("whether the declared dimensions are positive", space.dimensions > 0, True)
    same("whether the declared passage size is positive", space.passage_tokens > 0, True)
    vectors = await embedder.embed_passages(PLAIN)
    same("the shape of three vectors", vectors.shape, (len(PLAIN), space.dimensions))
    same("the type of the numbers", str(vectors.dtype), "float32")
    query = await embedder.embed_query(PLAIN[0])
    same("the shape of a query's vector", query.shape, (space.dimensions,))
    for text, vector in zip((*PLAIN, PLAIN[0]), (*vectors, query), strict=True):
        _usable(f"the vector of {text!r}", vector, space.normalised)
    rank = int(np.linalg.matrix_rank(vectors.astype(np.float64), tol=1e-3))
    same("how many of three different texts have a direction of their own", rank, len(PLAIN))


def _usable(what: str, vector: Vector, normalised: bool) -> None:
    holds(bool(np.isfinite(vector).all()), what, expected="finite numbers", seen="NaN or infinity")
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if normalised:
        holds(abs(length - 1) <= UNIT_TOLERANCE, f"the length of {what}", expected="1", seen=length)
    holds(length > 0, f"the length of {what}", expected="more than 0", seen=length)


@RULES(
    "EMB-02",
    "Same text, same vector (1e-5); a batch equals its singles, in order; an empty batch is an empty list.",
)
async def batches(world: World) -> None:
    embedder = world.embedder.inner
    space = await embedder.space()
    texts = [*PLAIN, document(world.random, 700), PLAIN[0], "x", *(document(world.random, 60) for _ in range(40))]
    singles = [(await embedder.embed_passages([text]))[0] for text in texts]
    batch = await embedder.embed_passages(texts)
    same("the shape of a batch", batch.shape, (len(texts), space.dimensions))
    _close("a batch against its singles", batch, np.stack(singles))
    shuffled = list(range(len(texts)))
    world.random.shuffle(shuffled)
    again = await embedder.embed_passages([texts[place] for place in shuffled])
    _close("a shuffled batch", again, batch[shuffled])
    async with world.embedder_target.open() as other:
        _close("another one of the same configuration", await other.embed_passages(texts[:6]), batch[:6])
    query = await embedder.embed_query(PLAIN[1])
    _close("a query asked twice", await embedder.embed_query(PLAIN[1]), query)
    same("the length of an empty batch", len(await embedder.embed_passages([])), 0)
    same("the counts of an empty batch", list(await embedder.count_tokens([])), [])
    apart = float(np.abs(batch[0] - batch[1]).max())
    holds(apart > 100 * TOLERANCE, "the vectors of two different texts", expected="apart", seen=apart)


def _close(what: str, seen: Vector, expected: Vector) -> None:
    same(f"the shape of {what}", seen.shape, expected.shape)
    off = float(np.abs(seen.astype(np.float64) - expected.astype(np.float64)).max()) if seen.size else 0.0
    holds(off <= TOLERANCE, what, expected=f"equal within {TOLERANCE}", seen=off)


@RULES(
    "EMB-03",
    "White space, 64,000 characters, emoji and CJK give a vector or a typed refusal, never a crash, never NaN.",
)
async def odd_texts(world: World) -> None:
    embedder = world.embedder.inner
    space = await embedder.space()
    vectors = 0
    made: dict[str, Vector] = {}
    for name, text in ODD.items():
        world.trail.add(f"embed {name}")
        for embed in (_passage, _query):
            try:
                vector = await embed(embedder, text)
            except (InvalidInput, EmbedderUnavailable):
                continue
            same(f"the shape of the vector of {name}", vector.shape, (space.dimensions,))
            _usable(f"the vector of {name}", vector, space.normalised)
            vectors += 1
            made[name] = vector
    for one, other in combinations([name for name in ("emoji", "CJK", "64,000 characters") if name in made], 2):
        apart = float(np.abs(made[one] - made[other]).max())
        holds(apart > TOLERANCE, f"the vectors of {one} and {other}", expected="different", seen=f"{apart:g} apart")
    holds(vectors >= len(ODD), "how many odd texts have a vector", expected=f"at least {len(ODD)}", seen=vectors)
    _usable("the vector of a plain text afterwards", await _passage(embedder, PLAIN[0]), space.normalised)


async def _passage(embedder: Embedder, text: str) -> Vector:
    return (await embedder.embed_passages([text]))[0]


async def _query(embedder: Embedder, text: str) -> Vector:
    return await embedder.embed_query(text)


@RULES(
    "EMB-04",
    "The embedder says how much text it can take and counts more than that, and passages made for it are never "
    "truncated.",
)
async def no_truncation(world: World) -> None:
    embedder = world.embedder.inner
    space = await embedder.space()
    text = document(world.random, 6_000)
    once, twice = await embedder.count_tokens([text, text + text])
    holds(twice >= 1.9 * once > 0, "the tokens of a text twice as long", expected=f"about {2 * once}", seen=twice)
    longest = "".join(document(world.random, 6_000) for _ in range(1 + space.passage_tokens // max(once, 1)))
    counted = (await embedder.count_tokens([longest]))[0]
    holds(counted > space.passage_tokens, "the tokens of a long text", expected="over the limit", seen=counted)
    await world.caller("alice")("memory.write", content=(longest + "数据库的主表。" * 200)[:60_000])
    passages = list(world.embedder.passages)
    counts = await embedder.count_tokens(passages)
    largest = max(counts, default=0)
    holds(0 < largest <= space.passage_tokens, "the longest passage", expected=space.passage_tokens, seen=largest)
    await _ends_count(embedder, [text for _, text in sorted(zip(counts, passages, strict=True))[-5:]])


async def _ends_count(embedder: Embedder, passages: list[str]) -> None:
    """The last word of even the longest passages moves the vector, so it was read."""
    changed = [f"{passage.rstrip()[:-4]} zq" for passage in passages]
    before, after = await embedder.embed_passages(passages), await embedder.embed_passages(changed)
    for old, new in zip(before, after, strict=True):
        moved = float(np.abs(old - new).max())
        holds(moved > TOLERANCE, "the vector once a passage's last word changed", expected="another", seen=moved)


@RULES(
    "EMB-05",
    "Near texts are nearer than far ones, over a small fixed set of triples.",
    lenient_without=Feature.SEMANTIC,
)
async def near_and_far(world: World) -> None:
    embedder = world.embedder.inner
    wrong: list[str] = []
    for anchor, near, far in TRIPLES:
        query = await embedder.embed_query(anchor)
        vectors = await embedder.embed_passages([near, far])
        nearness = vectors @ query / np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
        if not float(nearness[0]) > float(nearness[1]):
            wrong.append(anchor)
    holds(len(wrong) <= ALLOWED_WRONG, "texts that are nearer to the far one", expected=ALLOWED_WRONG, seen=wrong)
