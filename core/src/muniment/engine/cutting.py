"""How contents become an embedder's passages, cut by its own tokeniser: many at once, since asking it takes a turn.

Where a text may be cut is ``passages``'; counting tokens is the embedder's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import TypeAlias

from muniment import passages
from muniment.ports import Embedder

LONG_TEXT = 4_000
"""Characters from which on cutting leaves the event loop."""


_Sized: TypeAlias = tuple[str, int]
"""A part of a content, and its size in the embedder's tokens."""


async def cut(content: str, embedder: Embedder, limit: int) -> dict[str, str]:
    """A content's passages by hash, each at most ``limit`` of the embedder's own tokens; blank ones are left out."""
    (found,) = await cut_all([content], embedder, limit)
    return found


async def cut_all(contents: Sequence[str], embedder: Embedder, limit: int) -> list[dict[str, str]]:
    """What ``cut`` gives for each, with as many questions to the embedder as for one."""
    aside = sum(map(len, contents)) >= LONG_TEXT
    split = await asyncio.to_thread(_split, contents) if aside else _split(contents)
    units = await _halved(split, embedder, limit)
    joined = await asyncio.to_thread(_grouped, units, limit) if aside else _grouped(units, limit)
    fitting = await _halved(joined, embedder, limit)
    return [{passages.digest(text): text for text, _ in parts if text.strip()} for parts in fitting]


def _split(contents: Sequence[str]) -> list[list[str]]:
    return [passages.split(content) for content in contents]


def _grouped(contents: list[list[_Sized]], limit: int) -> list[list[str]]:
    """The passages of each content, blank ones left out."""
    return [
        [
            text
            for text in passages.group([text for text, _ in units], [min(tokens, limit) for _, tokens in units], limit)
            if text.strip()
        ]
        for units in contents
    ]


async def _halved(contents: list[list[str]], embedder: Embedder, limit: int) -> list[list[_Sized]]:
    """The parts of each content with their sizes, those of more than ``limit`` tokens halved until they fit.

    A single character of more than ``limit`` tokens stays as it is.
    """
    parts = await _sized(contents, embedder)
    while any(_too_long(one, limit) for content in parts for one in content):
        # Only what was halved is counted anew.
        halves = await _sized(
            [[*passages.halves(one[0])] for content in parts for one in content if _too_long(one, limit)], embedder
        )
        made = iter(halves)
        parts = [
            [part for one in content for part in (next(made) if _too_long(one, limit) else (one,))] for content in parts
        ]
    return parts


def _too_long(one: _Sized, limit: int) -> bool:
    text, tokens = one
    return tokens > limit and len(text) > 1


async def _sized(contents: list[list[str]], embedder: Embedder) -> list[list[_Sized]]:
    """Each content's parts with their sizes, which are asked for all at once."""
    texts = [text for content in contents for text in content]
    sized = iter(list(zip(texts, await embedder.count_tokens(texts), strict=True)))
    return [list(islice(sized, len(content))) for content in contents]
