"""Making terms without keeping others waiting, and making those anew that were stored under another analyser."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from muniment import lexical
from muniment.ports import Storage

T = TypeVar("T")

BATCH = 64
LONG_TEXT = 4_000
"""Characters from which on analysing a text leaves the event loop."""


class StoredTerms:
    """The stored terms of all live memories, as far as they are not of this analyser."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def heal(self) -> int:
        """Analyse one batch of memories anew; how many were healed."""
        batch = await self._storage.outdated_terms(lexical.ANALYSER, limit=BATCH)
        healed = 0
        for memory in batch:
            terms = await asyncio.to_thread(lexical.analyse, memory.content)
            healed += await self._storage.store_terms(memory.memory_id, memory.version, lexical.ANALYSER, terms)
        return healed


async def analyse(content: str) -> lexical.Terms:
    """A content's terms; a long text is analysed off the event loop."""
    if len(content) < LONG_TEXT:
        return lexical.analyse(content)
    return await asyncio.to_thread(lexical.analyse, content)


async def analyse_beside(content: str | None, loading: Coroutine[Any, Any, T]) -> tuple[T, lexical.Terms | None]:
    """What ``loading`` gives, and the terms of a short content, made while the storage is at work.

    A long content is left to ``analyse``: what is loaded may say that the caller is to be refused.
    """
    if content is None or len(content) >= LONG_TEXT:
        return await loading, None
    begun = asyncio.create_task(loading)
    try:
        await asyncio.sleep(0)
        terms = lexical.analyse(content)
    except BaseException:
        begun.cancel()
        await asyncio.wait([begun])
        raise
    return await begun, terms
