"""Judges all mutants by every invariant, in seconds: in several processes, and nothing that is pure computed twice.

The seeded texts of the checks are the same on each mutant, so their passages, terms and vectors are remembered. Checks
whose time goes by the size of what they store are run on less of it; ``full`` runs them as they are. An invariant that
uses nothing of what a mutant overrides is not run again, see ``reach``.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from types import ModuleType
from typing import Any
from unittest.mock import patch

from muniment import lexical, passages
from muniment.conformance import walk
from muniment.conformance.invariant import Outcome
from muniment.conformance.invariants import crowd, edits, orders
from muniment.conformance.mutants import MUTANTS
from muniment.conformance.mutants.core import Core
from muniment.conformance.mutants.mutant import SEED, Mutant, Plugin, outcomes, target_of
from muniment.conformance.mutants.provider import ProvidedEmbedder
from muniment.conformance.mutants.reach import Reached, reached_on
from muniment.engine import terms
from muniment.ports import Vector
from muniment.reference import HashEmbedder, ReferenceStorage

BASES: tuple[Plugin, ...] = (ReferenceStorage, ProvidedEmbedder, Core)
"""What mutants are subclasses of."""
_SIZES: tuple[tuple[ModuleType, str, int], ...] = (
    (crowd, "CROWD", 600),
    (edits, "EDITS", 60),
    (walk, "SEQUENCES", 40),
    (walk, "SHRINKINGS", 0),
    (walk, "SECONDS", 60),
)
_SAMPLE = 8
"""Random queries of RANK-01: of more, some would meet by chance what has invariants of its own."""

Ended = Mapping[str, Outcome]
"""How each invariant of a seat ended, by id."""


def judged(mutants: Sequence[Mutant] = MUTANTS, *, full: bool = False) -> Mapping[str, Ended]:
    """How every invariant ends on each mutant, by the mutant's name."""
    processes = min(os.cpu_count() or 1, len(mutants))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=partial(_prepare, full=full)) as workers:
        return dict(workers.map(_judge, [mutant.name for mutant in mutants]))


def _prepare(*, full: bool) -> None:
    """Make a process ready, for good."""
    logging.disable(logging.CRITICAL)
    _for_good.enter_context(computed_once())
    for module, name, size in () if full else _SIZES:
        setattr(module, name, size)
    orders.QUERIES = _SAMPLE


def _judge(name: str) -> tuple[str, Ended]:
    mutant = next(one for one in MUTANTS if one.name == name)
    return name, asyncio.run(_outcomes(mutant))


async def _outcomes(mutant: Mutant) -> Ended:
    base = next(base for base in BASES if issubclass(mutant.plugin, base))
    if base not in _reached:
        _reached[base] = await reached_on(base, target_of, SEED)
    return await outcomes(mutant, _reached[base])


_reached: dict[type[Any], Reached] = {}
_for_good = ExitStack()
"""Entered as long as the process lives."""


@contextmanager
def computed_once() -> Generator[None]:
    """While entered, passages, terms and vectors of a text that was seen before come from memory."""
    group, tokens, vector = passages.group, HashEmbedder.tokens, HashEmbedder.vector

    @cache
    def grouped(units: tuple[str, ...], counts: tuple[int, ...], limit: int) -> list[str]:
        return group(units, counts, limit)

    def in_tuples(units: Sequence[str], counts: Sequence[int], limit: int) -> list[str]:
        return grouped(tuple(units), tuple(counts), limit)

    @cache
    def counted(text: str) -> int:
        return tokens(HashEmbedder(), text)

    @cache
    def summed(text: str) -> Vector:
        return vector(HashEmbedder(), text)

    def tokens_of(_: HashEmbedder, text: str) -> int:
        return counted(text)

    def vector_of(_: HashEmbedder, text: str) -> Vector:
        return summed(text)

    replaced: tuple[tuple[Any, str, Any], ...] = (
        (passages, "split", cache(passages.split)),
        (passages, "halves", cache(passages.halves)),
        (passages, "group", in_tuples),
        (lexical, "analyse", cache(lexical.analyse)),
        (HashEmbedder, "tokens", tokens_of),
        (HashEmbedder, "vector", vector_of),
        (terms, "LONG_TEXT", 10**6),
    )
    with ExitStack() as entered:
        for owner, name, replacement in replaced:
            entered.enter_context(patch.object(owner, name, replacement))
        yield
