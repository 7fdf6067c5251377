"""LEX-01 and LEX-03: every word finds its memory, in whole and in parts, in any script."""

from __future__ import annotations

from muniment.conformance.answers import ranker_scores
from muniment.conformance.cases import found_by
from muniment.conformance.rules import STORAGE, Rules
from muniment.conformance.texts import word
from muniment.conformance.world import Caller, World, holds, same

RULES = Rules(STORAGE)
MEMORIES = 16
ABSENT = "xylographic qwertyuiop"

MORE_FOUND_BY: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("東京タワーで会議をした", ("東京", "会議", "タワー", "東京タワー")),
    ("서울에서 데이터베이스를 옮겼다", ("서울", "데이터베이스")),
    ("ฐานข้อมูลหลักอยู่ที่นี่", ("ฐานข้อมูล", "หลัก")),
    ("Обновили кластер базы данных", ("кластер", "КЛАСТЕР", "базы данных")),
    ("crème brûlée for Zoë", ("creme", "brûlée", "zoe", "BRULEE")),
    ("see https://example.org/docs/getting-started?x=1#top", ("example.org", "getting-started", "docs", "started")),
    ("the HTTPServer2 of user-id_42/main.py", ("HTTPServer2", "server", "user-id_42", "main.py", "user")),
    ("it's O'Brien's 1,000,000th e-mail", ("O'Brien", "e-mail", "mail", "brien")),
    ("C++ and C# but not F#", ("c++", "C#")),
    ("café" + " naïve", ("cafe\u0301", "nai\u0308ve", "café")),
    ("我", ("我",)),
)
STOP_WORDS = ("the", "of the and", "to be or not to be", "what is it", "THE")
HOSTILE = (
    "' OR 1=1 --",
    "'; DROP TABLE memory; --",
    '$where {"$gt":""} {"$regex":".*"}',
    "<-> & | ! :* (a|b)*\\d+$1 \\\\ %s %(x)s {y} ${z}",
    'tower:* & !north | "',
    "tower~2 +north -south AND OR NOT NEAR(tower, 2) ^3",
    "\\",
    "'",
    '"',
    "%",
    "_",
    "*",
    "( ) [ ] { } < >",
    "...",
    "?!",
    "👨‍👩‍👧‍👦 🙂",
    "\u200b",
    "\u202eabc\u202c",
    "a\tb\r\nc",
    " \n ",
    "q" * 2_000,
    "q " * 1_000,
    "-" * 2_000,
    "🙂" * 2_000,
    "数" * 2_000,
    "a-" * 1_000,
    "e\u0301" * 1_000,
    "-1e999 NaN Infinity",
    "NULL",
)


@RULES(
    "LEX-01",
    "Every word of a memory finds it (while fewer memories than the limit match), whatever the query's other words "
    "are, stop words included.",
)
async def every_word(world: World) -> None:
    alice = world.caller("alice")
    texts = [_text(world, number) for number in range(MEMORIES)]
    written = {(await alice("memory.write", content=text))["id"]: text for text in texts}
    others = [other for text in texts for other in text.split()]
    for memory, text in written.items():
        for one in dict.fromkeys(text.split()):
            await _finds(alice, memory, one)
            extra = world.random.choice((ABSENT, " ".join(world.random.choices(others, k=6)), "not the a of"))
            await _finds(alice, memory, world.random.choice((f"{one} {extra}", f"{extra} {one}")))
    page = await alice("memory.search", query=ABSENT, limit=50)
    found = [memory for memory in written if "words" in ranker_scores(page, memory)]
    same("the memories that words of none of them find", found, [])


def _text(world: World, number: int) -> str:
    """Some rare words, some that every memory has, stop words, and a compound."""
    rare = [f"{word(world.random)}{word(world.random)}" for _ in range(3)]
    words = [*rare, "the", "of", "report", f"item-{number}.{world.random.randrange(9)}"]
    world.random.shuffle(words)
    return " ".join(words)


async def _finds(caller: Caller, memory: str, query: str) -> None:
    page = await caller("memory.search", query=query, limit=50)
    scores = ranker_scores(page, memory)
    holds(
        scores.get("words", 0.0) > 0, f"a memory by {query[:80]!r}", expected="a hit of the words ranker", seen=scores
    )


@RULES(
    "LEX-03",
    "CJK, accented, hyphenated, dotted and underscored tokens are found whole and in parts; a query of stop words "
    "alone, of punctuation, of another system's syntax or of 2,000 characters is answered, not an error.",
)
async def tokens(world: World) -> None:
    alice = await world.without_embedder(world.caller("alice"))
    cases = (*found_by(), *MORE_FOUND_BY)
    for content, queries in cases:
        memory = (await alice("memory.write", content=content))["id"]
        for query in queries:
            await _finds(alice, memory, query)
    for content in HOSTILE:
        if content.strip():
            memory = (await alice("memory.write", content=f"{content} beacon"))["id"]
            await _finds(alice, memory, "beacon")
            await alice("memory.delete", id=memory)
    for caller in (alice, world.caller("alice")):
        for query in (*STOP_WORDS, *HOSTILE):
            await _is_answered(caller, query)
    memory = (await alice("memory.write", content="the lighthouse"))["id"]
    await _finds(alice, memory, "the")
    page = await alice("memory.search", query="lighthouse", limit=50)
    same("the memories with a word that only one has", [hit["memory"]["id"] for hit in page["items"]], [memory])


async def _is_answered(caller: Caller, query: str) -> None:
    for fusion in ("weighted", "rrf"):
        page = await caller("memory.search", query=query, fusion=fusion, limit=50)
        scores = [hit["score"] for hit in page["items"]]
        fits = scores == sorted(scores, reverse=True) and all(0 < score < float("inf") for score in scores)
        holds(fits, f"the scores of {query[:40]!a}", expected="positive, falling numbers", seen=scores)
